"""The load: arrivals by schedule, clients that give up and retry once, and what they saw.

The load is *open loop*: a request is sent when its time has come, whether or not earlier
ones have been answered. Users behave like that, and only so can a server fall behind.

The clients
    * wait 2 s for an attempt, then disconnect;
    * try again once after a time-out or an error, at once, like a user who taps "reload";
    * try again once after a refusal, when ``Retry-After`` says so and up to half of that later,
      so that they do not come back all at once; if it asks for more than their patience, they
      give up. Some HTTP clients for phones give up on any refusal that asks to wait; clients
      that come back are harder on the protected server.

Goodput
    An answer counts if an attempt was answered 200 within 2 s of the start of that attempt.
    It counts in the second in which it arrived. Goodput is the number of answers that count,
    per second. Late answers reach nobody: the client has disconnected.

Latency
    From the *scheduled* arrival of a request to its answer, over all of its attempts, the wait
    between them included, for the answers that count.

All instants are seconds of `time.monotonic`, all spans are seconds.
"""

import asyncio
import enum
import random
import time
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Final

import aiohttp
from yarl import URL

from sluicegate.demo import PATIENCE_SECONDS, DemoError
from sluicegate.demo.schedule import Schedule

ATTEMPTS: Final = 2
"""Attempts of one request: the first and one retry."""


@dataclass(frozen=True)
class Phase:
    """A stretch of constant load, counted once its first seconds are over."""

    name: str
    """What the report calls it."""
    rate: float
    """New requests per second, retries not included."""
    settle: float
    """Seconds of the same load before counting starts."""
    seconds: float
    """Seconds that are counted."""

    @property
    def length(self) -> float:
        """Seconds of load, counted or not."""
        return self.settle + self.seconds


class Ending(enum.Enum):
    """How one attempt ended, seen from the client."""

    ANSWERED = enum.auto()
    REFUSED = enum.auto()
    TIMED_OUT = enum.auto()
    FAILED = enum.auto()


@dataclass
class Tally:
    """Everything that the clients of one server saw, instant by instant."""

    arrivals: list[tuple[float, float]] = field(default_factory=list)
    """Scheduled instant of every new request, and how late it was really sent, in seconds."""
    answers: list[tuple[float, float, float]] = field(default_factory=list)
    """Instant of every answer that counts, its latency, and the part of its last attempt in it."""
    refusals: list[tuple[float, float]] = field(default_factory=list)
    """Instant of every refusal, and seconds from the start of its attempt."""
    timeouts: list[float] = field(default_factory=list)
    """Instants at which an attempt ran out of patience."""
    errors: list[float] = field(default_factory=list)
    """Instants at which an attempt failed in any other way."""
    retries: list[float] = field(default_factory=list)
    """Instants at which a second attempt was sent."""
    waiting: int = 0
    """Requests without an end so far."""


def poisson(rate: float, seconds: float, rng: random.Random) -> list[float]:
    """Draw the arrivals of a Poisson process, in seconds from its start."""
    gaps = iter(lambda: rng.expovariate(rate), None)
    return list(takewhile(lambda at: at < seconds, accumulate(gaps)))


def retry_after(header: str | None) -> float:
    """Seconds that a refusal asks to wait; 0 if it does not say so in seconds."""
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0


def new_session() -> aiohttp.ClientSession:
    """Make a client without a limit of its own and without anything that costs time."""
    return aiohttp.ClientSession(
        # Idle connections are dropped before the server does it (uvicorn: after 5 s), so that
        # no request is sent on one that is being closed.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS),
    )


class Load:
    """The clients of one server."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._session = session
        self._url = url
        self._patience = patience
        self._timeout = aiohttp.ClientTimeout(total=patience)
        self._schedule = Schedule()
        self._jitter = random.Random(0)  # noqa: S311 - not a secret
        self.tally = Tally()

    async def run(self, phases: list[Phase], *, start: float, seed: int) -> None:
        """Play the phases one after the other; return when the last client has its end."""
        rng = random.Random(seed)  # noqa: S311 - a repeatable schedule, not a secret
        async with asyncio.TaskGroup() as clients:
            for phase in phases:
                for offset in poisson(phase.rate, phase.length, rng):
                    clients.create_task(self.request(start + offset))
                start += phase.length

    async def request(self, due: float) -> None:
        """Be one client whose request was due at ``due``: at most one retry, then it is over."""
        tally = self.tally
        await self._schedule.until(due)
        tally.arrivals.append((due, max(0.0, time.monotonic() - due)))
        tally.waiting += 1
        try:
            for attempt in range(1, ATTEMPTS + 1):
                ending, wait = await self._attempt(due)
                if ending is Ending.ANSWERED or attempt == ATTEMPTS or wait > self._patience:
                    return
                if wait > 0:
                    wait *= self._jitter.uniform(1.0, 1.5)
                    await self._schedule.until(time.monotonic() + wait)
                tally.retries.append(time.monotonic())
        finally:
            tally.waiting -= 1

    async def _attempt(self, due: float) -> tuple[Ending, float]:
        """Send one attempt; return how it ended and how long to wait before the next one."""
        tally = self.tally
        wait = 0.0
        started = time.monotonic()
        try:
            async with self._session.get(self._url, timeout=self._timeout) as response:
                await response.read()
                if response.status == 200:
                    ending = Ending.ANSWERED
                elif response.status in {429, 503}:
                    ending = Ending.REFUSED
                    wait = retry_after(response.headers.get("Retry-After"))
                else:
                    ending = Ending.FAILED
        except TimeoutError:
            ending = Ending.TIMED_OUT
        except (aiohttp.ClientError, OSError):
            ending = Ending.FAILED
        now = time.monotonic()
        if ending is Ending.ANSWERED and now - started > self._patience:
            ending = Ending.TIMED_OUT
        match ending:
            case Ending.ANSWERED:
                tally.answers.append((now, now - due, now - started))
            case Ending.REFUSED:
                tally.refusals.append((now, now - started))
            case Ending.TIMED_OUT:
                tally.timeouts.append(now)
            case Ending.FAILED:
                tally.errors.append(now)
        return ending, wait


async def measure_capacity(
    session: aiohttp.ClientSession, url: URL, *, clients: int, seconds: float
) -> float:
    """Measure what a server attains when its pool never idles, in requests per second.

    ``clients``, more than there are connections, ask one request after the other (closed loop).
    They start spread over ``seconds`` / 4, in which nothing is counted yet: in step with each
    other they would be answered in batches, and the server is slower at those.
    """
    answered: list[float] = []
    begin = time.monotonic()

    async def client(delay: float) -> None:
        await asyncio.sleep(delay)
        while time.monotonic() < begin + 1.25 * seconds:
            async with session.get(url) as response:
                await response.read()
                if response.status != 200:
                    raise DemoError(f"the measurement was answered {response.status}")
            answered.append(time.monotonic())

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number / clients * seconds / 4))
    counted = [at for at in answered if at >= begin + seconds / 4]
    return (len(counted) - 1) / (counted[-1] - counted[0])
