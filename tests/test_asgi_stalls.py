"""Requests that came while the event loop stood still, and whose clients have left meanwhile."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, Work, answer_ok, scope_of
from gate_use import take, turns
from sluicegate import Gate, SemaphoreLimiter, _heartbeat
from sluicegate.asgi import LoadSheddingMiddleware, Rule
from sluicegate.testing import assert_idle
from virtual_time import VirtualLoop, run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from sluicegate.asgi import Message, Receive, Scope, Send

pytestmark = pytest.mark.timeout(20)

DISCONNECT: dict[str, Any] = {"type": "http.disconnect"}


def time_of_this_loop() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def a_virtual_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("asgi", "_asgi_run", "_heartbeat"):
        monkeypatch.setattr(f"sluicegate.{module}.monotonic", time_of_this_loop)
    yield
    gc.collect()


def stall(loop: VirtualLoop, seconds: float = 3.0) -> None:
    loop.seconds += seconds


async def begin(app: LoadSheddingMiddleware, *paths: str) -> None:
    """Let there be traffic, as before a stall."""
    for path in paths or ("/before",):
        assert await Client(app, scope_of(path)).answer() == 200


class Working(Work):
    """Tells what it was called with, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.receives: list[Receive] = []
        self.go.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.receives.append(receive)
        await super().__call__(scope, receive, send)


class Leaving(Client):
    """Of a client that has left already, as the server finds out after so many turns of the loop.

    A server that tells things in their order tells of the body first.
    """

    after = 0
    in_order = False

    async def _run(self, app: Any, scope: Scope) -> None:
        task = asyncio.ensure_future(super()._run(app, scope))
        await turns(self.after)
        self.leave()
        await task

    async def receive(self) -> Message:
        if self.in_order and self._body:
            self.reads += 1
            part = self._body.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._body)}
        return await super().receive()


MIDDLEWARE: dict[str, Callable[[Work], LoadSheddingMiddleware]] = {
    "at once": lambda app: LoadSheddingMiddleware(app, gate=Gate(9)),
    "by the whole look": lambda app: LoadSheddingMiddleware(
        app, gate=Gate(9), rules=[Rule("/*", operation="x")]
    ),
    "semaphore": lambda app: LoadSheddingMiddleware(app, limit=SemaphoreLimiter(9)),
    "cancelling": lambda app: LoadSheddingMiddleware(app, gate=Gate(9), cancel_on_disconnect=True),
}
ways = pytest.mark.parametrize("way", MIDDLEWARE)


def outcomes(gate: Any) -> dict[str, int]:
    return {str(name): count for name, count in gate.snapshot().outcomes.items() if count}


@ways
@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("has_body", [False, True])
def test_after_a_stall_nobody_is_begun_who_has_left(
    way: str, after: int, in_order: bool, has_body: bool
) -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Working()
        app = MIDDLEWARE[way](work)
        limiter: Any = app.limiter
        await begin(app)
        stall(loop)
        headers = {"content-length": "3"} if has_body else {}
        scope = scope_of("/late", "POST", headers)
        client = Leaving(app, scope, [b"abc"] if has_body else None)
        client.after, client.in_order = after, in_order
        assert await client.answer() == 499
        assert work.begun == ["/before"]
        assert limiter.in_flight == 0
        if isinstance(limiter, Gate):
            assert outcomes(limiter) == {"success": 1, "ignored": 1}
        # Whoever is there is served.
        await begin(app, "/next")

    run_in_virtual_time(main)


@ways
@pytest.mark.parametrize("parts", [None, [b"abc"], [b"ab", b"c"], [b"a", b"b", b"c"]])
def test_after_a_stall_who_is_there_is_begun_and_loses_nothing(
    way: str, parts: list[bytes] | None
) -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Working()
        app = MIDDLEWARE[way](work)
        await begin(app)
        stall(loop)
        work.go.clear()
        post = scope_of("/late", "POST", {"content-length": "3"})
        client = Client(app, post if parts else scope_of("/late"), parts and [*parts])
        await turns(40)
        assert work.begun == ["/before", "/late"]
        # Of an upload no more is fetched than what the application asks for first.
        assert client.reads == (2 if parts is None or len(parts) == 1 else 1)
        work.go.set()
        assert await client.answer() == 200
        assert work.bodies[-1] == b"".join(parts or [])

    run_in_virtual_time(main)


