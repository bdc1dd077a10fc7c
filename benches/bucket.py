"""What it costs to take a token: that is there, that is not, and that comes in time."""

from __future__ import annotations

import asyncio
from itertools import repeat

from aiolimiter import AsyncLimiter
from interleaved import Bench, Target
from pyrate_limiter import Limiter, Rate

from sluicegate import KeyedTokenBucket, TokenBucket

PLENTY = 1e9
KEYS = [f"user-{number}" for number in range(1_000)]
# It keeps each take for a second, and a thread; so there is one for all rounds.
PYRATE = Limiter(Rate(10**9, 1_000))

bench = Bench("A token bucket", loops=("asyncio", "uvloop"))

asked = bench.group("a question that is answered at once")


class Empty:
    def method(self) -> None:
        pass


@asked.case("(an empty method of a Python class)")
async def _(times: int) -> None:
    empty = Empty()
    for _ in repeat(None, times):
        empty.method()


@asked.case("(a built-in method that does nothing)")
async def _(times: int) -> None:
    number = 0
    for _ in repeat(None, times):
        number.conjugate()


@asked.case("TokenBucket: try_take()", Target(ns_over=100))
async def _(times: int) -> None:
    bucket = TokenBucket(PLENTY)
    for _ in repeat(None, times):
        bucket.try_take()


@asked.case("TokenBucket: try_take(2.5)")
async def _(times: int) -> None:
    bucket = TokenBucket(PLENTY)
    for _ in repeat(None, times):
        bucket.try_take(2.5)


@asked.case("TokenBucket: try_take(), refused", Target(ns_over=100))
async def _(times: int) -> None:
    bucket = TokenBucket(1)
    for _ in repeat(None, times):
        bucket.try_take()


@asked.case("TokenBucket: retry_after()")
async def _(times: int) -> None:
    bucket = TokenBucket(1)
    bucket.try_take()
    for _ in repeat(None, times):
        bucket.retry_after()


@asked.case("KeyedTokenBucket: try_take(key), 1,000 keys")
async def _(times: int) -> None:
    bucket = KeyedTokenBucket(PLENTY)
    for number in range(times):
        bucket.try_take(KEYS[number % 1_000])


@asked.case("pyrate_limiter.Limiter: try_acquire(blocking=False)")
async def _(times: int) -> None:
    for _ in repeat(None, times):
        PYRATE.try_acquire("name", blocking=False)


there = bench.group("await a token that is there")


@there.case("aiolimiter.AsyncLimiter: await acquire()")
async def _(times: int) -> None:
    limiter = AsyncLimiter(PLENTY, 1)
    for _ in repeat(None, times):
        await limiter.acquire()


@there.case("(a Python coroutine that does nothing)")
async def _(times: int) -> None:
    async def nothing() -> None:
        pass

    for _ in repeat(None, times):
        await nothing()


@there.case("TokenBucket: await take()", Target(ratio=0.35))
async def _(times: int) -> None:
    bucket = TokenBucket(PLENTY)
    for _ in repeat(None, times):
        await bucket.take()


@there.case("TokenBucket: if not try_take(): await take()")
async def _(times: int) -> None:
    bucket = TokenBucket(PLENTY)
    for _ in repeat(None, times):
        if not bucket.try_take():
            await bucket.take()


@there.case("pyrate_limiter.Limiter: await try_acquire_async()")
async def _(times: int) -> None:
    for _ in repeat(None, times):
        await PYRATE.try_acquire_async("name")


# As many tasks as that come at once, to a rate that serves them in 5 ms.
comes = bench.group("await a token that comes, 1,000 tasks in line", times=1_000)


@comes.case("aiolimiter.AsyncLimiter: await acquire()")
async def _(times: int) -> None:
    limiter = AsyncLimiter(200, 0.001)
    await asyncio.gather(*(limiter.acquire() for _ in repeat(None, times)))


@comes.case("(asyncio.sleep(0.001))")
async def _(times: int) -> None:
    await asyncio.gather(*(asyncio.sleep(0.001) for _ in repeat(None, times)))


@comes.case("TokenBucket: await take()")
async def _(times: int) -> None:
    bucket = TokenBucket(200, per=0.001, burst=200)
    await asyncio.gather(*(bucket.take() for _ in repeat(None, times)))


if __name__ == "__main__":
    bench.main()
