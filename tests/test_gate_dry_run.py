"""A dry run, and the kill switch: everybody is admitted, and what would have been is counted."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from gate_use import take
from sluicegate import Criticality, Gate, ManualClock, Outcome, Reason, TokenBucket
from sluicegate.testing import assert_idle
from subprocesses import run
from virtual_time import VirtualLoop, run_in_virtual_time

pytestmark = pytest.mark.timeout(30)
C = Criticality


def test_a_dry_run_admits_all_and_counts() -> None:
    clock = ManualClock()
    gate = Gate(2, max_waiting=0, dry_run=True, clock=clock)
    permits = [take(gate) for _ in range(10)]
    snapshot = gate.snapshot()
    assert snapshot.dry_run
    assert (snapshot.in_flight, snapshot.admitted) == (2, 10)
    assert snapshot.rejected == {Reason.LIMIT: 8}
    assert "dry run: all are admitted" in str(snapshot)
    for permit in permits:
        permit.release()
    assert_idle(gate)
    assert gate.snapshot().outcomes == {Outcome.SUCCESS: 10}


def test_who_would_wait_begins_at_once_and_is_judged_at_his_bound() -> None:
    clock = ManualClock()
    gate = Gate(1, max_wait=0.5, dry_run=True, clock=clock)

    async def main() -> None:
        permits = [await gate.acquire() for _ in range(3)]
        assert (gate.in_flight, gate.waiting) == (1, 2)
        clock.advance(0.25)
        permits[0].release()
        # One of them would be in flight now, and the other one is too late.
        assert (gate.in_flight, gate.waiting) == (1, 1)
        clock.advance(0.5)
        assert gate.waiting == 0
        assert gate.snapshot().rejected == {Reason.WAIT: 1}
        for permit in permits[1:]:
            permit.release()
        clock.advance(10)
        gate.expire()

    asyncio.run(main())
    assert_idle(gate)
    assert gate.snapshot().admitted == 3


def test_what_waits_in_a_dry_run_is_judged_by_the_timer_of_a_loop() -> None:
    gate = Gate(1, max_wait=0.1, dry_run=True)

    async def main(event_loop: VirtualLoop) -> None:
        permits = [await gate.acquire() for _ in range(5)]
        await asyncio.sleep(1)
        rejected = dict(gate.snapshot().rejected)
        assert rejected == {Reason.WAIT: 4}
        for permit in permits:
            permit.release()
        await asyncio.sleep(1)
        assert event_loop.time() == pytest.approx(2)

    run_in_virtual_time(main)
    assert_idle(gate)


@pytest.mark.parametrize("way", ["try_acquire", "acquire_sync", "with"])
def test_without_a_loop(way: str) -> None:
    gate = Gate(1, max_wait=0.01, dry_run=True)

    def work() -> None:
        for _ in range(50):
            match way:
                case "try_acquire":
                    take(gate).release()
                case "acquire_sync":
                    gate.acquire_sync().release()
                case "with":
                    with gate.acquire():
                        pass

    held = take(gate)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held.release()
    snapshot = gate.snapshot()
    assert snapshot.admitted == sum(snapshot.outcomes.values()) == 201


@pytest.mark.parametrize("begins", [False, True])
def test_a_dry_run_begins_and_ends_in_mid_flight(begins: bool) -> None:
    clock = ManualClock()
    bucket = TokenBucket(1e-6, burst=100, clock=clock)
    gate = Gate(2, rate=bucket, dry_run=not begins, clock=clock)

    async def main() -> None:
        permits = [await gate.acquire() for _ in range(2)]
        if begins:
            waits = [asyncio.ensure_future(gate.acquire()) for _ in range(3)]
            await asyncio.sleep(0)
            assert gate.waiting == 3
            gate.update(dry_run=True)
            permits += [await gate.acquire() for _ in range(2)]
            for permit in permits:
                permit.release()
            for wait in waits:
                (await wait).release()
        else:
            permits += [await gate.acquire() for _ in range(3)]
            assert (gate.in_flight, gate.waiting) == (2, 3)
            gate.update(dry_run=False)
            assert (gate.in_flight, gate.waiting) == (2, 0)
            assert not gate.try_acquire()
            waits = [asyncio.ensure_future(gate.acquire())]
            await asyncio.sleep(0)
            # What began without a seat goes on uncounted, and gives nothing back.
            for permit in permits[2:]:
                permit.release()
            await asyncio.sleep(0)
            assert not waits[0].done()
            for permit in permits[:2]:
                permit.release()
            (await waits[0]).release()
        clock.advance(1)
        gate.expire()
        assert bucket.snapshot().tokens <= 100

    asyncio.run(main())
    assert_idle(gate)
    snapshot = gate.snapshot()
    assert snapshot.admitted == sum(snapshot.outcomes.values())


def test_a_dry_run_turned_on_and_off_at_random(scale: float) -> None:
    import random

    for seed in range(int(200 * scale)):
        randomness = random.Random(seed)
        clock = ManualClock()
        bucket = TokenBucket(50, burst=20, clock=clock)
        gate = Gate(2, rate=bucket, max_waiting=3, clock=clock)

        async def work(gate: Gate, randomness: random.Random) -> None:
            async with gate.acquire(
                randomness.choice([1, 1, 2, 5]),
                criticality=randomness.choice(list(C)),
                deadline=randomness.choice([None, 0.1, 0]),
                tokens=randomness.choice([0, 1, 3]),
            ):
                for _ in range(randomness.randrange(4)):
                    await asyncio.sleep(0)

        async def main(
            gate: Gate = gate, clock: ManualClock = clock, randomness: Any = randomness
        ) -> None:
            tasks: list[asyncio.Task[None]] = []
            for _ in range(300):
                match randomness.randrange(6):
                    case 0:
                        gate.update(dry_run=randomness.random() < 0.5)
                    case 1:
                        clock.advance(randomness.choice([0, 0.01, 0.5]))
                    case 2 if tasks:
                        randomness.choice(tasks).cancel()
                    case 3:
                        await asyncio.sleep(0)
                    case _:
                        tasks.append(asyncio.create_task(work(gate, randomness)))
            gate.update(dry_run=False)
            while not all(task.done() for task in tasks):
                await clock.settle(0.1)
            clock.advance(100)
            gate.expire()

        asyncio.run(main())
        assert_idle(gate)
        assert 0 <= bucket.snapshot().tokens <= 20
        snapshot = gate.snapshot()
        assert snapshot.admitted == sum(snapshot.outcomes.values())


@pytest.mark.parametrize("value", ["1", "0", "", "true"])
def test_the_kill_switch(value: str) -> None:
    run(
        """
        import asyncio, os, sys
        os.environ["SLUICEGATE_DISABLED"] = sys.argv[1]
        from sluicegate import Criticality, Gate, Rejected, SemaphoreLimiter, TokenBucket
        from sluicegate.testing import assert_idle
        bucket = TokenBucket(1e-6, burst=2)
        gates = [
            Gate(1, max_waiting=0), Gate(1, max_wait=0), Gate(1, rate=bucket), Gate(),
            Gate(2, pressure=[lambda: 5.0], reserve={Criticality.CRITICAL: 1}),
            Gate(1, dry_run=True),
        ]

        async def main(gate):
            for _ in range(50):
                assert await gate.acquire(deadline=0, criticality=Criticality.SHEDDABLE)
                assert await gate.acquire(inner=gates[(gates.index(gate) + 1) % len(gates)])

        for gate in gates:
            is_on = sys.argv[1] in ("1", "true")
            assert gate.snapshot().disabled == is_on
            assert ("disabled: all are admitted" in str(gate.snapshot())) == is_on
            if is_on:
                permits = [gate.try_acquire(5, deadline=0) for _ in range(50)]
                permits += [gate.acquire_sync() for _ in range(50)]
                assert all(permits)
                # It says what really runs.
                assert gate.in_flight == gate.snapshot().in_flight == 50 * 5 + 50
                assert gate.saturation == gate.in_flight / gate.limit
                with gate.acquire(), gate.acquire():
                    pass
                asyncio.run(main(gate))
                for permit in permits:
                    permit.settle(tokens=1)
                    permit.release()
                assert (gate.in_flight, gate.saturation) == (0, 0)
                gate.update(limit=1)
                gate.try_acquire().release()
                assert gate.drain_sync(1)
                assert_idle(gate)
        # Quotas and plain limiters are never lifted.
        limiter = SemaphoreLimiter(1)
        with limiter.acquire():
            assert not limiter.try_acquire()
        assert bucket.try_take(2) and not bucket.try_take(2)
        """,
        value,
    )
