"""What an application under test does, and what it tells about it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from sluicegate import Gate, SemaphoreLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT = 2
# Longer than a test may take: what is never told to end does not outlive its test by much.
LONGEST = 60.0
# Of a stream: a test waits for its end.
LIFETIME = 0.25
WHAT_FAILS = "SLUICEGATE_CONFORMANCE_FAILS"

#: Set outside of the middleware, read by the handlers.
outside: ContextVar[str] = ContextVar("outside", default="")
#: Set by the handlers, read outside of the middleware and in background tasks.
inside: ContextVar[str] = ContextVar("inside", default="")


class PlannedError(Exception):
    """Raised by an application because its client asked for it."""


class Report:
    """Every request has a name, which its client chose in the query."""

    def __init__(self) -> None:
        self.limiter = SemaphoreLimiter(LIMIT)
        self.gate = Gate(LIMIT, name="gate", max_waiting=0)
        self.line = Gate(1, name="line", max_waiting=4, max_wait=30.0)
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.raised: dict[str, Exception] = {}
        #: By name, what one would like to know of a request.
        self.facts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.running: list[str] = []
        self.websockets = 0
        self._may_go: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @property
    def in_flight(self) -> int:
        return self.limiter.in_flight + self.gate.in_flight + self.line.in_flight

    @property
    def outcomes(self) -> dict[str, int]:
        """How many permits were given back, by outcome."""
        counts: Counter[str] = Counter()
        for limiter in (self.limiter, self.gate, self.line):
            counts.update({o.name: n for o, n in limiter.snapshot().outcomes.items()})
        return counts

    def __call__(self, name: str = "") -> dict[str, Any]:
        return {
            "in_flight": self.in_flight,
            "waiting": self.line.waiting,
            "running": len(self.running),
            "websockets": self.websockets,
            "outcomes": self.outcomes,
            **self.facts.get(name, {}),
        }

    # -- what the handlers call -----------------------------------------------------------

    def started(self, name: str) -> None:
        """Note that a handler runs, and what it sees."""
        self.facts[name].update(started=True, outside=outside.get())

    @asynccontextmanager
    async def working(self, name: str) -> AsyncIterator[None]:
        """Note how long a handler works, what ends it, and how many were in flight at its end."""
        self.started(name)
        self.running.append(name)
        try:
            yield
        except BaseException as error:
            self.facts[name]["ended_by"] = type(error).__name__
            raise
        finally:
            self.running.remove(name)
            self.facts[name]["in_flight_at_end"] = self.in_flight

    async def hold(self, name: str) -> str:
        """Work until told that it is enough."""
        async with self.working(name):
            await self.told(name)
        return "held"

    async def told(self, name: str) -> None:
        """Wait until `order` tells that this may go on."""
        async with asyncio.timeout(LONGEST):
            await self._may_go[name].wait()

    async def chunks(self, name: str, *, fails: bool = False) -> AsyncIterator[bytes]:
        """Give one chunk at once and the other one when told."""
        async with self.working(name):
            yield b"data: first\n\n"
            await self.told(name)
            if fails:
                raise self.failure(name)
            yield b"data: last\n\n"

    async def after(self, name: str) -> None:
        """Work after the response; the variable was set before it."""
        async with self.working(name):
            self.facts[name]["inside"] = inside.get()
            await self.told(name)

    def failure(self, name: str) -> Exception:
        """Make the exception which the outermost wrapper should see."""
        self.started(name)
        self.raised[name] = PlannedError(name)
        return self.raised[name]

    # -- what the client orders -----------------------------------------------------------

    def order(self, query: bytes | str) -> str:
        """Carry out an order: ?release=, ?cancel=, and ?release_all= for what failed tests left."""
        asked = parse_qs(query if isinstance(query, str) else query.decode())
        for name in asked.get("release", []):
            self._may_go[name].set()
        for name in asked.get("cancel", []):
            if name in self.tasks:
                self.tasks[name].cancel()
        if "release_all" in asked:
            for name in self.running:
                self._may_go[name].set()
        return "done"


report = Report()


def fail_if_told() -> None:
    """Fail at the start, where the environment says so."""
    if os.environ.get(WHAT_FAILS) == "startup":
        raise PlannedError("the start fails as planned")
