"""The controller of folly, number for number."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate import ManualClock
from sluicegate.classic import Codel

# (milliseconds, delay in milliseconds, is it to be rejected)
VECTOR = [
    (1, 20, False),
    (50, 20, False),
    (101, 20, True),
    (102, 20, True),
    (150, 11, True),
    (160, 10, False),
    (199, 20, True),
    (201, 20, True),
    (210, 4, False),
    (260, 20, True),
    (302, 20, False),
    (303, 20, False),
    (310, 50, False),
    (403, 3, False),
    (404, 50, True),
]


def test_it_is_true_to_folly() -> None:
    clock = ManualClock()
    codel = Codel(clock=clock)
    answers = []
    for at, delay, _ in VECTOR:
        clock.advance(at / 1e3 - clock.now())
        answers.append((at, delay, codel.overloaded(delay / 1e3)))
    assert answers == VECTOR


def test_the_load_is_the_least_delay_by_twice_the_target() -> None:
    codel = Codel(clock=ManualClock())
    codel.overloaded(0.004)
    assert codel.load == pytest.approx(40)
    assert repr(codel) == "<Codel: target 0.005 s, interval 0.1 s, load 40 %>"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"target": 0}, "target must be a span above 0, got 0"),
        ({"target": -1}, "target must be a number of seconds above 0"),
        ({"target": float("nan")}, "target must be a number of seconds above 0"),
        ({"interval": 0.005}, "interval must be longer than target, got 0.005"),
        ({"interval": 5000}, "seconds, not milliseconds?"),
    ],
)
def test_what_is_out_of_range_is_named(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Codel(**keywords)


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
def test_a_delay_that_is_none_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="delay must be a number of seconds from 0 to 3600"):
        Codel().overloaded(delay)


@pytest.mark.parametrize("parameter", ["target", "interval"])
@pytest.mark.parametrize("value", [None, "1", True])
def test_a_span_of_a_wrong_type_is_named(parameter: str, value: Any) -> None:
    text = rf"^{parameter} must be a number of seconds above 0 and at most 3600, got {value!r}"
    with pytest.raises(TypeError, match=text):
        Codel(**{parameter: value})
