"""Retry budgets: what they give, what they take back, and who may use them."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import threading
import warnings
import weakref
from typing import Any

import pytest

from sluicegate import (
    ManualClock,
    Reason,
    Rejected,
    Rejection,
    RetryBudget,
    RetryPermit,
    TokenRetryBudget,
)
from subprocesses import run

pytestmark = pytest.mark.timeout(60)

BOTH = pytest.mark.parametrize("kind", [RetryBudget, TokenRetryBudget])


def take(budget: RetryBudget | TokenRetryBudget) -> RetryPermit:
    permit = budget.try_retry()
    assert isinstance(permit, RetryPermit)
    return permit


def take_all(budget: RetryBudget) -> list[RetryPermit]:
    permits = []
    while permit := budget.try_retry():
        permits.append(permit)
    return permits


def release(permits: list[RetryPermit]) -> None:
    for permit in permits:
        permit.release()


def test_retries_are_a_share_of_the_requests() -> None:
    clock = ManualClock()
    budget = RetryBudget(0.2, clock=clock)
    for _ in range(100):
        budget.record_request()
    permits = take_all(budget)
    assert len(permits) == 20
    # In back-off for a second, and then in an attempt for longer than the window.
    for seconds in (1, 8, 1, 60):
        clock.advance(seconds)
        assert not budget.try_retry()
    release(permits)
    floor = take_all(budget)
    assert len(floor) == 1
    release(floor)


def test_a_retry_counts_for_a_window_in_any_case() -> None:
    clock = ManualClock()
    budget = RetryBudget(clock=clock)
    for _ in range(30):
        budget.record_request()
    release(take_all(budget))
    clock.advance(9)
    assert budget.snapshot().retries == 3
    assert not budget.try_retry()
    clock.advance(1)
    assert budget.snapshot().retries == 0


def test_one_in_ten_seconds_is_always_given() -> None:
    clock = ManualClock()
    budget = RetryBudget(clock=clock)
    given = []
    for _ in range(100):
        if permit := budget.try_retry():
            permit.release()
            given.append(clock.now())
        clock.advance(0.5)
    assert given == [0, 10, 20, 30, 40]


def test_no_floor_gives_nothing_without_requests() -> None:
    budget = RetryBudget(floor=0)
    assert not budget.try_retry()
    for _ in range(10):
        budget.record_request()
    take(budget).release()


def test_a_refusal_says_why() -> None:
    budget = RetryBudget(name="search", floor=0)
    rejection = budget.try_retry()
    assert isinstance(rejection, Rejection)
    assert (rejection.gate, rejection.reason) == ("search", Reason.BUDGET)
    assert (rejection.limit, rejection.in_flight, rejection.retry_after) == (0, 0, None)
    text = r"^retry budget 'search' rejected CRITICAL work: budget \(0 of 0 retries\)"
    with pytest.raises(Rejected, match=text), budget.try_retry():
        pytest.fail("it must not run")


def test_five_failures_disable_and_one_success_enables() -> None:
    budget = TokenRetryBudget()
    for _ in range(4):
        budget.record_failure()
    take(budget).release()
    budget.record_failure()
    rejection = budget.try_retry()
    assert isinstance(rejection, Rejection)
    assert rejection.reason is Reason.BUDGET
    budget.record_success()
    take(budget).release()
    assert budget.snapshot().tokens == 5.1


@BOTH
def test_a_retry_is_given_back_once(kind: type[RetryBudget | TokenRetryBudget]) -> None:
    budget = kind()
    with take(budget) as permit:
        assert permit
        assert budget.snapshot().held == 1
        assert repr(permit) == f"<RetryPermit of {budget.name!r} (held)>"
    assert budget.snapshot().held == 0
    assert repr(permit) == f"<RetryPermit of {budget.name!r} (released)>"
    permit.release()
    with pytest.raises(RuntimeError, match=r"^this retry of .* was released already"), permit:
        pytest.fail("it must not run")
    assert budget.snapshot().held == 0
    assert budget.snapshot().stray_releases == 1


@BOTH
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_a_retry_is_given_back_whatever_its_block_raises(
    kind: type[RetryBudget | TokenRetryBudget], error: type[BaseException]
) -> None:
    budget = kind()
    with pytest.raises(error), take(budget):
        raise error
    assert budget.snapshot().held == 0


@BOTH
def test_a_forgotten_retry_is_given_back(kind: type[RetryBudget | TokenRetryBudget]) -> None:
    budget = kind(name="search")
    with pytest.warns(ResourceWarning, match='a retry of "search" was never released'):
        take(budget)
    assert budget.snapshot().held == 0
    assert budget.snapshot().stray_releases == 0


@BOTH
def test_a_retry_keeps_its_budget_and_both_are_collected(
    kind: type[RetryBudget | TokenRetryBudget],
) -> None:
    class Mine(kind):  # type: ignore[misc, valid-type]
        """With a dictionary, so that it can be part of a cycle."""

    budget = Mine()
    budget.permit = take(budget)
    alive = weakref.ref(budget), weakref.ref(budget.permit)
    permit = budget.permit
    del budget
    gc.collect()
    assert alive[0]() is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del permit
        gc.collect()
    assert (alive[0](), alive[1]()) == (None, None)


def test_an_update_holds_for_what_was_counted() -> None:
    budget = RetryBudget(clock=ManualClock())
    for _ in range(100):
        budget.record_request()
    assert budget.snapshot().allowance == 10
    budget.update(ratio=0.5)
    assert budget.snapshot().allowance == 50
    budget.update(ratio=0, floor=0.4)
    budget.update()
    snapshot = budget.snapshot()
    assert (snapshot.ratio, snapshot.floor, snapshot.window) == (0, 0.4, 10)
    permits = take_all(budget)
    assert len(permits) == 4
    release(permits)


def test_an_update_keeps_the_share_of_tokens() -> None:
    budget = TokenRetryBudget()
    for _ in range(4):
        budget.record_failure()
    budget.update(max_tokens=100)
    assert budget.snapshot().tokens == 60
    budget.update(token_ratio=2)
    budget.record_success()
    budget.update()
    assert budget.snapshot().tokens == 62


def test_a_snapshot_is_a_line_and_json() -> None:
    budget = RetryBudget(name="search", clock=ManualClock())
    for _ in range(12):
        budget.record_request()
    with take(budget):
        assert not budget.try_retry()
        assert str(budget.snapshot()) == (
            "search: 1 of 1.2 retries for 12 requests in 10 s | 1 held | 1 admitted, 1 rejected"
        )
    assert repr(budget) == "<RetryBudget 'search': 1 of 1.2 retries>"
    tokens = TokenRetryBudget(name="search")
    assert str(tokens.snapshot()) == (
        "search: 10 of 10 tokens, retries above 5 | 0 held | 0 admitted, 0 rejected"
    )
    assert repr(tokens) == "<TokenRetryBudget 'search': 10 of 10 tokens>"
    for snapshot in (budget.snapshot(), tokens.snapshot()):
        assert json.loads(json.dumps(dataclasses.asdict(snapshot)))["name"] == "search"
        with pytest.raises(dataclasses.FrozenInstanceError):
            snapshot.held = 5  # type: ignore[misc]
        assert not hasattr(snapshot, "__dict__")


@BOTH
def test_a_name_is_given_or_found(kind: type[RetryBudget | TokenRetryBudget]) -> None:
    names = {kind().name for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"budget(-\d+)?", name) for name in names)


def test_a_clock_that_fails_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        def __init__(self) -> None:
            self.fails = False

        def now(self) -> float:
            if self.fails:
                raise OSError("no time")
            return 1.0

    clock, reported = Clock(), list[Any]()
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    budget = RetryBudget(clock=clock)
    permit = take(budget)
    clock.fails = True
    budget.record_request()
    permit.release()
    with pytest.raises(OSError, match="no time"):
        budget.try_retry()
    clock.fails = False
    snapshot = budget.snapshot()
    assert (snapshot.requests, snapshot.held, snapshot.admitted) == (1, 0, 1)
    assert reported


def test_threads_never_have_more_than_there_are() -> None:
    budget = RetryBudget(0.1, clock=ManualClock())
    for _ in range(1000):
        budget.record_request()
    given: list[RetryPermit] = []

    def work() -> None:
        for _ in range(1000):
            if permit := budget.try_retry():
                given.append(permit)
                permit.release()
                permit.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = budget.snapshot()
    assert len(given) == snapshot.admitted == snapshot.retries == snapshot.stray_releases == 100
    assert (snapshot.held, snapshot.rejected) == (0, 7900)


def test_the_retries_of_a_parent_are_not_its_childs() -> None:
    run(
        """
        import os, warnings
        from sluicegate import RetryBudget, TokenRetryBudget
        warnings.simplefilter("ignore", DeprecationWarning)
        budgets = [RetryBudget(), TokenRetryBudget()]
        for _ in range(20):
            budgets[0].record_request()
        held = [budget.try_retry() for budget in budgets]
        pid = os.fork()
        if pid == 0:
            for budget, permit in zip(budgets, held):
                assert budget.snapshot().held == 0
                mine = budget.try_retry()
                assert mine
                permit.release()
                assert budget.snapshot().held == 1
                mine.release()
                assert budget.snapshot().held == 0
            assert budgets[0].snapshot().requests == 0
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for budget, permit in zip(budgets, held):
            assert budget.snapshot().held == 1
            permit.release()
            assert budget.snapshot().held == 0
        assert budgets[0].snapshot().requests == 20
        """,
        is_watched=False,
    )
