"""Waiting for tokens on an event loop: order, time, cancellation at every point, misuse."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import pytest

from event_loops import KINDS, run_on
from sluicegate import ManualClock, Reason, TokenBucket

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Run a coroutine on a loop of each kind."""
    return functools.partial(run_on, request.param)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def empty(clock: ManualClock, rate: float = 10, burst: float = 1) -> TokenBucket:
    bucket = TokenBucket(rate, burst=burst, clock=clock)
    assert bucket.try_take(burst)
    return bucket


def test_the_line_is_served_in_order_and_at_its_rate(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock)
    started: list[tuple[int, float]] = []

    async def work(number: int) -> None:
        await bucket.take()
        started.append((number, clock.now()))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(work(number))
            await turns(2)
            assert bucket.waiting == 20
            for _ in range(40):
                await clock.settle(0.05)
        assert bucket.waiting == 0

    run(main())
    assert [number for number, _ in started] == list(range(20))
    assert [at for _, at in started] == pytest.approx([(1 + number) / 10 for number in range(20)])


def test_whoever_falls_due_within_one_step_of_the_clock_is_served(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock)

    async def main() -> None:
        tasks = [asyncio.create_task(bucket.take()) for _ in range(20)]
        await turns(2)
        await clock.settle(1.25)
        assert sum(task.done() for task in tasks) == 12
        await clock.settle(0.75)
        await asyncio.gather(*tasks)

    run(main())


def test_a_large_amount_is_not_starved_by_small_ones(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=5)
    order: list[float] = []

    async def work(n: float) -> None:
        await bucket.take(n)
        order.append(n)

    async def main() -> None:
        tasks = [asyncio.create_task(work(n)) for n in (1, 5, 0.5, 2)]
        await turns(2)
        for _ in range(8):
            await clock.settle(1)
            assert not bucket.try_take(0.1), "nobody overtakes"
        await clock.settle(1)
        await asyncio.gather(*tasks)

    run(main())
    assert order == [1, 5, 0.5, 2]


def test_retry_after_counts_those_who_wait(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=2, burst=4)

    async def main() -> None:
        tasks = [asyncio.create_task(bucket.take(n)) for n in (4, 3)]
        await turns(2)
        assert bucket.retry_after(1) == 4
        await clock.settle(3.999999999)
        assert not bucket.try_take(1)
        await clock.settle(1e-9)
        assert bucket.try_take(1)
        assert not bucket.try_take(1e-9)
        await asyncio.gather(*tasks)

    run(main())


def test_adjust_serves_whom_it_makes_room_for_and_holds_back_others(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=5)

    async def main() -> None:
        tasks = [asyncio.create_task(bucket.take(2)) for _ in range(3)]
        await turns(2)
        bucket.adjust(5)
        await turns(3)
        assert [task.done() for task in tasks] == [True, True, False]
        bucket.adjust(-11)
        await clock.settle(11.999)
        assert not tasks[2].done()
        await clock.settle(0.001)
        await tasks[2]

    run(main())


@pytest.mark.parametrize("when", [0.0, 0.5])
def test_a_new_rate_holds_for_those_who_wait(run: Run[None], when: float) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=2)

    async def main() -> None:
        tasks = [asyncio.create_task(bucket.take()) for _ in range(3)]
        await turns(2)
        await clock.settle(when)
        bucket.update(rate=0.01, burst=2)
        # Half a token came at the old rate; the rest comes a hundred times slower.
        await clock.settle((1 - when) * 100 - 0.001)
        assert not any(task.done() for task in tasks)
        await clock.settle(0.001)
        assert [task.done() for task in tasks] == [True, False, False]
        bucket.update(rate=1e9)
        await clock.settle(1e-9)
        assert [task.done() for task in tasks] == [True, True, False]
        bucket.update(burst=7)
        await clock.settle(1e-9)
        await asyncio.gather(*tasks)

    run(main())


def test_a_burst_lowered_below_what_somebody_waits_for(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=10)

    async def main() -> None:
        large = asyncio.create_task(bucket.take(8))
        small = asyncio.create_task(bucket.take(1))
        await turns(2)
        wish = bucket.take(8)
        bucket.update(burst=2)
        with pytest.raises(ValueError, match="got 8 with a burst of 2"):
            await wish
        await clock.settle(2)
        assert (large.done(), small.done()) == (True, False)
        assert bucket.tokens == -6
        await clock.settle(7)
        await asyncio.gather(large, small)

    run(main())


