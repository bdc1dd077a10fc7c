"""Guards see through what wraps a function, whatever they guard with."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import AdaptiveThrottle, Gate, Outcome, SemaphoreLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from limiters import New

    Guard = Callable[[Any], Any]

GUARDS: list[Callable[[], Any]] = [
    lambda: SemaphoreLimiter(1),
    lambda: Gate(1),
    lambda: AdaptiveThrottle(min_requests=0),
]


async def work() -> None:
    await asyncio.sleep(0)
    raise TimeoutError


class Later:
    async def __call__(self) -> None:
        await work()

    async def method(self) -> None:
        await work()

    @staticmethod
    async def static() -> None:
        await work()


class Yields:
    def __call__(self) -> Any:
        yield

    async def later(self) -> Any:
        yield


AWAITED: dict[str, Any] = {
    "function": work,
    "staticmethod": staticmethod(work),
    "partial": functools.partial(work),
    "partial of a partial": functools.partial(functools.partial(work)),
    "object": Later(),
    "partial of an object": functools.partial(Later()),
    "method": Later().method,
    "static method": Later.static,
    "partial of a method": functools.partial(Later().method),
}


@pytest.mark.parametrize("name", AWAITED)
def test_what_is_awaited_is_guarded_until_it_ends(new: New, name: str) -> None:
    limiter, throttle = new(1), AdaptiveThrottle()

    async def main() -> None:
        guarded = throttle.guard()(limiter.guard()(AWAITED[name]))
        call = asyncio.ensure_future(guarded())
        await asyncio.sleep(0)
        assert limiter.in_flight == 1
        with pytest.raises(TimeoutError):
            await call

    asyncio.run(main())
    assert limiter.snapshot().outcomes == {Outcome.OVERLOAD: 1}
    assert throttle.snapshot().outcomes == {Outcome.OVERLOAD: 1}


@pytest.mark.parametrize("new", GUARDS)
@pytest.mark.parametrize(
    "function",
    [
        Yields(),
        Yields().later,
        functools.partial(Yields()),
        functools.partial(Yields().later),
        staticmethod(Yields().later),
    ],
)
def test_what_yields_is_refused(new: Callable[[], Any], function: Any) -> None:
    with pytest.raises(TypeError, match="got the generator function"):
        new().guard()(function)


@pytest.mark.parametrize("new", GUARDS)
@pytest.mark.parametrize("function", [None, 3, "work", classmethod(lambda _: None)])
def test_what_cannot_be_called_is_refused(new: Callable[[], Any], function: Any) -> None:
    with pytest.raises(TypeError, match="guard\\(\\) takes a function or a coroutine function"):
        new().guard()(function)


@pytest.mark.parametrize("new", GUARDS)
def test_what_calls_itself_ends(new: Callable[[], Any]) -> None:
    class Endless:
        pass

    Endless.__call__ = Endless()  # type: ignore[assignment,method-assign]
    new().guard()(Endless())


def test_a_coroutine_out_of_a_plain_function_is_recorded_when_it_ends() -> None:
    throttle = AdaptiveThrottle()

    def undeclared() -> Any:
        return work()

    async def main() -> None:
        call = throttle.guard()(undeclared)()
        assert throttle.snapshot().outcomes == {}
        with pytest.raises(TimeoutError):
            await call

    asyncio.run(main())
    assert throttle.snapshot().outcomes == {Outcome.OVERLOAD: 1}
