"""A throttle: what it refuses, what it remembers, and who may use it."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import threading
import weakref
from typing import Any

import pytest

from sluicegate import AdaptiveThrottle, Criticality, ManualClock, Outcome
from subprocesses import run

pytestmark = pytest.mark.timeout(60)

SHEDDABLE, CRITICAL = Criticality.SHEDDABLE, Criticality.CRITICAL


def book(**options: Any) -> AdaptiveThrottle:
    """Make one that acts at once and may refuse everything, as in the SRE book."""
    return AdaptiveThrottle(**{"max_rejection": 1, "min_requests": 0} | options)


def feed(throttle: AdaptiveThrottle, requests: int, accepts: int = 0) -> None:
    for number in range(requests):
        assert throttle._allow(None, 1.0)
        throttle.record(Outcome.SUCCESS if number < accepts else Outcome.OVERLOAD)


@pytest.mark.parametrize(
    ("requests", "accepts", "probability"),
    [
        (100, 50, 0),
        (100, 40, 0.1980),
        (100, 10, 0.7921),
        (100, 0, 0.9901),
        (1, 0, 0.5),
        (10, 0, 0.9091),
        (0, 0, 0),
    ],
)
def test_the_probability_is_that_of_the_book(
    requests: int, accepts: int, probability: float
) -> None:
    throttle = book(clock=ManualClock())
    feed(throttle, requests, accepts)
    assert throttle.rejection_probability == pytest.approx(probability, abs=5e-5)


def test_the_draw_decides() -> None:
    throttle = book(clock=ManualClock())
    feed(throttle, 100, 40)
    probability = throttle.rejection_probability
    assert not throttle._allow(None, probability - 1e-9)
    assert throttle._allow(None, throttle.rejection_probability)
    assert throttle._allow(None, float("nan"))


def test_it_draws_at_random() -> None:
    # p = 0.5, and it stays near to it: each request is fed back.
    throttle = AdaptiveThrottle(k=1, max_rejection=0.5, min_requests=0, clock=ManualClock())
    feed(throttle, 10_000)
    refused = sum(not throttle.allow() for _ in range(1000))
    assert 350 < refused < 650


def test_few_requests_and_a_failure_refuse_nothing() -> None:
    throttle = AdaptiveThrottle()
    feed(throttle, 1)
    assert throttle.rejection_probability == 0
    assert throttle._allow(None, 0.0)
    throttle.record(Outcome.OVERLOAD)
    feed(throttle, 7)
    assert throttle.rejection_probability == 0
    feed(throttle, 1)
    assert throttle.rejection_probability == 0.9
    assert not throttle._allow(None, 0.0)


def test_what_is_refused_here_counts_as_a_request() -> None:
    throttle = book(clock=ManualClock())
    feed(throttle, 10)
    for requests in range(10, 20):
        assert throttle.rejection_probability == pytest.approx(requests / (requests + 1))
        assert not throttle._allow(None, 0.0)
    assert throttle.snapshot().rejected == {CRITICAL: 10}


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.IGNORED])
def test_whatever_is_not_overload_is_an_accept(outcome: Outcome) -> None:
    throttle = book()
    for _ in range(10):
        assert throttle.allow()
        throttle.record(outcome)
    assert (throttle.snapshot().requests, throttle.snapshot().accepts) == (10, 10)


def test_the_window_ends_without_another_request() -> None:
    clock = ManualClock(1000)
    throttle = AdaptiveThrottle(clock=clock)
    feed(throttle, 100)
    clock.advance(28.9)
    assert throttle.rejection_probability == 0.9
    clock.advance(1.1)
    assert throttle.rejection_probability == 0
    assert throttle.snapshot().requests == 0


def test_requests_that_are_not_answered_yet_are_not_held_against_it() -> None:
    clock = ManualClock()
    throttle = book(clock=clock)
    for _ in range(100):
        clock.advance(0.01)
        assert throttle._allow(None, 0.0)
    assert throttle.snapshot().in_flight == 100
    for _ in range(40):
        throttle.record(Outcome.OVERLOAD)
    assert throttle.rejection_probability == 0
    for _ in range(60):
        throttle.record(Outcome.SUCCESS)
    assert throttle.rejection_probability == 0
    assert throttle.snapshot().in_flight == 0


def test_the_least_critical_are_refused_first() -> None:
    throttle = AdaptiveThrottle(clock=ManualClock())
    for number in range(100):
        assert throttle._allow(SHEDDABLE if number % 2 else None, 1.0)
        throttle.record(Outcome.SUCCESS if number < 40 else Outcome.OVERLOAD)
    assert throttle.snapshot().rejection_probability == {
        Criticality.SHEDDABLE: pytest.approx(100 * 20 / 101 / 50),
        Criticality.SHEDDABLE_PLUS: 0,
        Criticality.CRITICAL: 0,
        Criticality.CRITICAL_PLUS: 0,
    }
    assert throttle.rejection_probability == 0
    assert throttle._allow(CRITICAL, 0.0)
    assert not throttle._allow(SHEDDABLE, 0.0)
    assert throttle.snapshot().rejected == {SHEDDABLE: 1}


def test_a_probe_passes_now_and_then() -> None:
    clock = ManualClock()
    throttle = book(clock=clock)
    feed(throttle, 1000)
    passed = 0
    for _ in range(1000):
        clock.advance(0.02)
        if throttle._allow(None, 0.0):
            throttle.record(Outcome.OVERLOAD)
            passed += 1
    assert 19 <= passed <= 21


def test_a_clock_that_goes_back_changes_nothing() -> None:
    times = [100.0, 100.0, 50.0, 0.0, -5.0]

    class Clock:
        def now(self) -> float:
            return times.pop(0) if times else 1.0

    throttle = book(clock=Clock())
    feed(throttle, 10)
    assert throttle.rejection_probability == pytest.approx(10 / 11)


def test_a_clock_that_fails_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        def __init__(self) -> None:
            self.fails = False

        def now(self) -> float:
            if self.fails:
                raise OSError("no time")
            return 1.0

    clock, reported = Clock(), list[Any]()
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    throttle = book(clock=clock)
    assert throttle.allow()
    clock.fails = True
    with pytest.raises(OSError, match="no time"):
        throttle.allow()
    throttle.record(Outcome.OVERLOAD)
    clock.fails = False
    assert throttle.snapshot().outcomes == {Outcome.OVERLOAD: 1}
    assert throttle.snapshot().admitted == 1
    assert reported


def test_an_update_holds_for_what_was_counted() -> None:
    throttle = AdaptiveThrottle(clock=ManualClock())
    feed(throttle, 100, 40)
    assert throttle.rejection_probability == pytest.approx(20 / 101)
    throttle.update(k=1.5)
    assert throttle.rejection_probability == pytest.approx(40 / 101)
    throttle.update(max_rejection=0.1)
    assert throttle.rejection_probability == 0.1
    throttle.update(min_requests=101)
    assert throttle.rejection_probability == 0
    throttle.update()
    snapshot = throttle.snapshot()
    assert (snapshot.k, snapshot.max_rejection, snapshot.min_requests) == (1.5, 0.1, 101)
    assert snapshot.window == 30


def test_a_snapshot_is_a_line_and_json() -> None:
    throttle = AdaptiveThrottle(name="search", clock=ManualClock())
    assert str(throttle.snapshot()) == (
        "search: rejecting nothing | 0 of 0 accepted in 30 s, k 2 | 0 in flight | "
        "0 admitted, 0 rejected"
    )
    feed(throttle, 100, 10)
    assert throttle._allow(None, 1.0)
    for _ in range(9):
        assert not throttle._allow(None, 0.0)
    snapshot = throttle.snapshot()
    assert str(snapshot) == (
        "search: rejecting 90% SHEDDABLE 90% SHEDDABLE_PLUS 79% CRITICAL | "
        "11 of 110 accepted in 30 s, k 2 | 1 in flight | 101 admitted, 9 rejected"
    )
    values = json.loads(json.dumps(dataclasses.asdict(snapshot)))
    assert values["outcomes"] == {"success": 10, "overload": 90}
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.requests = 5  # type: ignore[misc]
    assert not hasattr(snapshot, "__dict__")
    assert repr(throttle) == "<AdaptiveThrottle 'search': rejection probability 0.79>"


def test_a_name_is_given_or_found() -> None:
    names = {AdaptiveThrottle().name for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"throttle(-\d+)?", name) for name in names)
    assert AdaptiveThrottle(name="a").name == "a"


def test_nothing_of_it_can_be_set() -> None:
    throttle = AdaptiveThrottle()
    for name in ("rejection_probability", "name", "other"):
        with pytest.raises(AttributeError):
            setattr(throttle, name, 1)


def test_it_is_collected_with_its_clock() -> None:
    class Clock:
        throttle: AdaptiveThrottle

        def now(self) -> float:
            return 1.0

    clock = Clock()
    clock.throttle = AdaptiveThrottle(clock=clock)
    alive = weakref.ref(clock.throttle)
    del clock
    gc.collect()
    assert alive() is None


def test_a_clock_may_use_the_throttle_that_asks_it() -> None:
    class Clock:
        throttle: AdaptiveThrottle | None = None

        def now(self) -> float:
            throttle, self.throttle = self.throttle, None
            if throttle is not None:
                throttle.allow()
                throttle.record(Outcome.OVERLOAD)
                throttle.snapshot()
            return 1.0

    clock = Clock()
    throttle = AdaptiveThrottle(clock=clock)
    clock.throttle = throttle
    assert throttle.allow()
    assert throttle.snapshot().admitted == 2


def test_threads_lose_no_count() -> None:
    throttle = AdaptiveThrottle(max_rejection=0.5)
    allowed: list[int] = []

    def work() -> None:
        mine = 0
        for number in range(5000):
            if throttle.allow(Criticality(number % 4)):
                mine += 1
                throttle.record(Outcome.OVERLOAD if number % 3 else Outcome.SUCCESS)
        allowed.append(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = throttle.snapshot()
    assert snapshot.admitted == sum(allowed) == sum(snapshot.outcomes.values())
    assert snapshot.admitted + sum(snapshot.rejected.values()) == 40_000
    assert snapshot.in_flight == 0


def test_a_child_knows_the_backend_and_has_nothing_in_flight() -> None:
    run(
        """
        import os, warnings
        from sluicegate import AdaptiveThrottle, Outcome
        warnings.simplefilter("ignore", DeprecationWarning)
        throttle = AdaptiveThrottle()
        for _ in range(20):
            throttle._allow(None, 1.0)
            throttle.record(Outcome.OVERLOAD)
        for _ in range(5):
            throttle._allow(None, 1.0)
        before = throttle.rejection_probability
        assert before > 0
        pid = os.fork()
        if pid == 0:
            assert throttle.snapshot().in_flight == 0
            assert throttle.rejection_probability > before
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert throttle.snapshot().in_flight == 5
        assert throttle.rejection_probability == before
        """,
        is_watched=False,
    )


def test_children_do_not_draw_alike() -> None:
    output = run(
        """
        import os, warnings
        from sluicegate import AdaptiveThrottle, Outcome
        warnings.simplefilter("ignore", DeprecationWarning)
        throttle = AdaptiveThrottle(k=1, max_rejection=0.5, min_requests=0)
        for _ in range(1000):
            throttle._allow(None, 1.0)
            throttle.record(Outcome.OVERLOAD)
        throttle.allow()
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                print("".join(str(int(throttle.allow())) for _ in range(64)), flush=True)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        """,
        is_watched=False,
    )
    assert len(set(output.split())) == 3


def test_the_kill_switch_lets_all_pass_and_counts() -> None:
    run(
        """
        import os
        os.environ["SLUICEGATE_DISABLED"] = "1"
        from sluicegate import AdaptiveThrottle, Outcome, TokenBucket

        throttle = AdaptiveThrottle(min_requests=0)
        for _ in range(200):
            assert throttle.allow()
            throttle.record(Outcome.OVERLOAD)
        assert throttle.rejection_probability > 0.8
        # Quotas are not lifted.
        bucket = TokenBucket(1)
        assert [bucket.try_take() for _ in range(2)] == [True, False]
        """
    )
