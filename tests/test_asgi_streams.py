"""What stays open: websockets and streams, their cap, and their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, answer_ok, scope_of
from gate_use import turns
from sluicegate import Gate, Reason, context
from sluicegate.asgi import LoadSheddingMiddleware, Rule
from sluicegate.testing import assert_idle, rejecting
from virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from sluicegate import Rejection
    from sluicegate.asgi import Message, Receive, Scope, Send
    from virtual_time import VirtualLoop

pytestmark = pytest.mark.timeout(20)


def websocket(path: str = "/ws", *, denies: bool = False, **over: Any) -> dict[str, Any]:
    scope = scope_of(path, **over)
    del scope["method"]
    extensions: dict[str, Any] = {"websocket.http.response": {}} if denies else {}
    return {**scope, "type": "websocket", "extensions": extensions}


class Socket(Client):
    async def receive(self) -> Message:
        self.reads += 1
        if self.reads == 1:
            return {"type": "websocket.connect"}
        await self._gone.wait()
        return {"type": "websocket.disconnect", "code": 1005}


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def test_websockets_have_a_cap_of_their_own() -> None:
    async def main() -> None:
        gate = Gate(1)
        app = LoadSheddingMiddleware(echo, gate=gate, max_streams=2)
        sockets = [Socket(app, websocket()) for _ in range(2)]
        await turns()
        assert [socket.sent for socket in sockets] == [[{"type": "websocket.accept"}]] * 2
        assert gate.in_flight == 0
        refused = Socket(app, websocket())
        await refused.task
        assert refused.sent == [{"type": "websocket.close", "code": 1013}]
        sockets[0].leave()
        await sockets[0].task
        third = Socket(app, websocket())
        await turns()
        assert third.sent == [{"type": "websocket.accept"}]
        for socket in (sockets[1], third):
            socket.leave()
            await socket.task
        assert gate.snapshot().admitted == 0

    asyncio.run(main())


def test_where_the_server_can_a_websocket_is_refused_by_an_answer() -> None:
    async def main() -> None:
        told: list[tuple[Reason, int, float]] = []

        def tell(_scope: Scope, rejection: Rejection) -> None:
            told.append((rejection.reason, rejection.in_flight, rejection.limit))

        app = LoadSheddingMiddleware(
            echo, gate=Gate(name="api"), max_streams=1, on_reject=tell, respond=lambda *_: answer_ok
        )
        first = Socket(app, websocket())
        await turns()
        refused = Socket(app, websocket(denies=True))
        await refused.task
        start, body = refused.sent
        assert start["type"] == "websocket.http.response.start"
        assert start["status"] == 503
        assert dict(start["headers"])[b"retry-after"] in {b"1", b"2"}
        assert body["type"] == "websocket.http.response.body"
        assert body["body"].startswith(b'{"error":"overloaded"')
        assert told == [(Reason.STREAMS, 1, 1.0)]
        first.leave()
        await first.task

    asyncio.run(main())


def test_a_stream_takes_no_permit_and_is_no_sample() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(gate.in_flight)
        seen.append(context.current().criticality)
        await answer_ok(scope, receive, send)

    async def main() -> None:
        with rejecting(gate):
            client = Client(middleware, scope_of("/events", headers={"x-criticality": "sheddable"}))
            assert await client.answer() == 200
            assert await Client(middleware, scope_of("/other")).answer() == 503

    seen: list[Any] = []
    gate = Gate(1)
    middleware = LoadSheddingMiddleware(app, gate=gate, rules=[Rule("/events", stream=True)])
    asyncio.run(main())
    assert seen == [0, 0]
    assert gate.snapshot().service_mean == 0
    assert_idle(gate)


def test_a_stream_over_the_cap_is_refused() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await go.wait()
            await answer_ok(scope, receive, send)

        rules = [Rule("/events", stream=True)]
        middleware = LoadSheddingMiddleware(app, gate=Gate(), rules=rules, max_streams=1)
        first = Client(middleware, scope_of("/events"))
        await turns()
        assert await Client(middleware, scope_of("/events")).answer() == 503
        go.set()
        assert await first.answer() == 200
        assert await Client(middleware, scope_of("/events")).answer() == 200

    asyncio.run(main())


def run_to_its_end(
    app: Any, scope: Scope, kind: type[Client], rule: Rule, **options: Any
) -> tuple[float, Client]:
    found: list[tuple[float, Client]] = []

    async def main(loop: VirtualLoop) -> None:
        options.setdefault("gate", Gate())
        middleware = LoadSheddingMiddleware(app, rules=[rule], max_streams=1, **options)
        for _ in range(2):
            begun = loop.time()
            client = kind(middleware, scope)
            await client.task
            found.append((loop.time() - begun, client))

    run_in_virtual_time(main)
    return found[-1]


def test_a_stream_is_ended_after_its_lifetime() -> None:
    async def events(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(1)

    rule = Rule("/events", stream=True, max_lifetime=2.5)
    seconds, client = run_to_its_end(events, scope_of("/events"), Client, rule)
    assert seconds == pytest.approx(2.5)
    assert [message.get("more_body") for message in client.sent] == [None, True, True, True, False]


def test_a_stream_that_has_not_begun_by_then_is_refused() -> None:
    rule = Rule("/events", stream=True, max_lifetime=2.5)
    _, client = run_to_its_end(silent, scope_of("/events"), Client, rule)
    assert client.status == 503


async def silent(_scope: Scope, receive: Receive, _send: Send) -> None:
    await receive()
    await asyncio.sleep(3600)


async def teapot(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("option", ["respond", "degrade"])
def test_it_is_refused_as_all_others(option: str) -> None:
    told: list[tuple[str, Reason, int]] = []

    def tell(_scope: Scope, rejection: Rejection) -> None:
        told.append((rejection.gate, rejection.reason, rejection.status))

    rule = Rule("/events", stream=True, max_lifetime=2.5)
    options: dict[str, Any] = {option: lambda *_: teapot, "on_reject": tell}
    scope = scope_of("/events")
    _, client = run_to_its_end(silent, scope, Client, rule, gate=Gate(name="api"), **options)
    assert client.status == 418
    assert told == ([("api", Reason.WAIT, 503)] * 2 if option == "respond" else [])


@pytest.mark.parametrize("denies", [False, True])
def test_a_websocket_that_is_not_accepted_by_then_is_refused(denies: bool) -> None:
    told: list[Reason] = []

    def tell(_scope: Scope, rejection: Rejection) -> None:
        told.append(rejection.reason)

    rule = Rule("WEBSOCKET /ws", max_lifetime=60)
    scope = websocket(denies=denies)
    seconds, client = run_to_its_end(silent, scope, Socket, rule, on_reject=tell)
    assert seconds == pytest.approx(60)
    assert told == [Reason.WAIT] * 2
    if denies:
        assert client.status == 503
    else:
        assert client.sent == [{"type": "websocket.close", "code": 1013}]


@pytest.mark.parametrize(
    ("method", "headers", "is_ended"),
    [
        ("GET", [(b"content-length", b"3")], False),
        ("GET", ((b"Content-Length", b"3"),), False),
        ("GET", [(b"content-length", b"2")], True),
        ("GET", [(b"content-length", b"x")], True),
        ("GET", [(b"content-type", b"text/html")], True),
        ("HEAD", [(b"content-length", b"3")], True),
    ],
)
def test_one_that_announced_more_than_it_has_sent_is_left_incomplete(
    method: str, headers: Any, is_ended: bool
) -> None:
    async def download(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in (b"a", b"b"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(3600)

    rule = Rule("/events", stream=True, max_lifetime=2.5)
    scope = scope_of("/events", method)
    seconds, client = run_to_its_end(download, scope, Client, rule)
    assert seconds == pytest.approx(2.5)
    ended = [message for message in client.sent if message.get("more_body") is False]
    assert len(ended) == is_ended


def test_a_stream_that_is_over_by_then_is_left_alone() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_ok(scope, receive, send)
        await asyncio.sleep(3600)

    rule = Rule("/events", stream=True, max_lifetime=2.5)
    seconds, client = run_to_its_end(app, scope_of("/events"), Client, rule)
    assert seconds == pytest.approx(2.5)
    assert len(client.sent) == 2


def test_a_websocket_is_closed_after_its_lifetime() -> None:
    rule = Rule("WEBSOCKET /ws", max_lifetime=60)
    seconds, client = run_to_its_end(echo, websocket(), Socket, rule)
    assert seconds == pytest.approx(60)
    assert client.sent == [{"type": "websocket.accept"}, {"type": "websocket.close", "code": 1001}]


def test_a_time_out_of_the_applications_own_is_its_own() -> None:
    async def main(_loop: VirtualLoop) -> None:
        async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
            async with asyncio.timeout(1):
                await asyncio.sleep(3600)

        rules = [Rule("/events", stream=True, max_lifetime=60)]
        middleware = LoadSheddingMiddleware(app, gate=Gate(), rules=rules)
        with pytest.raises(TimeoutError):
            await Client(middleware, scope_of("/events")).task

    run_in_virtual_time(main)


def test_a_closed_gate_opens_no_streams() -> None:
    async def main() -> None:
        gate = Gate()
        app = LoadSheddingMiddleware(answer_ok, gate=gate, rules=[Rule("/events", stream=True)])
        assert await Client(app, scope_of("/events")).answer() == 200
        gate.close()
        assert await Client(app, scope_of("/events")).answer() == 503
        assert gate.snapshot().rejected[Reason.CLOSED] == 1
        assert_idle(gate)

    asyncio.run(main())


def test_a_dry_run_refuses_no_streams_and_no_probes() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await go.wait()
            await answer_ok(scope, receive, send)

        gate = Gate(dry_run=True)
        rules = [Rule("/events", stream=True)]
        middleware = LoadSheddingMiddleware(
            app, gate=gate, rules=rules, max_streams=1, exempt_limit=1
        )
        paths = ["/events", "/events", "/healthz", "/healthz"]
        clients = [Client(middleware, scope_of(path)) for path in paths]
        await turns()
        go.set()
        assert [await client.answer() for client in clients] == [200] * 4

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_who_does_not_read_is_ended_as_well(kind: str) -> None:
    class Deaf(Socket if kind == "websocket" else Client):  # type: ignore[misc]
        """Of a server that waits for its client to take what was sent."""

        async def send(self, message: Message) -> None:
            if len(self.sent) > 1:
                await asyncio.Event().wait()
            await super().send(message)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while True:
                await send({"type": "websocket.send", "text": "more"})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    async def main(loop: VirtualLoop) -> None:
        path = "WEBSOCKET /a" if kind == "websocket" else "/a"
        rule = Rule(path, stream=kind == "http", max_lifetime=5)
        middleware = LoadSheddingMiddleware(app, gate=Gate(1), rules=[rule])
        client = Deaf(middleware, websocket("/a") if kind == "websocket" else scope_of("/a"))
        await client.task
        assert loop.time() == pytest.approx(6)
        assert_idle(middleware.streams)

    run_in_virtual_time(main)


def test_a_last_part_that_did_not_get_through_ends_nothing() -> None:
    class Slow(Client):
        async def send(self, message: Message) -> None:
            if message.get("body") == b"last":
                await asyncio.Event().wait()
            await super().send(message)

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"last"})

    async def main(_loop: VirtualLoop) -> None:
        rule = Rule("/a", stream=True, max_lifetime=5)
        client = Slow(LoadSheddingMiddleware(app, gate=Gate(1), rules=[rule]), scope_of("/a"))
        assert await client.answer() == 200
        assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    run_in_virtual_time(main)


def test_a_websocket_whose_client_has_left_is_told_nothing() -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        assert (await receive())["type"] == "websocket.disconnect"
        await asyncio.sleep(100)

    async def main(loop: VirtualLoop) -> None:
        rule = Rule("WEBSOCKET /a", max_lifetime=5)
        client = Socket(LoadSheddingMiddleware(app, gate=Gate(1), rules=[rule]), websocket("/a"))
        await turns()
        client.leave()
        await client.task
        assert loop.time() == pytest.approx(5)
        assert client.sent == [{"type": "websocket.accept"}]

    run_in_virtual_time(main)
