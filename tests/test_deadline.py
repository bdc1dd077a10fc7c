"""A deadline is a moment, wherever it is handed on."""

from __future__ import annotations

import gc
import math
import weakref
from decimal import Decimal
from typing import Any

import pytest

from sluicegate import CoDelQueue, Deadline, ManualClock, Reason, Rejected
from sluicegate.testing import use_clock

WRONG: list[tuple[Any, type[Exception]]] = [
    (math.nan, ValueError),
    (math.inf, ValueError),
    (-math.inf, ValueError),
    (3600.5, ValueError),
    (10**400, ValueError),
    ("1", TypeError),
    (b"1", TypeError),
    (True, TypeError),
    (None, TypeError),
    (2j, TypeError),
    ([1], TypeError),
]


class FailingClock:
    def __init__(self) -> None:
        self.is_failing = False

    def now(self) -> float:
        if self.is_failing:
            raise OSError("no time")
        return 5.0


@pytest.mark.parametrize(("value", "kind"), WRONG)
def test_seconds_that_cannot_be(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="seconds must be a number of seconds from now, at most 3600"):
        Deadline.after(value)


@pytest.mark.parametrize("value", [5, "now", object()])
def test_a_clock_that_cannot_be(value: Any) -> None:
    with pytest.raises(TypeError, match="clock must be"):
        Deadline.after(1, clock=value)


def test_it_cannot_be_made_otherwise() -> None:
    with pytest.raises(TypeError):
        Deadline()


@pytest.mark.parametrize("seconds", [0.25, 1, Decimal("0.5"), 3600])
def test_it_is_so_far_from_now(seconds: Any) -> None:
    clock = ManualClock(100)
    deadline = Deadline.after(seconds, clock=clock)
    assert deadline.remaining() == float(seconds)
    clock.advance(0.125)
    assert deadline.remaining() == float(seconds) - 0.125
    clock.advance(float(seconds))
    assert deadline.remaining() == 0.0


@pytest.mark.parametrize("seconds", [0, -0.0, -1, -1e300, -(10**30)])
def test_it_may_be_over_from_the_beginning(seconds: Any) -> None:
    deadline = Deadline.after(seconds, clock=ManualClock())
    assert deadline.remaining() == 0.0
    assert repr(deadline) == "<Deadline: over>"


def test_it_says_what_is_left() -> None:
    assert repr(Deadline.after(1.5, clock=ManualClock())) == "<Deadline: 1.500 s left>"


def test_it_keeps_to_the_clock_of_the_system() -> None:
    deadline = Deadline.after(3600)
    first = deadline.remaining()
    assert 3500 < deadline.remaining() <= first <= 3600


def test_a_clock_that_fails_is_heard() -> None:
    clock = FailingClock()
    deadline = Deadline.after(1, clock=clock)
    clock.is_failing = True
    with pytest.raises(OSError, match="no time"):
        deadline.remaining()
    with pytest.raises(OSError, match="no time"):
        Deadline.after(1, clock=clock)


def test_a_queue_takes_it_on_its_own_clock() -> None:
    clock = ManualClock(7)
    queue = CoDelQueue[str](10, interval=60, target=50, clock=clock)
    deadline = Deadline.after(2, clock=clock)
    clock.advance(1)
    queue.put_nowait("short", deadline=deadline)
    queue.put_nowait("long", deadline=3)
    clock.advance(1.5)
    assert queue.depth == 1
    with pytest.raises(Rejected) as error:
        queue.put_nowait("late", deadline=deadline)
    assert error.value.reason is Reason.DEADLINE
    assert queue.get_nowait() == "long"


def test_a_queue_takes_it_from_another_clock() -> None:
    """What is left counts, not what the clocks say."""
    elsewhere, clock = ManualClock(1000), ManualClock(3)
    queue = CoDelQueue[str](10, interval=60, target=50, clock=clock)
    deadline = Deadline.after(2, clock=elsewhere)
    elsewhere.advance(0.5)
    queue.put_nowait("item", deadline=deadline)
    clock.advance(1.25)
    assert queue.depth == 1
    clock.advance(0.5)
    assert queue.depth == 0


def test_it_is_collected_with_a_clock_that_has_it() -> None:
    class Holder(FailingClock):
        deadline: Deadline

    def make() -> weakref.ref[Deadline]:
        clock = Holder()
        clock.deadline = Deadline.after(1, clock=clock)
        return weakref.ref(clock.deadline)

    known = make()
    gc.collect()
    assert known() is None


def test_it_follows_a_clock_that_stands_in() -> None:
    before = Deadline.after(60)
    with use_clock(clock := ManualClock()):
        inside = Deadline.after(60)
        left = before.remaining()
        clock.advance(10)
        assert before.remaining() == pytest.approx(left - 10)
        assert inside.remaining() == 50
        clock.advance(60)
        assert inside.remaining() == 0
    assert before.remaining() == 0
    assert 0 < Deadline.after(1).remaining() <= 1
