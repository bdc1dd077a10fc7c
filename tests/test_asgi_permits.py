"""The ASGI middleware gives every permit back: exactly once, and when the work ends."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, scope_of
from gate_use import turns
from sluicegate import Gate, Outcome, SemaphoreLimiter
from sluicegate.asgi import LoadSheddingMiddleware
from sluicegate.testing import assert_idle

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send

SCOPE = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/work", "headers": []}


async def nothing() -> Message:
    return {"type": "http.disconnect"}


async def discard(message: Message) -> None:
    pass


class Pause:
    """Suspends once, outside of any event loop."""

    def __await__(self) -> Any:
        yield


def start(app: ASGIApp, limiter: SemaphoreLimiter) -> Coroutine[Any, Any, None]:
    return LoadSheddingMiddleware(app, limit=limiter)(dict(SCOPE), nothing, discard)


@pytest.fixture(name="limiter")
def two_with_one_taken() -> Any:
    # One permit stays out, so that giving back too much is seen as well.
    limiter = SemaphoreLimiter(2)
    permit = limiter.try_acquire()
    yield limiter
    assert limiter.in_flight == 1
    assert permit
    permit.release()
    assert limiter.in_flight == 0


FAILURES = [
    ValueError("wrong"),
    TimeoutError(),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    ExceptionGroup("several", [OSError()]),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("suspended", [False, True])
def test_a_failure_ends_the_permit_and_goes_on(
    failure: BaseException, suspended: bool, limiter: SemaphoreLimiter
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if suspended:
            await Pause()
        raise failure

    call = start(app, limiter)
    if suspended:
        call.send(None)
        assert limiter.in_flight == 2
    with pytest.raises(type(failure)) as info:
        call.send(None)
    assert info.value is failure
    assert limiter.in_flight == 1


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_what_is_thrown_in_ends_the_permit(
    failure: BaseException, limiter: SemaphoreLimiter
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Pause()

    call = start(app, limiter)
    call.send(None)
    assert limiter.in_flight == 2
    with pytest.raises(type(failure)):
        call.throw(failure)
    assert limiter.in_flight == 1


def test_closing_or_dropping_the_call_ends_the_permit(limiter: SemaphoreLimiter) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Pause()

    call = start(app, limiter)
    call.send(None)
    assert limiter.in_flight == 2
    call.close()
    assert limiter.in_flight == 1
    call = start(app, limiter)
    call.send(None)
    assert limiter.in_flight == 2
    del call
    assert limiter.in_flight == 1


def test_a_call_that_never_starts_takes_no_permit(limiter: SemaphoreLimiter) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("ran")

    call = start(app, limiter)
    assert limiter.in_flight == 1
    call.close()


def test_a_failed_send_of_a_refusal_takes_nothing() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("ran")

    async def broken(message: Message) -> None:
        raise OSError("the client has gone")

    limiter = SemaphoreLimiter(1)
    with limiter.try_acquire():
        call = LoadSheddingMiddleware(app, limit=limiter)(dict(SCOPE), nothing, broken)
        with pytest.raises(OSError, match="gone"):
            asyncio.run(call)
        assert limiter.in_flight == 1


def test_the_permit_outlives_the_response_while_work_goes_on(limiter: SemaphoreLimiter) -> None:
    async def main() -> None:
        answered, go = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"done", "more_body": False})
            answered.set()
            await go.wait()

        call = asyncio.create_task(start(app, limiter))
        await answered.wait()
        assert limiter.in_flight == 2
        go.set()
        await call
        assert limiter.in_flight == 1

    asyncio.run(main())


def test_a_client_that_leaves_does_not_end_the_permit(limiter: SemaphoreLimiter) -> None:
    async def main() -> None:
        told, go = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            assert (await receive())["type"] == "http.disconnect"
            told.set()
            await go.wait()

        call = asyncio.create_task(start(app, limiter))
        await told.wait()
        assert limiter.in_flight == 2
        go.set()
        await call

    asyncio.run(main())


def test_a_stream_holds_its_permit_to_the_end(limiter: SemaphoreLimiter) -> None:
    async def main() -> None:
        chunks: asyncio.Queue[bytes] = asyncio.Queue()
        seen: list[int] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while chunk := await chunks.get():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                seen.append(limiter.in_flight)
            await send({"type": "http.response.body", "body": b""})

        call = asyncio.create_task(start(app, limiter))
        for chunk in (b"a", b"b", b"c", b""):
            chunks.put_nowait(chunk)
            await asyncio.sleep(0)
        await call
        assert seen == [2, 2, 2]
        assert limiter.in_flight == 1

    asyncio.run(main())


def test_cancelling_the_task_ends_the_permit(limiter: SemaphoreLimiter) -> None:
    async def main() -> None:
        running = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            running.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(start(app, limiter))
        await running.wait()
        assert limiter.in_flight == 2
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert limiter.in_flight == 1

    asyncio.run(main())


def test_an_app_that_takes_its_time_to_be_cancelled_keeps_the_permit(
    limiter: SemaphoreLimiter,
) -> None:
    async def main() -> None:
        running, cleaning, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                running.set()
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await go.wait()

        call = asyncio.create_task(start(app, limiter))
        await running.wait()
        call.cancel()
        await cleaning.wait()
        assert limiter.in_flight == 2
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert limiter.in_flight == 1

    asyncio.run(main())


def test_random_cancellations_and_exceptions_lose_and_invent_no_permit(scale: float) -> None:
    chance = random.Random(20_251)
    limit, wave, waves = 64, 200, int(500 * scale)
    limiter = SemaphoreLimiter(limit)
    running = 0
    ended = {"returned": 0, "failed": 0, "cancelled": 0}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running
        running += 1
        try:
            for _ in range(chance.randrange(6)):
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    if chance.random() < 0.8:
                        raise
            if chance.random() < 0.3:
                raise chance.choice([ValueError, TimeoutError, asyncio.CancelledError, OSError])
        finally:
            running -= 1

    async def send(message: Message) -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        middleware = LoadSheddingMiddleware(app, limit=limiter)
        for _ in range(waves):
            calls = [
                asyncio.create_task(middleware(dict(SCOPE), nothing, send)) for _ in range(wave)
            ]
            waiting = set(calls)
            while waiting:
                await asyncio.sleep(0)
                assert running == limiter.in_flight <= limit
                waiting = {call for call in waiting if not call.done()}
                for call in chance.sample(calls, 15):
                    call.cancel()
            for call in calls:
                if call.cancelled():
                    ended["cancelled"] += 1
                else:
                    ended["failed" if call.exception() else "returned"] += 1

    asyncio.run(main())
    assert limiter.in_flight == 0
    assert sum(ended.values()) == waves * wave
    assert min(ended.values()) > waves * wave // 50, ended


@pytest.mark.parametrize("hold", ["work", "response"])
@pytest.mark.parametrize("way", ["returns", "cancelled"])
def test_an_answer_that_is_cut_off_is_no_sample(hold: Any, way: str) -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def main() -> None:
        gate = Gate(1)
        cancels = way == "cancelled"
        middleware = LoadSheddingMiddleware(app, gate=gate, hold=hold, cancel_on_disconnect=cancels)
        client = Client(middleware, scope_of())
        await turns()
        client.leave()
        assert await client.answer() == 200
        assert gate.snapshot().outcomes == {Outcome.IGNORED: 1}
        assert_idle(gate)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "parts", "outcome"),
    [
        ([], [b"whole"], Outcome.SUCCESS),
        ([], [b"", b""], Outcome.SUCCESS),
        ([], [], Outcome.IGNORED),
        # Of these the first byte is what is waited for, and its client leaves when it likes.
        ([(b"content-type", b"text/event-stream")], [], Outcome.SUCCESS),
    ],
)
def test_a_whole_answer_is_a_sample(
    headers: list[tuple[bytes, bytes]], parts: list[bytes], outcome: Outcome
) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, part in enumerate(parts, 1):
            more = number < len(parts)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    async def main() -> None:
        gate = Gate(1)
        await Client(LoadSheddingMiddleware(app, gate=gate), scope_of()).task
        assert gate.snapshot().outcomes == {outcome: 1}

    asyncio.run(main())
