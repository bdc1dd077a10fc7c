"""What a queue says about itself: marks, snapshot, name, type, log."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from queue_support import Clock, learn, let_stand, made, watched
from sluicegate import (
    CoDelQueue,
    Criticality,
    ManualClock,
    Rejected,
)
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)

SHEDDABLE, SHEDDABLE_PLUS, CRITICAL, CRITICAL_PLUS = Criticality


# Watermarks


@pytest.mark.parametrize(
    ("marks", "high", "low"),
    [({}, 7, 3), ({"low": 0.0, "high": 1.0}, 10, 0), ({"low": 0.45, "high": 0.55}, 6, 4)],
)
def test_it_says_when_it_becomes_high_and_low_again(
    marks: dict[str, float], high: int, low: int
) -> None:
    queue, _, levels = watched(10, **marks)
    for _ in range(2):
        for depth in range(1, 11):
            queue.put_nowait("x")
            assert levels == ["high"] * (depth >= high)
        # Between the two nothing is said.
        while queue.depth > low + 1:
            queue.get_nowait()
        while queue.depth < 10:
            queue.put_nowait("x")
        assert levels == ["high"]
        for depth in range(9, -1, -1):
            queue.get_nowait()
            assert levels == ["high", *["low"] * (depth <= low)]
        levels.clear()


@pytest.mark.parametrize("way", ["wait", "close", "cancel", "update"])
def test_it_is_low_again_whatever_became_of_the_items(way: str) -> None:
    queue, clock, levels = watched(10)
    tickets = [queue.put_nowait("x", cancellable=True) for _ in range(10)]
    assert levels == ["high"]
    match way:
        case "wait":
            clock.advance(1)
        case "close":
            queue.close(immediate=True)
        case "cancel":
            for ticket in tickets:
                assert queue.cancel(ticket)
        case "update":
            queue.update(capacity=100)
    assert levels == ["high", "low"]


def test_a_queue_without_room_is_never_high() -> None:
    queue, _, levels = watched(0)
    with pytest.raises(Rejected):
        queue.put_nowait("x")
    assert levels == []


def test_who_makes_room_is_no_relief() -> None:
    queue, _, levels = watched(1)
    queue.put_nowait("x", criticality=SHEDDABLE)
    for level in (1, 2, 3):
        queue.put_nowait("y", criticality=Criticality(level))
    assert levels == ["high"]


# What it says about itself


def test_a_snapshot_is_the_state_and_json() -> None:
    queue, clock, _ = made(4, name="jobs")
    learn(queue, clock, 0.02)
    for number in range(4):
        queue.put_nowait(number)
        clock.advance(0.01)
    with pytest.raises(Rejected):
        queue.put_nowait("x")
    queue.get_nowait()
    with queue.take():
        snapshot = queue.snapshot()
    assert json.loads(json.dumps(dataclasses.asdict(snapshot))) == {
        "name": "jobs",
        "capacity": 4,
        "depth": 2,
        "saturation": 0.5,
        "oldest_wait": pytest.approx(0.02),
        "standing": False,
        "target": 0.1,
        "interval": 1.0,
        "getting": 0,
        "putting": 0,
        "working": 1,
        "service_mean": pytest.approx(0.02),
        "service_p95": pytest.approx(0.02, rel=0.1),
        "service_estimate": pytest.approx(0.02, rel=0.1),
        "service_baseline": pytest.approx(0.02),
        "accepted": 24,
        "taken": 22,
        "cancelled": 0,
        "rejected": {"full": 1},
        "closed": False,
    }
    assert str(snapshot) == (
        "jobs: healthy | 2/4 waiting, oldest 0.02 of 1 s | 0 getting, 0 putting | "
        "22 taken, 1 rejected"
    )
    assert not hasattr(snapshot, "__dict__")


def test_the_line_about_it_says_what_it_is() -> None:
    queue, clock, told = made(4, name="jobs")
    assert str(queue.snapshot()).startswith("jobs: healthy | 0/4 waiting | ")
    assert repr(queue) == "<CoDelQueue 'jobs': 0 of 4 waiting>"
    let_stand(queue, clock, told)
    queue.put_nowait("a")
    assert str(queue.snapshot()).startswith("jobs: standing | 1/4 waiting, oldest 0.00 of 0.1 s")
    assert repr(queue) == "<CoDelQueue 'jobs': 1 of 4 waiting>"
    queue.close()
    assert str(queue.snapshot()).startswith("jobs: closed | ")
    assert repr(queue.take()) == "<Take (not used yet)>"
    take = queue.take()
    with take:
        assert repr(take) == "<Take (at work)>"
    assert repr(take) == "<Take (used)>"


def test_to_look_at_it_lets_go_what_is_over() -> None:
    looks: list[Callable[[CoDelQueue[Any]], Any]] = [
        lambda queue: queue.depth,
        lambda queue: queue.saturation,
        lambda queue: queue.oldest_wait,
        lambda queue: queue.standing,
        lambda queue: queue.snapshot(),
        repr,
        lambda queue: queue.expire(),
        lambda queue: queue.cancel(0),
        lambda queue: queue.update(),
        lambda queue: queue.close(),
    ]
    for look in looks:
        clock = Clock()
        told: list[str] = []
        queue = queue_that_tells(clock, told)
        queue.put_nowait("a")
        clock.reading = 2.0
        look(queue)
        assert told == ["a"]


def queue_that_tells(clock: Clock, told: list[str]) -> CoDelQueue[str]:
    return CoDelQueue(3, interval=1, clock=clock, on_reject=lambda item, _: told.append(item))


def test_names_are_given_in_turn() -> None:
    run(
        """
        from sluicegate import CoDelQueue, SemaphoreLimiter
        SemaphoreLimiter(1)
        assert [CoDelQueue(1, name=name).name for name in (None, None, "", "x", "queue", None)] == [
            "queue", "queue-2", "", "x", "queue", "queue-3"
        ]
        """
    )


def test_it_takes_a_type_for_type_checkers() -> None:
    class Named(CoDelQueue[str]):
        pass

    queue = CoDelQueue[int](3, clock=ManualClock())
    assert type(queue) is CoDelQueue
    assert isinstance(Named(3), CoDelQueue)
    queue.put_nowait(1)
    assert queue.get_nowait() == 1


def test_it_can_be_weakly_referred_to_and_dies_at_once() -> None:
    class Item:
        pass

    queue, _, told = made()
    item = Item()
    inside, alive = weakref.ref(item), weakref.ref(queue)
    queue.put_nowait(item)
    del item
    gc.disable()
    try:
        del queue
        assert (alive(), inside()) == (None, None)
    finally:
        gc.enable()
    # Nobody rejected it.
    assert told == []


# A bare get() teaches nothing


GETS: list[Callable[[CoDelQueue[Any]], Any]] = [
    lambda queue: queue.get_nowait(),
    lambda queue: queue.get_sync(),
    lambda queue: asyncio.run(by_get(queue)),
    lambda queue: asyncio.run(by_iteration(queue)),
]


async def by_get(queue: CoDelQueue[Any]) -> Any:
    return await queue.get()


async def by_iteration(queue: CoDelQueue[Any]) -> Any:
    return await anext(queue)


@pytest.mark.parametrize("get", GETS)
def test_it_says_once_that_it_learns_nothing(
    get: Callable[[CoDelQueue[Any]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    queue: CoDelQueue[int] = CoDelQueue(9, name="jobs")
    for number in range(4):
        queue.put_nowait(number)
        assert get(queue) == number
    [record] = caplog.records
    assert (record.name, record.levelname) == ("sluicegate.queue", "WARNING")
    assert record.getMessage() == (
        'queue "jobs" does not know how long work takes: its items may wait 1 s, or 0.25 s while '
        "it is standing. `async with queue.take() as item:` times the work, and get() does not; "
        "or give a target."
    )


@pytest.mark.parametrize("get", GETS)
@pytest.mark.parametrize("why", ["target", "interval", "learnt", "at work"])
def test_it_says_nothing_where_there_is_nothing_to_learn(
    get: Callable[[CoDelQueue[Any]], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    spans = {"target": (0.1, None), "interval": (None, 0.1)}
    target, interval = spans.get(why, (None, None))
    clock = ManualClock()
    queue: CoDelQueue[Any] = CoDelQueue(9, target=target, interval=interval, clock=clock)
    if why == "learnt":
        learn(queue, clock, 0.01)
    queue.put_nowait("a")
    queue.put_nowait("b")
    if why == "at work":
        with queue.take():
            assert get(queue) == "b"
    else:
        assert get(queue) == "a"
    assert caplog.records == []
