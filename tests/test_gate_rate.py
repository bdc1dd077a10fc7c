"""The rate of a gate, and the gate of a part: a refusal by either leaves nothing taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gate_use import refuse, take, turns
from sluicegate import (
    Criticality,
    Gate,
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejected,
    TokenBucket,
)
from sluicegate.testing import assert_idle, rejecting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.timeout(20)
C = Criticality
BURST = 100


def left(bucket: TokenBucket) -> float:
    return bucket.snapshot().tokens


class Parts:
    """A gate with a rate, one for a part of it with its own, and somebody in both."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.rate = TokenBucket(1e-6, burst=BURST, clock=self.clock)
        self.inner_rate = TokenBucket(1e-6, burst=BURST, clock=self.clock)
        common: dict[str, Any] = {"clock": self.clock, "max_waiting": 1, "max_wait": 0.5}
        self.outer = Gate(1, name="outer", rate=self.rate, **common | options)
        self.inner = Gate(1, name="inner", rate=self.inner_rate, **common | options)

    def tokens(self) -> tuple[float, float]:
        return round(left(self.rate), 3), round(left(self.inner_rate), 3)

    def check(self, outer: float = BURST, inner: float = BURST) -> None:
        assert self.tokens() == (outer, inner)
        assert_idle(self.outer, self.inner)


def test_a_rate_is_taken_and_settled() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, burst=10, clock=clock)
    gate = Gate(10, rate=bucket, clock=clock)
    take(gate).release()
    assert left(bucket) == 9
    permit = take(gate, tokens=4)
    assert left(bucket) == 5
    permit.settle(tokens=7)
    assert left(bucket) == 2
    permit.settle(tokens=1)
    assert left(bucket) == 8
    # In debt.
    permit.settle(tokens=30)
    assert left(bucket) == -21
    permit.release()
    # It may become known later.
    permit.settle(tokens=31)
    rejection = refuse(gate)
    assert (rejection.reason, rejection.status) == (Reason.RATE, 429)
    assert rejection.retry_after is not None
    assert rejection.retry_after >= 23
    clock.advance(23)
    take(gate).release()
    take(gate, tokens=0).release()
    wrong: Any
    for wrong in (-1, 1e10, float("nan")):
        with pytest.raises(ValueError, match="tokens must be a number of tokens from 0 to 1e9"):
            permit.settle(tokens=wrong)
    with pytest.raises(TypeError):
        permit.settle(tokens="1")  # type: ignore[arg-type]
    wish = gate.acquire()
    with pytest.raises(RuntimeError, match="nothing to settle"):
        wish.settle(tokens=1)
    wish.close()


def test_without_a_rate_tokens_cost_nothing() -> None:
    gate = Gate(1)
    with take(gate, tokens=1e9) as permit:
        permit.settle(tokens=5)
    assert_idle(gate)


def test_who_asked_for_more_than_a_shrunk_burst_is_told_so() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, burst=10, clock=clock)
    gate = Gate(10, rate=bucket, clock=clock)
    wish = gate.acquire(tokens=10)
    bucket.update(burst=5)
    with pytest.raises(ValueError, match="burst"):
        gate.try_acquire(tokens=10)

    async def main() -> None:
        await wish

    with pytest.raises(Rejected) as raised:
        asyncio.run(main())
    assert raised.value.reason is Reason.RATE
    # When the bucket is full; there never is more.
    take(gate, tokens=5).release()
    assert raised.value.retry_after is not None
    assert raised.value.retry_after < 10
    assert_idle(gate)


def test_a_rate_is_one_for_all_gates_that_share_it() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, burst=10, clock=clock)
    gates = [Gate(100, rate=bucket, clock=clock) for _ in range(2)]
    permits = [take(gates[number % 2]) for number in range(10)]
    for gate in gates:
        assert refuse(gate).reason is Reason.RATE
    for permit in permits:
        permit.release()
    clock.advance(1)
    take(gates[0]).release()
    assert refuse(gates[1]).reason is Reason.RATE
    assert_idle(*gates)


def test_a_rate_goes_by_its_own_clock() -> None:
    clock, other = ManualClock(), ManualClock(1000)
    bucket = TokenBucket(1, burst=1, clock=other)
    gate = Gate(10, rate=bucket, clock=clock)
    take(gate).release()
    clock.advance(100)
    assert refuse(gate).reason is Reason.RATE
    other.advance(1)
    take(gate).release()
    assert refuse(Gate(1, rate=bucket)).reason is Reason.RATE
    other.advance(1)
    take(Gate(1, rate=bucket)).release()


