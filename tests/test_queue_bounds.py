"""How long an item may wait: by the state of the queue, and by its deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from queue_support import Clock, drained, fail, learn, let_stand, made, stands, work
from sluicegate import (
    CoDelQueue,
    Criticality,
    Reason,
    Rejected,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)

SHEDDABLE, SHEDDABLE_PLUS, CRITICAL, CRITICAL_PLUS = Criticality


# How long an item may wait


def test_while_it_is_healthy_an_item_may_wait_for_the_interval() -> None:
    queue, clock, told = made()
    queue.put_nowait("a")
    clock.advance(0.3)
    queue.put_nowait("b")
    clock.advance(0.699)
    assert (queue.oldest_wait, queue.depth, told) == (0.999, 2, [])
    clock.advance(0.001)
    assert told == [("a", Reason.WAIT)]
    assert queue.get_nowait() == "b"
    assert not stands(queue)


def test_nobody_has_to_touch_the_queue_while_its_clock_runs() -> None:
    queue, clock, told = made()
    for number in range(5):
        queue.put_nowait(number)
        clock.advance(0.01)
    clock.advance(1)
    assert told == [(number, Reason.WAIT) for number in range(5)]


def test_a_queue_without_a_moment_of_health_is_standing() -> None:
    queue, clock, told = made()
    # The oldest are taken, and there always is one that has waited for longer than the target.
    for _ in range(10):
        queue.put_nowait(clock.now())
        clock.advance(0.101)
        if queue.depth > 2:
            queue.get_nowait()
        assert not stands(queue)
    clock.advance(0.1)
    assert (queue.standing, queue.depth) == (True, 0)
    assert [reason for _, reason in told] == [Reason.WAIT] * 2


@pytest.mark.parametrize("relief", ["empty", "young"])
def test_one_moment_of_health_is_enough(relief: str) -> None:
    queue, clock, told = made()
    queue.put_nowait("a")
    clock.advance(0.5)
    queue.put_nowait("b")
    clock.advance(0.25)
    if relief == "young":
        queue.put_nowait("c")
    clock.advance(0.0999)
    assert [queue.get_nowait(), queue.get_nowait()] == ["a", "b"]
    clock.advance(0.9)
    assert not stands(queue)
    assert drained(queue) == ["c"] * (relief == "young")
    assert told == []


def test_while_it_is_standing_an_item_may_wait_for_the_target() -> None:
    queue, clock, told = made()
    let_stand(queue, clock, told)
    queue.put_nowait("a")
    clock.advance(0.05)
    queue.put_nowait("b")
    clock.advance(0.0499)
    assert told == []
    clock.advance(0.0001)
    assert told == [("a", Reason.WAIT)]
    clock.advance(0.05)
    assert told == [("a", Reason.WAIT), ("b", Reason.WAIT)]


def test_it_is_healthy_again_after_an_interval_without_a_rejection() -> None:
    queue, clock, told = made()
    let_stand(queue, clock, told)
    clock.advance(0.999)
    assert stands(queue)
    clock.advance(0.001)
    assert not stands(queue)
    queue.put_nowait("a")
    clock.advance(0.999)
    assert told == []


@pytest.mark.parametrize("what", ["wait", "full", "evicted"])
def test_a_rejection_prolongs_it(what: str) -> None:
    queue, clock, told = made(2)
    let_stand(queue, clock, told)
    queue.update(capacity=1)
    clock.advance(0.4)
    if what == "wait":
        queue.put_nowait("x")
        clock.advance(0.1)
        assert told == [("x", Reason.WAIT)]
    else:
        clock.advance(0.1)
        queue.put_nowait("x")
        if what == "evicted":
            queue.put_nowait("y", criticality=CRITICAL_PLUS)
        else:
            with pytest.raises(Rejected):
                queue.put_nowait("y", criticality=SHEDDABLE)
        queue.get_nowait()
    clock.advance(0.9999)
    assert stands(queue)
    clock.advance(0.0001)
    assert not stands(queue)


def test_those_who_were_over_the_target_already_go_a_few_at_a_time() -> None:
    queue, clock, told = made(1000)
    queue.put_nowait("first")
    clock.advance(0.5)
    for number in range(300):
        queue.put_nowait(number)
    clock.advance(0.6)
    assert stands(queue)
    gone = len(told)
    assert 0 < gone < 100
    # In the order of their age, and all of them within a moment.
    clock.advance(0.02)
    assert queue.depth == 0
    assert told == [("first", Reason.WAIT), *((number, Reason.WAIT) for number in range(300))]


def test_unless_told_its_spans_follow_the_service() -> None:
    queue, clock, _ = made(target=None, interval=None)

    def spans() -> tuple[float, float]:
        snapshot = queue.snapshot()
        return snapshot.target, snapshot.interval

    assert spans() == (0.25, 1.0)
    learn(queue, clock, 0.04, 19)
    assert spans() == (0.25, 1.0)
    learn(queue, clock, 0.04, 1)
    # With one worker for as long as it needs for 18 items, were callers to wait for so long.
    assert spans() == pytest.approx((2 / 3, 1))
    queue.put_nowait("a")
    clock.advance(1)
    assert queue.depth == 0


@pytest.mark.parametrize(("service", "target", "interval"), [(0.0001, 0.005, 0.02), (3, 2 / 3, 1)])
def test_its_own_spans_are_neither_too_short_nor_too_long(
    service: float, target: float, interval: float
) -> None:
    queue, clock, _ = made(target=None, interval=None)
    learn(queue, clock, service)
    snapshot = queue.snapshot()
    assert (snapshot.target, snapshot.interval) == pytest.approx((target, interval))
    assert snapshot.service_baseline == pytest.approx(service)


def test_a_deadline_is_what_bounds_the_wait_unless_spans_are_given() -> None:
    queue, clock, told = made(target=None, interval=None)
    queue.put_nowait("patient", deadline=5)
    queue.put_nowait("other")
    clock.advance(1)
    assert told == [("other", Reason.WAIT)]
    # The queue stands, since somebody waits for longer than the target: the newest is first.
    clock.advance(1)
    queue.put_nowait("newer", deadline=5)
    assert queue.standing
    assert queue.get_nowait() == "newer"
    assert queue.get_nowait() == "patient"
    queue, clock, told = made()
    queue.put_nowait("patient", deadline=5)
    clock.advance(1)
    assert told == [("patient", Reason.WAIT)]


def test_one_span_that_is_given_gives_the_other() -> None:
    queue, clock, _ = made(target=0.01, interval=None)
    assert (queue.snapshot().target, queue.snapshot().interval) == (0.01, 0.2)
    queue, clock, _ = made(target=None, interval=0.2)
    assert (queue.snapshot().target, queue.snapshot().interval) == (0.01, 0.2)
    learn(queue, clock, 0.1)
    assert (queue.snapshot().target, queue.snapshot().interval) == (0.01, 0.2)


# Deadlines


def test_an_item_is_rejected_at_its_deadline() -> None:
    queue, clock, told = made()
    queue.put_nowait("b", deadline=0.2)
    queue.put_nowait("a", deadline=0.1)
    queue.put_nowait("c")
    clock.advance(0.0999)
    assert told == []
    clock.advance(0.0001)
    assert told == [("a", Reason.DEADLINE)]
    clock.advance(0.1)
    assert told == [("a", Reason.DEADLINE), ("b", Reason.DEADLINE)]
    assert drained(queue) == ["c"]


@pytest.mark.parametrize("deadline", [0, 0.0, -1, -1e9])
@pytest.mark.parametrize("is_full", [False, True])
def test_a_deadline_that_has_passed_is_rejected_at_once(deadline: float, is_full: bool) -> None:
    queue, _, told = made(1)
    if is_full:
        queue.put_nowait("a", criticality=SHEDDABLE)
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("b", deadline=deadline)
    assert raised.value.reason is Reason.DEADLINE
    with pytest.raises(Rejected) as raised:
        queue.put_sync("b", deadline=deadline)
    assert raised.value.reason is Reason.DEADLINE
    # Nobody makes room for what is in vain.
    assert drained(queue) == ["a"] * is_full
    assert told == []


def test_what_cannot_be_done_in_time_is_rejected() -> None:
    queue, clock, told = made()
    learn(queue, clock, 0.1)
    p95 = queue.snapshot().service_p95
    assert 0.1 <= p95 < 0.11
    queue.put_nowait("a")
    # It would have to wait, and then it is too late.
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("b", deadline=p95 - 0.001)
    assert raised.value.reason is Reason.DEADLINE
    assert raised.value.rejection.time_left == pytest.approx(p95 - 0.001)
    queue.put_nowait("c", deadline=p95 + 0.2)
    clock.advance(0.199)
    assert told == []
    clock.advance(0.005)
    assert told == [("c", Reason.DEADLINE)]
    assert drained(queue) == ["a"]


def test_the_snapshot_says_with_how_little_time_left_an_item_is_rejected() -> None:
    queue, clock, _ = made()
    learn(queue, clock, 0.1, 19)
    learn(queue, clock, 1.0, 1)
    snapshot = queue.snapshot()
    assert snapshot.service_p95 < 0.11 < 1 <= snapshot.service_estimate < 1.1
    queue.put_nowait("a")
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("b", deadline=snapshot.service_estimate - 0.001)
    assert raised.value.reason is Reason.DEADLINE
    queue.put_nowait("c", deadline=snapshot.service_estimate + 0.001)
    clock.advance(1_000)
    assert queue.snapshot().service_estimate == 0


def test_where_nobody_waits_any_remainder_is_enough_to_begin() -> None:
    queue, clock, told = made()
    learn(queue, clock, 0.1)
    queue.put_nowait("a", deadline=0.001)
    assert queue.get_nowait() == "a"
    # But not to wait.
    queue.put_nowait("b", deadline=0.001)
    clock.advance(0.0005)
    assert told == [("b", Reason.DEADLINE)]


def test_each_operation_takes_its_own_time() -> None:
    queue, clock, told = made()
    for _ in range(20):
        work(queue, clock, 0.01, "read")
        work(queue, clock, 0.1, "write")
    queue.put_nowait("a")
    queue.put_nowait("read", deadline=0.05, operation="read")
    for operation in ("write", None):
        with pytest.raises(Rejected):
            queue.put_nowait("other", deadline=0.05, operation=operation)
    # Of an operation that was never seen nothing is known.
    queue.put_nowait("new", deadline=0.03, operation="delete")
    clock.advance(0.0299)
    assert told == []
    clock.advance(0.0001)
    assert told == [("new", Reason.DEADLINE)]
    clock.advance(0.0101)
    assert told == [("new", Reason.DEADLINE), ("read", Reason.DEADLINE)]


def test_an_estimate_that_nothing_confirms_is_forgotten() -> None:
    queue, clock, _ = made()
    learn(queue, clock, 0.1)

    def is_refused(deadline: float) -> bool:
        queue.put_nowait("a")
        try:
            queue.put_nowait("b", deadline=deadline)
        except Rejected:
            return True
        finally:
            drained(queue)
        return False

    assert is_refused(0.06)
    clock.advance(3)
    assert is_refused(0.06)
    clock.advance(3)
    assert not is_refused(0.06)
    assert is_refused(0.03)
    clock.advance(4)
    assert not is_refused(0.000001)


def test_nothing_is_estimated_from_a_few() -> None:
    queue, clock, _ = made()
    learn(queue, clock, 0.1, 19)
    assert (queue.snapshot().service_p95, queue.snapshot().service_baseline) == (0.0, None)
    assert queue.snapshot().service_mean == pytest.approx(0.1)
    queue.put_nowait("a")
    queue.put_nowait("b", deadline=0.001)


def test_work_that_fails_early_teaches_nothing() -> None:
    queue, clock, _ = made()
    learn(queue, clock, 0.1)
    before = queue.snapshot()
    for service, is_lesson in [(0.05, False), (0.5, True)]:
        with pytest.raises(KeyError):
            fail(queue, clock, service)
        after = queue.snapshot()
        assert (after.service_mean > before.service_mean) is is_lesson
    assert queue.snapshot().working == 0


# Clocks


@pytest.mark.parametrize("reading", [OSError("no clock"), float("nan"), float("inf"), "1", None])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_clock_that_fails_loses_nothing(reading: Any) -> None:
    clock, told = Clock(), []
    queue: CoDelQueue[str] = CoDelQueue(
        2, target=0.1, clock=clock, on_reject=lambda item, _: told.append(item)
    )
    ticket = queue.put_nowait("a", cancellable=True)
    begun = queue.take()
    queue.put_nowait("work", criticality=CRITICAL_PLUS)
    assert begun.__enter__() == "work"
    clock.reading = reading
    attempts: list[Callable[[], Any]] = [
        lambda: queue.put_nowait("b"),
        lambda: queue.put_sync("b"),
        lambda: queue.put("b", deadline=1),
        queue.get_nowait,
        queue.get_sync,
        queue.take().__enter__,
        queue.snapshot,
        lambda: queue.depth,
        lambda: queue.cancel(ticket),
        lambda: queue.update(capacity=5),
    ]
    for attempt in attempts:
        with pytest.raises((OSError, ValueError, TypeError)):
            attempt()
    # There is no going back from the end of work, or of all: for these, time stands still.
    begun.__exit__(None, None, None)
    queue.close()
    clock.reading = 1.05
    assert (queue.capacity, queue.snapshot().working) == (2, 0)
    assert drained(queue) == ["a"]
    assert told == []


@pytest.mark.parametrize("reading", [-1.0, -1e300, 0.0, 5, True])
def test_a_clock_that_jumps_back_stands_still(reading: Any) -> None:
    clock, told = Clock(), []
    queue: CoDelQueue[int] = CoDelQueue(
        100, target=0.1, clock=clock, on_reject=lambda item, _: told.append(item)
    )
    for number, value in enumerate([10.0, reading, 11.0, reading, 12.0, reading]):
        clock.reading = value
        # What is left counts from the latest moment that was seen.
        queue.put_nowait(number, deadline=1)
        with queue.take() as item:
            clock.reading = reading
            assert item == number
        queue.put_sync(number, deadline=1, timeout=0)
        assert queue.get_sync(timeout=0) == number
    queue.put_nowait(6, deadline=1)
    clock.reading = 12.999
    assert queue.depth == 1
    clock.reading = 13.0
    assert queue.depth == 0
    assert told == [6]


def test_a_clock_at_the_end_of_time_loses_nothing() -> None:
    clock = Clock()
    told: list[str] = []
    queue: CoDelQueue[str] = CoDelQueue(
        9, target=0.1, clock=clock, on_reject=lambda item, _: told.append(item)
    )
    queue.put_nowait("a")
    clock.reading = 1e300
    assert (queue.depth, told) == (0, ["a"])
    # From now on no time is left for anything.
    queue.put_nowait("b")
    with pytest.raises(TimeoutError), queue.take(timeout=0):
        pytest.fail("it is over")
    with pytest.raises(Rejected):
        queue.put_nowait("c", deadline=1)
    clock.reading = 1.0
    queue.put_nowait("d")
    queue.close(immediate=True)
    assert told == ["a", "b", "d"]
