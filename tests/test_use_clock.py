"""A clock that stands in for the system's, for whatever was made without one."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import (
    AdaptiveThrottle,
    CoDelQueue,
    Deadline,
    Gate,
    KeyedTokenBucket,
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejection,
    RetryBudget,
    SemaphoreLimiter,
    TokenBucket,
    _core,
)
from sluicegate.testing import assert_idle, use_clock
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

# Made before any test runs, as those of a module are.
LIMITER = SemaphoreLimiter(1)
BUCKET = TokenBucket(1, burst=1)


@pytest.fixture(autouse=True)
def _the_clock_of_the_system_is_back() -> Any:
    yield
    assert _core.default_clock() is None


class Clock:
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.error: BaseException | None = None

    def now(self) -> float:
        if self.error is not None:
            raise self.error
        return self.seconds


@pytest.mark.parametrize("value", [None, 5, "now", object()])
def test_what_is_no_clock(value: Any) -> None:
    with pytest.raises(TypeError, match="clock must be an object with"), use_clock(value):
        pytest.fail("it must not be entered")


def test_a_clock_that_fails_at_once_does_not_stand_in() -> None:
    clock = Clock()
    clock.error = OSError("no time")
    with pytest.raises(OSError, match="no time"), use_clock(clock):
        pytest.fail("it must not be entered")


@pytest.mark.parametrize("start", [0.0, 5.0, 1e9])
def test_whatever_was_made_before_follows(start: float) -> None:
    keyed, queue = KeyedTokenBucket(1, burst=1), CoDelQueue[int](4, interval=2, target=1)
    deadline = Deadline.after(60)
    with use_clock(clock := ManualClock(start)):
        assert BUCKET.try_take()
        assert not BUCKET.try_take()
        assert keyed.try_take("a")
        queue.put_nowait(1)
        left = deadline.remaining()
        clock.advance(0.5)
        assert BUCKET.retry_after() == 0.5
        assert not keyed.try_take("a")
        assert queue.oldest_wait == 0.5
        assert left - deadline.remaining() == pytest.approx(0.5)
        clock.advance(0.5)
        assert BUCKET.try_take()
        assert keyed.try_take("a")
        clock.advance(10)
        assert queue.depth == 0
        assert BUCKET.retry_after() == 0


def test_what_has_a_clock_of_its_own_does_not_follow() -> None:
    own = ManualClock()
    bucket = TokenBucket(1, burst=1, clock=own)
    assert bucket.try_take()
    with use_clock(clock := ManualClock()):
        clock.advance(100)
        assert not bucket.try_take()
        own.advance(1)
        assert bucket.try_take()


def test_what_is_made_inside_goes_on_outside() -> None:
    with use_clock(clock := ManualClock()):
        bucket, throttle = TokenBucket(1000, burst=1), AdaptiveThrottle()
        budget = RetryBudget()
        assert bucket.try_take()
        clock.advance(3600)
        assert bucket.try_take()
        throttle.record(Outcome.OVERLOAD)
        budget.record_request()
    # The time that it went on was no loan that is to be paid back.
    for _ in range(20):
        bucket.take_sync(timeout=60)
    assert throttle.rejection_probability == 0


def test_time_goes_on_from_where_it_is() -> None:
    before = Deadline.after(600)
    with use_clock(ManualClock(5)):
        inside = before.remaining()
        assert before.remaining() == inside
    after = before.remaining()
    assert 500 < after <= inside <= 600
    with use_clock(ManualClock(7)):
        assert before.remaining() <= after


def test_the_one_before_is_back_after_a_nested_one() -> None:
    outer, inner = ManualClock(3), ManualClock(50)
    deadline = Deadline.after(100)
    with use_clock(outer):
        outer.advance(10)
        with use_clock(inner):
            assert _core.default_clock() is inner
            left = deadline.remaining()
            inner.advance(10)
            outer.advance(10)
            assert deadline.remaining() == pytest.approx(left - 10)
        assert _core.default_clock() is outer
        outer.advance(10)
        assert deadline.remaining() == pytest.approx(left - 20)


def test_an_error_inside_passes() -> None:
    with pytest.raises(ZeroDivisionError), use_clock(ManualClock()):
        _ = 1 / 0


def test_any_clock_may_stand_in() -> None:
    clock = Clock(7.0)
    with use_clock(clock):
        deadline = Deadline.after(10)
        clock.seconds = 9.0
        assert deadline.remaining() == 8
        # It goes back, even to before the beginning, and time does not.
        clock.seconds = -5.0
        assert 8 <= deadline.remaining() <= 10


def test_a_clock_that_fails_can_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reported.append(report.exc_value))
    clock = Clock()
    deadline = Deadline.after(100)
    with use_clock(clock):
        clock.seconds = 40
        left = deadline.remaining()
        clock.error = OSError("no time")
        with pytest.raises(OSError, match="no time"):
            deadline.remaining()
    assert reported == [clock.error]
    # From where it was last.
    assert deadline.remaining() <= left


# Who waits.


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_task_that_waits_is_answered_by_hand() -> None:
    async def main() -> None:
        permit = LIMITER.try_acquire()
        assert not isinstance(permit, Rejection)
        before = asyncio.create_task(wait_for_it(LIMITER, 1000))
        await turns()
        with permit, use_clock(clock := ManualClock()):
            inside = asyncio.create_task(wait_for_it(LIMITER, 5))
            await turns()
            clock.advance(4.9)
            await turns()
            assert not inside.done()
            clock.advance(0.2)
            assert await inside == "timed out"
            assert not before.done()
            clock.advance(995)
            assert await before == "timed out"
        assert LIMITER.in_flight == 0

    asyncio.run(main())


async def wait_for_it(limiter: SemaphoreLimiter, seconds: float) -> str:
    try:
        async with limiter.acquire(timeout=seconds):
            return "acquired"
    except TimeoutError:
        return "timed out"


def test_settling_lets_them_run() -> None:
    async def main() -> None:
        with use_clock(clock := ManualClock()):
            bucket = TokenBucket(1, burst=1)
            done: list[int] = []

            async def take(number: int) -> None:
                await bucket.take()
                done.append(number)

            tasks = [asyncio.create_task(take(number)) for number in range(4)]
            await clock.settle()
            for number in range(4):
                assert done == list(range(number + 1))
                await clock.settle(1)
            await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.mark.parametrize(
    "make", [partial(SemaphoreLimiter, 1), partial(Gate, 1, max_waiting=8000, max_wait=3600)]
)
def test_settling_goes_on_until_nobody_is_left_who_could_run(make: Callable[..., Any]) -> None:
    clock = ManualClock()
    limiter = make(clock=clock)

    async def main() -> None:
        done = 0

        async def work() -> None:
            nonlocal done
            async with limiter.acquire():
                await asyncio.sleep(0)
            done += 1

        held = limiter.try_acquire()
        tasks = [asyncio.create_task(work()) for _ in range(8000)]
        await clock.settle(1)
        assert (limiter.waiting, done) == (8000, 0)
        held.release()
        await clock.settle()
        assert (limiter.waiting, done) == (0, 8000)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert_idle(limiter)


def test_settling_says_so_where_there_is_no_end() -> None:
    clock = ManualClock(5)
    limiter = SemaphoreLimiter(1, clock=clock)

    async def take_for_ever() -> None:
        while True:
            async with limiter.acquire():
                await asyncio.sleep(0)

    async def main() -> None:
        tasks = [asyncio.create_task(take_for_ever()) for _ in range(2)]
        with pytest.raises(RuntimeError, match=r"^settle\(\) finds no end: after 200000 turns"):
            await clock.settle(1)
        for task in tasks:
            task.cancel()

    asyncio.run(main())
    assert_idle(limiter)


def test_settling_does_not_wait_for_a_loop_that_is_blocked() -> None:
    clock = ManualClock()
    limiter = SemaphoreLimiter(1, clock=clock)
    held = limiter.try_acquire()
    go_on = threading.Event()

    async def elsewhere() -> None:
        wait = asyncio.ensure_future(limiter.acquire())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go_on.wait(20)
        (await wait).release()

    thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    thread.start()
    while not limiter.waiting:
        time.sleep(0.001)

    async def main() -> None:
        assert isinstance(held, Permit)
        held.release()
        await clock.settle(0.01)
        assert limiter.in_flight == 1

    asyncio.run(main())
    go_on.set()
    thread.join()
    assert_idle(limiter)


def test_who_waits_goes_on_when_the_clock_of_the_system_is_back() -> None:
    async def main() -> None:
        limiter, bucket = SemaphoreLimiter(1), TokenBucket(20, burst=1)
        async with limiter.acquire():
            with use_clock(clock := ManualClock()):
                clock.advance(100)
                assert bucket.try_take()
                tasks = [
                    asyncio.create_task(wait_for_it(limiter, 0.05)),
                    asyncio.create_task(bucket.take(timeout=60)),
                ]
                await turns()
            assert await tasks[0] == "timed out"
            await tasks[1]

    asyncio.run(main())


def test_a_timer_that_was_set_before_is_set_again() -> None:
    """Its time may have come nearer, and it may have fired meanwhile for nothing."""

    async def main() -> None:
        limiter = SemaphoreLimiter(1)
        async with limiter.acquire():
            nearer = asyncio.create_task(wait_for_it(limiter, 1000))
            await turns()
            with use_clock(clock := ManualClock()):
                clock.advance(999.95)
            assert await nearer == "timed out"
            fired = asyncio.create_task(wait_for_it(limiter, 0.02))
            await turns()
            with use_clock(ManualClock()):
                await asyncio.sleep(0.05)
                assert not fired.done()
            assert await fired == "timed out"

    asyncio.run(main())


def test_it_does_not_turn_in_circles_while_it_stands_still() -> None:
    """Timers that were set before come to rest."""

    async def main() -> None:
        limiter = SemaphoreLimiter(1)
        loop = asyncio.get_running_loop()
        async with limiter.acquire():
            task = asyncio.create_task(wait_for_it(limiter, 0.01))
            await turns()
            with use_clock(ManualClock()):
                await asyncio.sleep(0.05)
                set_again: list[object] = []
                call_later = loop.call_later

                def counted(delay: float, callback: Any, *args: Any, **options: Any) -> Any:
                    set_again.append(callback)
                    return call_later(delay, callback, *args, **options)

                loop.call_later = counted  # type: ignore[method-assign, assignment]
                await asyncio.sleep(0.1)
                loop.call_later = call_later  # type: ignore[method-assign]
                assert len(set_again) <= 1  # the sleep
            assert await task == "timed out"

    asyncio.run(main())


def test_items_that_were_put_inside_are_rejected_outside() -> None:
    async def main() -> None:
        rejected = asyncio.get_running_loop().create_future()

        def on_reject(item: str, rejection: Rejection) -> None:
            rejected.set_result((item, rejection.reason))

        queue = CoDelQueue[str](4, interval=0.05, target=0.02, on_reject=on_reject)
        with use_clock(ManualClock()):
            queue.put_nowait("item")
        assert await rejected == ("item", Reason.WAIT)

    asyncio.run(main())


def test_a_custom_clock_is_looked_at() -> None:
    async def main() -> None:
        clock = Clock(5)
        limiter = SemaphoreLimiter(1)
        async with limiter.acquire():
            before = asyncio.create_task(wait_for_it(limiter, 1000))
            await turns()
            with use_clock(clock):
                inside = asyncio.create_task(wait_for_it(limiter, 500))
                await turns()
                clock.seconds += 501
                assert await inside == "timed out"
                clock.seconds += 500
                assert await before == "timed out"

    asyncio.run(main())


def test_other_loops_go_on_too() -> None:
    limiter = SemaphoreLimiter(1)
    got: list[str] = []

    def elsewhere() -> None:
        got.append(asyncio.run(wait_for_it(limiter, 0.05)))

    permit = limiter.acquire_sync()
    with use_clock(ManualClock()):
        threads = [threading.Thread(target=elsewhere) for _ in range(3)]
        for thread in threads:
            thread.start()
        while limiter.waiting < 3:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join(60)
    assert got == ["timed out"] * 3
    permit.release()


@pytest.mark.parametrize("is_before", [False, True])
@pytest.mark.parametrize("is_by_hand", [False, True])
def test_a_thread_that_waits(is_before: bool, is_by_hand: bool) -> None:
    limiter = SemaphoreLimiter(1)
    got: list[str] = []

    def wait() -> None:
        try:
            limiter.acquire_sync(timeout=100)
        except TimeoutError:
            got.append("timed out")

    def start() -> threading.Thread:
        thread = threading.Thread(target=wait)
        thread.start()
        while not limiter.waiting:
            threading.Event().wait(0.001)
        return thread

    permit = limiter.acquire_sync()
    thread = start() if is_before else None
    with use_clock(clock := ManualClock()):
        thread = thread or start()
        clock.advance(99.95)
        assert thread.is_alive()
        if is_by_hand:
            clock.advance(1)
            thread.join(60)
            assert got == ["timed out"]
    thread.join(60)
    assert got == ["timed out"]
    permit.release()


def test_a_loop_that_is_gone_is_in_nobodys_way() -> None:
    limiter = SemaphoreLimiter(1)

    async def leave_a_timer() -> None:
        async with limiter.acquire():
            await wait_for_it(limiter, 0.001)

    asyncio.run(leave_a_timer())
    with use_clock(Clock()):
        asyncio.run(leave_a_timer_on(limiter))
    with use_clock(ManualClock()):
        pass
    with limiter.acquire_sync():
        pass


async def leave_a_timer_on(limiter: SemaphoreLimiter) -> None:
    async with limiter.acquire():
        task = asyncio.create_task(wait_for_it(limiter, 1000))
        await turns()
        task.cancel()


def test_a_child_of_a_fork_goes_on_with_it() -> None:
    run(
        """
    import os
    from sluicegate import ManualClock, TokenBucket
    from sluicegate.testing import use_clock

    bucket = TokenBucket(1, burst=1)
    with use_clock(clock := ManualClock()):
        child = os.fork()
        assert bucket.try_take()
        assert not bucket.try_take()
        clock.advance(1)
        assert bucket.try_take()
        if not child:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """,
        is_watched=False,
    )
