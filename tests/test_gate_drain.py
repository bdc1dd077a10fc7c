"""The end of a gate: closed, and drained of what is in flight."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from event_loops import KINDS, run_on
from gate_use import take, turns
from sluicegate import Gate, ManualClock, Reason, Rejected, Rejection, TokenBucket
from sluicegate.testing import assert_idle
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def test_close_rejects_all_and_lets_go_on_what_is_in_flight() -> None:
    gate = Gate(1, clock=ManualClock())

    async def main() -> None:
        held = take(gate)
        waits = [asyncio.ensure_future(gate.acquire()) for _ in range(50)]
        await turns()
        gate.close()
        gate.close()
        assert gate.closed
        for wait in waits:
            with pytest.raises(Rejected) as raised:
                await wait
            assert raised.value.reason is Reason.CLOSED
            assert raised.value.retry_after is None
        with pytest.raises(Rejected, match="closed"):
            await gate.acquire()
        rejection = gate.try_acquire()
        assert isinstance(rejection, Rejection)
        assert gate.in_flight == 1
        held.release()

    asyncio.run(main())
    with pytest.raises(Rejected, match="closed"):
        gate.acquire_sync()
    assert gate.snapshot().rejected == {Reason.CLOSED: 53}
    assert gate.snapshot().closed
    assert_idle(gate)


# Who waits for an inner gate


async def closed_by(gate: Gate, *waits: Any) -> None:
    for wait in waits:
        with pytest.raises(Rejected) as raised:
            await wait
        rejection = raised.value.rejection
        assert (rejection.reason, rejection.gate) == (Reason.CLOSED, gate.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_drained", [False, True])
def test_close_rejects_who_waits_for_an_inner_gate(kind: str, is_drained: bool) -> None:
    clock = ManualClock()
    rates = [TokenBucket(1e-6, burst=50, clock=clock) for _ in range(2)]
    gate = Gate(20, rate=rates[0], clock=clock)
    part = Gate(1, max_wait=3600, rate=rates[1], clock=clock)
    other = Gate(20, clock=clock)

    async def main() -> None:
        with take(part):
            waits = [asyncio.ensure_future(gate.acquire(inner=part)) for _ in range(10)]
            waits += [
                asyncio.ensure_future(asyncio.to_thread(gate.acquire_sync, inner=part))
                for _ in range(2)
            ]
            stay = [
                asyncio.ensure_future(wish)
                for wish in (part.acquire(), other.acquire(inner=part), part.acquire())
            ]
            await turns()
            await asyncio.to_thread(until, lambda: part.waiting == 15)
            if is_drained:
                assert await gate.drain() is True
            else:
                gate.close()
            await closed_by(gate, *waits)
            await turns()
            assert part.waiting == 3
            assert not any(wait.done() for wait in stay)
            assert not part.closed
            # And who comes later and would have to wait.
            await closed_by(gate, gate.acquire(inner=part))
            await closed_by(gate, asyncio.to_thread(gate.acquire_sync, inner=part))
        for wait in stay:
            (await wait).release()

    run_on(kind, main())
    assert gate.snapshot().rejected == {Reason.CLOSED: 14}
    assert part.snapshot().rejected == {}
    assert [round(rate.snapshot().tokens) for rate in rates] == [50, 46]
    assert_idle(gate, part, other)


def test_who_waits_for_an_inner_gate_on_another_loop_is_rejected_too() -> None:
    gate, part = Gate(1), Gate(1, max_wait=3600)
    held = take(part)
    answers: list[Any] = []

    async def elsewhere() -> None:
        await closed_by(gate, gate.acquire(inner=part))
        answers.append(True)

    threads = [threading.Thread(target=asyncio.run, args=(elsewhere(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: part.waiting == 3)
    gate.close()
    for thread in threads:
        thread.join(20)
    assert answers == [True] * 3
    held.release()
    assert_idle(gate, part)


@pytest.mark.parametrize("has_waited", [False, True])
def test_who_is_about_to_wait_for_an_inner_gate_is_rejected_too(has_waited: bool) -> None:
    """It is closed when he has no future yet, or came to look and has no other one yet."""
    clock = ManualClock()
    gates = [Gate(1, clock=clock) for _ in range(2)]
    part = Gate(1, max_wait=3600, clock=clock)

    class Loop(asyncio.SelectorEventLoop):
        is_armed = False

        def create_future(self) -> asyncio.Future[Any]:
            if self.is_armed:
                self.is_armed = False
                gates[0].close()
            return super().create_future()

    event_loop = Loop()

    async def main() -> None:
        with take(part):
            event_loop.is_armed = not has_waited
            waits = [asyncio.ensure_future(gate.acquire(inner=part)) for gate in gates]
            await turns()
            if has_waited:
                assert part.waiting == 2
                # All who wait there are called to look.
                gates[1].close()
                event_loop.is_armed = True
                await turns()
            assert (event_loop.is_armed, waits[0].done()) == (False, True)
            await closed_by(gates[0], waits[0])
            if has_waited:
                await closed_by(gates[1], waits[1])
        if not has_waited:
            (await waits[1]).release()

    event_loop.run_until_complete(main())
    event_loop.close()
    assert_idle(*gates, part)


def test_who_waits_for_an_inner_gate_and_is_cancelled_first_is_not_counted() -> None:
    gate, part = Gate(1, clock=ManualClock()), Gate(1, max_wait=3600, clock=ManualClock())

    async def main() -> None:
        with take(part):
            wait = asyncio.ensure_future(gate.acquire(inner=part))
            await turns()
            gate.close()
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait

    asyncio.run(main())
    assert gate.snapshot().rejected == {}
    assert_idle(gate, part)


@pytest.mark.parametrize("kind", KINDS)
def test_a_drain_waits_until_nothing_is_in_flight(kind: str) -> None:
    gate = Gate(3, clock=ManualClock())

    async def main() -> None:
        held = [take(gate) for _ in range(3)]
        line = asyncio.ensure_future(gate.acquire())
        await turns()
        drains = [asyncio.ensure_future(gate.drain()) for _ in range(3)]
        drains.append(asyncio.ensure_future(gate.drain(timeout=5)))
        await turns()
        assert gate.closed
        with pytest.raises(Rejected, match="closed"):
            await line
        for permit in held:
            assert not any(drain.done() for drain in drains)
            permit.release()
            await turns()
        assert await asyncio.gather(*drains) == [True] * 4
        assert await gate.drain(timeout=0) is True
        assert await gate.drain() is True

    run_on(kind, main())
    assert gate.drain_sync() is True
    assert_idle(gate)


def test_a_drain_ends_at_its_bound() -> None:
    clock = ManualClock()
    gate = Gate(1, clock=clock)

    async def main() -> None:
        with take(gate):
            assert not gate.closed
            drains = {span: asyncio.ensure_future(gate.drain(span)) for span in (3, 1, 2)}
            await turns()
            for span in (1, 2, 3):
                assert not drains[span].done()
                await clock.settle(1)
                assert await drains[span] is False
            assert await gate.drain(timeout=0) is False
            assert gate.closed

    asyncio.run(main())
    assert_idle(gate)


@pytest.mark.parametrize("kind", KINDS)
def test_a_drain_ends_at_its_bound_in_real_time(kind: str) -> None:
    gate = Gate(1)

    async def main() -> None:
        with take(gate):
            assert await gate.drain(0.01) is False
            assert await asyncio.to_thread(gate.drain_sync, 0.01) is False

    run_on(kind, main())


def test_a_cancelled_drain_leaves_the_others_waiting() -> None:
    gate = Gate(1, clock=ManualClock())

    async def main() -> None:
        held = take(gate)
        drains = [asyncio.ensure_future(gate.drain()) for _ in range(3)]
        await turns()
        drains[1].cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gate.drain(), 0.001)
        held.release()
        assert await drains[0] is True
        assert await drains[2] is True
        with pytest.raises(asyncio.CancelledError):
            await drains[1]
        assert gate.closed

    asyncio.run(main())
    assert_idle(gate)


def test_a_thread_drains_while_a_loop_holds_permits() -> None:
    gate = Gate(4, clock=ManualClock())
    go_on = threading.Event()
    ended: list[bool] = []

    async def work() -> None:
        async with gate.acquire():
            await asyncio.to_thread(go_on.wait)

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(4)))

    loop = threading.Thread(target=asyncio.run, args=[main()])
    loop.start()
    until(lambda: gate.in_flight == 4)
    drains = [threading.Thread(target=lambda: ended.append(gate.drain_sync())) for _ in range(3)]
    for drain in drains:
        drain.start()
    until(lambda: gate.closed)
    assert not ended
    go_on.set()
    for thread in [*drains, loop]:
        thread.join()
    assert ended == [True] * 3
    assert_idle(gate)


def test_a_drain_is_not_for_a_thread_that_runs_a_loop() -> None:
    gate = Gate(1)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="use await drain"):
            gate.drain_sync()
        assert not gate.closed
        assert await gate.drain()

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [-1, float("nan"), 3601, "1", True])
def test_a_timeout_that_cannot_be(wrong: Any) -> None:
    gate = Gate(1)
    for drain in (gate.drain, gate.drain_sync):
        with pytest.raises((ValueError, TypeError), match="timeout must be"):
            drain(wrong)
    assert not gate.closed


def test_a_drain_is_awaited_once_and_does_nothing_before() -> None:
    gate = Gate(1)

    async def main() -> None:
        drain = gate.drain()
        assert not gate.closed
        assert await drain is True
        with pytest.raises(RuntimeError, match="once"):
            await drain

    asyncio.run(main())
    gate = Gate(1)
    gate.drain().close()
    assert not gate.closed


def test_what_is_granted_counts_as_in_flight() -> None:
    gate = Gate(1, clock=ManualClock())

    async def main() -> None:
        held = take(gate)
        steps: Any = gate.acquire().__await__()
        next(steps)
        held.release()
        drain = asyncio.ensure_future(gate.drain())
        await turns()
        assert not drain.done()
        with pytest.raises(StopIteration) as done:
            next(steps)
        await turns()
        assert not drain.done()
        done.value.value.release()
        assert await drain is True

    asyncio.run(main())


def test_in_a_dry_run_the_end_is_that_of_all_who_are_at_work() -> None:
    gate = Gate(1, dry_run=True, clock=ManualClock())
    held = [take(gate) for _ in range(3)]
    gate.close()
    # Closed is closed, also where everybody else is admitted.
    assert not gate.try_acquire()
    assert gate.snapshot().rejected[Reason.CLOSED] >= 1
    for permit in held:
        assert not gate.drain_sync(0)
        permit.release()
    assert gate.drain_sync(1)


def test_a_drain_that_nobody_knows_goes_with_its_gate() -> None:
    class Mine(Gate):
        """With a dictionary."""

    messages: list[str] = []

    async def wait(gate: Gate) -> None:
        await gate.drain()
        pytest.fail("nobody released")

    async def main() -> None:
        event_loop = asyncio.get_running_loop()
        event_loop.set_exception_handler(lambda _, context: messages.append(context["message"]))
        gate: Any = Mine(1, clock=ManualClock())
        gate.permit = take(gate)
        gate.task = asyncio.create_task(wait(gate))
        await turns()
        alive = weakref.ref(gate), weakref.ref(gate.task)
        del gate
        gc.collect()
        assert [each() for each in alive] == [None, None]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(main())
    assert messages == ["Task was destroyed but it is pending!"]


def test_under_the_kill_switch_a_drain_waits_for_what_runs() -> None:
    run(
        """
        import asyncio, os
        os.environ["SLUICEGATE_DISABLED"] = "1"
        from sluicegate import Gate, Outcome, TokenBucket
        from sluicegate.testing import assert_idle

        async def main(**options):
            gate, part = Gate(1, max_waiting=0, **options), Gate(1, **options)
            held = [gate.try_acquire(), gate.try_acquire(5), await gate.acquire(deadline=0)]
            held.append(await gate.acquire(inner=part))
            assert await gate.drain(timeout=0) is False
            assert gate.closed
            held.append(await gate.acquire())  # nobody is rejected
            drains = [asyncio.ensure_future(each.drain()) for each in (gate, gate, part)]
            for permit in held:
                for _ in range(3):
                    await asyncio.sleep(0)
                assert not any(drain.done() for drain in drains[:2])
                assert drains[2].done() == (permit is held[-1])
                permit.release()
                permit.release()
            assert await asyncio.gather(*drains) == [True] * 3
            snapshot = gate.snapshot()
            assert (snapshot.admitted, snapshot.outcomes) == (5, {Outcome.SUCCESS: 5})
            assert snapshot.stray_releases == 5
            async with gate.acquire():
                assert await asyncio.to_thread(gate.drain_sync, 0.01) is False
            assert await asyncio.to_thread(gate.drain_sync) is True
            assert_idle(gate, part)

        asyncio.run(main())
        asyncio.run(main(rate=TokenBucket(1e-6, burst=5)))
        asyncio.run(main(dry_run=True))
        gate = Gate(1)
        held = gate.try_acquire(), gate.try_acquire()
        if os.fork() == 0:
            # What runs in the parent does not run here.
            try:
                assert gate.drain_sync(0)
                held[1].release()
                assert gate.drain_sync(0)
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        assert not gate.drain_sync(0)
        for permit in held:
            permit.release()
        assert gate.drain_sync(0)
        """
    )


def test_an_interrupt_ends_a_drain_in_the_main_thread() -> None:
    run(
        """
        import os, signal, threading, time
        from sluicegate import Gate
        gate = Gate(1)
        held = gate.try_acquire()

        def interrupt():
            while not gate.closed:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            gate.drain_sync()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("it was not interrupted")
        held.release()
        assert gate.drain_sync(1)
        """
    )


@pytest.mark.parametrize("is_dry", ["", "dry run"])
def test_a_child_has_nothing_in_flight_and_the_parent_goes_on(is_dry: str) -> None:
    run(
        """
        import asyncio, os, sys, warnings
        from sluicegate import Criticality, Gate, TokenBucket
        from sluicegate.testing import assert_idle
        warnings.simplefilter("ignore")
        is_dry = bool(sys.argv[1])
        part = Gate(1)
        gate = Gate(1, dry_run=is_dry, reserve={Criticality.CRITICAL: 0.5})

        async def main():
            held = gate.try_acquire(inner=part)
            others = [await gate.acquire() for _ in range(3)] if is_dry else []
            line = [] if is_dry else [asyncio.ensure_future(gate.acquire(deadline=3600))]
            await asyncio.sleep(0)
            pid = os.fork()
            if pid == 0:
                try:
                    assert_idle(gate, part)
                    assert not gate.closed
                    for permit in (held, *others):
                        permit.release()
                    assert_idle(gate, part)
                    with gate.try_acquire(inner=part):
                        assert (gate.in_flight, part.in_flight) == (1, 1)
                        assert is_dry or not gate.try_acquire()
                    # Inside of the loop of the parent none can be run.
                    assert_idle(gate, part)
                    os._exit(0)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
            assert gate.in_flight == part.in_flight == 1
            drain = asyncio.ensure_future(gate.drain()) if is_dry else None
            for permit in (held, *others):
                permit.release()
            for wait in line:
                (await wait).release()
            if drain:
                assert await asyncio.wait_for(drain, 5)
            pid = os.fork()
            if pid == 0:
                # Closed is closed.
                os._exit(0 if gate.closed == is_dry else 1)
            assert os.waitpid(pid, 0)[1] == 0

        asyncio.run(main())
        assert_idle(gate, part)
        """,
        is_dry,
        is_watched=False,
    )
