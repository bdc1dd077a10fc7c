"""What a type checker sees of a guarded function; `make lint` checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import stamina
import tenacity

from sluicegate import (
    AdaptiveThrottle,
    Classify,
    Criticality,
    Outcome,
    Rejection,
    RetryBudget,
    RetryPermit,
    TokenRetryBudget,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

throttle = AdaptiveThrottle()


@throttle.guard()
def plain(a: int, /, b: str = "b", *, c: float = 1.0) -> bytes:
    return b""


@throttle.guard(criticality=Criticality.SHEDDABLE, accept=(KeyError, ValueError))
async def later(a: int) -> bytes:
    return b""


class Service:
    @throttle.guard()
    def method(self, a: int) -> str:
        return str(a)

    @throttle.guard()
    async def method_later(self, a: int) -> str:
        return str(a)


def by_status(ending: object) -> Outcome:
    return Outcome.SUCCESS


async def check() -> None:
    """Never runs."""
    assert_type(plain(1, "b", c=2.0), bytes)
    assert_type(await later(1), bytes)
    assert_type(Service().method(1), str)
    assert_type(await Service().method_later(1), str)
    plain("1")  # type: ignore[arg-type]
    plain(a=1)  # type: ignore[call-arg]
    await later(1, 2)  # type: ignore[call-arg]
    await later("1")  # type: ignore[arg-type]
    Service().method("1")  # type: ignore[arg-type]

    classify: Classify = by_status
    throttle.guard(classify=classify)
    throttle.guard(accept=int)  # type: ignore[arg-type]
    throttle.guard(criticality=2)  # type: ignore[arg-type]
    throttle.allow(2)  # type: ignore[arg-type]
    throttle.record("success")  # type: ignore[arg-type]

    unary: Callable[[int], Coroutine[Any, Any, bytes]] = later
    assert_type(await unary(1), bytes)

    for budget in (RetryBudget(), TokenRetryBudget()):
        assert_type(budget.try_retry(), RetryPermit | Rejection)
        if permit := budget.try_retry():
            assert_type(permit, RetryPermit)
        stamina.retry(on=budget.on(KeyError))(plain)
        stamina.retry(on=budget.on(lambda error: error.args == ()))(plain)
        tenacity.retry(retry=budget.on(KeyError))(plain)
        tenacity.retry(stop=budget.stop(tenacity.stop_after_attempt(3)))(plain)
        tenacity.AsyncRetrying(retry=budget.on(KeyError), stop=budget.stop())
        budget.on(BaseException)  # type: ignore[arg-type]
        budget.on(int)  # type: ignore[arg-type]


def test_the_file_is_what_a_type_checker_reads() -> None:
    assert plain(1) == b""
