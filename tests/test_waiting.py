"""Waiting in line on an event loop: order, cancellation at every await point, misuse."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from event_loops import KINDS, run_on
from sluicegate import ManualClock, Permit

if TYPE_CHECKING:
    from limiters import Limiter, New

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

pytestmark = pytest.mark.timeout(30)
TURNS = 6


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Run a coroutine on a loop of each kind."""
    return functools.partial(run_on, request.param)


def take(limiter: Limiter, cost: int = 1) -> Permit:
    permit = limiter.try_acquire(cost)
    assert isinstance(permit, Permit)
    return permit


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def is_whole(limiter: Limiter, capacity: int) -> None:
    """Check that nothing is lost: all of the capacity can be had, with and without waiting."""
    assert (limiter.in_flight, limiter.waiting) == (0, 0)
    async with asyncio.timeout(5), limiter.acquire(capacity):
        waiter = asyncio.ensure_future(limiter.acquire())
        await turns(2)
        assert limiter.waiting == 1
    async with asyncio.timeout(5):
        (await waiter).release()
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


def test_the_line_is_served_in_order_of_arrival(new: New, run: Run[None]) -> None:
    limiter = new(2)
    order: list[int] = []

    async def work(number: int) -> None:
        async with limiter.acquire():
            order.append(number)
            assert limiter.in_flight <= 2
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(50)))
        await is_whole(limiter, 2)

    run(main())
    assert order == list(range(50))


def test_try_acquire_overtakes_nobody(new: New, run: Run[None]) -> None:
    limiter = new(2)

    async def main() -> None:
        small = take(limiter)
        large = asyncio.ensure_future(limiter.acquire(2))
        await turns(2)
        assert limiter.waiting == 1
        assert not limiter.try_acquire(), "there is room for it, but a larger one stands before it"
        small.release()
        assert not limiter.try_acquire()
        (await large).release()
        await is_whole(limiter, 2)

    run(main())


def test_a_large_cost_is_not_starved_by_small_ones(new: New, run: Run[None]) -> None:
    limiter = new(4)
    order: list[str] = []

    async def work(name: str, cost: int) -> None:
        async with limiter.acquire(cost):
            order.append(name)
            assert limiter.in_flight <= 4 or (limiter.in_flight == cost)
            await turns(3)

    async def main() -> None:
        names = [("a", 3), ("b", 1), ("large", 9), ("c", 1), ("d", 4), ("e", 2), ("f", 2)]
        await asyncio.gather(*(work(name, cost) for name, cost in names))
        await is_whole(limiter, 4)

    run(main())
    assert order == ["a", "b", "large", "c", "d", "e", "f"]


@pytest.mark.parametrize(("limit", "runs"), [(1, 1), (9, 9), (10, 9), (4.5, 4)])
def test_a_raised_limit_admits_whom_it_makes_room_for_at_once(
    new: New, run: Run[None], limit: float, runs: int
) -> None:
    limiter = new(1)
    started: list[int] = []
    end = asyncio.Event()

    async def work(number: int) -> None:
        async with limiter.acquire():
            started.append(number)
            await end.wait()

    async def main() -> None:
        limiter.update(limit=0)
        tasks = [asyncio.create_task(work(number)) for number in range(9)]
        await turns(3)
        assert (limiter.waiting, started) == (9, [])
        limiter.update(limit=limit)
        assert limiter.in_flight == runs
        assert limiter.waiting == 9 - runs
        await turns(3)
        assert started == list(range(runs))
        limiter.update(limit=1)
        end.set()
        await asyncio.gather(*tasks)
        await is_whole(limiter, 1)

    run(main())


def test_a_lowered_limit_admits_nobody_until_enough_has_drained(new: New, run: Run[None]) -> None:
    limiter = new(10)

    async def main() -> None:
        permits = [take(limiter) for _ in range(10)]
        waiter = asyncio.ensure_future(limiter.acquire())
        await turns(2)
        limiter.update(limit=4)
        for in_flight in range(9, 3, -1):
            permits.pop().release()
            await turns(2)
            assert (limiter.in_flight, limiter.waiting) == (in_flight, 1)
        permits.pop().release()
        (await waiter).release()
        for permit in permits:
            permit.release()
        await is_whole(limiter, 4)

    run(main())


@pytest.mark.parametrize("idle", [0.0, 0.2])
def test_a_wait_lasts_as_long_as_it_may_and_no_longer(
    new: New, run: Run[None], idle: float
) -> None:
    limiter = new(1, name="api")

    async def main() -> None:
        with take(limiter):
            # What it did last must not matter.
            await asyncio.sleep(idle)
            begin = time.monotonic()
            with pytest.raises(TimeoutError, match=r'no permit of "api" within 0\.05 s|deadline'):
                await limiter.acquire(timeout=0.05)
            assert time.monotonic() - begin >= 0.049
        await is_whole(limiter, 1)

    run(main())


@pytest.mark.parametrize("idle", [0.0, 0.2])
def test_a_thread_waits_as_long_as_it_may_and_no_longer(new: New, idle: float) -> None:
    limiter = new(1, name="api")
    with take(limiter):
        time.sleep(idle)
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=r'no permit of "api" within 0\.05 s|deadline'):
            limiter.acquire_sync(timeout=0.05)
        assert 0.049 <= time.monotonic() - begin < 5
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


