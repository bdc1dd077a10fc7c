"""What it costs to take a permit and give it back when nobody has to wait."""

from __future__ import annotations

import asyncio
import threading
from itertools import repeat

import anyio
from interleaved import Bench, Target

from sluicegate import Gate, GradientLimiter, SemaphoreLimiter

LIMIT = 10

bench = Bench("A permit that is free: take it, give it back")

plain = bench.group("without `async with`")


@plain.case("asyncio.Semaphore: await acquire(), release()")
async def _(times: int) -> None:
    semaphore = asyncio.Semaphore(LIMIT)
    for _ in repeat(None, times):
        await semaphore.acquire()
        semaphore.release()


@plain.case("(the for loop alone)")
async def _(times: int) -> None:
    for _ in repeat(None, times):
        pass


@plain.case("anyio.CapacityLimiter: acquire_nowait(), release()")
async def _(times: int) -> None:
    limiter = anyio.CapacityLimiter(LIMIT)
    for _ in repeat(None, times):
        limiter.acquire_nowait()
        limiter.release()


@plain.case("threading.Semaphore: acquire(False), release()")
async def _(times: int) -> None:
    semaphore = threading.Semaphore(LIMIT)
    for _ in repeat(None, times):
        semaphore.acquire(False)
        semaphore.release()


@plain.case("SemaphoreLimiter: try_acquire().release()", Target(ratio=0.30))
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(LIMIT)
    for _ in repeat(None, times):
        limiter.try_acquire().release()  # type: ignore[union-attr]  # there is room


@plain.case("GradientLimiter: try_acquire().release()", Target(ratio=0.30))
async def _(times: int) -> None:
    limiter = GradientLimiter()
    for _ in repeat(None, times):
        limiter.try_acquire().release()  # type: ignore[union-attr]  # there is room


@plain.case("Gate: try_acquire().release()")
async def _(times: int) -> None:
    gate = Gate()
    for _ in repeat(None, times):
        gate.try_acquire().release()  # type: ignore[union-attr]  # there is room


@plain.case("SemaphoreLimiter: if permit := try_acquire(): permit.release()")
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(LIMIT)
    for _ in repeat(None, times):
        if permit := limiter.try_acquire():
            permit.release()


@plain.case("SemaphoreLimiter: with try_acquire():")
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(LIMIT)
    for _ in repeat(None, times):
        with limiter.try_acquire():
            pass


@plain.case("SemaphoreLimiter: (await acquire()).release()")
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(LIMIT)
    for _ in repeat(None, times):
        (await limiter.acquire()).release()


block = bench.group("by `async with`")


@block.case("asyncio.Semaphore")
async def _(times: int) -> None:
    semaphore = asyncio.Semaphore(LIMIT)
    for _ in repeat(None, times):
        async with semaphore:
            pass


class Nothing:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


@block.case("(a Python class that does nothing)")
async def _(times: int) -> None:
    nothing = Nothing()
    for _ in repeat(None, times):
        async with nothing:
            pass


@block.case("anyio.Semaphore(fast_acquire=True)")
async def _(times: int) -> None:
    semaphore = anyio.Semaphore(LIMIT, fast_acquire=True)
    for _ in repeat(None, times):
        async with semaphore:
            pass


@block.case("anyio.Semaphore")
async def _(times: int) -> None:
    semaphore = anyio.Semaphore(LIMIT)
    for _ in repeat(None, times):
        async with semaphore:
            pass


@block.case("anyio.CapacityLimiter")
async def _(times: int) -> None:
    limiter = anyio.CapacityLimiter(LIMIT)
    for _ in repeat(None, times):
        async with limiter:
            pass


@block.case("SemaphoreLimiter: async with acquire():", Target(ratio=0.35))
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(LIMIT)
    for _ in repeat(None, times):
        async with limiter.acquire():
            pass


@block.case("SemaphoreLimiter: async with acquire() as permit:", Target(ratio=0.50))
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(LIMIT)
    for _ in repeat(None, times):
        async with limiter.acquire() as _permit:
            pass


@block.case("Gate(64): async with acquire():")
async def _(times: int) -> None:
    gate = Gate(64)
    for _ in repeat(None, times):
        async with gate.acquire():
            pass


@block.case("Gate(): async with acquire():", Target(ratio=0.50))
async def _(times: int) -> None:
    gate = Gate()
    for _ in repeat(None, times):
        async with gate.acquire():
            pass


if __name__ == "__main__":
    bench.main()
