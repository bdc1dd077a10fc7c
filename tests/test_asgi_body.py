"""Bodies of requests that stop on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import pytest

from asgi_client import Client, answer_ok, scope_of
from gate_use import take, turns
from sluicegate import Gate
from sluicegate.asgi import LoadSheddingMiddleware, Rule
from sluicegate.testing import assert_idle
from virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from sluicegate.asgi import Message, Receive, Scope, Send
    from virtual_time import VirtualLoop

pytestmark = pytest.mark.timeout(20)

DISCONNECT = {"type": "http.disconnect"}
GONE = [
    {
        "type": "http.response.start",
        "status": 408,
        "headers": [(b"content-length", b"0"), (b"connection", b"close")],
    },
    {"type": "http.response.body", "body": b""},
]


def upload(path: str = "/upload", **over: Any) -> dict[str, Any]:
    return scope_of(path, "POST", {"content-length": "6"}, **over)


class Slow(Client):
    """Sends the parts of its body after so many seconds each, and nothing after the last one."""

    pauses: tuple[float, ...] = ()

    async def receive(self) -> Message:
        if not self.pauses and not self._gone.is_set():
            await self._gone.wait()
        pauses = self.pauses
        if pauses and pauses[0]:
            await asyncio.sleep(pauses[0])
        self.pauses = pauses[1:]
        return await super().receive()


def slow(app: LoadSheddingMiddleware, scope: Scope, *pauses: float, parts: int = 3) -> Slow:
    client = Slow(app, scope, [b"xy"] * parts)
    client.pauses = pauses
    return client


class Reading:
    """An application that reads all of a body, and answers it."""

    def __init__(self) -> None:
        self.read: list[Message] = []
        self.tasks = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.tasks = len(asyncio.all_tasks())
        while True:
            message = await receive()
            self.read.append(message)
            if not message.get("more_body", False):
                break
        await answer_ok(scope, receive, send)


def outcomes(gate: Gate) -> dict[str, int]:
    return {str(name): count for name, count in gate.snapshot().outcomes.items() if count}


KINDS: dict[str, dict[str, Any]] = {
    "at once": {},
    "by the whole look": {"rules": [Rule("/upload", operation="upload")]},
    "after a wait": {},
    "cancelling": {"cancel_on_disconnect": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_who_stops_in_the_middle_of_a_body_counts_as_gone(kind: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5, **KINDS[kind])
        held = take(gate) if kind == "after a wait" else None
        client = slow(middleware, upload(), 0)
        if held:
            await turns()
            assert gate.waiting == 1
            held.release()
        await client.task
        assert loop.time() == pytest.approx(5)
        assert client.sent == GONE
        assert [message["type"] for message in app.read] == ["http.request", "http.disconnect"]
        assert outcomes(gate) == ({"success": 1, "ignored": 1} if held else {"ignored": 1})
        assert_idle(gate)

    run_in_virtual_time(main)


def test_by_default_it_is_a_minute_and_it_can_be_switched_off() -> None:
    async def main(loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        client = slow(LoadSheddingMiddleware(app, gate=gate), upload(), 0)
        assert await client.answer() == 408
        assert loop.time() == pytest.approx(60)
        client = slow(LoadSheddingMiddleware(app, gate=gate, body_timeout=None), upload(), 0)
        await asyncio.sleep(1e6)
        assert gate.in_flight == 1
        client.leave()
        assert await client.answer() == 200

    run_in_virtual_time(main)


def test_a_body_may_be_slow_as_long_as_it_goes_on() -> None:
    async def main(loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        client = slow(middleware, upload(), 4.9, 4.9, 4.9)
        assert await client.answer() == 200
        assert loop.time() == pytest.approx(14.7)
        assert b"".join(message["body"] for message in app.read) == b"xyxyxy"
        assert_idle(gate)

    run_in_virtual_time(main)


@pytest.mark.parametrize("complete", [False, True])
def test_only_waiting_for_a_body_is_bounded(complete: bool) -> None:
    client: Any = None

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(100)
        read.append(await receive())
        if complete:
            # What is waited for now is that the client leaves.
            asyncio.get_running_loop().call_later(100, client.leave)
            read.append(await receive())
        await asyncio.sleep(100)
        await answer_ok(scope, receive, send)

    async def main(_loop: VirtualLoop) -> None:
        nonlocal client
        gate = Gate(1)
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        client = slow(middleware, upload(), 0, parts=1 if complete else 2)
        assert await client.answer() == 200
        assert read[1:] == ([DISCONNECT] if complete else [])
        assert_idle(gate)

    read: list[Message] = []
    run_in_virtual_time(main)


def test_after_its_answer_an_application_may_wait_for_a_client_to_leave() -> None:
    client: Any = None

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_ok(scope, receive, send)
        asyncio.get_running_loop().call_later(100, client.leave)
        await receive()

    async def main(_loop: VirtualLoop) -> None:
        nonlocal client
        gate = Gate(1)
        client = slow(LoadSheddingMiddleware(app, gate=gate, body_timeout=5), upload())
        assert await client.answer() == 200
        assert len(client.sent) == 2
        assert outcomes(gate) == {"success": 1}

    run_in_virtual_time(main)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("fails", [None, TimeoutError, LookupError])
def test_what_an_application_does_then_is_sent_to_nobody(begun: bool, fails: Any) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": []}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send(start)
        read.extend([await receive() for _ in range(3)])
        if fails:
            raise fails
        await answer_ok(scope, receive, send)

    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(1)
        client = slow(LoadSheddingMiddleware(app, gate=gate, body_timeout=5), upload(), 0)
        await asyncio.wait([client.task])
        assert isinstance(client.task.exception(), fails or type(None))
        assert read[1:] == [DISCONNECT] * 2
        # A server closes the connection of an answer that is not complete.
        assert client.sent == ([start] if begun else GONE)
        assert outcomes(gate) == {"ignored": 1}
        assert_idle(gate)

    read: list[Message] = []
    run_in_virtual_time(main)


def test_what_is_there_at_once_costs_no_timer_and_nothing_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        # The first one on a loop starts what tells whether it stands still.
        assert await Client(middleware, upload(), [b"xy"]).answer() == 200
        monkeypatch.setattr(loop, "call_at", lambda *_, **__: pytest.fail("a timer was set"))
        assert await Client(middleware, upload(), [b"xy"] * 3).answer() == 200
        assert app.tasks == 2

    run_in_virtual_time(main)


def test_who_is_cancelled_while_he_reads_is_cancelled() -> None:
    async def main(_loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        client = slow(LoadSheddingMiddleware(app, gate=gate, body_timeout=5), upload(), 0)
        await turns()
        client.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client.task
        assert client.sent == []
        assert_idle(gate)

    run_in_virtual_time(main)


def test_who_is_cancelled_while_the_server_takes_a_turn_is_cancelled() -> None:
    class Turning(Client):
        async def receive(self) -> Message:
            while not self._gone.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0)
            return await super().receive()

    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(1)
        client = Turning(LoadSheddingMiddleware(Reading(), gate=gate), upload())
        await turns()
        client.task.cancel()
        await turns()
        assert client.task.cancelled()
        assert_idle(gate)

    run_in_virtual_time(main)


def test_without_asyncio_nothing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("asgi", "_asgi_run", "_asgi_body"):
        monkeypatch.setattr(f"sluicegate.{module}.is_asyncio", lambda: False)

    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(1)
        middleware = LoadSheddingMiddleware(Reading(), gate=gate, body_timeout=5)
        assert await slow(middleware, upload(), 9, 9, 9).answer() == 200
        assert_idle(gate)

    run_in_virtual_time(main)


def test_who_gives_up_a_read_loses_nothing() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await receive()
        parts.extend([(await receive())["body"], (await receive())["body"]])
        await answer_ok(scope, receive, send)

    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(1)
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        client = slow(middleware, upload(), 3, 3, parts=2)
        assert await client.answer() == 200
        assert parts == [b"xy"] * 2

    parts: list[bytes] = []
    run_in_virtual_time(main)


class Swallowing(Client):
    """Of a server whose `receive()` ends in its own way when it is cancelled."""

    async def receive(self) -> Message:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return {"type": "http.request", "body": b"late", "more_body": False}


def test_what_comes_in_the_last_moment_is_not_lost() -> None:
    async def main(_loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        assert await Swallowing(middleware, upload()).answer() == 200
        assert [message["body"] for message in app.read] == [b"late"]

    run_in_virtual_time(main)


def test_a_time_out_of_the_servers_own_is_its_own() -> None:
    class Failing(Client):
        async def receive(self) -> Message:
            await asyncio.sleep(1)
            raise TimeoutError

    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(1)
        middleware = LoadSheddingMiddleware(Reading(), gate=gate, body_timeout=5)
        client = Failing(middleware, upload())
        with pytest.raises(TimeoutError):
            await client.task
        assert client.sent == []
        assert_idle(gate)

    run_in_virtual_time(main)


def test_a_server_that_knows_of_it_first_takes_no_answer() -> None:
    class Closed(Slow):
        async def send(self, message: Message) -> None:
            self.sent.append(message)
            raise ConnectionResetError

    async def main(_loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        client = Closed(LoadSheddingMiddleware(app, gate=gate, body_timeout=5), upload())
        await client.task
        assert app.read == [DISCONNECT]
        assert outcomes(gate) == {"ignored": 1}

    run_in_virtual_time(main)


@pytest.mark.parametrize(
    ("scope", "bounded"),
    [
        (upload(), True),
        (scope_of(method="POST", headers={"transfer-encoding": "chunked"}), True),
        (scope_of(method="POST", http_version="2"), True),
        (scope_of(method="POST", http_version="1.0"), False),
        (scope_of(method="POST", headers={"content-length": "0"}), False),
        (scope_of(), False),
        (scope_of(http_version="2"), False),
    ],
)
def test_what_has_a_body(scope: Scope, bounded: bool) -> None:
    async def main(_loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        client = slow(LoadSheddingMiddleware(app, gate=gate, body_timeout=5), scope)
        await asyncio.sleep(10)
        assert client.status == (408 if bounded else None)
        if bounded:
            # HTTP/2 has no connections to be closed for that.
            assert len(client.sent[0]["headers"]) == (1 if scope["http_version"] == "2" else 2)
        client.leave()
        await client.task
        assert_idle(gate)

    run_in_virtual_time(main)


def test_streams_read_for_as_long_as_they_like() -> None:
    async def main(_loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        rules = [Rule("/upload", stream=True)]
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5, rules=rules)
        client = slow(middleware, upload(), 100, 100)
        await asyncio.sleep(1000)
        client.leave()
        assert await client.answer() == 200
        assert len(app.read) == 3

    run_in_virtual_time(main)


@pytest.mark.parametrize("where", ["exempt", "degrade", "respond", "own limiter"])
def test_bodies_stop_for_nobody(where: str) -> None:
    class Own:
        held = 0

        def __enter__(self) -> Self:
            Own.held += 1
            return self

        def __exit__(self, *_: object) -> None:
            Own.held -= 1

        def try_acquire(self, _cost: int = 1, /) -> Any:
            return self

        acquire = try_acquire

    async def main(loop: VirtualLoop) -> None:
        app, gate = Reading(), Gate(1, max_waiting=0)
        options: dict[str, Any] = {"gate": gate, "body_timeout": 5}
        if where == "exempt":
            options["rules"] = [Rule("/upload", exempt=True)]
        elif where == "own limiter":
            options = {"limit": Own(), "body_timeout": 5}
        else:
            options[where] = lambda _scope, _rejection: app
        middleware = LoadSheddingMiddleware(app, **options)
        with gate.try_acquire():
            client = slow(middleware, upload(), 0)
            assert await client.answer() == 408
        assert loop.time() == pytest.approx(5)
        assert client.sent == GONE
        assert_idle(gate, middleware.exempt, middleware.degraded)
        assert Own.held == 0

    run_in_virtual_time(main)


def test_who_gives_up_and_asks_again_waits_for_the_same_part() -> None:
    polls: list[float] = []

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while True:
            try:
                message = await asyncio.wait_for(receive(), 2)
            except TimeoutError:
                polls.append(asyncio.get_running_loop().time())
                continue
            if message["type"] == "http.disconnect":
                return

    async def main(loop: VirtualLoop) -> None:
        gate = Gate(1)
        client = slow(LoadSheddingMiddleware(app, gate=gate, body_timeout=5), upload(), 0)
        assert await client.answer() == 408
        assert polls == [pytest.approx(2), pytest.approx(4)]
        assert loop.time() == pytest.approx(5)
        assert_idle(gate)

    run_in_virtual_time(main)


def test_what_comes_while_the_loop_stands_still_is_in_time() -> None:
    class Coming(Client):
        async def receive(self) -> Message:
            await come.wait()
            return await super().receive()

    async def main(loop: VirtualLoop) -> None:
        gate, app = Gate(1), Reading()
        middleware = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        client = Coming(middleware, upload(), [b"whole"])
        await turns()
        loop.seconds += 20
        # In the same turn in which the time is over.
        loop.call_soon(come.set)
        assert await client.answer() == 200
        assert [message["body"] for message in app.read] == [b"whole"]
        assert_idle(gate)

    come = asyncio.Event()
    run_in_virtual_time(main)
