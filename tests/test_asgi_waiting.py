"""Requests that wait in line: who is begun, who leaves, and what the application reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, Work, answer_ok, scope_of
from gate_use import turns
from sluicegate import Gate, Reason, SemaphoreLimiter, context
from sluicegate.asgi import LoadSheddingMiddleware, Rule
from sluicegate.testing import assert_idle
from virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sluicegate.asgi import Message, Receive, Scope, Send
    from virtual_time import VirtualLoop

pytestmark = pytest.mark.timeout(20)


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main(_loop: VirtualLoop) -> None:
            await test()

        run_in_virtual_time(main)

    run.__name__ = test.__name__
    return run


@in_virtual_time
async def test_who_finds_no_room_waits_and_is_served() -> None:
    work, gate = Work(), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    second = Client(app, scope_of("/2"))
    await turns()
    assert (work.begun, gate.waiting) == (["/1"], 1)
    work.go.set()
    assert [await first.answer(), await second.answer()] == [200, 200]
    assert work.begun == ["/1", "/2"]
    assert_idle(gate)


@in_virtual_time
async def test_who_leaves_while_he_waits_is_never_begun() -> None:
    work, gate = Work(), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    waiting = [Client(app, scope_of(f"/{number}")) for number in range(2, 5)]
    await turns()
    assert gate.waiting == 3
    waiting[1].leave()
    await turns()
    assert gate.waiting == 2
    # Nobody reads it: it is for middleware outside. The server is not told of a fault.
    assert await waiting[1].answer() == 499
    assert not waiting[1].task.cancelled()
    work.go.set()
    assert await first.answer() == 200
    assert [await waiting[0].answer(), await waiting[2].answer()] == [200, 200]
    assert work.begun == ["/1", "/2", "/4"]
    assert_idle(gate)


@in_virtual_time
async def test_who_has_left_with_a_body_to_send_is_not_begun_either() -> None:
    work, gate = Work(), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    post = scope_of("/2", "POST", {"content-length": "6"})
    stays = Client(app, post, [b"abc", b"def"])
    leaves = Client(app, {**post, "path": "/3"}, [b"abc", b"def"])
    await turns()
    # Nothing of an upload is fetched while it waits.
    assert (stays.reads, leaves.reads, gate.waiting) == (0, 0, 2)
    leaves.leave()
    work.go.set()
    assert [await one.answer() for one in (first, stays, leaves)] == [200, 200, 499]
    assert work.begun == ["/1", "/2"]
    assert work.bodies == [b"", b"abcdef"]
    assert_idle(gate)


@in_virtual_time
async def test_what_came_while_it_waited_is_there_for_the_application() -> None:
    read: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/2":
            read.append(await receive())
            ahead = asyncio.ensure_future(receive())
            await turns()
            assert not ahead.done()
            ahead.cancel()
            await turns()
            client.leave()
            read.extend([await receive(), await receive()])
        else:
            await go.wait()
        await answer_ok(scope, receive, send)

    go, gate = asyncio.Event(), Gate(1)
    middleware = LoadSheddingMiddleware(app, gate=gate)
    first = Client(middleware, scope_of("/1"))
    await turns()
    client = Client(middleware, scope_of("/2"))
    await turns()
    go.set()
    assert [await first.answer(), await client.answer()] == [200, 200]
    request = {"type": "http.request", "body": b"", "more_body": False}
    assert read == [request, {"type": "http.disconnect"}, {"type": "http.disconnect"}]
    assert_idle(gate)


@in_virtual_time
async def test_a_server_that_takes_no_answer_for_who_has_left_sees_no_fault() -> None:
    class Closed(Client):
        async def send(self, message: Message) -> None:
            raise ConnectionResetError

    work, gate = Work(), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    second = Closed(app, scope_of("/2"))
    await turns()
    second.leave()
    await second.task
    work.go.set()
    assert await first.answer() == 200
    assert_idle(gate)


@pytest.mark.parametrize("more", [True, False])
def test_a_server_may_tell_of_a_body_first_and_then_that_the_client_has_left(more: bool) -> None:
    class Queueing(Client):
        queue: list[Message]

        async def receive(self) -> Message:
            return self.queue.pop(0) if self.queue else await super().receive()

    async def main(_loop: VirtualLoop) -> None:
        work, gate = Work(), Gate(1)
        app = LoadSheddingMiddleware(work, gate=gate)
        first = Client(app, scope_of("/1"))
        await turns()
        second = Queueing(app, scope_of("/2", "POST", {"content-length": "3"}), [])
        request = {"type": "http.request", "body": b"abc", "more_body": more}
        second.queue = [request, {"type": "http.disconnect"}]
        await turns()
        work.go.set()
        assert await first.answer() == 200
        # Of an upload that is not complete one message is read, which the application asks for.
        assert await second.answer() == (200 if more else 499)
        assert work.begun == (["/1", "/2"] if more else ["/1"])
        assert_idle(gate)

    run_in_virtual_time(main)


@in_virtual_time
async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_line() -> None:
    work, gate = Work(), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    second = Client(app, scope_of("/2"))
    await turns()
    second.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second.task
    assert gate.waiting == 0
    work.go.set()
    assert await first.answer() == 200
    assert_idle(gate)


@in_virtual_time
async def test_a_task_that_is_cancelled_as_its_client_leaves_is_cancelled() -> None:
    work, gate = Work(), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    second = Client(app, scope_of("/2"))
    await turns()
    second.leave()
    second.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second.task
    work.go.set()
    assert await first.answer() == 200
    assert_idle(gate)


@in_virtual_time
async def test_who_leaves_as_he_is_granted_loses_no_permit() -> None:
    for leaves_after in range(6):
        work, gate = Work(), Gate(1)
        app = LoadSheddingMiddleware(work, gate=gate)
        first = Client(app, scope_of("/1"))
        await turns()
        second = Client(app, scope_of("/2"))
        await turns()
        work.go.set()
        await turns(leaves_after)
        second.leave()
        assert await first.answer() == 200
        assert await second.answer() in {499, 200}
        assert second.task.exception() is None
        assert_idle(gate)


@in_virtual_time
async def test_who_waits_for_too_long_is_refused() -> None:
    work, gate = Work(), Gate(1, max_wait=0.5)
    app = LoadSheddingMiddleware(work, gate=gate)
    first = Client(app, scope_of("/1"))
    await turns()
    second = Client(app, scope_of("/2"))
    assert await second.answer() == 503
    assert gate.snapshot().rejected[Reason.WAIT] == 1
    work.go.set()
    assert await first.answer() == 200
    assert_idle(gate)


@in_virtual_time
async def test_the_deadline_of_the_headers_bounds_the_wait_and_is_there_for_the_handler() -> None:
    left: list[float | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        left.append(context.remaining())
        if scope["path"] == "/1":
            await asyncio.sleep(0.3)
        await answer_ok(scope, receive, send)

    gate = Gate(1)
    middleware = LoadSheddingMiddleware(app, gate=gate)
    first = Client(middleware, scope_of("/1"))
    await turns()
    soon = Client(middleware, scope_of("/2", headers={"X-Request-Timeout-Ms": "100"}))
    late = Client(middleware, scope_of("/3", headers={"X-Request-Timeout-Ms": "1000"}))
    assert await soon.answer() == 503
    assert [await first.answer(), await late.answer()] == [200, 200]
    assert left == [None, pytest.approx(0.7, abs=0.01)]
    assert gate.snapshot().rejected[Reason.DEADLINE] == 1
    over = Client(middleware, scope_of("/4", headers={"X-Request-Timeout-Ms": "0"}))
    assert await over.answer() == 503
    assert len(left) == 2
    assert_idle(gate)


@in_virtual_time
async def test_a_gate_of_a_routes_own_is_asked_too_and_holds_nothing_of_the_other() -> None:
    work, gate, small = Work(), Gate(2), Gate(1)
    app = LoadSheddingMiddleware(work, gate=gate, rules=[Rule("/slow/*", gate=small)])
    clients = [Client(app, scope_of(f"/slow/{number}")) for number in range(2)]
    await turns()
    assert (gate.in_flight, small.in_flight, small.waiting) == (1, 1, 1)
    fast = Client(app, scope_of("/fast"))
    await turns()
    assert work.begun == ["/slow/0", "/fast"]
    clients[1].leave()
    await turns()
    assert small.waiting == 0
    work.go.set()
    assert [await clients[0].answer(), await fast.answer()] == [200, 200]
    assert await clients[1].answer() == 499
    assert_idle(gate, small)


@in_virtual_time
async def test_at_a_limiter_that_is_no_gate_nobody_waits() -> None:
    work, limiter = Work(), SemaphoreLimiter(1)
    app = LoadSheddingMiddleware(work, limit=limiter)
    first = Client(app, scope_of("/1"))
    await turns()
    assert await Client(app, scope_of("/2")).answer() == 503
    work.go.set()
    assert await first.answer() == 200
    assert limiter.in_flight == 0


@in_virtual_time
async def test_a_handler_goes_on_when_its_client_leaves() -> None:
    work, gate = Work(), Gate(1)
    client = Client(LoadSheddingMiddleware(work, gate=gate), scope_of("/1"))
    await turns()
    client.leave()
    await turns()
    assert gate.in_flight == 1
    work.go.set()
    await client.answer()
    assert work.cancelled == []
    assert_idle(gate)


@pytest.mark.parametrize("has_body", [False, True])
@pytest.mark.parametrize("has_waited", [False, True])
def test_a_handler_is_cancelled_if_that_is_wanted(has_body: bool, has_waited: bool) -> None:
    async def main(_loop: VirtualLoop) -> None:
        reads: list[bytes] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            message = await receive()
            reads.append(message["body"])
            await work(scope, receive, send)

        work, gate = Work(), Gate(1)
        middleware = LoadSheddingMiddleware(app, gate=gate, cancel_on_disconnect=True)
        permit: Any = gate.try_acquire() if has_waited else None
        headers = {"content-length": "3"} if has_body else {}
        client = Client(middleware, scope_of("/1", "POST", headers), [b"abc"] if has_body else None)
        await turns()
        if has_waited:
            assert gate.waiting == 1
            permit.release()
            await turns()
        assert work.begun == ["/1"]
        client.leave()
        assert await client.answer() is None
        assert (work.cancelled, reads) == (["/1"], [b"abc" if has_body else b""])
        assert_idle(gate)

    run_in_virtual_time(main)


@in_virtual_time
async def test_a_handler_that_takes_no_notice_of_being_cancelled_ends_as_usual() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await answer_ok(scope, receive, send)

    gate = Gate(1)
    middleware = LoadSheddingMiddleware(app, gate=gate, cancel_on_disconnect=True)
    client = Client(middleware, scope_of())
    await turns()
    client.leave()
    assert await client.answer() == 200
    assert client.task.cancelling() == 0
    assert_idle(gate)


@in_virtual_time
async def test_a_receive_that_fails_fails_the_application_and_not_the_wait() -> None:
    class BrokenError(Exception):
        pass

    async def broken() -> Any:
        raise BrokenError

    async def send(_message: Any) -> None:
        pass

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(BrokenError):
            await receive()
        seen.append(scope["path"])

    seen: list[str] = []
    gate = Gate(1)
    middleware = LoadSheddingMiddleware(app, gate=gate)
    permit: Any = gate.try_acquire()
    task = asyncio.ensure_future(middleware(scope_of("/1"), broken, send))
    await turns()
    assert gate.waiting == 1
    permit.release()
    await task
    assert seen == ["/1"]
    assert_idle(gate)


@in_virtual_time
async def test_after_a_complete_answer_no_client_has_left() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_ok(scope, receive, send)
        # As servers do, once the answer is complete.
        client.leave()
        await asyncio.sleep(1)
        done.append(scope["path"])

    done: list[str] = []
    gate = Gate(1)
    middleware = LoadSheddingMiddleware(app, gate=gate, cancel_on_disconnect=True)
    client = Client(middleware, scope_of("/order"))
    assert await client.answer() == 200
    assert done == ["/order"]
    assert_idle(gate)


@pytest.mark.parametrize("options", [{}, {"cancel_on_disconnect": True}])
def test_without_asyncio_nobody_waits_and_a_rule_is_kept(
    options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("asgi", "_streams", "_asgi_run", "_asgi_body"):
        monkeypatch.setattr(f"sluicegate.{module}.is_asyncio", lambda: False)

    async def main(_loop: VirtualLoop) -> None:
        gate, small, work = Gate(2), Gate(1), Work()
        rules = [
            Rule("/slow", gate=small, operation="slow"),
            Rule("/events", stream=True, max_lifetime=1),
        ]
        app = LoadSheddingMiddleware(work, gate=gate, rules=rules, **options)
        slow = Client(app, scope_of("/slow"))
        await turns()
        assert (gate.in_flight, small.in_flight) == (1, 1)
        assert await Client(app, scope_of("/slow")).answer() == 503
        other, stream = Client(app, scope_of("/other")), Client(app, scope_of("/events"))
        await turns()
        assert await Client(app, scope_of("/other")).answer() == 503
        work.go.set()
        assert [await client.answer() for client in (slow, other, stream)] == [200] * 3
        assert_idle(gate, small)

    run_in_virtual_time(main)
