"""The applications that test_asgi_server.py serves with uvicorn, in a process of its own."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from sluicegate import Gate, KeyedTokenBucket, SemaphoreLimiter
from sluicegate.asgi import LoadSheddingMiddleware, RateLimitMiddleware, Rule
from sluicegate.fastapi import protect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sluicegate.asgi import ASGIApp, Receive, Scope, Send


class Report:
    """What happened in the server, told at an exempt path."""

    def __init__(self) -> None:
        self.limiter = SemaphoreLimiter(4)
        self.gate = Gate(1, max_wait=60, name="logged")
        self.arrived = 0
        self.over = 0
        self.begun = 0
        self.running = 0
        self.peak = 0
        self.freed_after: float | None = None
        self.watching: asyncio.Task[None] | None = None

    def __call__(self) -> dict[str, Any]:
        return {
            "in_flight": self.limiter.in_flight,
            "waiting": self.gate.waiting,
            "arrived": self.arrived,
            "over": self.over,
            "begun": self.begun,
            "running": self.running,
            "peak": self.peak,
            "freed_after": self.freed_after,
        }

    async def watch(self) -> None:
        ended = time.monotonic()
        while self.limiter.in_flight:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0)
        self.freed_after = time.monotonic() - ended


def arrivals(app: ASGIApp) -> ASGIApp:
    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        counts = scope["type"] == "http" and scope["path"] == "/work"
        report.arrived += counts
        await app(scope, receive, send)
        report.over += counts

    return counted


report = Report()
api = FastAPI()
api.get("/metrics")(report)


@api.api_route("/work", methods=["GET", "POST"])
async def work(clients: int) -> None:
    """Works until that many clients have come, wherever they are by then."""
    report.begun += 1
    report.running += 1
    report.peak = max(report.peak, report.running)
    try:
        async with asyncio.timeout(20):
            while report.arrived < clients:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        report.running -= 1


@api.get("/stream")
async def stream() -> StreamingResponse:
    """Streams until the client has gone."""

    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"chunk"
                await asyncio.sleep(0.005)
        finally:
            report.watching = asyncio.create_task(report.watch())

    return StreamingResponse(chunks())


@api.get("/stall")
async def stall(port: int) -> None:
    """Stops the event loop until it is told to go on, and for half a second at least."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        time.sleep(0.5)  # noqa: ASYNC251 (that is the fault to be survived)
        connection.recv(1)


app = arrivals(LoadSheddingMiddleware(api, limit=report.limiter))
stalling = arrivals(
    LoadSheddingMiddleware(api, limit=SemaphoreLimiter(64), rules=[Rule("/stall", exempt=True)])
)


class Logging(BaseHTTPMiddleware):
    """Does nothing, as most of its kind do."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        """Goes on."""
        return await call_next(request)


logged = arrivals(Logging(LoadSheddingMiddleware(api, gate=report.gate)))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the method, the path and how long the body was."""
    if scope["type"] != "http":
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = f"{scope['method']} {scope['path']} {size}".encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# What stops on the way is given up soon.
bounded = LoadSheddingMiddleware(echo, limit=SemaphoreLimiter(1), body_timeout=0.2)

_full = SemaphoreLimiter(1)
_permit = _full.try_acquire()
full = LoadSheddingMiddleware(echo, limit=_full, rules=[Rule("/free", exempt=True)])


def user(scope: Scope) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), None)


# One request for each user, and the next in a quarter of an hour.
limited = RateLimitMiddleware(echo, bucket=KeyedTokenBucket(4, per=3600, name="users"), key=user)


async def download(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Announces more than it sends in its lifetime."""
    headers = [(b"content-length", b"10")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"begin", "more_body": True})
    await asyncio.Event().wait()


downloads = LoadSheddingMiddleware(
    download, limit=1, rules=[Rule("/download", stream=True, max_lifetime=0.1)]
)

# As people write it: the module holds a FastAPI application, and the environment its limit.
protected = protect(FastAPI())


@protected.get("/")
async def home(request: Request) -> dict[str, int]:
    """Asks the server, which has one permit, for a second one."""
    host, port = request.scope["server"]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    status = int((await reader.readline()).split()[1])
    writer.close()
    return {"second": status}
