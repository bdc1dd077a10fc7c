"""What the ASGI middleware adds to a request, in process: no server, no socket."""

from __future__ import annotations

import asyncio
import logging
from itertools import repeat
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from interleaved import Bench, Target
from peers import (
    HAS_CONCURRENCY_LIMITER,
    by_concurrency_limiter,
    by_slowapi,
    fill,
    resource_of,
)
from starlette.requests import HTTPConnection  # noqa: TC002 (FastAPI looks at it)

from sluicegate import Gate, KeyedTokenBucket
from sluicegate.asgi import LoadSheddingMiddleware, RateLimitMiddleware, client_ip
from sluicegate.fastapi import guard, protect, quota

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from interleaved import Group

    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send

LIMIT = 1_000
ADMITTED = Target(ns_over=1_000)
REFUSED = Target(ns=1_500)

SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "server": ("127.0.0.1", 8000),
    "client": ("127.0.0.1", 54321),
    "scheme": "http",
    "method": "GET",
    "root_path": "",
    "path": "/hello",
    "raw_path": b"/hello",
    "query_string": b"",
    "headers": [
        (b"host", b"127.0.0.1:8000"),
        (b"user-agent", b"bench"),
        (b"accept", b"*/*"),
    ],
}
PROXIED = {
    **SCOPE,
    "headers": [*SCOPE["headers"], (b"x-forwarded-for", b"198.51.100.7, 192.0.2.1")],
}


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(_message: Message) -> None:
    pass


# Each gate that is full would say that it began to reject.
logging.getLogger("sluicegate.gate").disabled = True

bench = Bench(
    "The ASGI middleware in process: one request, its answer sent to nobody",
    loops=("asyncio", "uvloop"),
)


