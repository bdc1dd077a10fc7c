"""What a throttle or a retry budget cannot be is refused at once, by parameter, value and range."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from sluicegate import AdaptiveThrottle, Outcome, Reason, RetryBudget, TokenRetryBudget

NAN, INF = math.nan, math.inf

TYPES: list[tuple[Any, type[Exception]]] = [
    ("1", TypeError),
    (b"1", TypeError),
    (True, TypeError),
    (2j, TypeError),
    ([1], TypeError),
    (object(), TypeError),
]
NUMBERS: list[tuple[Any, type[Exception]]] = [
    *TYPES,
    (NAN, ValueError),
    (INF, ValueError),
    (-INF, ValueError),
    (-1, ValueError),
    (-1e-9, ValueError),
    (10**400, ValueError),
    (Decimal("NaN"), ValueError),
]
RANGES: dict[tuple[Any, str], tuple[str, list[Any]]] = {
    (AdaptiveThrottle, "k"): ("a number from 1 to 1e6", [0, 0.999, 1e6 + 1]),
    (AdaptiveThrottle, "window"): ("a number of seconds above 0 and at most 3600", [0, 3600.1]),
    (AdaptiveThrottle, "max_rejection"): ("a number from 0 to 1", [1.001]),
    (RetryBudget, "ratio"): ("a number from 0 to 1", [1.001]),
    (RetryBudget, "floor"): ("a number of retries a second from 0 to 1e6", [1e6 + 1]),
    (RetryBudget, "window"): ("a number of seconds above 0 and at most 3600", [0, 3600.1]),
    (TokenRetryBudget, "max_tokens"): ("a number from 0.001 to 1000", [0, 0.0009, 1000.1]),
    (TokenRetryBudget, "token_ratio"): ("a number from 0.001 to 1000", [0, 0.0009, 1000.1]),
}
ROWS = [
    (kind, parameter, range_, value, error)
    for (kind, parameter), (range_, beyond) in RANGES.items()
    for value, error in [*NUMBERS, *((value, ValueError) for value in beyond)]
]
ROWS += [
    (AdaptiveThrottle, "min_requests", "an integer from 0 to 1e9", value, error)
    for value, error in [
        *TYPES,
        (1.5, TypeError),
        (NAN, TypeError),
        (-1, ValueError),
        (10**9 + 1, ValueError),
        (2**70, ValueError),
    ]
]


@pytest.mark.parametrize(
    ("kind", "parameter", "range_"), list(dict.fromkeys(row[:3] for row in ROWS))
)
def test_none_is_no_default(kind: Any, parameter: str, range_: str) -> None:
    with pytest.raises(TypeError, match=f"^{parameter} must be {range_}, got None"):
        kind(**{parameter: None})
    if parameter != "window":
        made = kind()
        before = made.snapshot()
        made.update(**{parameter: None})  # leaves it as it is
        assert made.snapshot() == before


@pytest.mark.parametrize(("kind", "parameter", "range_", "value", "error"), ROWS)
def test_what_cannot_be(
    kind: Any, parameter: str, range_: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"^{parameter} must be {range_}, got ") as raised:
        kind(**{parameter: value})
    assert len(str(raised.value)) < 250
    if parameter == "window":
        return
    made = kind()
    before = made.snapshot()
    others = {name: 1 for other, name in RANGES if other is kind and name != "window"}
    with pytest.raises(error, match=f"^{parameter} must be {range_}, got "):
        made.update(**others | {parameter: value})
    assert made.snapshot() == before


def test_any_real_number_will_do() -> None:
    snapshot = AdaptiveThrottle(k=Decimal("1.5"), window=1, max_rejection=Fraction(1, 2)).snapshot()  # type: ignore[arg-type]
    assert (snapshot.k, snapshot.window, snapshot.max_rejection) == (1.5, 1.0, 0.5)
    assert RetryBudget(1, floor=0, window=3600).snapshot().window == 3600


@pytest.mark.parametrize("kind", [AdaptiveThrottle, RetryBudget])
def test_a_clock_or_name_that_cannot_be(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"clock must be .*now"):
        kind(clock=5)
    kinds: list[Any] = [kind, TokenRetryBudget]
    for made in kinds:
        with pytest.raises(TypeError, match="name must be a string or None, got 5"):
            made(name=5)
        with pytest.raises(TypeError, match="argument"):
            made(limit=5)


@pytest.mark.parametrize("value", [5, 0, 2, "CRITICAL", 2.0, True, object(), Outcome.SUCCESS])
def test_a_criticality_that_cannot_be_changes_nothing(value: Any) -> None:
    throttle = AdaptiveThrottle()
    with pytest.raises(TypeError, match="criticality must be a Criticality, or None, got "):
        throttle.allow(value)
    assert throttle.snapshot().admitted == 0


@pytest.mark.parametrize("value", [None, 0, 5, True, "success", "fine", Outcome, Reason.LIMIT])
def test_an_outcome_that_cannot_be_changes_nothing(value: Any) -> None:
    throttle = AdaptiveThrottle()
    text = r"^outcome must be Outcome\.SUCCESS, .*, got " + re.escape(repr(value))
    with pytest.raises(TypeError, match=text):
        throttle.record(value)
    assert throttle.snapshot().outcomes == {}
