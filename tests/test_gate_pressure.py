"""Shedding by pressure from outside: what is asked, when, and who is rejected for it."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import (
    Criticality,
    Gate,
    ManualClock,
    Permit,
    Reason,
    Rejection,
    context,
    pressure,
)
from sluicegate.testing import assert_idle

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(60)
C = Criticality


class Source:
    """A pressure that says what it is told, and counts how often it is asked."""

    name = "source"

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        if isinstance(self.value, BaseException):
            raise self.value
        value: float = self.value
        return value


def use(gate: Gate, **ask: Any) -> Permit | Rejection:
    answer = gate.try_acquire(**ask)
    if answer:
        assert isinstance(answer, Permit)
        answer.release()
    return answer


def shares(
    gate: Gate, clock: ManualClock, seconds: float, source: Callable[[int, int], None] | None = None
) -> dict[Criticality, float]:
    """Let all criticalities come in turn, and return what share of each was rejected at last."""
    came, rejected = Counter[Criticality](), Counter[Criticality]()
    total = int(seconds * 1000)
    for number in range(total):
        level = C(number % 4)
        answer = use(gate, criticality=level)
        if number > total // 2:
            came[level] += 1
            rejected[level] += not answer
        if source is not None:
            source(number, 1 if not answer else 0)
        clock.advance(0.001)
    return {level: rejected[level] / came[level] for level in C}


@pytest.mark.parametrize("way", ["try_acquire", "acquire_sync", "with", "await"])
def test_a_source_is_asked_at_most_every_tenth_of_a_second(way: str) -> None:
    clock = ManualClock()
    source = Source()
    gate = Gate(5, pressure=[source], clock=clock)

    async def wait() -> None:
        async with gate.acquire():
            pass

    def once() -> None:
        match way:
            case "try_acquire":
                use(gate)
            case "acquire_sync":
                gate.acquire_sync().release()
            case "with":
                with gate.acquire():
                    pass
            case "await":
                with pytest.raises(StopIteration):
                    wait().send(None)

    assert source.calls == 0
    for moment in range(10):
        for _ in range(20):
            once()
        assert source.calls == moment + 1
        clock.advance(0.05)
        once()
        assert source.calls == moment + 1
        clock.advance(0.05)
    assert_idle(gate)


def test_names_in_the_snapshot() -> None:
    def disk() -> float:
        return 0.25

    gate = Gate(5, pressure=[Source(0.5), disk, pressure.queue_wait(), pressure.cpu()])
    use(gate)
    said = gate.snapshot().pressure
    assert said["source"] == 0.5
    assert said["disk"] == 0.25
    assert "cpu" in said
    assert Gate(5).snapshot().pressure == {}


def test_sources_of_every_kind_are_taken() -> None:
    gate = Gate(
        5,
        pressure=(
            pressure.loop_lag(),
            pressure.thread_pool(),
            pressure.cpu(),
            pressure.queue_wait(),
        ),
    )

    async def main() -> None:
        async with gate.acquire():
            pass

    asyncio.run(main())
    use(gate)
    assert set(gate.snapshot().pressure) >= {"loop_lag", "thread_pool", "cpu"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 10**400, "1", None, 1j])
def test_what_is_no_pressure_harms_nobody(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))
    clock = ManualClock()
    gate = Gate(5, pressure=[Source(value), Source(0.5)], clock=clock)
    for _ in range(30):
        use(gate, criticality=C.CRITICAL_PLUS)
        clock.advance(0.1)
    assert len(reported) <= 1
    snapshot = gate.snapshot()
    assert json.loads(json.dumps(asdict(snapshot), allow_nan=False))
    assert snapshot.in_flight == 0
    if value != math.inf and value != 10**400:
        assert snapshot.rejected == {}


def test_a_source_that_raises_is_reported_once_and_counts_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))
    clock = ManualClock()
    source = Source(ValueError("disk"))
    gate = Gate(5, pressure=[source, Source(5.0)], clock=clock)
    # Nobody is rejected where nothing is in flight.
    busy = gate.acquire_sync()
    clock.advance(0.1)
    for _ in range(49):
        use(gate, criticality=C.SHEDDABLE)
        clock.advance(0.1)
    assert reported == [source.value]
    assert source.calls == 50
    # The other one counts.
    assert gate.snapshot().rejected[Reason.PRIORITY] > 10
    busy.release()


@pytest.mark.parametrize("way", ["try_acquire", "acquire_sync", "await"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_in_a_source_goes_through_and_loses_nothing(
    way: str, error: BaseException
) -> None:
    clock = ManualClock()
    source = Source(error)
    gate = Gate(1, pressure=[source], clock=clock)
    inner = Gate(1, clock=clock)

    async def wait() -> None:
        async with gate.acquire(inner=inner):
            pytest.fail("it must not run")

    ways: dict[str, Callable[[], Any]] = {
        "try_acquire": lambda: gate.try_acquire(inner=inner),
        "acquire_sync": lambda: gate.acquire_sync(inner=inner),
        "await": lambda: wait().send(None),
    }
    with pytest.raises(type(error)):
        ways[way]()
    assert_idle(gate, inner)
    source.value = 0.0
    use(gate)
    assert gate.snapshot().admitted == 1


def test_a_source_may_use_the_gate_and_is_not_asked_inside_of_itself() -> None:
    clock = ManualClock()
    depth, deepest = 0, 0

    def reentrant() -> float:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        use(gate)
        with gate.acquire(criticality=C.CRITICAL_PLUS):
            gate.snapshot()
        gate.expire()
        gate.update(limit=5)
        depth -= 1
        return 0.0

    gate = Gate(5, pressure=[reentrant], clock=clock)
    for _ in range(10):
        use(gate)
        clock.advance(0.1)
    assert deepest == 1
    assert_idle(gate)


def test_sustained_pressure_sheds_the_least_critical_first() -> None:
    clock = ManualClock()
    rejected = 0.0

    def load() -> float:
        # 1.5 times what can be done, less what is rejected, smoothed.
        return 1.5 * (1 - rejected)

    gate = Gate(100, pressure=[load], clock=clock)

    def note(_: int, is_rejected: int) -> None:
        nonlocal rejected
        rejected += (is_rejected - rejected) * 0.002

    with gate.acquire_sync():
        result = shares(gate, clock, 60, note)
    assert result[C.SHEDDABLE] > 0.95, result
    assert 0.1 < result[C.SHEDDABLE_PLUS] < 0.6, result
    assert result[C.CRITICAL] < 0.05, result
    assert result[C.CRITICAL_PLUS] == 0, result
    snapshot = gate.snapshot()
    assert snapshot.rejected[Reason.PRIORITY] > 0
    assert "rejected" in str(snapshot)


def test_a_pressure_of_two_reaches_the_critical_and_it_ends_quickly() -> None:
    clock = ManualClock()
    source = Source(2.0)
    gate = Gate(100, pressure=[source], clock=clock)
    busy = gate.acquire_sync()
    orders: list[Criticality] = []
    for number in range(20_000):
        level = C(number % 4)
        if not use(gate, criticality=level) and level not in orders:
            orders.append(level)
        clock.advance(0.001)
    # One after the other. Of all, never everything is rejected.
    assert orders == [C.SHEDDABLE, C.SHEDDABLE_PLUS, C.CRITICAL]
    rejected = gate.snapshot().rejected[Reason.PRIORITY]
    assert 0.5 < rejected / 20_000 <= 0.75
    answer = Rejection("x", "full")
    while answer := use(gate, criticality=C.SHEDDABLE):  # type: ignore[assignment]
        pass
    assert str(answer).startswith(f"gate '{gate.name}' rejected SHEDDABLE work: priority (below ")
    busy.release()
    assert use(gate, criticality=C.SHEDDABLE), "nothing is in flight"
    source.value = 0.0
    for _ in range(3000):
        use(gate, criticality=C.SHEDDABLE)
        clock.advance(0.001)
    before = gate.snapshot().rejected
    for _ in range(1000):
        assert use(gate, criticality=C.SHEDDABLE)
        clock.advance(0.001)
    assert gate.snapshot().rejected == before
    assert gate.snapshot().threshold is C.SHEDDABLE


def test_of_one_criticality_as_many_are_shed_as_it_takes() -> None:
    clock = ManualClock()
    rate = 0.0

    def load() -> float:
        return (1 - rate) / 0.7

    gate = Gate(100, pressure=[load], clock=clock)
    busy = gate.acquire_sync()
    came = rejected = 0
    for number in range(120_000):
        is_rejected = not use(gate, criticality=C.CRITICAL)
        rate += (is_rejected - rate) * 0.002
        if number >= 60_000:
            came += 1
            rejected += is_rejected
        clock.advance(0.001)
    assert rejected / came == pytest.approx(0.3, abs=0.03)
    busy.release()


def test_who_asks_again_is_shed_first() -> None:
    clock = ManualClock()
    rate = 0.0

    def load() -> float:
        return (1 - rate) / 0.7

    gate = Gate(100, pressure=[load], clock=clock)
    busy = gate.acquire_sync()
    came, rejected = Counter[bool](), Counter[bool]()
    for number in range(60_000):
        is_retry = number % 5 == 0
        is_rejected = not use(gate, criticality=C.CRITICAL, retry=is_retry)
        rate += (is_rejected - rate) * 0.002
        if number >= 30_000:
            came[is_retry] += 1
            rejected[is_retry] += is_rejected
        clock.advance(0.001)
    assert rejected[True] / came[True] > 0.95
    assert rejected[False] / came[False] == pytest.approx((0.3 - 0.2) / 0.8, abs=0.05)
    busy.release()


def test_the_same_callers_are_treated_alike_by_two_gates() -> None:
    clock = ManualClock()
    rates = [0.0, 0.0]

    def load(number: int) -> float:
        return (1 - rates[number]) / 0.6

    gates = [Gate(100, pressure=[partial(load, number)], clock=clock) for number in range(2)]
    busy = [gate.acquire_sync() for gate in gates]
    randomness = random.Random(5)
    keys = [f"user-{number}" for number in range(500)]
    seen: list[Counter[str]] = [Counter(), Counter()]
    rounds = 0
    for number in range(60_000):
        key = randomness.choice(keys)
        for place, gate in enumerate(gates):
            with context.key(key if place else "another"):
                is_rejected = not (use(gate) if place else use(gate, key=key))
            rates[place] += (is_rejected - rates[place]) * 0.002
            if number >= 30_000:
                seen[place][key] += is_rejected
        rounds += number >= 30_000
        clock.advance(0.001)
    each = rounds / len(keys)
    always = [{key for key in keys if counts[key] > 0.9 * each} for counts in seen]
    never = [{key for key in keys if counts[key] < 0.1 * each} for counts in seen]
    assert len(always[0]) + len(never[0]) > 350, "it is not the same ones"
    assert not always[0] & never[1]
    for permit in busy:
        permit.release()
    assert not always[1] & never[0]
    assert len(always[0] & always[1]) > 50
