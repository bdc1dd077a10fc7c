"""Exempt requests and streams beside the limit: who is refused there can be seen."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette

from asgi_client import Client, answer_ok, scope_of
from gate_use import turns
from sluicegate import Gate, ManualClock, Reason, SemaphoreLimiter
from sluicegate import wsgi as sync
from sluicegate.asgi import LoadSheddingMiddleware, Rule
from sluicegate.fastapi import protect
from sluicegate.testing import assert_idle, use_clock
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sluicegate.asgi import Receive, Scope, Send

pytestmark = pytest.mark.timeout(20)

RULES = [Rule("/events", stream=True)]
PATHS = pytest.mark.parametrize(
    ("path", "name"), [("/healthz", "exempt"), ("/events", "streams")], ids=["exempt", "stream"]
)


class Face:
    """A middleware at which one exempt request and one stream may run at once."""

    shedding: Any

    def __init__(self, gate: Gate) -> None:
        raise NotImplementedError

    def ask(self, path: str, count: int) -> list[int | None]:
        """Ask while as many others run as may, and return what is answered."""
        raise NotImplementedError


class Asgi(Face):
    go: asyncio.Event

    def __init__(self, gate: Any) -> None:
        self.shedding = LoadSheddingMiddleware(
            self.serve, limit=gate, rules=RULES, max_streams=1, exempt_limit=1
        )

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.go.wait()
        await answer_ok(scope, receive, send)

    def ask(self, path: str, count: int) -> list[int | None]:
        async def main() -> list[int | None]:
            self.go = asyncio.Event()
            first = Client(self.shedding, scope_of(path))
            await turns()
            others = [Client(self.shedding, scope_of(path)) for _ in range(count)]
            await turns()
            self.go.set()
            assert await first.answer() == 200
            return [await other.answer() for other in others]

        return asyncio.run(main())


class Wsgi(Face):
    def __init__(self, gate: Any) -> None:
        self.shedding = sync.LoadSheddingMiddleware(
            self.serve, threads=4, gate=gate, rules=RULES, max_streams=1, exempt_limit=1
        )

    def serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [])
        return [b"ok"]

    def ask(self, path: str, count: int) -> list[int | None]:
        first: Any = self.shedding(environ(path), lambda *_: None)
        others = [call(self.shedding, environ(path)).status for _ in range(count)]
        first.close()
        return list(others)


FACES = pytest.mark.parametrize("face", [Asgi, Wsgi])


@pytest.fixture(name="clock")
def a_clock_that_stands_still() -> Iterator[ManualClock]:
    clock = ManualClock()
    with use_clock(clock):
        yield clock


@FACES
@PATHS
def test_who_is_refused_is_counted_and_told_in_the_log(
    face: type[Face], path: str, name: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sluicegate.gate")
    gate = Gate(2, name="api")
    asked = face(gate)
    caplog.clear()
    assert asked.ask(path, 3) == [503] * 3
    cap = getattr(asked.shedding, name)
    assert cap.snapshot().rejected == {Reason.LIMIT: 3}
    assert str(cap.snapshot()).startswith(f"api {name}: limit 1 (fixed)")
    assert gate.snapshot().admitted == 0
    clock.advance(6)
    asked.ask(path, 0)
    lines = [record for record in caplog.records if f"'api {name}'" in record.getMessage()]
    assert [line.levelname for line in lines] == ["WARNING", "INFO"]
    assert re.match(
        f"gate 'api {name}' began rejecting: reason=limit .* in_flight=1 limit=1.0",
        lines[0].getMessage(),
    )
    assert "rejected=3 of 3 (limit 3)" in lines[1].getMessage()
    assert_idle(gate, cap)


@FACES
@PATHS
def test_a_dry_run_refuses_nobody_and_counts_it(
    face: type[Face], path: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(2, dry_run=True)
    asked = face(gate)
    assert asked.ask(path, 3) == [200] * 3
    cap = getattr(asked.shedding, name)
    assert cap.snapshot().rejected == {Reason.LIMIT: 3}
    assert "began rejecting (dry run: all are admitted)" in caplog.text
    gate.update(dry_run=False)
    assert asked.ask(path, 3) == [503] * 3
    assert cap.snapshot().rejected == {Reason.LIMIT: 6}
    assert_idle(gate, cap)


def test_beside_a_limiter_that_is_no_gate_as_well(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asgi(SemaphoreLimiter(1, name="threads"))
    assert asked.ask("/healthz", 1) == [503]
    assert "gate 'threads exempt' began rejecting" in caplog.text


def test_the_kill_switch_lifts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_DISABLED", "1")
    for face in (Asgi, Wsgi):
        asked = face(Gate(2))
        assert asked.ask("/healthz", 3) == asked.ask("/events", 3) == [200] * 3


def test_of_an_application_it_is_in_the_state() -> None:
    gate = Gate(name="api")
    app = protect(Starlette(), gate=gate, exempt_limit=3, max_streams=4)
    shedding = app.state.sluicegate
    assert shedding.gate is gate
    assert (shedding.limiter, shedding.exempt.limit, shedding.streams.limit) == (gate, 3, 4)
    assert (shedding.exempt.name, shedding.streams.name) == ("api exempt", "api streams")
