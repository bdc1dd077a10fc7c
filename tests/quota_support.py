"""What the tests of quotas have in common: requests, an application, and what it answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sluicegate import KeyedTokenBucket, ManualClock
from sluicegate.asgi import RateLimitMiddleware

if TYPE_CHECKING:
    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY = {"type": "http.response.body", "body": b"ok"}


def request(path: str = "/work", user: str | None = "ann", **over: Any) -> dict[str, Any]:
    headers = [(b"host", b"test")] + ([(b"x-user", user.encode())] if user is not None else [])
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        **over,
    }


def websocket(*extensions: str, **over: Any) -> dict[str, Any]:
    scope = request(type="websocket", extensions={name: {} for name in extensions}, **over)
    del scope["method"]
    return scope


def user(scope: Scope) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), None)


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    await send(BODY)


async def must_not_run(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the application ran")


async def must_not_receive() -> Message:
    raise AssertionError("receive was called")


async def connect() -> Message:
    return {"type": "websocket.connect"}


def play(app: ASGIApp, scope: Scope) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def main() -> None:
        await app(scope, connect if scope["type"] == "websocket" else must_not_receive, send)

    asyncio.run(main())
    return sent


class Answer:
    def __init__(self, messages: list[Message]) -> None:
        start, *rest = messages
        assert [message["type"].removeprefix("websocket.") for message in messages] == [
            "http.response.start",
            "http.response.body",
        ]
        self.status = start["status"]
        self.names = [name for name, _ in start["headers"]]
        self.headers = dict(start["headers"])
        self.body = rest[0]["body"]


def ask(app: ASGIApp, scope: Scope | None = None) -> Answer:
    return Answer(play(app, request() if scope is None else scope))


def bucket(rate: float = 1, clock: ManualClock | None = None, **over: Any) -> KeyedTokenBucket:
    return KeyedTokenBucket(
        rate, **{"burst": 2, "name": "users", "clock": clock or ManualClock(), **over}
    )


def limited(quota: KeyedTokenBucket | None = None, **over: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(
        over.pop("app", answer_ok), bucket=quota or bucket(), **{"key": user, **over}
    )
