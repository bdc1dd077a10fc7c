"""What it costs to put an item into a queue and to get it out again."""

from __future__ import annotations

import asyncio
from itertools import repeat

import culsans
import janus
from interleaved import Bench, Target

from sluicegate import CoDelQueue

CAPACITY = 1_000

bench = Bench("A queue: put an item, get it", loops=("asyncio", "uvloop"))

now = bench.group("now: put_nowait(), get_nowait()")


@now.case("asyncio.Queue")
async def _(times: int) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(CAPACITY)
    for _ in repeat(None, times):
        queue.put_nowait(1)
        queue.get_nowait()


@now.case("CoDelQueue", Target(ratio=0.7))
async def _(times: int) -> None:
    queue: CoDelQueue[int] = CoDelQueue(CAPACITY, target=0.005)
    for _ in repeat(None, times):
        queue.put_nowait(1)
        queue.get_nowait()


@now.case("CoDelQueue, put with a deadline")
async def _(times: int) -> None:
    queue: CoDelQueue[int] = CoDelQueue(CAPACITY, target=0.005)
    for _ in repeat(None, times):
        queue.put_nowait(1, deadline=1.0)
        queue.get_nowait()


@now.case("janus.Queue")
async def _(times: int) -> None:
    queue: janus.Queue[int] = janus.Queue(CAPACITY)
    for _ in repeat(None, times):
        queue.async_q.put_nowait(1)
        queue.async_q.get_nowait()
    await queue.aclose()


@now.case("culsans.Queue")
async def _(times: int) -> None:
    queue: culsans.Queue[int] = culsans.Queue(CAPACITY)
    for _ in repeat(None, times):
        queue.async_q.put_nowait(1)
        queue.async_q.get_nowait()


wait = bench.group("without waiting: await put(), await get()")


@wait.case("asyncio.Queue")
async def _(times: int) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(CAPACITY)
    for _ in repeat(None, times):
        await queue.put(1)
        await queue.get()


@wait.case("CoDelQueue", Target(ratio=1.0))
async def _(times: int) -> None:
    queue: CoDelQueue[int] = CoDelQueue(CAPACITY, target=0.005)
    for _ in repeat(None, times):
        await queue.put(1)
        await queue.get()


@wait.case("CoDelQueue: await put(), async with take()")
async def _(times: int) -> None:
    queue: CoDelQueue[int] = CoDelQueue(CAPACITY, target=0.005)
    for _ in repeat(None, times):
        await queue.put(1)
        async with queue.take():
            pass


@wait.case("janus.Queue")
async def _(times: int) -> None:
    queue: janus.Queue[int] = janus.Queue(CAPACITY)
    for _ in repeat(None, times):
        await queue.async_q.put(1)
        await queue.async_q.get()
    await queue.aclose()


@wait.case("culsans.Queue")
async def _(times: int) -> None:
    queue: culsans.Queue[int] = culsans.Queue(CAPACITY)
    for _ in repeat(None, times):
        await queue.async_q.put(1)
        await queue.async_q.get()


both = bench.group("a producer and a consumer, 100 items of room", times=5_000)


@both.case("asyncio.Queue")
async def _(times: int) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(100)

    async def consume() -> None:
        for _ in repeat(None, times):
            await queue.get()

    consumer = asyncio.create_task(consume())
    for _ in repeat(None, times):
        await queue.put(1)
    await consumer


@both.case("CoDelQueue")
async def _(times: int) -> None:
    queue: CoDelQueue[int] = CoDelQueue(100, target=1.0, interval=20.0)

    async def consume() -> None:
        for _ in repeat(None, times):
            await queue.get()

    consumer = asyncio.create_task(consume())
    for _ in repeat(None, times):
        await queue.put(1)
    await consumer


@both.case("janus.Queue")
async def _(times: int) -> None:
    queue: janus.Queue[int] = janus.Queue(100)

    async def consume() -> None:
        for _ in repeat(None, times):
            await queue.async_q.get()

    consumer = asyncio.create_task(consume())
    for _ in repeat(None, times):
        await queue.async_q.put(1)
    await consumer
    await queue.aclose()


@both.case("culsans.Queue")
async def _(times: int) -> None:
    queue: culsans.Queue[int] = culsans.Queue(100)

    async def consume() -> None:
        for _ in repeat(None, times):
            await queue.async_q.get()

    consumer = asyncio.create_task(consume())
    for _ in repeat(None, times):
        await queue.async_q.put(1)
    await consumer


if __name__ == "__main__":
    bench.main()