@ways
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_who_has_left_in_the_middle_of_his_body_is_not_begun_either(way: str, after: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Working()
        app = MIDDLEWARE[way](work)
        await begin(app)
        stall(loop)
        scope = scope_of("/late", "POST", {"content-length": "6"})
        client = Leaving(app, scope, [b"abc", b"def"])
        client.after = after
        assert await client.answer() == 499
        assert work.begun == ["/before"]

    run_in_virtual_time(main)


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_who_is_granted_just_after_a_stall_is_looked_at_too(after: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        work, gate = Working(), Gate(1)
        app = LoadSheddingMiddleware(work, gate=gate)
        await begin(app)
        permit = take(gate)
        stall(loop)
        client = Leaving(app, scope_of("/late"))
        client.after = after
        await turns(2)
        assert gate.waiting == 1
        permit.release()
        assert await client.answer() == 499
        assert work.begun == ["/before"]
        assert_idle(gate)

    run_in_virtual_time(main)


def test_without_a_stall_nothing_is_read_and_nobody_stands_between() -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Working()
        app = LoadSheddingMiddleware(work, gate=Gate(9))
        await begin(app)
        # It beats ten times a second, and asks from time to time who is interested.
        for pause in (0.05, 0.1, 0.3, 5.0, 50.0, 500.0):
            await asyncio.sleep(pause)
            client = Client(app, scope_of("/now"))
            assert await client.answer() == 200
            assert client.reads == 1
            assert work.receives[-1] == client.receive
        # A loop may be a little late.
        stall(loop, 0.24)
        client = Client(app, scope_of("/now"))
        await client.answer()
        assert work.receives[-1] == client.receive

    run_in_virtual_time(main)


def test_it_is_looked_for_some_seconds_and_no_longer() -> None:
    async def main(loop: VirtualLoop) -> None:
        work = Working()
        app = LoadSheddingMiddleware(work, gate=Gate(9))
        await begin(app)
        for looks in (True, True, True, False):
            if looks:
                stall(loop, 0.5)
            await asyncio.sleep(1.9)
            client = Client(app, scope_of("/now"))
            await client.answer()
            assert (work.receives[-1] != client.receive) is looks
            await asyncio.sleep(0.2)

    run_in_virtual_time(main)


def test_streams_and_websockets_are_begun_as_ever() -> None:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        begun.append(scope["type"])
        if scope["type"] == "http":
            await answer_ok(scope, _receive, send)

    async def main(loop: VirtualLoop) -> None:
        middleware = LoadSheddingMiddleware(app, gate=Gate(9), rules=[Rule("/s", stream=True)])
        await begin(middleware)
        stall(loop)
        for scope in (scope_of("/s"), scope_of("/ws", type="websocket")):
            client = Client(middleware, scope)
            await client.task
            assert client.reads == 0

    begun: list[str] = []
    run_in_virtual_time(main)
    assert begun == ["http", "http", "websocket"]


def test_who_is_cancelled_while_he_is_looked_at_gives_the_permit_back() -> None:
    async def main(loop: VirtualLoop) -> None:
        for after in range(1, 8):
            work, gate = Working(), Gate(1)
            app = LoadSheddingMiddleware(work, gate=gate)
            await begin(app)
            stall(loop)
            work.go.clear()
            client = Client(app, scope_of("/late"))
            await turns(after)
            client.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await client.task
            await turns()
            assert client.parallel_reads == 0
            assert_idle(gate)

    run_in_virtual_time(main)


def test_one_middleware_may_serve_several_loops() -> None:
    work = Working()
    app = LoadSheddingMiddleware(work, gate=Gate(9))

    async def main(loop: VirtualLoop) -> None:
        # Time goes on.
        loop.seconds = ended[-1] + 1
        await begin(app)
        stall(loop)
        assert await Leaving(app, scope_of("/late")).answer() == 499
        await asyncio.sleep(50)
        client = Client(app, scope_of("/after"))
        assert await client.answer() == 200
        assert work.receives[-1] == client.receive
        ended.append(loop.seconds)

    ended = [0.0]
    for _ in range(3):
        run_in_virtual_time(main)
    assert work.begun == ["/before", "/after"] * 3


# -- the heartbeat ----------------------------------------------------------------------


def on_a_loop(main: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main(loop))
    finally:
        loop.close()


def test_a_stall_is_seen_before_the_next_beat_and_after_it() -> None:
    async def main(loop: VirtualLoop) -> None:
        heartbeat = _heartbeat.heartbeat_of(loop)
        # Nobody knows what was before.
        assert not heartbeat.is_late(loop)
        assert loop.time() < heartbeat.is_well_until
        stall(loop)
        assert loop.time() > heartbeat.is_well_until
        assert heartbeat.is_late(loop)
        await turns(3)
        assert loop.time() > heartbeat.is_well_until
        assert heartbeat.is_late(loop)
        await asyncio.sleep(2.2)
        assert not heartbeat.is_late(loop)
        assert loop.time() < heartbeat.is_well_until

    on_a_loop(main)


def test_it_stops_after_a_minute_that_nobody_asks_for_it() -> None:
    async def main(loop: VirtualLoop) -> None:
        heartbeat = _heartbeat.heartbeat_of(loop)
        for _ in range(2):
            assert not heartbeat.is_late(loop)
            await asyncio.sleep(50)
            stall(loop)
            assert heartbeat.is_late(loop)
            # A stall that nobody was there to notice is over.
            await asyncio.sleep(100)
            assert loop.time() > heartbeat.is_well_until
            assert not loop._scheduled  # type: ignore[attr-defined]
            stall(loop)

    on_a_loop(main)


def test_it_goes_on_as_long_as_requests_come() -> None:
    async def main(loop: VirtualLoop) -> None:
        app = LoadSheddingMiddleware(Working(), gate=Gate(9))
        for _ in range(300):
            await begin(app)
            for _ in range(5):
                await asyncio.sleep(0.1)
                assert loop._scheduled  # type: ignore[attr-defined]

    run_in_virtual_time(main)


def test_it_keeps_no_loop_alive() -> None:
    async def main(loop: VirtualLoop) -> None:
        assert not _heartbeat.heartbeat_of(loop).is_late(loop)
        loops.append(weakref.ref(loop))

    loops: list[weakref.ref[VirtualLoop]] = []
    on_a_loop(main)
    gc.collect()
    assert loops[0]() is None


def test_a_loop_that_is_well_says_nothing_about_another() -> None:
    async def serve(app: LoadSheddingMiddleware, path: str) -> None:
        assert await Client(app, scope_of(path)).answer() == 200

    work = Working()
    app = LoadSheddingMiddleware(work, gate=Gate(4))
    mine, other = VirtualLoop(), VirtualLoop()
    try:
        mine.run_until_complete(serve(app, "/mine"))
        other.run_until_complete(serve(app, "/other"))
        mine.run_until_complete(asyncio.sleep(0.05))
        stall(mine)
        other.seconds = mine.seconds
        other.run_until_complete(serve(app, "/other"))

        async def late() -> None:
            assert await Leaving(app, scope_of("/late")).answer() == 499

        mine.run_until_complete(late())
        assert "/late" not in work.begun
    finally:
        mine.close()
        other.close()


def test_a_loop_that_is_closed_is_not_one_of_several() -> None:
    async def serve() -> None:
        assert await Client(app, scope_of("/a")).answer() == 200

    app = LoadSheddingMiddleware(Working(), gate=Gate(4))
    for _ in range(3):
        loop = VirtualLoop()
        loop.run_until_complete(serve())
        # So that requests need not ask.
        assert app._runner.heartbeat.is_well_until > loop.seconds
        loop.close()