def test_a_timeout_names_the_bucket(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, burst=3, name="api", clock=clock)

    async def main() -> None:
        await bucket.take(3)
        task = asyncio.create_task(bucket.take(2.5, timeout=1.5))
        await turns(2)
        await clock.settle(1.499999999)
        assert not task.done()
        await clock.settle(1e-9)
        with pytest.raises(TimeoutError, match=r"no tokens of \"api\" \(n=2\.5\) within 1\.5 s"):
            await task
        with pytest.raises(TimeoutError, match=r"n=3.*within 0 s"):
            await bucket.take(3, timeout=0)
        await bucket.take(1.5, timeout=0)
        assert bucket.snapshot().rejected == {Reason.WAIT: 2}
        assert bucket.snapshot().admitted == 2

    run(main())


def test_who_cannot_be_served_in_time_waits_for_it_might_change(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=10)

    async def main() -> None:
        task = asyncio.create_task(bucket.take(10, timeout=1))
        await turns(2)
        assert bucket.retry_after(1) == 11
        bucket.adjust(10)
        await task

    run(main())


def test_the_time_out_of_the_first_lets_the_next_go(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=10)

    async def main() -> None:
        large = asyncio.create_task(bucket.take(10, timeout=2))
        small = asyncio.create_task(bucket.take(1))
        await turns(2)
        await clock.settle(1.5)
        assert not small.done()
        await clock.settle(0.5)
        await small
        with pytest.raises(TimeoutError):
            await large
        assert bucket.tokens == 1

    run(main())


@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout"])
@pytest.mark.parametrize("moment", ["before", "waiting", "granted", "after"])
def test_a_cancellation_at_any_point_loses_nothing(run: Run[None], how: str, moment: str) -> None:
    clock = ManualClock()
    bucket = empty(clock, rate=1, burst=2)

    async def work() -> None:
        if how == "wait_for":
            await asyncio.wait_for(bucket.take(), 100)
        elif how == "timeout":
            async with asyncio.timeout(100):
                await bucket.take()
        else:
            await bucket.take()

    async def main() -> None:
        task = asyncio.create_task(work())
        if moment != "before":
            await turns(3)
        next_one = asyncio.create_task(bucket.take())
        if moment != "before":
            await turns(1)
            assert bucket.waiting == 2
        if moment in ("granted", "after"):
            clock.advance(1)
            assert bucket.waiting == 1
        if moment == "after":
            await turns(8)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await turns(4)
        is_taken = not task.cancelled()
        # That of Python 3.11 does not pass a cancellation on that comes with the end.
        assert is_taken == (moment == "after") or (how, moment) == ("wait_for", "granted")
        # What was put back is the next one's.
        assert next_one.done() == (moment == "granted" and not is_taken)
        await clock.settle(1 + is_taken - clock.now())
        assert next_one.done()
        assert bucket.waiting == 0
        assert bucket.tokens == 0
        assert bucket.snapshot().admitted == 2 + is_taken

    run(main())


def test_everything_takes_it_for_a_coroutine(run: Run[None]) -> None:
    bucket = TokenBucket(1e6, burst=2)

    async def main() -> None:
        take: Callable[..., Coroutine[Any, Any, Any]] = bucket.take
        assert asyncio.iscoroutine(wish := take())
        assert inspect.isawaitable(wish)
        assert isinstance(wish, Coroutine)
        assert await asyncio.create_task(wish) is None
        assert not any(await asyncio.gather(take(), take(2), take()))
        assert await asyncio.wait_for(take(), 5) is None
        assert await asyncio.shield(take()) is None
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(take(2))
        assert await take() is None

    run(main())


def test_its_steps_are_those_of_a_generator() -> None:
    clock = ManualClock()
    bucket = empty(clock)

    async def main() -> None:
        wish: Any = bucket.take()
        steps = wish.__await__()
        assert iter(steps) is steps
        assert isinstance(next(steps), asyncio.Future)
        # Woken for nothing, it waits on, with its place kept.
        assert isinstance(next(steps), asyncio.Future)
        assert isinstance(steps.send(None), asyncio.Future)
        assert bucket.waiting == 1
        clock.advance(0.1)
        with pytest.raises(StopIteration) as done:
            steps.send(None)
        assert done.value.value is None
        for _ in range(2):
            with pytest.raises(RuntimeError):
                next(steps)
        clock.advance(0.1)
        with pytest.raises(StopIteration):
            next(bucket.take().__await__())

    asyncio.run(main())


@pytest.mark.parametrize("state", ["new", "waiting", "granted"])
@pytest.mark.parametrize("way", ["throw", "close"])
def test_what_is_thrown_into_it_comes_out_and_loses_nothing(state: str, way: str) -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, burst=1, clock=clock)
    error = ValueError("x")

    async def main() -> None:
        for number in range(3):
            bucket.adjust(-1)
            steps: Any = bucket.take().__await__()
            if state != "new":
                next(steps)
            if state == "granted":
                bucket.adjust(1)
                assert bucket.tokens == 0
            if way == "close":
                steps.close()
                steps.close()
            else:
                arguments = [(error,), (ValueError, error, None), (ValueError, "x")][number]
                with pytest.raises(ValueError, match="x"):
                    steps.throw(*arguments)
            if state != "granted":
                bucket.adjust(1)
            assert (bucket.tokens, bucket.waiting) == (1, 0)
            with pytest.raises(RuntimeError):
                next(steps)

    asyncio.run(main())