# Whoever is rejected got nothing


async def full(parts: Parts, ask: dict[str, Any]) -> None:
    other = asyncio.ensure_future(parts.outer.acquire(tokens=0))
    await turns()
    with pytest.raises(Rejected, match="full"):
        await parts.outer.acquire(**ask)
    other.cancel()


async def too_long(parts: Parts, ask: dict[str, Any]) -> None:
    wait = asyncio.ensure_future(parts.outer.acquire(**ask))
    await turns()
    assert parts.tokens()[0] == BURST - 7
    await parts.clock.settle(1)
    with pytest.raises(Rejected, match="wait"):
        await wait


async def evicted(parts: Parts, ask: dict[str, Any]) -> None:
    wait = asyncio.ensure_future(parts.outer.acquire(**ask, criticality=C.SHEDDABLE))
    await turns()
    other = asyncio.ensure_future(parts.outer.acquire(tokens=0))
    await turns()
    with pytest.raises(Rejected, match="evicted"):
        await wait
    other.cancel()


async def cancelled(parts: Parts, ask: dict[str, Any]) -> None:
    wait = asyncio.ensure_future(parts.outer.acquire(**ask))
    await turns()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait


async def timed_out(parts: Parts, ask: dict[str, Any]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(parts.outer.acquire(**ask), 0.001)


async def closed(parts: Parts, ask: dict[str, Any]) -> None:
    wait = asyncio.ensure_future(parts.outer.acquire(**ask))
    await turns()
    parts.outer.close()
    parts.inner.close()
    with pytest.raises(Rejected, match="closed"):
        await wait


async def at_once(parts: Parts, ask: dict[str, Any]) -> None:
    refuse(parts.outer, **ask)
    assert refuse(parts.outer, **ask | {"deadline": 0}).reason is Reason.DEADLINE
    with rejecting(parts.outer):
        refuse(parts.outer, **ask)


async def collected(parts: Parts, ask: dict[str, Any]) -> None:
    steps: Any = parts.outer.acquire(**ask).__await__()
    next(steps)
    del steps
    await turns()


REFUSALS: list[Callable[[Parts, dict[str, Any]], Awaitable[None]]] = [
    full,
    too_long,
    evicted,
    cancelled,
    timed_out,
    closed,
    at_once,
    collected,
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("has_inner", ["no inner", "inner has room", "inner is full"])
def test_a_refusal_of_every_kind_gives_back(
    refusal: Callable[[Parts, dict[str, Any]], Awaitable[None]], has_inner: str
) -> None:
    parts = Parts()
    ask: dict[str, Any] = {"tokens": 7}

    async def main() -> None:
        with take(parts.outer, tokens=0) as held:
            if has_inner != "no inner":
                ask["inner"] = parts.inner
            if has_inner == "inner is full" and refusal in (cancelled, timed_out, at_once):
                with take(parts.inner, tokens=0):
                    await refusal(parts, ask)
            else:
                await refusal(parts, ask)
            await turns()
            assert parts.tokens() == (BURST, BURST)
            assert (parts.outer.in_flight, parts.inner.in_flight) == (1, 0)
            assert (parts.outer.waiting, parts.inner.waiting) == (0, 0)
            assert held

    asyncio.run(main())
    parts.check()


# An inner gate


def test_a_permit_of_both_is_one() -> None:
    parts = Parts()
    with take(parts.outer, tokens=7, inner=parts.inner) as permit:
        assert (parts.outer.in_flight, parts.inner.in_flight) == (1, 1)
        assert parts.tokens() == (BURST - 7, BURST - 7)
        permit.settle(tokens=10)
        assert parts.tokens() == (BURST - 10, BURST - 10)
        permit.outcome = Outcome.OVERLOAD
    for gate in (parts.outer, parts.inner):
        assert gate.snapshot().outcomes == {Outcome.OVERLOAD: 1}
    permit.release()
    assert parts.outer.snapshot().stray_releases == 1
    parts.check(BURST - 10, BURST - 10)


@pytest.mark.parametrize("error", [None, TimeoutError(), ValueError()])
def test_both_learn_the_same(error: Exception | None) -> None:
    parts = Parts()

    async def main() -> None:
        async with parts.outer.acquire(inner=parts.inner):
            if error:
                raise error

    if error is None:
        asyncio.run(main())
    else:
        with pytest.raises(type(error)):
            asyncio.run(main())
    assert parts.outer.snapshot().outcomes == parts.inner.snapshot().outcomes
    assert sum(parts.outer.snapshot().outcomes.values()) == 1
    assert_idle(parts.outer, parts.inner)


def test_the_inner_gate_is_asked_first_and_a_refusal_by_either_leaves_nothing() -> None:
    parts = Parts(max_waiting=0)
    with take(parts.inner, tokens=0):
        assert refuse(parts.outer, inner=parts.inner).gate == "inner"
        with take(parts.outer, tokens=0):
            assert refuse(parts.outer, inner=parts.inner).gate == "inner"
        assert parts.outer.snapshot().rejected == {}
    with take(parts.outer, tokens=0):
        assert refuse(parts.outer, inner=parts.inner).gate == "outer"
        with pytest.raises(Rejected, match="outer"), parts.outer.acquire(inner=parts.inner):
            pytest.fail("it must not run")
    # What was annulled was never admitted, and teaches nothing.
    assert parts.inner.snapshot().admitted == 1
    assert parts.inner.snapshot().outcomes == {Outcome.SUCCESS: 1}
    assert parts.inner.snapshot().service_mean == 0.0
    parts.check()


def test_who_waits_for_the_inner_gate_holds_nothing_of_the_outer_one() -> None:
    parts = Parts()

    async def main() -> None:
        inside = take(parts.inner, tokens=0)
        both = asyncio.ensure_future(parts.outer.acquire(inner=parts.inner))
        await turns()
        assert (parts.outer.in_flight, parts.outer.waiting, parts.inner.waiting) == (0, 0, 1)
        outside = take(parts.outer, tokens=0)
        inside.release()
        await turns()
        # Now it waits for the outer one, and holds the inner one.
        assert (parts.outer.waiting, parts.inner.in_flight) == (1, 1)
        outside.release()
        (await both).release()

    asyncio.run(main())
    parts.check(BURST - 1, BURST - 1)


def test_to_wait_for_the_outer_gate_is_no_work_at_the_inner_one() -> None:
    clock = ManualClock()
    outer, inner = Gate(1, clock=clock), Gate(1, clock=clock)

    async def main() -> None:
        for _ in range(30):
            outside = take(outer)
            both = asyncio.ensure_future(outer.acquire(inner=inner, deadline=60))
            await turns()
            clock.advance(3)
            outside.release()
            permit = await both
            assert permit.waited == 3
            clock.advance(0.25)
            permit.release()

    asyncio.run(main())
    assert_idle(outer, inner)
    assert inner.snapshot().service_mean == pytest.approx(0.25)


def test_a_permit_of_both_has_waited_at_both() -> None:
    clock = ManualClock()
    outer, inner = Gate(1, clock=clock), Gate(1, clock=clock)

    async def main() -> None:
        outside, inside = take(outer), take(inner)
        both = asyncio.ensure_future(outer.acquire(inner=inner, deadline=60))
        await turns()
        clock.advance(2)
        inside.release()
        await turns()
        clock.advance(3)
        outside.release()
        with await both as permit:
            assert permit.waited == 5

    asyncio.run(main())
    assert_idle(outer, inner)


def test_a_wait_at_both_in_a_thread() -> None:
    import threading

    parts = Parts()
    inside, outside = take(parts.inner, tokens=0), take(parts.outer, tokens=0)
    permits: list[Permit] = []
    thread = threading.Thread(
        target=lambda: permits.append(parts.outer.acquire_sync(inner=parts.inner))
    )
    thread.start()
    until(lambda: parts.inner.waiting == 1)
    inside.release()
    until(lambda: parts.outer.waiting == 1)
    outside.release()
    thread.join()
    assert (parts.outer.in_flight, parts.inner.in_flight) == (1, 1)
    permits.pop().release()
    parts.check(BURST - 1, BURST - 1)


def test_who_is_refused_at_the_second_of_both_holds_nothing_of_the_first() -> None:
    import threading

    parts = Parts()
    inside, outside = take(parts.inner, tokens=0), take(parts.outer, tokens=0)
    wish = parts.outer.acquire(inner=parts.inner)
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with wish:
                pytest.fail("it must not run")
        except Rejected as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    until(lambda: parts.inner.waiting == 1)
    inside.release()
    until(lambda: parts.outer.waiting == 1)
    parts.outer.close()
    thread.join()
    outside.release()
    assert len(errors) == 1
    # Although the wish is still there.
    parts.check()
    assert "acquire" in repr(wish).lower() or wish


def until(condition: Callable[[], bool]) -> None:
    import time

    while not condition():
        time.sleep(0.001)


def test_who_is_refused_by_the_outer_gate_after_the_inner_one_costs_nobody_his_place() -> None:
    # Tickets of two gates may have the same number.
    parts = Parts()

    async def main() -> None:
        outside, inside = take(parts.outer, tokens=0), take(parts.inner, tokens=0)
        stranger = asyncio.ensure_future(parts.outer.acquire(tokens=0))
        await turns()
        both = asyncio.ensure_future(parts.outer.acquire(inner=parts.inner))
        await turns()
        assert (parts.outer.waiting, parts.inner.waiting) == (1, 1)
        inside.release()
        with pytest.raises(Rejected, match="'outer' rejected CRITICAL work: full"):
            await both
        assert parts.outer.waiting == 1
        outside.release()
        (await stranger).release()

    asyncio.run(main())
    parts.check()


@pytest.mark.parametrize("moment", ["inner line", "inner grant", "outer line", "outer grant"])
@pytest.mark.parametrize("way", ["cancel", "close", "collect"])
def test_who_leaves_at_any_moment_leaves_nothing(moment: str, way: str) -> None:
    parts = Parts()

    async def main() -> None:
        inside, outside = take(parts.inner, tokens=0), take(parts.outer, tokens=0)
        wish: Any = parts.outer.acquire(inner=parts.inner, tokens=7)
        steps = wish.__await__()
        next(steps)
        if moment != "inner line":
            inside.release()
            if moment != "inner grant":
                next(steps)
                assert parts.outer.waiting == 1
                if moment == "outer grant":
                    outside.release()
        match way:
            case "cancel":
                with pytest.raises(asyncio.CancelledError):
                    steps.throw(asyncio.CancelledError())
            case "close":
                steps.close()
        del wish, steps
        inside.release()
        outside.release()

    asyncio.run(main())
    parts.check()


def test_an_inner_gate_that_is_a_stranger_to_the_clock() -> None:
    clock, other = ManualClock(1000), ManualClock(3)
    outer, inner = Gate(1, clock=clock), Gate(1, name="inner", clock=other)
    take(outer, inner=inner, deadline=5).release()

    async def main() -> None:
        with take(inner):
            wait = asyncio.ensure_future(outer.acquire(inner=inner, deadline=0.5))
            await turns()
            await clock.settle(1)
            assert not wait.done()
            await other.settle(1)
            with pytest.raises(Rejected, match=r"'inner' rejected .*deadline"):
                await wait

    asyncio.run(main())
    assert_idle(outer, inner)


def test_a_permit_of_both_is_held_until_a_future_is_done() -> None:
    import concurrent.futures

    parts = Parts()
    future = concurrent.futures.Future[None]()
    with take(parts.outer, inner=parts.inner) as permit:
        permit.extend_to(future)
    assert (parts.outer.in_flight, parts.inner.in_flight) == (1, 1)
    future.set_result(None)
    assert_idle(parts.outer, parts.inner)


def test_a_forgotten_permit_of_both_goes_back() -> None:
    parts = Parts()
    held = [take(parts.outer, inner=parts.inner)]
    with pytest.warns(ResourceWarning, match='"outer" was never released'):
        held.clear()
    parts.check(BURST - 1, BURST - 1)


@pytest.mark.parametrize("which", ["outer", "inner", "both"])
def test_a_dry_run_never_gives_back_more_of_a_rate_than_it_took(which: str) -> None:
    parts = Parts()
    for name in ("outer", "inner"):
        if which in (name, "both"):
            getattr(parts, name).update(dry_run=True)
    parts.inner_rate.adjust(-BURST)
    held = take(parts.outer)
    for _ in range(5):
        permit = parts.outer.try_acquire(inner=parts.inner)
        if permit:
            permit.release()
    assert parts.tokens()[1] <= 0
    parts.inner_rate.adjust(BURST)
    for _ in range(5):
        permit = parts.outer.try_acquire(inner=parts.inner)
        if permit:
            permit.release()
    assert parts.tokens()[0] <= BURST
    held.release()
    assert_idle(parts.outer, parts.inner)
