"""Clients that send at their times, give up, and try once more; what they saw.

The load is open: a request is sent when its time has come, whether or not earlier ones have been
answered. A client waits for `patience`, then closes its connection. After that, or after a
refusal, it asks once more at once, whatever `Retry-After` says: the worst that clients do.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = tuple[str, int]


@dataclass
class Attempt:
    """One request on the wire."""

    number: int
    sent: float
    ended: float = 0.0
    #: None if nobody answered in time, and -1 if the connection broke.
    status: int | None = None

    def is_answer(self) -> bool:
        return self.status == 200


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = bytes(self._received).partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._received.clear()
        self.body = body
        self._set(int(head.split(b" ", 2)[1]))

    def connection_lost(self, error: Exception | None) -> None:
        self._set(-1)

    def _set(self, status: int) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(status)

    def ask(self, path: str, headers: str) -> asyncio.Future[int]:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(f"GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n".encode())
        return self._answer


class Clients:
    """Many clients of one server; they share connections that are idle, as behind a proxy."""

    def __init__(self, address: Address, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._idle: list[_Connection] = []

    async def get(self, path: str, headers: str = "", *, number: int = 0) -> Attempt:
        return (await self._ask(path, headers, number))[0]

    async def body(self, path: str) -> bytes:
        attempt, body = await self._ask(path, "", 0)
        assert attempt.is_answer(), attempt
        return body

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.close()

    async def _ask(self, path: str, headers: str, number: int) -> tuple[Attempt, bytes]:
        attempt, connection = Attempt(number, time.monotonic()), None
        try:
            async with asyncio.timeout(self._patience):
                connection = self._take() or await self._connect()
                attempt.status = await connection.ask(path, headers)
        except TimeoutError:
            pass
        except OSError:
            attempt.status = -1
        except asyncio.CancelledError:
            if connection is not None:
                connection.transport.close()
            raise
        if connection is not None:
            if attempt.status is not None and attempt.status > 0:
                self._idle.append(connection)
            else:
                connection.transport.close()
        attempt.ended = time.monotonic()
        return attempt, b"" if connection is None or not attempt.is_answer() else connection.body

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, *self._address)
        return connection


_numbers = count(1)


async def load(
    clients: Clients, rate: float, seconds: float, headers: str = "", *, seed: int = 1
) -> list[Attempt]:
    """Send `rate` requests a second, and once more each that was not answered."""
    attempts: list[Attempt] = []

    async def request() -> None:
        for _ in range(2):
            number = next(_numbers)
            attempt = await clients.get(f"/work?number={number}", headers, number=number)
            attempts.append(attempt)
            if attempt.is_answer():
                return

    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for due in _arrivals(rate, seconds, seed):
            late = time.monotonic() - start - due
            if late < 0:
                await asyncio.sleep(-late)
            group.create_task(request())
    return attempts


def _arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    rng = random.Random(seed)
    due = rng.expovariate(rate)
    while due < seconds:
        yield due
        due += rng.expovariate(rate)


async def capacity(clients: Clients, at_once: int, seconds: float) -> float:
    """Return how many answers a second come if `at_once` clients ask one after the other."""
    answered: list[float] = []
    start = time.monotonic()

    async def client(delay: float) -> None:
        await asyncio.sleep(delay)
        while time.monotonic() < start + seconds:
            attempt = await clients.get("/work?number=0")
            if attempt.is_answer():
                answered.append(attempt.ended)
            else:
                await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for place in range(at_once):
            group.create_task(client(place / at_once * 0.2))
    counted = [ended for ended in answered if start + 0.5 <= ended <= start + seconds]
    return (len(counted) - 1) / (max(counted) - min(counted))
