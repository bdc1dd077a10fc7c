"""What a request costs the server, over HTTP: uvicorn, one worker, on the loopback.

Each application has a server of its own. In a round each serves so many requests, one after the
other, in a new order; what is measured is the CPU time of the server's process, as the kernel
counts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from interleaved import Case, Group, Target, conditions, print_aligned
from peers import (
    HAS_CONCURRENCY_LIMITER,
    by_concurrency_limiter,
    by_slowapi,
    fill,
    resource_of,
)

from sluicegate import Gate, KeyedTokenBucket
from sluicegate.asgi import LoadSheddingMiddleware, RateLimitMiddleware, client_ip
from sluicegate.fastapi import protect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate.asgi import Receive, Scope, Send

ROUNDS = 31
REQUESTS = 2_000
CONNECTIONS = 8
ADMITTED = Target(ratio=1.03)
REFUSED = Target(ratio=1.15)

logging.getLogger("sluicegate.gate").disabled = True


async def hello(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def full() -> Gate:
    gate = Gate(1, max_waiting=0)
    _held.append(gate.try_acquire())
    return gate


_held: list[object] = []
_semaphore = asyncio.Semaphore(1_000)


async def by_semaphore(scope: Scope, receive: Receive, send: Send) -> None:
    async with _semaphore:
        await hello(scope, receive, send)


def api() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def _() -> str:
        return "hello"

    return app


admitted = LoadSheddingMiddleware(hello)
refused = LoadSheddingMiddleware(hello, gate=full())
fast = api()
fast_admitted = protect(api())
fast_refused = protect(api(), gate=full())
plenty, spent = KeyedTokenBucket(1e9, burst=1e9), KeyedTokenBucket(1, per=1e6, burst=1)
quota_admitted = RateLimitMiddleware(api(), bucket=plenty, key=client_ip())
quota_refused = RateLimitMiddleware(api(), bucket=spent, key=client_ip())
slowapi_admitted = by_slowapi("/", "1000000000/hour")
slowapi_refused = by_slowapi("/", "1/hour")
if HAS_CONCURRENCY_LIMITER:
    limiter_admitted = by_concurrency_limiter("/", resource_of(1_000), 5)
    busy = resource_of(1)
    fill(busy)
    # Who finds no room waits for as long as it says: here for one turn of the event loop.
    limiter_refused = by_concurrency_limiter("/", busy, 0)

SERVED: dict[str, list[tuple[str, str, list[str], Target | None]]] = {
    "pure ASGI": [
        ("hello", "hello", [], None),
        ("(the same again: what the noise is)", "hello", [], None),
        ("+ asyncio.Semaphore", "by_semaphore", [], None),
        ("+ LoadSheddingMiddleware, admitted", "admitted", [], ADMITTED),
        ("+ LoadSheddingMiddleware, refused", "refused", [], REFUSED),
        ("uvicorn --limit-concurrency 1, refused", "hello", ["--limit-concurrency=1"], None),
    ],
    "FastAPI, one async route": [
        ("FastAPI", "fast", [], None),
        ("+ protect(app), admitted", "fast_admitted", [], ADMITTED),
        ("+ protect(app), refused", "fast_refused", [], None),
        ("+ RateLimitMiddleware(app), admitted", "quota_admitted", [], None),
        ("+ RateLimitMiddleware(app), refused", "quota_refused", [], None),
        ("+ slowapi, admitted", "slowapi_admitted", [], None),
        ("+ slowapi, refused", "slowapi_refused", [], None),
    ],
}
if HAS_CONCURRENCY_LIMITER:
    SERVED["FastAPI, one async route"] += [
        ("+ fastapi-concurrency-limiter, admitted", "limiter_admitted", [], None),
        ("+ fastapi-concurrency-limiter, refused", "limiter_refused", [], None),
    ]


class Server:
    """One that is ours, with so many connections to it."""

    def __init__(self, process: subprocess.Popen[bytes], address: tuple[str, int]) -> None:
        self._process = process
        self._address = address

    def cpu_ns(self) -> int:
        # Of its main thread, in which the event loop runs.
        text = Path(f"/proc/{self._process.pid}/schedstat").read_text()
        return int(text.split()[0])

    async def ask(self, times: int) -> None:
        await asyncio.gather(*(self._ask_on_one(times // CONNECTIONS) for _ in range(CONNECTIONS)))

    async def _ask_on_one(self, times: int) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        for _ in range(times):
            writer.write(b"GET / HTTP/1.1\r\nhost: bench\r\naccept: */*\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            if b"connection: close" in head.lower():
                writer.close()
                reader, writer = await asyncio.open_connection(*self._address)
        writer.close()
        await writer.wait_closed()


@contextmanager
def serving(app: str, options: list[str]) -> Iterator[Server]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.set_inheritable(True)
        command = [sys.executable, "-m", "uvicorn", f"served:{app}", f"--fd={listener.fileno()}"]
        command += ["--no-access-log", "--log-level=critical", *options]
        process = subprocess.Popen(
            command, cwd=Path(__file__).parent, close_fds=False, env={**os.environ}
        )
        try:
            yield Server(process, listener.getsockname())
        finally:
            process.terminate()
            process.wait(10)


async def measure(case: Case, server: Server) -> None:
    begun = server.cpu_ns()
    await server.ask(REQUESTS)
    case.ns.append((server.cpu_ns() - begun) / REQUESTS)


async def nobody(_times: int) -> None:
    pass


async def main() -> None:
    groups = []
    with ExitStack() as stack:
        pairs: list[tuple[Case, Server]] = []
        for title, served in SERVED.items():
            group = Group(title, None)
            for name, app, options, target in served:
                case = Case(name, nobody, target)
                group.cases.append(case)
                pairs.append((case, stack.enter_context(serving(app, options))))
            groups.append(group)
        for _, server in pairs:
            await server.ask(REQUESTS)
        for _ in range(ROUNDS):
            random.shuffle(pairs)
            for case, server in pairs:
                await measure(case, server)
    print("\nA request over HTTP: the CPU time of the server (uvicorn, one worker)")
    print(conditions(ROUNDS, "CPU time of the server"))
    for group in groups:
        print(f"\n{group.title}")
        print_aligned(group.table())


if __name__ == "__main__":
    asyncio.run(main())
