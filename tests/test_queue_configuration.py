"""What a queue cannot be or do is refused, by name, value and range, and changes nothing."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import CoDelQueue, Criticality, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

NAN, INF = math.nan, math.inf


class Unprintable:
    def __repr__(self) -> str:
        raise OSError


class Float:
    def __float__(self) -> float:
        raise OSError


Row = tuple[Any, type[Exception], str]

CAPACITIES: list[Row] = [
    (-1, ValueError, "-1"),
    (10**9 + 1, ValueError, "1000000001"),
    (2**70, ValueError, str(2**70)),
    (-(2**70), ValueError, str(-(2**70))),
    (1.5, TypeError, "1.5"),
    (1.0, TypeError, "1.0"),
    (NAN, TypeError, "nan"),
    (INF, TypeError, "inf"),
    ("1", TypeError, "'1'"),
    (True, TypeError, "True"),
    (Decimal(1), TypeError, "Decimal"),
    ([4], TypeError, "[4]"),
    (Unprintable(), TypeError, "Unprintable"),
]
SPANS: list[Row] = [
    (0, ValueError, "0"),
    (0.0, ValueError, "0"),
    (-1, ValueError, "-1"),
    (1e-10, ValueError, ""),
    (3600.5, ValueError, "3600.5"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (-INF, ValueError, "-inf"),
    (10**400, ValueError, "1000"),
    (Decimal("NaN"), ValueError, "nan"),
    ("1", TypeError, "'1'"),
    (b"1", TypeError, "b'1'"),
    (True, TypeError, "True"),
    (2j, TypeError, "2j"),
    (object(), TypeError, "object"),
    (Float(), TypeError, "Float"),
]
SHARES: list[Row] = [
    (-0.1, ValueError, "-0.1"),
    (1.1, ValueError, "1.1"),
    (70, ValueError, "70"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (-INF, ValueError, "-inf"),
    (10**400, ValueError, "1000"),
    ("0.5", TypeError, "'0.5'"),
    (True, TypeError, "True"),
    (object(), TypeError, "object"),
    (Unprintable(), TypeError, "Unprintable"),
]
RANGES = {
    "capacity": "an integer from 0 to 1e9",
    "target": "a number of seconds above 0 and at most 3600, or None (automatic)",
    "interval": "a number of seconds above 0 and at most 3600, or None (automatic)",
    "low": "a share from 0 and below 1",
    "high": "a share above low and at most 1",
}
ROWS = {"capacity": CAPACITIES, "target": SPANS, "interval": SPANS, "low": SHARES, "high": SHARES}
ALL = [(parameter, *row) for parameter, rows in ROWS.items() for row in rows]


def names_all(error: pytest.ExceptionInfo[Exception], *parts: str) -> None:
    text = str(error.value).lower()
    assert len(text) < 300
    for part in parts:
        assert part.lower() in text


def make(**options: Any) -> CoDelQueue[Any]:
    return CoDelQueue(**({"capacity": 10} | options))


@pytest.mark.parametrize(("parameter", "value", "kind", "shown"), ALL)
def test_a_parameter_that_cannot_be(
    parameter: str, value: Any, kind: type[Exception], shown: str
) -> None:
    with pytest.raises(kind) as error:
        make(**{parameter: value})
    names_all(error, f"{parameter} must be {RANGES[parameter]}, got ", shown)


@pytest.mark.parametrize(("parameter", "value", "kind", "shown"), ALL)
def test_an_update_that_cannot_be_changes_nothing(
    parameter: str, value: Any, kind: type[Exception], shown: str
) -> None:
    queue = make(target=0.5, interval=1, clock=ManualClock())
    queue.put_nowait("a")
    before = queue.snapshot()
    # What is given beside it is not taken either.
    beside: dict[str, Any] = {"capacity": 20} if parameter != "capacity" else {"target": 0.1}
    with pytest.raises(kind) as error:
        queue.update(**beside, **{parameter: value})
    names_all(error, f"{parameter} must be {RANGES[parameter]}, got ", shown)
    assert (queue.snapshot(), queue.get_nowait()) == (before, "a")


@pytest.mark.parametrize("parameter", ["capacity", "low", "high"])
def test_none_is_no_default(parameter: str) -> None:
    with pytest.raises(TypeError, match=f"^{parameter} must be {RANGES[parameter]}, got None"):
        make(**{parameter: None})
    queue = make(clock=ManualClock())
    before = queue.snapshot()
    queue.update(**{parameter: None})  # leaves it as it is
    assert queue.snapshot() == before


@pytest.mark.parametrize("parameter", ["target", "interval"])
@pytest.mark.parametrize("value", [3601, 5000.0, 1e300])
def test_a_span_in_milliseconds_is_asked_about(parameter: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{parameter} .*\(seconds, not milliseconds\?\)"):
        make(**{parameter: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 1, "interval": 1}, "interval must be longer than target, got 1"),
        ({"target": 2, "interval": 1}, "interval must be longer than target, got 1"),
        ({"low": 0.5, "high": 0.5}, "high must be a share above low and at most 1, got 0.5"),
        ({"low": 0.7}, "high must be a share above low and at most 1, got 0.7"),
        ({"high": 0.3}, "high must be a share above low and at most 1, got 0.3"),
    ],
)
def test_what_does_not_go_together(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        make(**options)
    queue = make(target=0.5, interval=0.9, clock=ManualClock())
    before = queue.snapshot()
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        queue.update(**options)  # type: ignore[arg-type]
    assert queue.snapshot() == before


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 0},
        {"capacity": 10**9},
        {"target": 3600},
        {"target": 1e-9},
        {"interval": 3600},
        {"target": 1e-9, "interval": 2e-9},
        {"target": Fraction(1, 8), "interval": Decimal("0.25")},
        {"low": 0, "high": 1e-9},
        {"low": 0.999, "high": 1},
        {"low": Decimal("0.25"), "high": Fraction(1, 2)},
        {"target": None, "interval": None, "on_reject": None, "on_high": None, "on_low": None},
        {"name": None, "clock": None},
        {"name": ""},
    ],
)
def test_what_can_be(options: dict[str, Any]) -> None:
    queue = make(**options)
    assert queue.capacity == options.get("capacity", 10)
    with pytest.raises(asyncio.QueueEmpty):
        queue.get_nowait()


async def later(*_: object) -> None:
    """Nobody would await it."""


@pytest.mark.parametrize("hook", ["on_reject", "on_high", "on_low"])
@pytest.mark.parametrize("value", [5, "print", [], True, later])
def test_a_hook_that_cannot_be_called(hook: str, value: Any) -> None:
    with pytest.raises(TypeError) as error:
        make(**{hook: value})
    names_all(error, f"{hook} must be callable and not async, or None, got {value!r}")


@pytest.mark.parametrize("value", [5, b"name", True, object()])
def test_a_name_that_cannot_be(value: Any) -> None:
    with pytest.raises(TypeError) as error:
        make(name=value)
    names_all(error, "name must be a string or None, got", repr(value)[:20])


@pytest.mark.parametrize("value", [5, "now", object(), {"now": 1}])
def test_a_clock_that_cannot_be(value: Any) -> None:
    with pytest.raises(TypeError) as error:
        make(clock=value)
    names_all(error, "clock must be", "now()", "None", repr(value)[:20])


@pytest.mark.parametrize(
    "options", [{"maxsize": 5}, {"capacity": 5, "limit": 2}, {"on_evict": print}, {}]
)
def test_a_misspelt_parameter(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="argument"):
        CoDelQueue(**options)


PUTS: list[Callable[..., Any]] = [
    lambda queue, **terms: queue.put_nowait("x", **terms),
    lambda queue, **terms: queue.put("x", **terms),
    lambda queue, **terms: queue.put_sync("x", **terms),
]
DEADLINES: list[Row] = [
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (-INF, ValueError, "-inf"),
    (3600.5, ValueError, "3600.5"),
    (5000, ValueError, "seconds, not milliseconds?"),
    (10**400, ValueError, "1000"),
    (-(10**400), ValueError, "-1000"),
    ("1", TypeError, "'1'"),
    (True, TypeError, "True"),
    (object(), TypeError, "object"),
]
TIMEOUTS: list[Row] = [
    (-1, ValueError, "-1"),
    (-1e-9, ValueError, "-1e-09"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (3600.5, ValueError, "3600.5"),
    (5000, ValueError, "seconds, not milliseconds?"),
    (10**400, ValueError, "1000"),
    ("1", TypeError, "'1'"),
    (True, TypeError, "True"),
    (object(), TypeError, "object"),
]


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize(("value", "kind", "shown"), DEADLINES)
def test_a_deadline_that_cannot_be_changes_nothing(
    put: Callable[..., Any], value: Any, kind: type[Exception], shown: str
) -> None:
    queue = make(clock=ManualClock())
    before = queue.snapshot()
    with pytest.raises(kind) as error:
        put(queue, deadline=value)
    names_all(
        error,
        "deadline must be a number of seconds from now, at most 3600, a Deadline, or None",
        shown,
    )
    assert queue.snapshot() == before


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("value", [2, 0, "CRITICAL", True, 5.0, object()])
def test_a_criticality_that_cannot_be_changes_nothing(put: Callable[..., Any], value: Any) -> None:
    queue = make(clock=ManualClock())
    before = queue.snapshot()
    with pytest.raises(TypeError) as error:
        put(queue, criticality=value)
    names_all(error, "criticality must be a Criticality, or None, got", repr(value)[:20])
    assert queue.snapshot() == before


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("value", [5, b"read", True, object()])
def test_an_operation_that_cannot_be_changes_nothing(put: Callable[..., Any], value: Any) -> None:
    queue = make(clock=ManualClock())
    before = queue.snapshot()
    with pytest.raises(TypeError) as error:
        put(queue, operation=value)
    names_all(error, "operation must be a string or None, got", repr(value)[:20])
    assert queue.snapshot() == before


@pytest.mark.parametrize("put", PUTS)
def test_an_operation_that_no_encoding_knows_is_one_too(put: Callable[..., Any]) -> None:
    queue = make(clock=ManualClock())
    await_if_needed(put(queue, operation="\ud800"))
    assert (queue.depth, queue.snapshot().accepted) == (1, 1)


def await_if_needed(given: Any) -> None:
    async def main() -> None:
        await given

    if given is not None:
        asyncio.run(main())


@pytest.mark.parametrize("put", PUTS)
def test_what_is_none_is_by_default(put: Callable[..., Any]) -> None:
    queue = make(clock=ManualClock())
    await_if_needed(put(queue, criticality=None, deadline=None, operation=None))
    await_if_needed(put(queue, criticality=Criticality.SHEDDABLE, deadline=1, operation=""))
    assert queue.depth == 2


@pytest.mark.parametrize(
    "wait",
    [
        lambda queue, timeout: queue.put("x", timeout=timeout),
        lambda queue, timeout: queue.put_sync("x", timeout=timeout),
        lambda queue, timeout: queue.get(timeout=timeout),
        lambda queue, timeout: queue.get_sync(timeout=timeout),
        lambda queue, timeout: queue.take(timeout=timeout),
    ],
)
@pytest.mark.parametrize(("value", "kind", "shown"), TIMEOUTS)
def test_a_timeout_that_cannot_be_changes_nothing(
    wait: Callable[..., Any], value: Any, kind: type[Exception], shown: str
) -> None:
    queue = make(clock=ManualClock())
    queue.put_nowait("a")
    before = queue.snapshot()
    with pytest.raises(kind) as error:
        wait(queue, value)
    names_all(error, "timeout must be a number of seconds from 0 to 3600, or None", shown)
    assert queue.snapshot() == before


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-1, ValueError),
        (2**200, ValueError),
        (None, TypeError),
        ("1", TypeError),
        (1.0, TypeError),
        (True, TypeError),
    ],
)
def test_a_ticket_that_cannot_be(value: Any, kind: type[Exception]) -> None:
    queue = make()
    queue.put_nowait("a")
    with pytest.raises(kind) as error:
        queue.cancel(value)
    names_all(error, "ticket must be what put returned, got", str(value))
    assert queue.get_nowait() == "a"


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.put_nowait(),
        lambda queue: queue.put_nowait("x", "y"),
        lambda queue: queue.put_nowait(item="x"),
        lambda queue: queue.put_nowait("x", timeout=1),
        lambda queue: queue.get_nowait(timeout=1),
        lambda queue: queue.get(1),
        lambda queue: queue.take(1),
        lambda queue: queue.close(True),
        lambda queue: queue.update(5),
        lambda queue: queue.cancel(),
    ],
)
def test_what_is_no_argument(call: Callable[[Any], Any]) -> None:
    queue = make()
    with pytest.raises(TypeError, match="argument"):
        call(queue)
    assert queue.depth == 0


@pytest.mark.parametrize("name", ["capacity", "depth", "saturation", "standing", "closed", "name"])
def test_what_it_says_about_itself_cannot_be_set(name: str) -> None:
    queue: Any = make()
    with pytest.raises(AttributeError):
        setattr(queue, name, 1)
    with pytest.raises(AttributeError):
        queue.anything = 1