def test_a_permit_knows_how_long_it_waited(new: New) -> None:
    clock = ManualClock()
    limiter = new(1, clock=clock)

    async def main() -> None:
        first = take(limiter)
        waiter = asyncio.ensure_future(limiter.acquire(timeout=10))
        await clock.settle()
        await clock.settle(2.5)
        first.release()
        with await waiter as second:
            assert (first.waited, second.waited) == (0.0, 2.5)

    asyncio.run(main())


# Cancellation at every await point

ENDS: list[BaseException | None] = [
    asyncio.CancelledError(),
    GeneratorExit(),
    KeyboardInterrupt(),
    ValueError(),
    None,
]


def histories() -> Iterator[tuple[str, BaseException | None]]:
    """Steps of a program, with the release by another at some point, and then an end."""
    for length in range(7):
        for place in range(length + 1):
            steps = "s" * place + "r" + "s" * (length - place)
            for cut, end in itertools.product(range(len(steps) + 1), ENDS):
                yield steps[:cut], end


@pytest.mark.parametrize("has_next", [False, True])
def test_whatever_ends_a_program_at_whatever_step_loses_nothing(
    new: New, run: Run[None], has_next: bool
) -> None:
    async def program(limiter: Limiter) -> None:
        await asyncio.sleep(0)
        async with limiter.acquire():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def play(steps: str, end: BaseException | None) -> None:
        limiter = new(1)
        other = take(limiter)
        running = program(limiter)
        waits_for: asyncio.Future[None] | None = None
        after: Any = None
        for step in steps:
            if step == "r":
                other.release()
            elif waits_for is None or waits_for.done():
                try:
                    waits_for = running.send(None)
                except StopIteration:
                    break
            if has_next and after is None and limiter.waiting == 1:
                after = limiter.acquire().__await__()
                after.send(None)
        if end is None:
            running.close()
        else:
            with pytest.raises((type(end), RuntimeError)):
                running.throw(end)
        other.release()
        if after is not None:
            with pytest.raises(StopIteration) as done:
                after.send(None)
            assert limiter.in_flight == 1
            done.value.value.release()
        await is_whole(limiter, 1)

    async def main() -> None:
        count = 0
        for steps, end in histories():
            await play(steps, end)
            count += 1
        assert count > 400

    run(main())


async def plainly(limiter: Limiter, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with limiter.acquire():
        await body()


async def by_hand(limiter: Limiter, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    permit = await limiter.acquire()
    try:
        await body()
    finally:
        permit.release()


async def in_timeout(limiter: Limiter, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.timeout(60), limiter.acquire():
        await body()


async def in_wait_for(limiter: Limiter, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with await asyncio.wait_for(limiter.acquire(), 60):
        await body()


async def in_task_group(limiter: Limiter, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(plainly(limiter, body))
        group.create_task(plainly(limiter, body))


async def in_shield(limiter: Limiter, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await asyncio.shield(plainly(limiter, body))


@pytest.mark.parametrize(
    "way", [plainly, by_hand, in_timeout, in_wait_for, in_task_group, in_shield]
)
@pytest.mark.filterwarnings("ignore:a permit of:ResourceWarning")
def test_a_task_that_is_cancelled_in_any_turn_loses_nothing(
    new: New, run: Run[None], way: Any
) -> None:
    async def body() -> None:
        await turns(2)

    async def play(release_at: int, cancel_at: int, release_first: bool) -> None:
        limiter = new(1)
        other = take(limiter)
        task = asyncio.create_task(way(limiter, body))
        after = asyncio.create_task(turns(2))
        for turn in range(TURNS + 1):
            actions = [(release_at, other.release), (cancel_at, task.cancel)]
            for at, act in actions if release_first else reversed(actions):
                if at == turn:
                    act()
            if turn == 1:
                after = asyncio.create_task(plainly(limiter, body))
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.gather(task, after, return_exceptions=True)
            await turns(12 if way is in_shield else 3)
        del task
        assert after.exception() is None
        if way in (in_wait_for, in_shield) and limiter.in_flight:
            gc.collect()
        await is_whole(limiter, 1)

    async def main() -> None:
        for release_at, cancel_at in itertools.product(range(TURNS), range(TURNS)):
            await play(release_at, cancel_at, True)
            await play(release_at, cancel_at, False)

    run(main())


@pytest.mark.parametrize("way", ["timeout", "wait_for", "own"])
def test_a_timeout_in_the_same_turn_as_the_grant_loses_nothing(
    new: New, run: Run[None], way: str
) -> None:
    async def wait(limiter: Limiter, span: float) -> None:
        if way == "own":
            permit = await limiter.acquire(timeout=span)
        elif way == "wait_for":
            permit = await asyncio.wait_for(limiter.acquire(), span)
        else:
            async with asyncio.timeout(span):
                permit = await limiter.acquire()
        permit.release()

    async def main() -> None:
        event_loop = asyncio.get_running_loop()
        limiter = new(1)
        for number in range(60):
            other = take(limiter)
            waiters = [asyncio.create_task(wait(limiter, 0.002)) for _ in range(3)]
            event_loop.call_later(0.0015 + 0.00002 * number, other.release)
            results = await asyncio.gather(*waiters, return_exceptions=True)
            assert all(result is None or isinstance(result, TimeoutError) for result in results)
            other.release()
        await is_whole(limiter, 1)

    run(main())