def test_it_is_awaited_once_and_says_so_if_never(
    run: Run[None], recwarn: pytest.WarningsRecorder
) -> None:
    bucket = TokenBucket(1000)

    async def main() -> None:
        wish = bucket.take()
        assert repr(wish) == "<take() (not awaited yet)>"
        await wish
        assert repr(wish) == "<take() (over)>"
        with pytest.raises(RuntimeError, match="can be used once; call take"):
            await wish
        bucket.take().close()
        gc.collect()
        assert not recwarn.list
        with pytest.warns(RuntimeWarning, match=r"take\(\) was never awaited"):
            bucket.take()  # type: ignore[unused-coroutine]

    run(main())
    assert bucket.snapshot().admitted == 1


def test_two_tasks_cannot_await_one_wait(run: Run[None]) -> None:
    clock = ManualClock()
    bucket = empty(clock)

    async def main() -> None:
        wish = bucket.take()
        first = asyncio.ensure_future(wish)
        await turns(2)
        with pytest.raises(RuntimeError, match="can be used once"):
            await wish
        await clock.settle(0.1)
        await first

    run(main())


def test_without_asyncio_it_takes_what_is_there_and_says_what_else_works() -> None:
    bucket = TokenBucket(1, burst=1, clock=ManualClock())
    with pytest.raises(StopIteration):
        bucket.take().send(None)
    with pytest.raises(RuntimeError, match=r"asyncio.*try_take\(\), or take_sync\(\)"):
        bucket.take().send(None)
    assert bucket.waiting == 0


def test_take_sync_is_refused_where_a_loop_runs(run: Run[None]) -> None:
    bucket = TokenBucket(1)

    async def main() -> None:
        for timeout in (None, 0, 1):
            with pytest.raises(RuntimeError, match=r"take_sync\(\) would block.*use await take"):
                bucket.take_sync(timeout=timeout)
        await asyncio.to_thread(bucket.take_sync)

    run(main())
    assert bucket.snapshot().admitted == 1


def test_it_waits_in_real_time_without_spinning(run: Run[None]) -> None:
    # Woken once for each token, and hardly more often.
    bucket = TokenBucket(200, burst=1)
    count = 0

    async def main() -> None:
        nonlocal count
        event_loop: Any = asyncio.get_running_loop()
        call_later = event_loop.call_later

        def counted(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            return call_later(*arguments)

        with contextlib.suppress(AttributeError):  # that of uvloop cannot be replaced
            event_loop.call_later = counted
        started = time.monotonic()
        await asyncio.gather(*(bucket.take() for _ in range(41)))
        # It cannot have been faster, whatever the machine does.
        assert time.monotonic() - started >= 40 / 200

    run(main())
    assert bucket.snapshot().admitted == 41
    assert count <= 3 * 41


def test_a_wait_survives_one_loop_and_ends_with_it() -> None:
    bucket = TokenBucket(50, burst=1)
    for _ in range(3):

        async def main() -> None:
            await bucket.take()
            left_behind = [asyncio.create_task(bucket.take()) for _ in range(5)]
            await turns(2)
            assert bucket.waiting == 5
            await left_behind[0]

        asyncio.run(main())
        assert bucket.waiting == 0


@pytest.mark.parametrize("seed", range(5))
def test_in_no_window_is_more_admitted_than_promised(run: Run[None], seed: int) -> None:
    clock = ManualClock()
    rate, burst = 7.0, 3.0
    bucket = TokenBucket(rate, burst=burst, clock=clock)
    taken: list[tuple[float, float]] = []
    random = Random(seed)

    async def work(n: float) -> None:
        for _ in range(3):
            await bucket.take(n, timeout=random.uniform(0, 5))
            taken.append((clock.now(), n))

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        for _ in range(200):
            n = random.randrange(1, 31) / 10
            match random.randrange(4):
                case 0 | 1:
                    tasks.append(asyncio.create_task(work(n)))
                case 2 if bucket.try_take(n):
                    taken.append((clock.now(), n))
                case 3 if tasks:
                    random.choice(tasks).cancel()
            await turns(random.randrange(3))
            await clock.settle(random.choice([0, 0.01, 0.3, 2]))
        await clock.settle(20)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert bucket.waiting == 0

    run(main())
    assert len(taken) > 50
    for first in range(len(taken)):
        total = 0.0
        for at, n in taken[first:]:
            total += n
            assert total <= burst + rate * (at - taken[first][0]) + 1e-6
