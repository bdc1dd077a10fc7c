"""What it costs a task to wait for a permit that another task gives back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
from interleaved import Bench, Target

from sluicegate import Gate, SemaphoreLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

TASKS = 1_000
PERMITS = 10

bench = Bench(
    f"A permit that is handed on: {TASKS:,} tasks, {PERMITS} permits, one sleep(0) while holding",
    loops=("asyncio", "uvloop"),
)

tasks = bench.group("for each task", times=TASKS)


async def crowd(work: Callable[[], Coroutine[None, None, None]], size: int) -> None:
    await asyncio.gather(*[work() for _ in range(size)])


@tasks.case("asyncio.Semaphore")
async def _(times: int) -> None:
    semaphore = asyncio.Semaphore(PERMITS)

    async def work() -> None:
        async with semaphore:
            await asyncio.sleep(0)

    await crowd(work, times)


@tasks.case("(no limiter)")
async def _(times: int) -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    await crowd(work, times)


@tasks.case("anyio.Semaphore")
async def _(times: int) -> None:
    semaphore = anyio.Semaphore(PERMITS)

    async def work() -> None:
        async with semaphore:
            await asyncio.sleep(0)

    await crowd(work, times)


@tasks.case("anyio.CapacityLimiter")
async def _(times: int) -> None:
    limiter = anyio.CapacityLimiter(PERMITS)

    async def work() -> None:
        async with limiter:
            await asyncio.sleep(0)

    await crowd(work, times)


@tasks.case("SemaphoreLimiter: async with acquire():")
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(PERMITS)

    async def work() -> None:
        async with limiter.acquire():
            await asyncio.sleep(0)

    await crowd(work, times)


@tasks.case("Gate: async with acquire():", Target(ratio=1.0))
async def _(times: int) -> None:
    gate = Gate(PERMITS)

    async def work() -> None:
        async with gate.acquire():
            await asyncio.sleep(0)

    await crowd(work, times)


if __name__ == "__main__":
    bench.main()
