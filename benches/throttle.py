"""What it costs to ask whether to send a request, and to say how it went."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from interleaved import Bench, Target

from sluicegate import (
    AdaptiveThrottle,
    Criticality,
    Outcome,
    Rejected,
    RetryBudget,
    TokenRetryBudget,
)

if TYPE_CHECKING:
    from collections.abc import Callable

bench = Bench("Client-side throttling, and retry budgets")

throttling = bench.group("a throttle, for each request")


class Empty:
    def method(self) -> None:
        pass


def throttle(outcome: Outcome = Outcome.SUCCESS) -> AdaptiveThrottle:
    """Make one that has seen a thousand requests end so."""
    made = AdaptiveThrottle()
    for _ in range(1000):
        if made.allow():
            made.record(outcome)
    return made


@throttling.case("(an empty method of a Python class)")
async def _(times: int) -> None:
    empty = Empty()
    for _ in repeat(None, times):
        empty.method()


@throttling.case("(a built-in method that does nothing)")
async def _(times: int) -> None:
    number = 0
    for _ in repeat(None, times):
        number.conjugate()


@throttling.case("allow(), well", Target(ns_over=100))
async def _(times: int) -> None:
    asked = throttle()
    for _ in repeat(None, times):
        asked.allow()


@throttling.case("allow(), overloaded: refuses 9 of 10", Target(ns_over=100))
async def _(times: int) -> None:
    asked = throttle(Outcome.OVERLOAD)
    for _ in repeat(None, times):
        asked.allow()


@throttling.case("allow(Criticality.SHEDDABLE)", Target(ns_over=100))
async def _(times: int) -> None:
    asked, criticality = throttle(), Criticality.SHEDDABLE
    for _ in repeat(None, times):
        asked.allow(criticality)


@throttling.case("record(Outcome.SUCCESS)", Target(ns_over=100))
async def _(times: int) -> None:
    asked, outcome = throttle(), Outcome.SUCCESS
    for _ in repeat(None, times):
        asked.record(outcome)


@throttling.case("allow(), record()")
async def _(times: int) -> None:
    asked, outcome = throttle(), Outcome.SUCCESS
    for _ in repeat(None, times):
        if asked.allow():
            asked.record(outcome)


guarding = bench.group("a guarded function")


def nothing() -> None:
    pass


@guarding.case("(a function that does nothing)")
async def _(times: int) -> None:
    call: Callable[[], None] = nothing
    for _ in repeat(None, times):
        call()


@guarding.case("under guard()")
async def _(times: int) -> None:
    call = throttle().guard()(nothing)
    for _ in repeat(None, times):
        call()


@guarding.case("under guard(), refused 9 of 10 times: raises Rejected")
async def _(times: int) -> None:
    call = throttle(Outcome.OVERLOAD).guard()(nothing)
    for _ in repeat(None, times):
        try:  # noqa: SIM105  # a bare one is what is timed
            call()
        except Rejected:
            pass


retrying = bench.group("a retry budget, for each request or retry")


@retrying.case("(an empty method of a Python class)")
async def _(times: int) -> None:
    empty = Empty()
    for _ in repeat(None, times):
        empty.method()


@retrying.case("RetryBudget: record_request()")
async def _(times: int) -> None:
    budget = RetryBudget()
    for _ in repeat(None, times):
        budget.record_request()


@retrying.case("RetryBudget: try_retry(), refused")
async def _(times: int) -> None:
    budget = RetryBudget(floor=0)
    for _ in repeat(None, times):
        budget.try_retry()


@retrying.case("RetryBudget: record_request(), try_retry(), release()")
async def _(times: int) -> None:
    budget = RetryBudget(1.0)
    for _ in repeat(None, times):
        budget.record_request()
        if permit := budget.try_retry():
            permit.release()


@retrying.case("TokenRetryBudget: try_retry(), release()")
async def _(times: int) -> None:
    budget = TokenRetryBudget()
    for _ in repeat(None, times):
        if permit := budget.try_retry():
            permit.release()


if __name__ == "__main__":
    bench.main()
