"""What a gate decides, in which order, and what it says of it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from event_loops import KINDS, run_on
from gate_use import refuse, take, turns
from sluicegate import (
    Criticality,
    Deadline,
    DeadlineExceeded,
    Gate,
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejected,
    Rejection,
    TokenBucket,
    context,
)
from sluicegate.testing import assert_idle, rejecting

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)
C = Criticality


async def refused(wish: Any) -> Rejection:
    with pytest.raises(Rejected) as raised:
        await wish
    return raised.value.rejection


def overload(gate: Gate, clock: ManualClock, seconds: float = 30.0) -> None:
    """Let somebody come every 10 ms, for the pressure to count."""
    for _ in range(int(seconds * 100)):
        permit = gate.try_acquire(criticality=C.SHEDDABLE)
        if permit:
            permit.release()
        clock.advance(0.01)


# The order of decisions


def test_the_order_of_decisions() -> None:
    # All that could be wrong is, and is put right, one after the other.
    clock = ManualClock()
    bucket = TokenBucket(1, burst=2, clock=clock)
    high = [4.0]
    gate = Gate(1, name="api", max_waiting=0, rate=bucket, pressure=[lambda: high[0]], clock=clock)
    overload(gate, clock)
    clock.advance(0.05)
    bucket.try_take(2)
    bucket.adjust(-2)
    late: dict[str, Any] = {"deadline": 0, "criticality": C.SHEDDABLE}
    early: dict[str, Any] = {"criticality": C.SHEDDABLE}
    gate.close()
    with rejecting(gate, Reason.STREAMS, retry_after=7):
        rejection = refuse(gate, **late)
        assert (rejection.reason, rejection.retry_after) == (Reason.STREAMS, 7.0)
    rejection = refuse(gate, **late)
    assert (rejection.reason, rejection.retry_after) == (Reason.CLOSED, None)

    gate = Gate(1, name="api", max_waiting=0, rate=bucket, pressure=[lambda: high[0]], clock=clock)
    bucket.adjust(+4)
    overload(gate, clock)
    held: Permit | Rejection = Rejection("api", "limit")
    while not held:
        held = gate.try_acquire(criticality=C.CRITICAL_PLUS)
    while bucket.try_take():
        pass
    assert refuse(gate, **late).reason is Reason.DEADLINE
    rejection = refuse(gate, **early)
    assert (rejection.reason, rejection.status) == (Reason.RATE, 429)
    bucket.adjust(+2)
    rejection = refuse(gate, **early)
    assert (rejection.reason, rejection.status) == (Reason.PRIORITY, 503)
    high[0] = 0.0
    for _ in range(50):
        clock.advance(0.1)
        gate.try_acquire(criticality=C.SHEDDABLE)
    bucket.adjust(+2)
    assert refuse(gate, **early).reason is Reason.LIMIT
    assert isinstance(held, Permit)
    held.release()
    take(gate, **early).release()
    assert_idle(gate)


def test_reasons_in_line() -> None:
    clock = ManualClock()
    gate = Gate(1, max_waiting=2, max_wait=0.5, clock=clock)

    async def main() -> None:
        held = take(gate)
        waits = {
            "evicted": asyncio.ensure_future(gate.acquire(criticality=C.SHEDDABLE)),
            "deadline": asyncio.ensure_future(gate.acquire(deadline=0.25)),
        }
        await turns()
        rejection = await refused(gate.acquire(criticality=C.SHEDDABLE))
        assert rejection.reason is Reason.FULL
        assert (rejection.in_flight, rejection.waiting, rejection.limit) == (1, 2, 1.0)
        waits["wait"] = asyncio.ensure_future(gate.acquire())
        await clock.settle(0.25)
        await clock.settle(0.25)
        waits["closed"] = asyncio.ensure_future(gate.acquire())
        await turns()
        gate.close()
        await turns()
        for name, wait in waits.items():
            error = wait.exception()
            assert isinstance(error, Rejected), name
            assert error.reason.value == name
            assert isinstance(error, DeadlineExceeded) == (name == "deadline")
            assert isinstance(error, TimeoutError) == (name == "deadline")
            assert error.rejection.status == 503
        held.release()
        assert_idle(gate)
        rejected = gate.snapshot().rejected
        assert rejected == {
            Reason(name): 1 for name in ("full", "evicted", "deadline", "wait", "closed")
        }

    asyncio.run(main())


def test_the_texts_of_rejections() -> None:
    clock = ManualClock()
    gate = Gate(1, name="api", max_waiting=1, max_wait=0.5, clock=clock)

    async def main() -> None:
        with take(gate, operation="GET /search"):
            rejection = refuse(gate, criticality=C.SHEDDABLE, operation="GET /search")
            text = "gate 'api' rejected SHEDDABLE 'GET /search': limit (1 in flight, limit 1)"
            assert str(rejection).startswith(text + "; retry after ")
            waiting = asyncio.ensure_future(gate.acquire(operation="GET /a"))
            await turns()
            text = "gate 'api' rejected CRITICAL work: full (1 of 1 waiting, 1 in flight, limit 1)"
            assert str(await refused(gate.acquire())).startswith(text)
            text = "gate 'api' rejected CRITICAL work: deadline (no time left)"
            assert str(refuse(gate, deadline=0)).startswith(text)
            await clock.settle(1)
            error = waiting.exception()
            assert isinstance(error, Rejected)
            assert str(error).startswith("gate 'api' rejected CRITICAL 'GET /a': wait (for too")
        gate.close()
        assert str(refuse(gate)) == "gate 'api' rejected CRITICAL work: closed"

    asyncio.run(main())


def test_when_to_come_back_is_spread() -> None:
    clock = ManualClock()
    gate = Gate(1, max_waiting=0, clock=clock)
    with take(gate):
        # Nothing has ended yet, so that nobody knows.
        spans = [refuse(gate).retry_after for _ in range(200)]
    assert all(span is not None and 1 <= span <= 2 for span in spans)
    assert len(set(spans)) > 100
    # 20 rejections for each that ends: 5 s times 20, and twice that at most; 60 s at most.
    for share, low, high in ((2, 10.0, 20.0), (200, 60.0, 120.0)):
        for _ in range(20):
            clock.advance(1)
            with take(gate):
                for _ in range(share):
                    refuse(gate)
        clock.advance(0.02)
        with take(gate):
            told = [refuse(gate).retry_after or 0.0 for _ in range(50)]
        assert low * 0.6 <= min(told), told
        assert max(told) <= high * 1.4
        assert max(told) <= 120


def test_a_rate_says_when_there_is_enough() -> None:
    clock = ManualClock()
    bucket = TokenBucket(0.1, burst=10, clock=clock)
    gate = Gate(10, rate=bucket, clock=clock)
    take(gate, tokens=10).release()
    rejection = refuse(gate, tokens=5)
    assert rejection.reason is Reason.RATE
    assert rejection.retry_after is not None
    assert rejection.retry_after >= bucket.retry_after(5) == 50.0


# Costs and limits, as at a limiter


@pytest.mark.parametrize("cost", [4, 10**9])
def test_a_cost_above_the_limit_runs_alone(cost: int) -> None:
    gate = Gate(3, clock=ManualClock())
    with take(gate):
        refuse(gate, cost)
    with take(gate, cost):
        assert gate.in_flight == cost
        refuse(gate)
    assert_idle(gate)


@pytest.mark.parametrize("limit", [0.25, 0.5])
def test_a_limit_below_one_rests_between_two(limit: float) -> None:
    clock = ManualClock()
    gate = Gate(limit, clock=clock)
    with take(gate):
        clock.advance(1.0)
        refuse(gate)
    rest = 1 / limit - 1
    clock.advance(rest * 0.99)
    refuse(gate)
    clock.advance(rest * 0.02)
    take(gate).release()


@pytest.mark.parametrize("options", [{"max_waiting": 0}, {"max_wait": 0}])
def test_without_a_line_nobody_waits(options: dict[str, Any]) -> None:
    gate = Gate(1, **options)

    async def main() -> None:
        assert (await refused(gate.acquire())).reason is Reason.LIMIT

    with take(gate):
        asyncio.run(main())
        with pytest.raises(Rejected):
            gate.acquire_sync()
        with pytest.raises(Rejected), gate.acquire():
            pytest.fail("it must not run")
    assert_idle(gate)


@pytest.mark.parametrize("method", ["try_acquire", "acquire", "acquire_sync"])
@pytest.mark.parametrize(
    ("ask", "kind", "text"),
    [
        ({"criticality": 2}, TypeError, "criticality must be a Criticality, or None, got 2"),
        ({"criticality": "CRITICAL"}, TypeError, "criticality must be a Criticality"),
        ({"deadline": "1"}, TypeError, "deadline must be a number of seconds from now"),
        ({"deadline": True}, TypeError, "deadline must be a number of seconds from now"),
        ({"deadline": float("nan")}, ValueError, "deadline must be a number of seconds from"),
        ({"deadline": 5000}, ValueError, "deadline .*seconds, not milliseconds\\?"),
        ({"key": 5}, TypeError, "key must be a string or None, got 5"),
        ({"key": b"me"}, TypeError, "key must be a string or None"),
        ({"tokens": -1}, ValueError, "tokens must be a number of tokens from 0 to the burst"),
        ({"tokens": 1e10}, ValueError, "tokens must be a number of tokens from 0 to the burst"),
        ({"tokens": float("nan")}, ValueError, "tokens must be a number of tokens from 0"),
        ({"tokens": "1"}, TypeError, "tokens must be a number of tokens from 0 to the burst"),
        ({"tokens": 6}, ValueError, "burst"),
        ({"operation": 5}, TypeError, "operation must be a string or None, got 5"),
        ({"inner": 5}, TypeError, "inner must be another Gate, or None, got 5"),
        ({"timeout": 5}, TypeError, "timeout"),
    ],
)
def test_an_ask_that_cannot_be_changes_nothing(
    method: str, ask: dict[str, Any], kind: type[Exception], text: str
) -> None:
    gate = Gate(1, rate=TokenBucket(5), clock=ManualClock())
    before = gate.snapshot()
    with pytest.raises(kind, match=text):
        getattr(gate, method)(**ask)
    assert gate.snapshot() == before
    with pytest.raises(ValueError, match="got the same one"):
        getattr(gate, method)(inner=gate)
    for cost in (0, -1, 10**9 + 1):
        with pytest.raises(ValueError, match="cost must be an integer from 1 to 1e9"):
            getattr(gate, method)(cost)
    assert gate.snapshot() == before


# What is left out is as the context says


def gate_for_context(clock: ManualClock) -> tuple[Gate, TokenBucket]:
    bucket = TokenBucket(1, burst=100, clock=clock)
    return Gate(1, max_waiting=100, rate=bucket, clock=clock), bucket


WAYS: dict[str, Callable[..., Any]] = {
    "try_acquire": Gate.try_acquire,
    "acquire_sync": Gate.acquire_sync,
    "with": lambda gate, **ask: gate.acquire(**ask).__enter__(),
    "await": lambda gate, **ask: asyncio.run(awaited(gate, ask)),
}


async def awaited(gate: Gate, ask: dict[str, Any]) -> Permit:
    return await gate.acquire(**ask)


def outcome_of(way: str, gate: Gate, **ask: Any) -> Permit | Rejection:
    try:
        answer = WAYS[way](gate, **ask)
    except Rejected as error:
        return error.rejection
    assert isinstance(answer, (Permit, Rejection))
    return answer


@pytest.mark.parametrize("way", WAYS)
def test_what_is_left_out_is_as_the_context_says(way: str) -> None:
    clock = ManualClock()
    gate, bucket = gate_for_context(clock)
    with (
        context.criticality(C.SHEDDABLE_PLUS),
        context.tokens(30),
        context.operation("GET /a"),
        context.key("me"),
    ):
        permit = outcome_of(way, gate)
        assert isinstance(permit, Permit)
        assert permit.operation == "GET /a"
        assert bucket.try_take(70)
        assert not bucket.try_take(1)
        permit.release()
        with context.deadline(0):
            rejection = outcome_of(way, gate)
            assert isinstance(rejection, Rejection)
            assert rejection.criticality is C.SHEDDABLE_PLUS
            assert rejection.reason is Reason.DEADLINE
            assert "'GET /a'" in str(rejection)
    bucket.adjust(10)
    # The block is over.
    permit = outcome_of(way, gate)
    assert isinstance(permit, Permit)
    assert permit.operation is None
    assert bucket.try_take(9)
    assert not bucket.try_take(1)
    permit.release()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_given_wins(way: str) -> None:
    clock = ManualClock()
    gate, bucket = gate_for_context(clock)
    with (
        context.criticality(C.SHEDDABLE_PLUS),
        context.tokens(30),
        context.operation("GET /a"),
        context.key("me"),
    ):
        permit = outcome_of(way, gate, tokens=50, operation="POST /b", key="you")
        assert isinstance(permit, Permit)
        assert permit.operation == "POST /b"
        assert bucket.try_take(50)
        assert not bucket.try_take(1)
        permit.release()
        rejection = outcome_of(way, gate, criticality=C.CRITICAL_PLUS, deadline=0)
        assert isinstance(rejection, Rejection)
        assert rejection.criticality is C.CRITICAL_PLUS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", [None, 30, "Deadline"])
def test_a_deadline_of_the_context_is_never_extended(way: str, given: Any) -> None:
    clock = ManualClock()
    gate = Gate(1, clock=clock)
    if given == "Deadline":
        given = Deadline.after(30, clock=clock)
    with context.deadline(Deadline.after(5, clock=clock)):
        clock.advance(4.9)
        permit = outcome_of(way, gate, deadline=given)
        assert isinstance(permit, Permit)
        permit.release()
        clock.advance(0.2)
        rejection = outcome_of(way, gate, deadline=given)
        assert isinstance(rejection, Rejection)
        assert rejection.reason is Reason.DEADLINE
    with context.deadline(Deadline.after(5, clock=clock)):
        assert outcome_of(way, gate, deadline=0).reason is Reason.DEADLINE  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_outlives_the_request_is_not_bound_by_its_deadline(kind: str) -> None:
    clock = ManualClock()
    gate = Gate(1, clock=clock)

    async def refresh(begin: asyncio.Event) -> Permit:
        await begin.wait()
        return await gate.acquire()

    async def main() -> None:
        begin, bound, both = asyncio.Event(), asyncio.Event(), asyncio.Event()
        with context.deadline(Deadline.after(1, clock=clock)), context.criticality(C.SHEDDABLE):
            late = asyncio.create_task(refresh(begin))
            inside = asyncio.create_task(refresh(bound))
            with context.detached():
                apart = asyncio.create_task(refresh(both))
            clock.advance(2)
            bound.set()
            assert (await refused(inside)).criticality is C.SHEDDABLE
            both.set()
            (await apart).release()
        begin.set()
        (await late).release()

    run_on(kind, main())


def test_a_deadline_of_another_clock_counts_by_what_is_left() -> None:
    clock, other = ManualClock(1000), ManualClock(5)
    gate = Gate(1, clock=clock)
    with context.deadline(Deadline.after(10, clock=other)):
        take(gate).release()
        clock.advance(500)
        take(gate).release()
        other.advance(10)
        assert refuse(gate).reason is Reason.DEADLINE


# Criticality


def test_the_line_is_served_by_criticality_and_then_in_order() -> None:
    clock = ManualClock()
    gate = Gate(1, max_waiting=100, clock=clock)
    order: list[tuple[Criticality, int]] = []

    async def work(level: Criticality, number: int) -> None:
        async with gate.acquire(criticality=level):
            order.append((level, number))

    async def main() -> None:
        held = take(gate)
        tasks = [
            asyncio.create_task(work(level, number))
            for number, level in enumerate([*C, *reversed(C), *C])
        ]
        await turns()
        assert gate.waiting == 12
        # Nobody overtakes who waits and matters as much.
        refuse(gate, criticality=C.CRITICAL_PLUS)
        held.release()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == sorted(order, key=lambda each: (-each[0], each[1]))
    assert_idle(gate)


def test_try_acquire_passes_those_who_matter_less() -> None:
    gate = Gate(2, clock=ManualClock())

    async def main() -> None:
        first, second = take(gate), take(gate)
        large = asyncio.ensure_future(gate.acquire(2, criticality=C.SHEDDABLE))
        await turns()
        first.release()
        refuse(gate, criticality=C.SHEDDABLE)
        with take(gate, criticality=C.CRITICAL):
            pass
        second.release()
        (await large).release()

    asyncio.run(main())
    assert_idle(gate)


def test_a_full_line_evicts_who_matters_less() -> None:
    clock = ManualClock()
    gate = Gate(1, max_waiting=3, clock=clock)

    async def main() -> None:
        held = take(gate)
        low = [asyncio.ensure_future(gate.acquire(criticality=C.SHEDDABLE)) for _ in range(3)]
        await turns()
        high = [asyncio.ensure_future(gate.acquire(criticality=C.CRITICAL)) for _ in range(2)]
        await turns()
        # The one that would have run last goes first.
        assert [wait.done() for wait in low] == [False, True, True]
        for wait in low[1:]:
            assert (await refused(wait)).reason is Reason.EVICTED
        assert (await refused(gate.acquire(criticality=C.SHEDDABLE))).reason is Reason.FULL
        held.release()
        for wait in [*high, low[0]]:
            (await wait).release()

    asyncio.run(main())
    assert_idle(gate)


def test_the_newest_goes_first_while_the_line_is_standing() -> None:
    clock = ManualClock()
    gate = Gate(1, clock=clock)
    order: list[int] = []

    async def work(number: int) -> None:
        async with gate.acquire(deadline=90):
            order.append(number)

    async def main() -> None:
        held = take(gate)
        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await clock.settle(0.001)
        # Nobody was served for long, so that it stands.
        await clock.settle(5)
        tasks += [asyncio.create_task(work(number)) for number in range(3, 6)]
        await turns()
        held.release()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == [5, 4, 3, 2, 1, 0]
    assert_idle(gate)


@pytest.mark.parametrize(
    ("limit", "share", "kept", "lent"), [(10, 0.2, 2, 1), (4, 0.25, 1, 0), (3, 0.4, 1, 1)]
)
def test_a_reserve_is_for_the_critical_and_lent_while_idle(
    limit: int, share: float, kept: int, lent: int
) -> None:
    # All but one unit is lent where the limit is 4 or more; below, everything.
    gate = Gate(limit, reserve={C.CRITICAL: share}, max_waiting=0, clock=ManualClock())
    low = []
    while permit := gate.try_acquire(criticality=C.SHEDDABLE):
        low.append(permit)
    assert len(low) == limit - kept + lent
    high = []
    while permit := gate.try_acquire(criticality=C.CRITICAL):
        high.append(permit)
    assert len(low) + len(high) == limit
    for permit in high + low:
        permit.release()
    # What the critical hold of it is not kept a second time.
    high = [take(gate, criticality=C.CRITICAL_PLUS) for _ in range(limit)]
    refuse(gate, criticality=C.CRITICAL_PLUS)
    high.pop().release()
    for permit in high:
        permit.release()
    assert_idle(gate)


# The outcome


def test_a_classifier_says_how_it_ended() -> None:
    seen: list[object] = []

    def classify(error: object) -> Outcome:
        seen.append(error)
        assert error is not None
        return Outcome.OVERLOAD if isinstance(error, KeyError) else Outcome.SUCCESS

    gate = Gate(3, classify=classify)
    errors: list[BaseException] = [KeyError(), ValueError(), TimeoutError(), SystemExit()]
    for error in errors:
        with pytest.raises(type(error)), gate.acquire():
            raise error

        async def fails(error: BaseException = error) -> None:
            async with gate.acquire():
                raise error

        with pytest.raises(type(error)):
            fails().send(None)
    with gate.acquire():
        pass
    with contextlib.suppress(KeyError), gate.acquire() as permit:
        permit.outcome = Outcome.IGNORED
        raise KeyError
    assert seen == [error for error in errors for _ in range(2)]
    outcomes = gate.snapshot().outcomes
    assert outcomes == {Outcome.OVERLOAD: 2, Outcome.SUCCESS: 7, Outcome.IGNORED: 1}
    assert_idle(gate)


@pytest.mark.parametrize("answer", [ValueError("classify"), None, "success", 0, Reason.FULL])
def test_a_classifier_that_fails_is_reported_and_loses_nothing(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))

    def classify(_: object) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    gate = Gate(1, classify=classify)
    with pytest.raises(TimeoutError), gate.acquire():
        raise TimeoutError
    assert gate.snapshot().outcomes == {Outcome.OVERLOAD: 1}
    assert len(reported) == 1
    assert reported[0] is answer or isinstance(reported[0], TypeError)
    assert_idle(gate)


def raise_after(act: Callable[..., Any], *args: Any) -> None:
    act(*args)
    raise TimeoutError


@pytest.mark.parametrize(
    "answer", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), GeneratorExit()]
)
def test_an_interrupt_inside_a_classifier_is_raised_and_loses_nothing(
    answer: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))

    def classify(_: object) -> Outcome:
        raise answer

    gate, part = Gate(1, classify=classify), Gate(1)

    async def fails() -> None:
        async with gate.acquire(inner=part):
            raise TimeoutError

    with pytest.raises(type(answer)) as raised, gate.acquire(inner=part):
        raise TimeoutError
    assert raised.value is answer
    assert isinstance(answer.__context__, TimeoutError)
    with pytest.raises(type(answer)), gate.acquire_sync():
        raise TimeoutError
    with pytest.raises(type(answer)):
        fails().send(None)
    future = concurrent.futures.Future[None]()
    wish = gate.acquire()
    with pytest.raises(type(answer)), wish:
        raise_after(wish.extend_to, future)
    assert gate.in_flight == 1
    future.set_result(None)
    assert gate.snapshot().outcomes == {Outcome.OVERLOAD: 4}
    assert part.snapshot().outcomes == {Outcome.OVERLOAD: 2}
    assert reported == []
    assert_idle(gate, part)


# Futures


def test_a_permit_is_held_until_a_future_is_done() -> None:
    gate = Gate(2)
    futures = [concurrent.futures.Future[None]() for _ in range(2)]
    with contextlib.suppress(TimeoutError), gate.acquire() as permit:
        for future in futures:
            permit.extend_to(future)
        raise TimeoutError
    assert gate.in_flight == 1
    futures[0].set_result(None)
    assert gate.in_flight == 1
    futures[1].set_exception(ValueError())
    assert_idle(gate)
    assert gate.snapshot().outcomes == {Outcome.OVERLOAD: 1}
    with pytest.raises(RuntimeError, match="not held"):
        permit.extend_to(futures[0])
    with gate.acquire() as permit:
        # Done already, and what has no future: it is held for the block.
        permit.extend_to(futures[0])
        with pytest.raises(AttributeError):
            permit.extend_to(5)
        assert gate.in_flight == 1
    assert_idle(gate)
    assert gate.snapshot().stray_releases == 0


def test_a_permit_is_held_for_a_thread_that_was_abandoned() -> None:
    import threading

    gate, go_on = Gate(1), threading.Event()

    async def main() -> None:
        event_loop = asyncio.get_running_loop()
        thread = event_loop.run_in_executor(None, go_on.wait)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01), gate.acquire() as permit:
                permit.extend_to(thread)
                await asyncio.shield(thread)
        refuse(gate)
        go_on.set()
        await thread
        await turns()

    asyncio.run(main())
    assert_idle(gate)


# For the tests of users


@pytest.mark.parametrize("reason", list(Reason))
def test_rejecting(reason: Reason) -> None:
    gate = Gate(5, clock=ManualClock())

    async def main() -> None:
        held = [take(gate) for _ in range(5)]
        waiting = asyncio.ensure_future(gate.acquire())
        await turns()
        with rejecting(gate, reason, retry_after=30):
            for rejection in (refuse(gate), await refused(gate.acquire())):
                assert (rejection.reason, rejection.retry_after) == (reason, 30.0)
                assert rejection.status == (429 if reason is Reason.RATE else 503)
            with pytest.raises(Rejected):
                await asyncio.to_thread(gate.acquire_sync)
            for permit in held:
                permit.release()
            (await waiting).release()
        take(gate).release()

    asyncio.run(main())
    assert_idle(gate)


def test_rejecting_may_be_nested() -> None:
    gate, other = Gate(5), Gate(5)

    def told() -> tuple[Reason, float | None]:
        rejection = refuse(gate)
        return rejection.reason, rejection.retry_after

    with rejecting(gate, Reason.RATE, retry_after=30), rejecting(other):
        with rejecting(gate, Reason.CLOSED, retry_after=0.25):
            with rejecting(gate, retry_after=3600):
                assert told() == (Reason.FULL, 3600)
            assert told() == (Reason.CLOSED, 0.25)
        assert told() == (Reason.RATE, 30)
        with contextlib.suppress(KeyError), rejecting(gate, Reason.PRIORITY):
            raise KeyError
        assert told() == (Reason.RATE, 30)
    take(gate).release()
    take(other).release()


def test_rejecting_ends_whatever_happens() -> None:
    gate = Gate(5)
    with contextlib.suppress(KeyError), rejecting(gate):
        assert refuse(gate).reason is Reason.FULL
        raise KeyError
    take(gate).release()
    wrong: Any
    for wrong, kind in ((("full",), TypeError), ((None,), TypeError), ((3,), TypeError)):
        with pytest.raises(kind), rejecting(gate, *wrong):
            pytest.fail("it must not run")
    with pytest.raises(ValueError, match="retry_after"), rejecting(gate, retry_after=-1):
        pytest.fail("it must not run")
    take(gate).release()


def test_assert_idle_says_what_is_not() -> None:
    gates = [Gate(1, name="api"), Gate(1, name="db")]
    assert_idle()
    assert_idle(*gates)
    with take(gates[1]), pytest.raises(AssertionError, match=r"db: limit 1 .* 1 in flight"):
        assert_idle(*gates)
    assert_idle(*gates)
