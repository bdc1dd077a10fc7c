"""What cannot be is refused at once, by parameter, value and range, and changes nothing."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from sluicegate import ManualClock, SemaphoreLimiter

NAN, INF = math.nan, math.inf


class Unprintable:
    def __repr__(self) -> str:
        raise OSError


class Float:
    def __float__(self) -> float:
        raise OSError


LIMITS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, "0"),
    (0.0, ValueError, "0"),
    (-1, ValueError, "-1"),
    (-0.5, ValueError, "-0.5"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (-INF, ValueError, "-inf"),
    (1e10, ValueError, "10000000000"),
    (10**400, ValueError, "1000"),
    (Decimal("NaN"), ValueError, "nan"),
    ("64", TypeError, "'64'"),
    (b"64", TypeError, "b'64'"),
    (None, TypeError, "None"),
    (True, TypeError, "True"),
    (2j, TypeError, "2j"),
    ([4], TypeError, "[4]"),
    (object(), TypeError, "object"),
    (Unprintable(), TypeError, "Unprintable"),
    (Float(), TypeError, "Float"),
]
COSTS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, "0"),
    (-1, ValueError, "-1"),
    (10**9 + 1, ValueError, "1000000001"),
    (2**70, ValueError, str(2**70)),
    (-(2**70), ValueError, str(-(2**70))),
    (1.5, TypeError, "1.5"),
    (1.0, TypeError, "1.0"),
    (NAN, TypeError, "nan"),
    ("1", TypeError, "'1'"),
    (None, TypeError, "None"),
    (True, TypeError, "True"),
    (Decimal(1), TypeError, "Decimal"),
    (object(), TypeError, "object"),
]
TIMEOUTS: list[tuple[Any, type[Exception], str]] = [
    (-1, ValueError, "-1"),
    (-1e-9, ValueError, "-1e-09"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (3600.5, ValueError, "3600.5"),
    (10**400, ValueError, "1000"),
    ("1", TypeError, "'1'"),
    (True, TypeError, "True"),
    (object(), TypeError, "object"),
]


def names_all(error: pytest.ExceptionInfo[Exception], *parts: str) -> None:
    text = str(error.value).lower()
    for part in parts:
        assert part.lower() in text


@pytest.mark.parametrize(("value", "kind", "shown"), LIMITS)
def test_a_limit_that_cannot_be(value: Any, kind: type[Exception], shown: str) -> None:
    with pytest.raises(kind) as error:
        SemaphoreLimiter(value)
    names_all(error, "limit must be", "above 0", "1e9", f"got {shown}" if "<" in shown else shown)


@pytest.mark.parametrize(
    ("value", "limit"),
    [(1, 1.0), (0.25, 0.25), (1e9, 1e9), (Decimal("2.5"), 2.5), (Fraction(1, 2), 0.5)],
)
def test_any_real_number_is_a_limit(value: Any, limit: float) -> None:
    assert SemaphoreLimiter(value).limit == limit


@pytest.mark.parametrize(("value", "kind", "shown"), [row for row in LIMITS if row[0] is not None])
def test_an_update_that_cannot_be_changes_nothing(
    value: Any, kind: type[Exception], shown: str
) -> None:
    limiter = SemaphoreLimiter(3)
    if value == 0:
        limiter.update(limit=value)
        assert limiter.limit == 0
        return
    before = limiter.snapshot()
    with pytest.raises(kind) as error:
        limiter.update(limit=value)
    names_all(error, "limit must be", "from 0", "1e9", shown)
    assert limiter.snapshot() == before


@pytest.mark.parametrize("method", ["try_acquire", "acquire", "acquire_sync"])
@pytest.mark.parametrize(("value", "kind", "shown"), COSTS)
def test_a_cost_that_cannot_be_changes_nothing(
    method: str, value: Any, kind: type[Exception], shown: str
) -> None:
    limiter = SemaphoreLimiter(3)
    before = limiter.snapshot()
    with pytest.raises(kind) as error:
        getattr(limiter, method)(value)
    names_all(error, "cost must be", "integer from 1 to 1e9", shown)
    assert limiter.snapshot() == before


@pytest.mark.parametrize("method", ["acquire", "acquire_sync"])
@pytest.mark.parametrize(("value", "kind", "shown"), TIMEOUTS)
def test_a_timeout_that_cannot_be_changes_nothing(
    method: str, value: Any, kind: type[Exception], shown: str
) -> None:
    limiter = SemaphoreLimiter(3)
    before = limiter.snapshot()
    with pytest.raises(kind) as error:
        getattr(limiter, method)(timeout=value)
    names_all(error, "timeout must be", "seconds from 0 to 3600", shown)
    assert limiter.snapshot() == before


@pytest.mark.parametrize("value", [3601, 5000.0, 1e300])
def test_a_timeout_in_milliseconds_is_asked_about(value: float) -> None:
    with pytest.raises(ValueError, match="seconds, not milliseconds\\?"):
        SemaphoreLimiter(1).acquire(timeout=value)


def test_a_huge_value_does_not_make_a_huge_message() -> None:
    with pytest.raises(ValueError, match="limit must be") as error:
        SemaphoreLimiter(10**4000)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("value", [5, "now", object(), {"now": 1}])
def test_a_clock_that_cannot_be(value: Any) -> None:
    with pytest.raises(TypeError) as error:
        SemaphoreLimiter(3, clock=value)
    names_all(error, "clock must be", "now()", "None", repr(value)[:20])


@pytest.mark.parametrize("value", [5, b"name", True, object()])
def test_a_name_that_cannot_be(value: Any) -> None:
    with pytest.raises(TypeError) as error:
        SemaphoreLimiter(3, name=value)
    names_all(error, "name", "str", repr(value)[:20])


@pytest.mark.parametrize("method", ["try_acquire", "acquire", "acquire_sync"])
def test_an_operation_that_cannot_be_changes_nothing(method: str) -> None:
    limiter = SemaphoreLimiter(3)
    before = limiter.snapshot()
    with pytest.raises(TypeError) as error:
        getattr(limiter, method)(operation=5)
    names_all(error, "operation", "str", "5")
    assert limiter.snapshot() == before


def test_an_operation_that_is_set_to_no_string() -> None:
    limiter = SemaphoreLimiter(3)
    with limiter.acquire_sync(operation="GET /") as permit:
        with pytest.raises(TypeError) as error:
            permit.operation = 5  # type: ignore[assignment]
        names_all(error, "operation", "str", "5")
        assert permit.operation == "GET /"


@pytest.mark.parametrize("options", [{"cost": 0}, {"cost": "1"}, {"cost": None}, {"operation": 5}])
def test_a_guard_that_cannot_be_is_refused_where_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=f"{next(iter(options))}"):
        SemaphoreLimiter(3).guard(**options)


@pytest.mark.parametrize(
    "arguments", [{"cost": 2}, {"limt": 2}, {"name": None, "clock": None, "other": 1}]
)
def test_a_misspelt_parameter(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="argument"):
        SemaphoreLimiter(3, **arguments)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-1, ValueError),
        (NAN, ValueError),
        (INF, ValueError),
        ("1", TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_a_manual_clock_that_cannot_be(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="start must be a finite number of seconds"):
        ManualClock(value)
    clock = ManualClock(2)
    with pytest.raises(kind, match="seconds must be a finite number of seconds"):
        clock.advance(value)
    assert clock.now() == 2.0
