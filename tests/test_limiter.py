"""The plain use of a limiter, where nobody has to wait, and of its clock and decorator."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import sluicegate
from sluicegate import (
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejected,
    Rejection,
    SemaphoreLimiter,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from limiters import Limiter, New

pytestmark = pytest.mark.timeout(20)


def take(limiter: Limiter, cost: int = 1) -> Permit:
    permit = limiter.try_acquire(cost)
    assert isinstance(permit, Permit)
    return permit


def test_it_admits_as_many_as_the_limit_says(new: New) -> None:
    limiter = new(3)
    permits = [take(limiter) for _ in range(3)]
    rejection = limiter.try_acquire()
    assert not rejection
    assert isinstance(rejection, Rejection)
    assert rejection.reason is Reason.LIMIT
    assert (limiter.limit, limiter.in_flight, limiter.waiting) == (3.0, 3, 0)
    assert limiter.saturation == 1.0
    permits.pop().release()
    take(limiter).release()
    assert limiter.in_flight == 2
    for permit in permits:
        permit.release()
    assert limiter.in_flight == 0
    assert limiter.saturation == 0.0


def test_a_cost_is_as_many_units(new: New) -> None:
    limiter = new(5)
    with take(limiter, 3), take(limiter, 2):
        assert limiter.in_flight == 5
        assert not limiter.try_acquire(1)
    with take(limiter, 4):
        assert not limiter.try_acquire(2)
        with take(limiter):
            assert limiter.in_flight == 5
    assert limiter.in_flight == 0


@pytest.mark.parametrize("cost", [4, 10**9])
def test_a_cost_above_the_limit_runs_alone(new: New, cost: int) -> None:
    limiter = new(3)
    with take(limiter):
        assert not limiter.try_acquire(cost)
    with take(limiter, cost):
        assert limiter.in_flight == cost
        assert not limiter.try_acquire()
    take(limiter).release()
    assert limiter.in_flight == 0


def test_a_fractional_limit_admits_whole_units(new: New) -> None:
    limiter = new(2.9)
    with take(limiter), take(limiter):
        assert not limiter.try_acquire()


@pytest.mark.parametrize("limit", [0.25, 0.5, 0.9])
def test_a_limit_below_one_rests_between_two(new: New, limit: float) -> None:
    clock = ManualClock()
    limiter = new(limit, clock=clock)
    with take(limiter):
        clock.advance(1.0)
        assert not limiter.try_acquire()
    rest = 1 / limit - 1
    clock.advance(rest * 0.99)
    assert not limiter.try_acquire()
    clock.advance(rest * 0.02)
    take(limiter).release()


def test_an_update_holds_from_now_on(new: New) -> None:
    limiter = new(2)
    permits = [take(limiter), take(limiter)]
    limiter.update(limit=4)
    permits += [take(limiter), take(limiter)]
    limiter.update(limit=2)
    assert (limiter.limit, limiter.in_flight, limiter.saturation) == (2.0, 4, 2.0)
    for in_flight in (3, 2):
        permits.pop().release()
        assert limiter.in_flight == in_flight
        assert not limiter.try_acquire()
    permits.pop().release()
    permits.append(take(limiter))
    limiter.update()
    limiter.update(limit=None)
    assert limiter.limit == 2.0
    limiter.update(limit=0)
    for permit in permits:
        permit.release()
    assert not limiter.try_acquire()
    assert limiter.saturation == 1.0
    limiter.update(limit=1)
    take(limiter).release()


def test_waiting_is_not_needed_where_there_is_room() -> None:
    limiter = SemaphoreLimiter(3)

    async def main() -> None:
        async with limiter.acquire() as one, limiter.acquire(2, timeout=0) as two:
            assert limiter.in_flight == 3
            assert one.waited == two.waited == 0.0
            with pytest.raises(TimeoutError, match="within 0 s"):
                await limiter.acquire(timeout=0)

    asyncio.run(main())
    with limiter.acquire(2), limiter.acquire_sync(timeout=0):
        assert limiter.in_flight == 3
        with pytest.raises(TimeoutError, match="within 0 s"):
            limiter.acquire_sync(timeout=0)
    assert limiter.in_flight == 0
    assert limiter.snapshot().outcomes == {Outcome.SUCCESS: 4}


def test_a_limiter_can_be_subclassed_and_named() -> None:
    class Mine(SemaphoreLimiter):
        extra = 5

    limiter = Mine(2, name="my own")
    assert isinstance(limiter, sluicegate.Limiter)
    assert limiter.extra == 5
    assert limiter.name == "my own"
    assert repr(limiter) == "<Mine 'my own': limit 2, 0 in flight, 0 waiting>"
    names = {SemaphoreLimiter(1).name for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"limiter(-\d+)?", name) for name in names)


def test_nothing_of_it_can_be_set() -> None:
    limiter = SemaphoreLimiter(2)
    for name in ("limit", "in_flight", "waiting", "saturation", "name", "other"):
        with pytest.raises(AttributeError):
            setattr(limiter, name, 1)


# The clock


def test_a_manual_clock_stands_still_until_it_is_told() -> None:
    clock = ManualClock(10)
    assert clock.now() == 10.0
    assert clock.now() == 10.0
    clock.advance(0.5)
    clock.advance(0)
    assert clock.now() == 10.5
    assert repr(clock) == "ManualClock(10.5)"
    assert ManualClock().now() == 0.0


def test_a_manual_clock_answers_those_who_are_due() -> None:
    clock = ManualClock()
    limiter = SemaphoreLimiter(1, clock=clock)
    times: dict[float, float] = {}

    async def wait(span: float) -> None:
        with pytest.raises(TimeoutError, match=f"within {span:g} s"):
            await limiter.acquire(timeout=span)
        times[span] = clock.now()

    async def main() -> None:
        with take(limiter):
            tasks = [asyncio.create_task(wait(span)) for span in (3.0, 1.0, 2.0)]
            await clock.settle()
            assert limiter.waiting == 3
            await clock.settle(1.0)
            assert list(times) == [1.0]
            await clock.settle(0.5)
            assert list(times) == [1.0]
            assert limiter.snapshot().oldest_wait == 1.5
            await clock.settle(10.0)
            await asyncio.gather(*tasks)
        assert sorted(times) == [1.0, 2.0, 3.0]
        assert limiter.snapshot().rejected == {Reason.WAIT: 3}

    asyncio.run(main())


# The decorator


def test_a_guard_holds_a_permit_while_a_function_runs(new: New) -> None:
    limiter = new(3)

    @limiter.guard(cost=2, operation="work")
    def work(a: int, /, b: int = 2, *, c: str = "c") -> tuple[int, int, str, int]:
        """Work."""
        return a, b, c, limiter.in_flight

    assert work(1, c="d") == (1, 2, "d", 2)
    assert limiter.in_flight == 0
    assert work.__name__ == "work"
    assert work.__doc__ == "Work."
    assert str(inspect.signature(work)).startswith("(a: 'int', /, b: 'int' = 2, *, c:")
    assert inspect.unwrap(work) is not work
    assert not inspect.iscoroutinefunction(work)


def test_a_guard_waits_with_a_coroutine_function(new: New) -> None:
    limiter = new(2)
    peaks: list[int] = []

    @limiter.guard()
    async def work(number: int) -> int:
        peaks.append(limiter.in_flight)
        await asyncio.sleep(0)
        return number

    async def main() -> None:
        assert await asyncio.gather(*(work(number) for number in range(9))) == list(range(9))

    asyncio.run(main())
    assert inspect.iscoroutinefunction(work)
    assert str(inspect.signature(work)) == "(number: 'int') -> 'int'"
    assert max(peaks) == 2
    assert limiter.in_flight == 0


def test_a_guard_takes_methods(new: New) -> None:
    limiter = new(1)

    class Service:
        @limiter.guard()
        def plain(self) -> tuple[Any, int]:
            return self, limiter.in_flight

        @limiter.guard()
        async def waiting(self) -> tuple[Any, int]:
            return self, limiter.in_flight

        @classmethod
        @limiter.guard()
        def of_class(cls) -> tuple[Any, int]:
            return cls, limiter.in_flight

        @staticmethod
        @limiter.guard()
        def static() -> int:
            return limiter.in_flight

    service = Service()
    assert service.plain() == (service, 1)
    assert asyncio.run(service.waiting()) == (service, 1)
    assert Service.of_class() == (Service, 1)
    assert service.static() == 1
    assert limiter.in_flight == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TimeoutError("x"), Outcome.OVERLOAD),
        (ValueError("x"), Outcome.IGNORED),
        (Rejected(Rejection("other", "full")), Outcome.IGNORED),
    ],
)
def test_what_a_guarded_function_raises_goes_through(
    new: New, error: Exception, outcome: Outcome
) -> None:
    limiter = new(2)

    @limiter.guard()
    def fails() -> None:
        raise error

    @limiter.guard()
    async def fails_later() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(type(error)) as raised:
        fails()
    assert raised.value is error
    with pytest.raises(type(error)) as raised:
        asyncio.run(fails_later())
    assert raised.value is error
    assert limiter.in_flight == 0
    assert limiter.snapshot().outcomes == {outcome: 2}


def test_a_guarded_function_can_call_itself_if_there_is_room(new: New) -> None:
    limiter = new(5)

    @limiter.guard()
    def countdown(number: int) -> int:
        return countdown(number - 1) if number else limiter.in_flight

    assert countdown(4) == 5
    assert limiter.in_flight == 0


def test_a_guard_takes_no_generator_functions() -> None:
    def items() -> Iterator[int]:
        yield 1

    async def items_later() -> AsyncIterator[int]:
        yield 1

    functions: list[Callable[[], Any]] = [items, items_later]
    for function in functions:
        with pytest.raises(TypeError, match=f"generator function .*{function.__name__}"):
            SemaphoreLimiter(1).guard()(function)


def test_a_guarded_plain_function_is_not_for_an_event_loop(new: New) -> None:
    limiter = new(2)

    @limiter.guard()
    def work() -> None:
        pytest.fail("it must not run")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="would block the event loop"):
            work()

    asyncio.run(main())
    assert limiter.in_flight == 0
