"""What a gate writes to the log: when rejections began, go on, and have stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from gate_use import take
from sluicegate import Criticality, Gate, ManualClock, Permit, Reason, Rejected
from sluicegate.testing import assert_idle, rejecting
from virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from virtual_time import VirtualLoop

pytestmark = pytest.mark.timeout(20)
C = Criticality


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged at last, with its level; and all of the logger of gates."""
    caplog.set_level(logging.DEBUG, logger="sluicegate.gate")

    class Lines(list[str]):
        def __init__(self) -> None:
            super().__init__()

        def pop_all(self) -> list[str]:
            found = [f"{each.levelname} {each.getMessage()}" for each in caplog.records]
            assert all(each.name == "sluicegate.gate" for each in caplog.records)
            caplog.clear()
            return found

    return Lines()


def test_an_episode_of_rejections_is_three_kinds_of_lines(lines: Any) -> None:
    clock = ManualClock()
    gate = Gate(2, name="api", max_waiting=0, clock=clock)
    for _ in range(10):
        take(gate).release()
    assert lines.pop_all() == []
    with take(gate), take(gate):
        gate.try_acquire(criticality=C.SHEDDABLE)
        assert lines.pop_all() == [
            "WARNING gate 'api' began rejecting: reason=limit up_to=SHEDDABLE in_flight=2 "
            "limit=2.0 waiting=0 oldest_wait=0.00s"
        ]
        for _ in range(24):
            clock.advance(1)
            gate.try_acquire(criticality=C.CRITICAL)
        still = lines.pop_all()
        assert [line.split(" after ")[1].split(":")[0] for line in still] == ["10.0s", "20.0s"]
        assert still[0] == (
            "WARNING gate 'api' still rejecting after 10.0s: rejected=10 of 10 (limit 10), "
            "up_to=CRITICAL in_flight=2 limit=2.0 waiting=0 oldest_wait=0.00s"
        )
    for _ in range(15):
        take(gate).release()
    with rejecting(gate, Reason.FULL):
        gate.try_acquire()
    clock.advance(4.9)
    take(gate).release()
    assert lines.pop_all() == []
    clock.advance(0.2)
    take(gate).release()
    assert lines.pop_all() == [
        "INFO gate 'api' stopped rejecting after 24.0s: rejected=26 of 41 (limit 25, full 1)"
    ]
    with rejecting(gate, Reason.RATE):
        gate.try_acquire()
    assert re.match("WARNING gate 'api' began rejecting: reason=rate", *lines.pop_all())
    assert_idle(gate)


def test_the_end_is_told_where_nobody_comes_any_more(lines: Any) -> None:
    gate = Gate(1, name="api", max_wait=1)
    known: list[weakref.ref[VirtualLoop]] = []

    async def main(event_loop: VirtualLoop) -> None:
        known.append(weakref.ref(event_loop))
        for _ in range(2):
            with take(gate):
                waits = [asyncio.ensure_future(gate.acquire()) for _ in range(3)]
                for wait in waits:
                    with pytest.raises(Rejected):
                        await wait
            assert re.match("WARNING gate 'api' began rejecting: reason=wait", *lines.pop_all())
            await asyncio.sleep(4.8)
            assert lines.pop_all() == []
            await asyncio.sleep(0.3)
            assert lines.pop_all() == [
                "INFO gate 'api' stopped rejecting after 0.0s: rejected=3 of 3 (wait 3)"
            ]

    run_in_virtual_time(main)
    gc.collect()
    assert known[0]() is None


def test_a_dry_run_says_so(lines: Any) -> None:
    clock = ManualClock()
    gate = Gate(1, name="api", max_waiting=0, dry_run=True, clock=clock)
    with take(gate), take(gate):
        pass
    assert "began rejecting (dry run: all are admitted): reason=limit" in lines.pop_all()[0]
    clock.advance(6)
    gate.expire()
    assert "stopped rejecting (dry run: all are admitted) after" in lines.pop_all()[0]


def test_one_line_for_each_however_many_there_are(lines: Any) -> None:
    clock = ManualClock()
    gates = [Gate(1, name=name, max_waiting=0, clock=clock) for name in ("a", "b")]
    for gate in gates:
        with take(gate):
            for _ in range(1000):
                gate.try_acquire()
    found = lines.pop_all()
    assert [line.split("'")[1] for line in found] == ["a", "b"]


@pytest.mark.parametrize("error", [ValueError("disk full"), KeyboardInterrupt()])
def test_a_handler_that_raises_loses_nothing(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))
    is_armed = True

    class Failing(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            if is_armed:
                raise error
            return bool(record)

    logger = logging.getLogger("sluicegate.gate")
    handler = Failing()
    monkeypatch.setattr(logger, "handlers", [handler])
    clock = ManualClock()
    gate = Gate(1, max_waiting=0, clock=clock)
    with take(gate):
        if isinstance(error, Exception):
            assert not gate.try_acquire()
            assert reported == [error]
        else:
            with pytest.raises(KeyboardInterrupt):
                gate.try_acquire()
            assert reported == []
        is_armed = False
        assert not gate.try_acquire()
    assert_idle(gate)
    assert gate.snapshot().rejected == {Reason.LIMIT: 2}


def test_a_handler_may_use_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Reentrant(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            seen.append(record.getMessage())
            gate.snapshot()
            permit = gate.try_acquire()
            if permit:
                assert isinstance(permit, Permit)
                permit.release()
            gate.expire()
            return True

    logger = logging.getLogger("sluicegate.gate")
    monkeypatch.setattr(logger, "handlers", [Reentrant()])
    monkeypatch.setattr(logger, "level", logging.INFO)
    clock = ManualClock()
    gate = Gate(1, max_waiting=0, clock=clock)
    with take(gate):
        for _ in range(40):
            gate.try_acquire()
            clock.advance(1)
    clock.advance(6)
    gate.expire()
    # Began, still after 10, 20, 30 and 40 s, and stopped.
    assert len(seen) == 6
    assert_idle(gate)


def test_a_level_that_is_not_wanted_costs_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="sluicegate.gate")
    gate = Gate(1, max_waiting=0)
    with take(gate):
        gate.try_acquire()
    assert caplog.records == []
