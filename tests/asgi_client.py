"""A client of an ASGI application, played by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send


def scope_of(
    path: str = "/",
    method: str = "GET",
    headers: dict[str, str] | None = None,
    **over: Any,
) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in (headers or {}).items()
        ],
        **over,
    }


class Client:
    """Sends a request, hears the answer, and may leave."""

    def __init__(self, app: ASGIApp, scope: Scope, body: list[bytes] | None = None) -> None:
        self.sent: list[Message] = []
        self.reads = 0
        self.parallel_reads = 0
        self._body = [b""] if body is None else body
        self._gone = asyncio.Event()
        self.task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        await app(scope, self.receive, self.send)

    async def receive(self) -> Message:
        self.reads += 1
        self.parallel_reads += 1
        try:
            assert self.parallel_reads == 1, "two read at once"
            if self._body and not self._gone.is_set():
                part = self._body.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(self._body)}
            await self._gone.wait()
            return {"type": "http.disconnect"}
        finally:
            self.parallel_reads -= 1

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def leave(self) -> None:
        self._gone.set()

    @property
    def status(self) -> int | None:
        return next((message["status"] for message in self.sent if "status" in message), None)

    async def answer(self) -> int | None:
        await self.task
        return self.status


async def answer_ok(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


class Work:
    """An application that works until it is told to go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(scope["path"])
            raise
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        await answer_ok(scope, receive, send)