def measured(
    group: Group,
    name: str,
    app: ASGIApp,
    status: int | None,
    target: Target | None = None,
    scope: dict[str, Any] = SCOPE,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Add a case that sends requests to *app*, which answers them with *status* or not at all."""

    async def run(times: int) -> None:
        prepare()
        await check(app, status)
        for _ in repeat(None, times):
            # A request has a scope and a state of its own, into which frameworks write.
            await app({**scope, "state": {}}, receive, send)

    # Its own code, so that the interpreter specialises it for this app alone.
    run.__code__ = run.__code__.replace()
    group.case(name, target)(run)


async def check(app: ASGIApp, expected: int | None) -> None:
    status = None

    async def note(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await app({**SCOPE, "state": {}}, receive, note)
    if status != expected:
        raise RuntimeError(f"expected {expected}, got {status}")


async def hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


async def nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    pass


class PassThrough:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class ByCounter:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.in_flight >= LIMIT:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        self.in_flight += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.in_flight -= 1


class BySemaphore:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.semaphore = asyncio.Semaphore(LIMIT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        async with self.semaphore:
            await self.app(scope, receive, send)


def fast(*dependencies: Callable[..., object]) -> FastAPI:
    app = FastAPI()

    @app.get("/hello", dependencies=[Depends(one) for one in dependencies])
    async def _() -> str:
        return "hello"

    return app


full = Gate(1, max_waiting=0)
# Held for as long as the bench runs.
held = full.try_acquire()

pure = bench.group("pure ASGI")
measured(pure, "hello", hello, 200)
measured(pure, "(an application that does nothing)", nothing, None)
measured(pure, "+ a middleware that does nothing", PassThrough(hello), 200)
measured(pure, "+ a counter in Python", ByCounter(hello), 200)
measured(pure, "+ asyncio.Semaphore", BySemaphore(hello), 200)
admitting = LoadSheddingMiddleware(hello, limit=LIMIT)
measured(pure, "+ LoadSheddingMiddleware, admitted", admitting, 200, ADMITTED)
refusing = LoadSheddingMiddleware(hello, limit=full)
measured(pure, "+ LoadSheddingMiddleware, refused", refusing, 503, REFUSED)

plenty = KeyedTokenBucket(1e9, burst=1e9)
spent = KeyedTokenBucket(1, per=1_000, burst=1)
spent.try_take("127.0.0.1")
limits = bench.group("a quota around pure ASGI")
measured(limits, "hello", hello, 200)
measured(limits, "+ a middleware that does nothing", PassThrough(hello), 200)
limited = RateLimitMiddleware(hello, bucket=plenty, key=client_ip())
measured(limits, "+ RateLimitMiddleware, admitted", limited, 200)
silent = RateLimitMiddleware(hello, bucket=plenty, key=client_ip(), headers=False)
measured(limits, "+ RateLimitMiddleware(headers=False), admitted", silent, 200)
behind = RateLimitMiddleware(hello, bucket=plenty, key=client_ip(trusted_hops=1))
measured(limits, "+ RateLimitMiddleware, behind a proxy", behind, 200, scope=PROXIED)
over = RateLimitMiddleware(hello, bucket=spent, key=client_ip())
measured(limits, "+ RateLimitMiddleware, refused", over, 429)


def fast_inside(limit: float | Gate) -> FastAPI:
    app = fast()
    app.add_middleware(LoadSheddingMiddleware, limit=limit)
    return app


bare = fast()

# More of them than fit in a few milliseconds: a microsecond is to be seen beside sixty.
served = bench.group("FastAPI, one async route", times=250)
measured(served, "FastAPI", bare, 200)
measured(served, "(the same again: what the noise is)", fast(), 200)
measured(served, "+ a middleware that does nothing, around it", PassThrough(bare), 200)
measured(served, "+ asyncio.Semaphore, around it", BySemaphore(bare), 200)
admitting = LoadSheddingMiddleware(bare, limit=LIMIT)
measured(served, "+ LoadSheddingMiddleware(app), admitted", admitting, 200, ADMITTED)
measured(served, "+ add_middleware(…), admitted", fast_inside(LIMIT), 200, ADMITTED)
measured(served, "+ protect(app), admitted", protect(fast(), limit=LIMIT), 200, ADMITTED)

shed = bench.group("FastAPI that is full")
measured(shed, "FastAPI that is not", bare, 200)
refusing = LoadSheddingMiddleware(bare, limit=full)
measured(shed, "+ LoadSheddingMiddleware(app), refused", refusing, 503, REFUSED)
measured(shed, "+ protect(app), refused", protect(fast(), limit=full), 503, REFUSED)
measured(shed, "+ add_middleware(…), refused", fast_inside(full), 503)


async def no_dependency(_connection: HTTPConnection) -> None:
    pass


async def yielding(_connection: HTTPConnection) -> AsyncIterator[None]:
    with gate.try_acquire():
        yield


gate = Gate(LIMIT, pressure=())
routes = bench.group("FastAPI, one async route with a limit of its own", times=250)
measured(routes, "FastAPI", bare, 200)
measured(routes, "+ a dependency that does nothing", fast(no_dependency), 200)
measured(routes, "+ quota(…), admitted", fast(quota(plenty, key=client_ip())), 200)
measured(routes, "+ guard(…), admitted", fast(guard(gate)), 200)
measured(routes, "+ the same gate in a dependency with yield", fast(yielding), 200)
measured(routes, "+ slowapi, admitted", by_slowapi("/hello", "1000000000/hour"), 200)
if HAS_CONCURRENCY_LIMITER:
    plain = by_concurrency_limiter("/hello", resource_of(LIMIT), 5)
    measured(routes, "+ fastapi-concurrency-limiter, admitted", plain, 200)

over_quota = by_slowapi("/hello", "1/hour")
asyncio.run(check(over_quota, 200))
closed = bench.group("FastAPI, one async route that is full, or its quota spent", times=250)
measured(closed, "FastAPI that is not", bare, 200)
measured(closed, "+ protect(app), refused", protect(fast(), limit=full), 503)
measured(closed, "+ guard(…), refused", protect(fast(guard(full)), limit=LIMIT), 503)
measured(closed, "+ quota(…), refused", protect(fast(quota(spent, key=client_ip()))), 429)
measured(closed, "+ slowapi, refused", over_quota, 429)
if HAS_CONCURRENCY_LIMITER:
    # Who finds no room waits for as long as it says: here for one turn of the event loop.
    busy = resource_of(1)
    after_a_turn = by_concurrency_limiter("/hello", busy, 0)
    name = "+ fastapi-concurrency-limiter, refused"
    measured(closed, name, after_a_turn, 503, prepare=lambda: fill(busy))


if __name__ == "__main__":
    bench.main()
