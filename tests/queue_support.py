"""Queues on a clock of their own, and what tests do to them."""

from __future__ import annotations

from typing import Any

from sluicegate import CoDelQueue, Criticality, ManualClock, Reason

SHEDDABLE, SHEDDABLE_PLUS, CRITICAL, CRITICAL_PLUS = Criticality
Told = list[tuple[Any, Reason]]


class Clock:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.reading: Any = 1.0

    def now(self) -> float:
        if isinstance(self.reading, BaseException):
            raise self.reading
        reading: float = self.reading
        return reading


def made(capacity: int = 10, **options: Any) -> tuple[CoDelQueue[Any], ManualClock, Told]:
    """Make a queue, the clock it goes by, and the list of what it rejects."""
    clock, told = ManualClock(), Told()
    options = {"target": 0.1, "interval": 1.0} | options
    queue: CoDelQueue[Any] = CoDelQueue(
        capacity,
        clock=clock,
        on_reject=lambda item, rejection: told.append((item, rejection.reason)),
        **options,
    )
    return queue, clock, told


def watched(capacity: int, **options: Any) -> tuple[CoDelQueue[Any], ManualClock, list[str]]:
    """Make a queue, its clock, and the list of the levels that it tells."""
    levels: list[str] = []
    queue, clock, _ = made(
        capacity,
        on_high=lambda: levels.append("high"),
        on_low=lambda: levels.append("low"),
        **options,
    )
    return queue, clock, levels


def let_stand(queue: CoDelQueue[Any], clock: ManualClock, told: Told) -> None:
    """Make an empty queue of these spans standing, for as long as it is until something comes."""
    queue.put_nowait("first")
    clock.advance(0.5)
    queue.put_nowait("second")
    clock.advance(0.6)
    assert told == [("first", Reason.WAIT), ("second", Reason.WAIT)]
    assert (queue.standing, queue.depth) == (True, 0)
    told.clear()


def learn(queue: CoDelQueue[Any], clock: ManualClock, service: float, count: int = 20) -> None:
    """Let a queue see how long work takes."""
    for _ in range(count):
        work(queue, clock, service)


def work(
    queue: CoDelQueue[Any], clock: ManualClock, service: float, operation: str | None = None
) -> None:
    queue.put_nowait("work", operation=operation)
    with queue.take(timeout=0) as item:
        assert item == "work"
        clock.advance(service)


def fail(queue: CoDelQueue[Any], clock: ManualClock, service: float) -> None:
    queue.put_nowait("work")
    with queue.take(timeout=0):
        clock.advance(service)
        raise KeyError


def stands(queue: CoDelQueue[Any]) -> bool:
    return queue.standing


def drained(queue: CoDelQueue[Any]) -> list[Any]:
    return [queue.get_nowait() for _ in range(queue.depth)]
