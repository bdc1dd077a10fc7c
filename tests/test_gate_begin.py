"""What servers ask a gate: an answer at once where that is possible, and timing that can end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate import (
    Acquire,
    Gate,
    ManualClock,
    Permit,
    Reason,
    Rejected,
    Rejection,
    context,
)
from sluicegate.testing import assert_idle


def begin(gate: Gate, **ask: Any) -> Permit | Rejection | Acquire:
    return gate._begin(**ask)


def test_it_answers_at_once_where_that_is_possible() -> None:
    gate = Gate(1, max_waiting=1, clock=ManualClock())
    permit = begin(gate, operation="read")
    assert type(permit) is Permit
    assert permit.operation == "read"

    async def main() -> None:
        wish = begin(gate)
        assert type(wish) is Acquire
        assert gate.waiting == 0
        waiting = asyncio.ensure_future(wish)
        await asyncio.sleep(0)
        assert gate.waiting == 1
        rejection = begin(gate, operation="write")
        assert isinstance(rejection, Rejection)
        assert (rejection.reason, rejection.operation) == (Reason.FULL, "write")
        permit.release()
        (await waiting).release()

    asyncio.run(main())
    assert_idle(gate)
    assert (gate.snapshot().admitted, gate.snapshot().rejected[Reason.FULL]) == (2, 1)


def test_who_would_wait_and_does_not_has_taken_nothing() -> None:
    gate = Gate(1, clock=ManualClock())
    with gate.acquire():
        wish = begin(gate)
        assert type(wish) is Acquire
        wish.close()
        assert gate.waiting == 0
    assert gate.snapshot().admitted == 1


def test_an_inner_gate_is_asked_too() -> None:
    outer, inner = Gate(2, clock=ManualClock()), Gate(1, max_waiting=0, clock=ManualClock())

    async def main() -> None:
        wish = begin(outer, inner=inner)
        assert type(wish) is Acquire
        async with wish:
            assert (outer.in_flight, inner.in_flight) == (1, 1)
            refused = begin(outer, inner=inner)
            assert type(refused) is Acquire
            with pytest.raises(Rejected):
                await refused
            assert (outer.in_flight, inner.in_flight) == (1, 1)

    asyncio.run(main())
    assert_idle(outer, inner)


def test_what_the_context_says_counts() -> None:
    gate = Gate(1, clock=ManualClock())
    with context.deadline(0):
        rejection = begin(gate)
    assert isinstance(rejection, Rejection)
    assert rejection.reason is Reason.DEADLINE


@pytest.mark.parametrize("retry", [1, None, "yes"])
def test_retry_is_a_truth(retry: Any) -> None:
    gate = Gate(1)
    for ask in (gate.try_acquire, gate.acquire, gate.acquire_sync, gate._begin):
        with pytest.raises(TypeError, match="retry must be"):
            ask(retry=retry)
    assert_idle(gate)


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_is_held_after_the_answer_is_not_timed(is_answered: bool) -> None:
    clock = ManualClock()
    gate = Gate(10, clock=clock)
    for _ in range(30):
        permit = gate.try_acquire()
        assert isinstance(permit, Permit)
        clock.advance(0.1)
        if is_answered:
            permit.answered()
        clock.advance(0.9)
        # Only the first call counts.
        if is_answered:
            permit.answered()
        assert gate.in_flight == 1
        permit.release()
    assert gate.snapshot().service_mean == pytest.approx(0.1 if is_answered else 1.0)
    assert_idle(gate)


@pytest.mark.parametrize("inside", [False, True])
def test_what_it_is_held_for_before_the_work_begins_is_not_timed(inside: bool) -> None:
    clock = ManualClock()
    gate, inner = Gate(10, clock=clock), Gate(10, clock=clock)
    for _ in range(30):
        permit = gate.try_acquire(inner=inner if inside else None)
        assert isinstance(permit, Permit)
        clock.advance(0.3)
        permit.begun()
        clock.advance(0.6)
        # The last call counts.
        permit.begun()
        clock.advance(0.1)
        permit.answered()
        clock.advance(5)
        permit.release()
        permit.begun()
    for one in (gate, inner) if inside else (gate,):
        assert one.snapshot().service_mean == pytest.approx(0.1)
    assert_idle(gate, inner)


def test_of_what_was_given_back_nothing_is_timed() -> None:
    gate = Gate(1)
    permit = gate.try_acquire()
    assert isinstance(permit, Permit)
    permit.release()
    permit.answered()
    assert_idle(gate)


def test_an_inner_gate_does_not_time_it_either() -> None:
    clock = ManualClock()
    outer, inner = Gate(10, clock=clock), Gate(10, clock=clock)
    for _ in range(30):
        permit = outer.try_acquire(inner=inner)
        assert isinstance(permit, Permit)
        clock.advance(0.1)
        permit.answered()
        clock.advance(0.9)
        permit.release()
    for gate in (outer, inner):
        assert gate.snapshot().service_mean == pytest.approx(0.1)
    assert_idle(outer, inner)
