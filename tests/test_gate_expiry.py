"""Whoever waits is answered by his bound, although nothing ever ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from event_loops import FACTORIES, KINDS, run_on
from gate_use import take
from sluicegate import (
    Criticality,
    DeadlineExceeded,
    Gate,
    ManualClock,
    Reason,
    Rejected,
)
from sluicegate.testing import assert_idle
from subprocesses import run
from virtual_time import VirtualLoop, run_in_virtual_time

pytestmark = pytest.mark.timeout(60)
C = Criticality


@pytest.mark.parametrize("max_wait", [None, 0.25])
def test_a_stuck_gate_answers_everybody_in_time(max_wait: float | None) -> None:
    gate = Gate(2, max_waiting=10_000, max_wait=max_wait)
    answered: list[tuple[float, float]] = []

    async def main(event_loop: VirtualLoop) -> None:
        async def wait(deadline: float | None, number: int) -> None:
            begun = event_loop.time()
            with pytest.raises(Rejected) as raised:
                await gate.acquire(deadline=deadline, criticality=C(number % 4))
            waited = event_loop.time() - begun
            assert raised.value.reason in (Reason.WAIT, Reason.DEADLINE)
            assert isinstance(raised.value, DeadlineExceeded) == (
                raised.value.reason is Reason.DEADLINE
            )
            # Without a service that is known the bound is 1 s at most.
            answered.append((waited, min(max_wait or 1.0, deadline or 1.0)))

        held = [take(gate), take(gate)]
        tasks = []
        for number in range(300):
            # Bounds in an order of their own, so that the timer moves both ways.
            deadline = None if number % 3 == 0 else 0.01 + (number * 7 % 100) * 0.005
            tasks.append(asyncio.create_task(wait(deadline, number)))
            if number % 10 == 0:
                await asyncio.sleep(0.007)
        await asyncio.gather(*tasks)
        assert gate.in_flight == 2
        for permit in held:
            permit.release()

    run_in_virtual_time(main)
    assert len(answered) == 300
    assert all(waited <= bound + 1e-6 for waited, bound in answered), answered
    assert_idle(gate)


def test_the_timer_is_there_exactly_when_somebody_is_due() -> None:
    clock = ManualClock()
    gate = Gate(1, max_wait=0.5, clock=clock)

    def due() -> float | None:
        value = gate._snapshot()["next_expiry"]
        assert value is None or isinstance(value, float)
        return value

    async def main() -> None:
        assert due() is None
        held = take(gate)
        assert due() is None
        waits = [
            asyncio.ensure_future(gate.acquire(deadline=deadline)) for deadline in (None, 0.25)
        ]
        await asyncio.sleep(0)
        assert due() == 0.25
        await clock.settle(0.25)
        assert due() == 0.5
        waits[0].cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert due() is None
        drain = asyncio.ensure_future(gate.drain(5))
        await asyncio.sleep(0)
        assert due() == 5.25
        held.release()
        await drain
        assert due() is None

    asyncio.run(main())
    assert_idle(gate)


def test_expire_answers_those_whose_loops_do_not_run() -> None:
    class Clock:
        seconds = 0.0

        def now(self) -> float:
            return self.seconds

    clock = Clock()
    gate = Gate(1, max_wait=0.5, clock=clock)
    stopped = asyncio.new_event_loop()
    held = take(gate)
    wait = stopped.create_task(gate.acquire())
    stopped.run_until_complete(asyncio.sleep(0))
    clock.seconds = 1.0
    gate.expire()
    assert gate.waiting == 0
    assert gate.snapshot().rejected == {Reason.WAIT: 1}
    with pytest.raises(Rejected, match="wait"):
        stopped.run_until_complete(wait)
    stopped.close()
    held.release()
    assert_idle(gate)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stuck_gate_answers_in_real_time(kind: str) -> None:
    gate = Gate(1, max_wait=0.02)

    async def wait(deadline: float | None) -> Reason:
        with pytest.raises(Rejected) as raised:
            await gate.acquire(deadline=deadline)
        return raised.value.reason

    async def main() -> None:
        with take(gate):
            spans = [None, 0.01, 0.015, 0.5] * 10
            reasons = await asyncio.gather(*(wait(span) for span in spans))
            assert set(reasons) <= {Reason.WAIT, Reason.DEADLINE}

    run_on(kind, main())
    assert_idle(gate)


def test_a_stuck_gate_answers_threads_and_several_loops() -> None:
    gate = Gate(1, max_wait=0.02)
    reasons: list[Reason] = []

    async def wait() -> None:
        with pytest.raises(Rejected) as raised:
            await gate.acquire()
        reasons.append(raised.value.reason)

    async def many() -> None:
        await asyncio.gather(*(wait() for _ in range(5)))

    def block() -> None:
        with pytest.raises(Rejected) as raised:
            gate.acquire_sync()
        reasons.append(raised.value.reason)

    held = take(gate)
    threads = [threading.Thread(target=run_on, args=[kind, many()]) for kind in FACTORIES]
    threads += [threading.Thread(target=block) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert reasons == [Reason.WAIT] * 15
    held.release()
    assert_idle(gate)


@pytest.mark.parametrize("way", ["threads", "loop"])
def test_those_of_a_blocked_loop_keep_nobody_waiting(way: str) -> None:
    run(
        """
        import asyncio, sys, threading, time
        from sluicegate import Gate, Rejected
        from snippets import LOOP_THREAD, UNTIL
        exec(LOOP_THREAD + UNTIL)
        gate = Gate(1, max_wait=0.05)
        held = gate.try_acquire()
        blocked, free = LoopThread(), LoopThread()
        is_over = threading.Event()

        async def wait():
            try:
                async with gate.acquire():
                    raise AssertionError("it is stuck")
            except Rejected as error:
                return error.reason.value

        stuck = [blocked.submit(wait()) for _ in range(5)]
        until(lambda: gate.waiting == 5)
        blocked.loop.call_soon_threadsafe(is_over.wait)
        if sys.argv[1] == "loop":
            assert free.submit(wait()).result(5) == "wait"
        else:
            try:
                gate.acquire_sync()
            except Rejected as error:
                assert error.reason.value == "wait"
        is_over.set()
        assert [each.result(5) for each in stuck] == ["wait"] * 5
        held.release()
        assert (gate.in_flight, gate.waiting) == (0, 0)
        """,
        way,
    )


def test_a_gate_that_is_collected_while_a_loop_has_its_timer_is_gone() -> None:
    import gc
    import weakref

    async def main() -> None:
        gate: Any = Gate(1, max_wait=0.01)
        held = take(gate)
        task = asyncio.ensure_future(gate.acquire())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        held.release()
        alive = weakref.ref(gate)
        del gate, held, task
        await asyncio.sleep(0)
        gc.collect()
        assert alive() is None
        await asyncio.sleep(0.03)

    asyncio.run(main())


def test_a_wait_at_the_end_of_the_process_holds_nothing_up() -> None:
    run(
        """
        import asyncio, threading
        from sluicegate import Gate, Rejected
        from snippets import UNTIL
        exec(UNTIL)
        gate = Gate(1, max_wait=3600)
        held = gate.try_acquire()

        def block():
            with gate.acquire(deadline=3600):
                pass

        async def main():
            async with gate.acquire(deadline=3600):
                pass

        threading.Thread(target=block, daemon=True).start()
        threading.Thread(target=asyncio.run, args=[main()], daemon=True).start()
        until(lambda: gate.waiting == 2)
        threading.Thread(target=gate.drain_sync, daemon=True).start()
        until(lambda: gate.closed)
        """
    )
