"""What came in time counts as in time, however late one looks."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate import CoDelQueue, ManualClock, SemaphoreLimiter, TokenBucket


class LateClock:
    """A clock that no timer follows: a loop that is blocked."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


def test_tokens_that_came_before_the_time_out_are_had() -> None:
    async def main() -> None:
        clock = LateClock()
        bucket = TokenBucket(10, burst=1, clock=clock)
        assert bucket.try_take()
        in_time = asyncio.create_task(bucket.take(timeout=0.5))
        too_late = asyncio.create_task(bucket.take(timeout=0.15))
        await asyncio.sleep(0)
        # The first token comes after 0.1 s, the second one after 0.2 s.
        clock.seconds = 0.6
        await in_time
        with pytest.raises(TimeoutError):
            await too_late

    asyncio.run(main())


def test_a_rest_that_was_over_before_the_time_out_is_over() -> None:
    async def main() -> None:
        clock = LateClock()
        limiter = SemaphoreLimiter(0.5, clock=clock)
        permit = await limiter.acquire()
        clock.seconds = 1.0
        permit.release()
        waits = asyncio.create_task(limiter.acquire(timeout=1.5))
        await asyncio.sleep(0)
        clock.seconds = 4.0
        (await waits).release()

    asyncio.run(main())


def test_a_newcomer_has_what_a_blocked_loop_was_granted() -> None:
    clock = ManualClock()
    limiter = SemaphoreLimiter(1, clock=clock)
    held = limiter.try_acquire()
    blocked = asyncio.new_event_loop()
    waiting = [blocked.create_task(take(limiter)) for _ in range(3)]
    turn(blocked)
    assert held
    held.release()
    clock.advance(0.06)
    with limiter.try_acquire() as permit:
        assert permit
        assert not limiter.try_acquire()
    for task in waiting:
        task.cancel()
    turn(blocked)
    blocked.close()
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


def test_who_joins_may_be_served_in_the_same_step() -> None:
    """A blocked loop is promised the item; whoever joins elsewhere takes it over."""
    clock = LateClock()
    queue: CoDelQueue[str] = CoDelQueue(10, target=5, interval=60, clock=clock)
    blocked = asyncio.new_event_loop()
    getters = [blocked.create_task(queue.get()) for _ in range(2)]
    turn(blocked)
    queue.put_nowait("item")
    clock.seconds = 1.0
    assert asyncio.run(get(queue)) == "item"
    for task in getters:
        task.cancel()
    turn(blocked)
    blocked.close()


def test_closing_under_many_is_no_more_than_telling_each() -> None:
    async def main() -> None:
        queue: CoDelQueue[int] = CoDelQueue(5, target=1)
        getters = [asyncio.create_task(queue.get()) for _ in range(20_000)]
        await asyncio.sleep(0)
        queue.close()
        # Quadratic it would take minutes.
        answers = await asyncio.wait_for(asyncio.gather(*getters, return_exceptions=True), 60)
        assert {type(answer).__name__ for answer in answers} == {"QueueClosed"}

    asyncio.run(main())


async def take(limiter: SemaphoreLimiter) -> None:
    (await limiter.acquire()).release()


async def get(queue: CoDelQueue[str]) -> str:
    return await queue.get(timeout=30)


def turn(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
