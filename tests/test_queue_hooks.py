"""What a queue calls when something happens in it: once each, under no lock, come what may."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from event_loops import KINDS, run_on
from queue_support import Clock, drained, made
from sluicegate import (
    CoDelQueue,
    Criticality,
    ManualClock,
    QueueClosed,
    Reason,
    Rejected,
    Rejection,
)
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(30)

SHEDDABLE, SHEDDABLE_PLUS, CRITICAL, CRITICAL_PLUS = Criticality


class Interrupted(BaseException):
    """As a KeyboardInterrupt, which pytest would heed."""


class Hooks:
    """Writes down what it is told, and raises what it is told to raise."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.failure: BaseException | None = None
        self.act: Callable[[Any], Any] | None = None

    def _hear(self, what: Any) -> None:
        self.told.append(what)
        if self.act is not None:
            self.act(what)
        if self.failure is not None:
            raise self.failure

    def on_reject(self, item: Any, rejection: Rejection) -> None:
        assert isinstance(rejection, Rejection)
        self._hear((item, rejection.reason))

    def on_high(self) -> None:
        self._hear("high")

    def on_low(self) -> None:
        self._hear("low")

    def taken(self) -> list[Any]:
        told, self.told = self.told, []
        return told


def hooked(capacity: int = 10, **options: Any) -> tuple[CoDelQueue[Any], Clock, Hooks]:
    """Make a queue whose hooks are these, on a clock that rejects nothing by itself."""
    hooks, clock = Hooks(), Clock()
    queue: CoDelQueue[Any] = CoDelQueue(
        capacity,
        clock=clock,
        on_reject=hooks.on_reject,
        on_high=hooks.on_high,
        on_low=hooks.on_low,
        **({"target": 0.1, "interval": 1.0} | options),
    )
    return queue, clock, hooks


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """Collect what could only be reported."""
    reported: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_value))
    return reported


# What rejects, or changes the level: each with a queue of three whose items are over.
CAUSES: dict[str, Callable[[CoDelQueue[Any]], Any]] = {
    "depth": lambda queue: queue.depth,
    "snapshot": lambda queue: queue.snapshot(),
    "expire": lambda queue: queue.expire(),
    "put_nowait": lambda queue: queue.put_nowait("new"),
    "put_sync": lambda queue: queue.put_sync("new"),
    "put": lambda queue: asyncio.run(awaited(queue.put("new"))),
    "get_nowait": lambda queue: queue.get_nowait(),
    "get_sync": lambda queue: queue.get_sync(timeout=0),
    "get": lambda queue: asyncio.run(awaited(queue.get(timeout=0))),
    "take": lambda queue: queue.take(timeout=0).__enter__(),
    "cancel": lambda queue: queue.cancel(0),
    "update": lambda queue: queue.update(target=0.2),
    "close": lambda queue: queue.close(),
    "close at once": lambda queue: queue.close(immediate=True),
}


async def awaited(wish: Any) -> Any:
    return await wish


def filled(queue: CoDelQueue[Any], clock: Clock, hooks: Hooks) -> None:
    for item in range(3):
        queue.put_nowait(item)
    assert hooks.taken() == ["high"]
    clock.reading += 1.0


EMPTY = {"get_nowait": asyncio.QueueEmpty, "get_sync": TimeoutError, "get": TimeoutError}
EMPTY["take"] = TimeoutError


def cause(name: str, queue: CoDelQueue[Any]) -> None:
    if name in EMPTY:
        with pytest.raises(EMPTY[name]):
            CAUSES[name](queue)
    else:
        CAUSES[name](queue)


@pytest.mark.parametrize("name", CAUSES)
def test_whatever_is_done_each_rejected_item_is_told_once_and_in_order(name: str) -> None:
    queue, clock, hooks = hooked(3)
    filled(queue, clock, hooks)
    cause(name, queue)
    told = hooks.taken()
    assert told[:3] == [(item, Reason.WAIT) for item in range(3)]
    assert "low" in told
    queue.expire()
    queue.close(immediate=True)
    assert hooks.taken() == ([("new", Reason.CLOSED)] if name.startswith("put") else [])


def test_levels_and_rejections_are_told_as_they_come() -> None:
    queue, _, hooks = hooked(3)
    queue.put_nowait("a", criticality=SHEDDABLE)
    queue.put_nowait("b")
    queue.put_nowait("c")
    queue.put_nowait("d", criticality=CRITICAL_PLUS)
    with pytest.raises(Rejected):
        queue.put_nowait("e", criticality=SHEDDABLE)
    queue.get_nowait()
    queue.get_nowait()
    queue.get_nowait()
    assert hooks.taken() == ["high", ("a", Reason.EVICTED), "low"]


def test_what_is_refused_at_once_is_not_told() -> None:
    queue, _, hooks = hooked(0)
    with pytest.raises(Rejected):
        queue.put_nowait("a")
    with pytest.raises(TimeoutError):
        queue.put_sync("a", timeout=0)
    queue.close()
    with pytest.raises(QueueClosed):
        queue.put_nowait("a")
    assert hooks.taken() == []


# Hooks that raise


@pytest.mark.parametrize("name", CAUSES)
def test_a_hook_that_fails_is_reported_and_changes_nothing(
    name: str, unraisable: list[BaseException | None]
) -> None:
    queue, clock, hooks = hooked(3)
    filled(queue, clock, hooks)
    hooks.failure = failure = ValueError("hook")
    cause(name, queue)
    hooks.failure = None
    told = hooks.taken()
    assert [each for each in told if each not in ("high", "low")] == [
        (item, Reason.WAIT) for item in range(3)
    ]
    # Each failure by itself.
    assert unraisable == [failure] * len(told)
    assert drained(queue) == ["new"] * name.startswith("put")


@pytest.mark.parametrize("name", CAUSES)
def test_an_interrupt_in_a_hook_is_raised_and_loses_nothing(
    name: str, unraisable: list[BaseException | None]
) -> None:
    queue, clock, hooks = hooked(3)
    filled(queue, clock, hooks)
    hooks.failure = Interrupted()
    with pytest.raises(Interrupted):
        CAUSES[name](queue)
    hooks.failure = None
    # All were told nevertheless, once.
    assert hooks.taken()[:3] == [(item, Reason.WAIT) for item in range(3)]
    assert unraisable == []
    snapshot = queue.snapshot()
    assert (snapshot.getting, snapshot.putting, snapshot.working) == (0, 0, 0)
    # What was put by a call that raised is not inside.
    assert snapshot.depth == 0
    assert snapshot.closed is name.startswith("close")
    queue.expire()
    assert hooks.taken() == []


def test_the_first_interrupt_of_several_is_raised() -> None:
    queue, clock, hooks = hooked(10)
    errors = [Interrupted(number) for number in range(3)]
    for error in errors:
        queue.put_nowait(error)

    def fail(what: Any) -> None:
        raise what[0]

    hooks.act = fail
    clock.reading += 1.0
    with pytest.raises(Interrupted) as raised:
        queue.expire()
    assert raised.value is errors[0]
    assert len(hooks.taken()) == 3


@pytest.mark.parametrize("way", ["get_nowait", "get_sync", "get", "take", "async take"])
def test_an_item_stays_that_cannot_be_handed_over(way: str) -> None:
    queue, clock, hooks = hooked(10)
    queue.put_nowait("over")
    clock.reading += 0.5
    ticket = queue.put_nowait("a", cancellable=True)
    queue.put_nowait("b")
    clock.reading += 0.5
    hooks.failure = Interrupted()

    async def enter() -> None:
        async with queue.take():
            pytest.fail("it was interrupted")

    ways: dict[str, Callable[[], Any]] = {
        "get_nowait": queue.get_nowait,
        "get_sync": queue.get_sync,
        "get": lambda: asyncio.run(awaited(queue.get())),
        "take": queue.take().__enter__,
        "async take": lambda: asyncio.run(enter()),
    }
    with pytest.raises(Interrupted):
        ways[way]()
    hooks.failure = None
    snapshot = queue.snapshot()
    assert (snapshot.depth, snapshot.taken, snapshot.working) == (2, 0, 0)
    assert hooks.taken() == [("over", Reason.WAIT)]
    # In its place, with its ticket and its time.
    assert queue.get_nowait() == "a"
    assert queue.cancel(ticket) is False
    clock.reading += 0.5
    assert queue.depth == 0
    assert hooks.taken() == [("b", Reason.WAIT)]


def test_nobody_is_left_in_the_line_for_room_who_was_interrupted_on_the_way() -> None:
    queue, clock, hooks = hooked(1)

    async def main() -> None:
        queue.put_nowait("over")
        first: Any = queue.put("first").__await__()
        next(first)
        clock.reading += 1.0
        hooks.failure = Interrupted()
        second: Any = queue.put("second").__await__()
        with pytest.raises(Interrupted):
            next(second)
        hooks.failure = None
        with pytest.raises(StopIteration):
            next(first)

    asyncio.run(main())
    assert (drained(queue), queue.snapshot().putting) == (["first"], 0)
    queue.put_nowait("third")


def test_nobody_is_left_in_the_line_for_items_who_was_interrupted_on_the_way() -> None:
    queue, clock, hooks = hooked(1)

    async def main() -> None:
        first: Any = queue.get().__await__()
        next(first)
        # It is over before the first can come for it.
        queue.put_nowait("over")
        clock.reading += 1.0
        hooks.failure = Interrupted()
        second: Any = queue.get().__await__()
        with pytest.raises(Interrupted):
            next(second)
        hooks.failure = None
        next(first)
        assert queue.snapshot().getting == 1
        queue.put_nowait("a")
        with pytest.raises(StopIteration) as done:
            next(first)
        assert done.value.value == "a"

    asyncio.run(main())
    queue.put_nowait("b")
    assert queue.get_nowait() == "b"


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_fails_does_not_stop_the_timer(
    kind: str, unraisable: list[BaseException | None]
) -> None:
    async def main() -> None:
        told = asyncio.Queue[str]()

        def on_reject(item: str, _: Rejection) -> None:
            told.put_nowait(item)
            raise ValueError(item)

        queue = CoDelQueue(10, target=0.001, interval=0.01, on_reject=on_reject)
        for item in "abc":
            queue.put_nowait(item)
            assert await told.get() == item

    run_on(kind, main())
    assert [str(error) for error in unraisable] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_by_a_timer_ends_the_loop_and_loses_nothing(kind: str) -> None:
    run(
        """
        import asyncio, sys
        import uvloop
        from sluicegate import CoDelQueue

        told = []
        def on_reject(item, _):
            told.append(item)
            if len(told) == 1:
                raise KeyboardInterrupt

        queue = CoDelQueue(10, target=0.001, interval=0.02, on_reject=on_reject)
        factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.new_event_loop
        loop = factory()

        async def main(items):
            for item in items:
                queue.put_nowait(item)
            for _ in range(1000):
                await asyncio.sleep(0.001)
                if len(told) >= 4:
                    return

        task = loop.create_task(main("ab"))
        try:
            loop.run_until_complete(task)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("it was not interrupted")
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
        # The same loop goes on, and its timer with it.
        loop.run_until_complete(main("cd"))
        loop.close()
        assert told == list("abcd"), told
        """,
        kind,
    )


# Hooks that use the queue


def test_a_hook_may_put_what_was_rejected_elsewhere() -> None:
    second, _, _ = made()
    clock = ManualClock()
    first: CoDelQueue[int] = CoDelQueue(
        5, interval=1, clock=clock, on_reject=lambda item, _: second.put_nowait(item)
    )
    for number in range(5):
        first.put_nowait(number)
    clock.advance(1)
    assert drained(second) == list(range(5))


def test_a_hook_may_put_it_back() -> None:
    queue, clock, hooks = hooked(3)
    filled(queue, clock, hooks)
    hooks.act = lambda what: queue.put_nowait(what[0] + 10) if isinstance(what, tuple) else None
    queue.expire()
    hooks.act = None
    assert drained(queue) == [10, 11, 12]
    told = [what for what in hooks.taken() if isinstance(what, tuple)]
    assert told == [(item, Reason.WAIT) for item in range(3)]


def test_a_hook_may_take() -> None:
    queue, _, hooks = hooked(3)
    got: list[Any] = []
    hooks.act = lambda what: got.extend(drained(queue)) if what == "high" else None
    for item in range(8):
        queue.put_nowait(item)
    assert got == list(range(6))
    assert hooks.taken() == ["high", "low"] * 2
    assert drained(queue) == [6, 7]


@pytest.mark.parametrize("way", ["close", "immediate", "update", "evict", "expire"])
def test_what_a_hook_brings_about_is_told_once(way: str) -> None:
    queue, clock, hooks = hooked(5, interval=2)
    for item in range(2):
        queue.put_nowait(item, deadline=1, criticality=SHEDDABLE)
    for item in range(2, 5):
        queue.put_nowait(item, criticality=SHEDDABLE)
    hooks.taken()
    clock.reading += 1.0
    more = [f"x{number}" for number in range(4)]
    actions: dict[str, Callable[[], Any]] = {
        "close": queue.close,
        "immediate": lambda: queue.close(immediate=True),
        "update": lambda: queue.update(target=0.01, interval=0.02),
        "evict": lambda: [queue.put_nowait(item, criticality=CRITICAL_PLUS) for item in more],
        "expire": queue.expire,
    }
    acted = False

    def act(_: Any) -> None:
        nonlocal acted
        if not acted:
            acted = True
            actions[way]()

    hooks.act = act
    queue.expire()
    hooks.act = None
    told = [what for what in hooks.taken() if isinstance(what, tuple)]
    rejected: dict[Any, Reason] = dict(told)
    assert len(rejected) == len(told)
    left = drained(queue)
    accepted = [*range(5), *(more if way == "evict" else [])]
    assert sorted([*rejected, *left], key=str) == sorted(accepted, key=str)
    # Those whose deadline brought it about, and then those that the hook did.
    assert [rejected.pop(item) for item in range(2)] == [Reason.DEADLINE] * 2
    reasons = {"immediate": Reason.CLOSED, "update": Reason.WAIT, "evict": Reason.EVICTED}
    assert set(rejected.values()) == ({reasons[way]} if way in reasons else set())


def test_a_hook_that_puts_back_without_end_is_stopped() -> None:
    # At the end of the stack what went wrong can only be printed.
    run(
        """
        from sluicegate import CoDelQueue, ManualClock, Reason

        calls = 0

        def on_reject(item, rejection):
            global calls
            calls += 1
            if rejection.reason is Reason.EVICTED:
                # It pushes out the next, which pushes out the next, and so on.
                queue.put_nowait(item)

        clock = ManualClock()
        queue = CoDelQueue(3000, target=0.1, interval=1, clock=clock, on_reject=on_reject)
        queue.put_nowait("a")
        clock.advance(0.5)
        queue.put_nowait("b")
        clock.advance(0.6)
        assert (queue.standing, calls) == (True, 2)
        for number in range(3000):
            queue.put_nowait(number)
        queue.put_nowait(3000)
        assert 50 < calls < 3000, calls
        snapshot = queue.snapshot()
        inside = snapshot.accepted - sum(snapshot.rejected.values())
        assert snapshot.depth == inside == 3000, snapshot
        """
    )


def test_others_go_on_while_a_hook_takes_its_time() -> None:
    is_high, is_over = threading.Event(), threading.Event()

    def wait() -> None:
        is_high.set()
        assert is_over.wait(10)

    queue: CoDelQueue[str] = CoDelQueue(3, target=60, on_high=wait)

    def put() -> None:
        for item in "abc":
            queue.put_sync(item)

    slow = threading.Thread(target=put)
    slow.start()
    assert is_high.wait(10)
    assert [queue.get_sync() for _ in range(3)] == ["a", "b", "c"]
    queue.put_sync("d")
    is_over.set()
    slow.join(10)
    assert queue.get_sync() == "d"


# Items


class Touchy:
    """An item that is to be left alone."""

    def _fail(self, *_: Any) -> Any:
        raise AssertionError("it was touched")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _fail
    __bool__ = __len__ = __iter__ = __repr__ = __str__ = __format__ = _fail
    __hash__ = __call__ = __await__ = __getattr__ = _fail


@pytest.mark.parametrize("has_hook", [True, False])
def test_items_are_only_carried(has_hook: bool) -> None:
    rejected: list[Any] = []

    def on_reject(item: Any, _: Rejection) -> None:
        rejected.append(item)

    clock = ManualClock()
    queue: CoDelQueue[Any] = CoDelQueue(
        3, interval=1, clock=clock, on_reject=on_reject if has_hook else None
    )
    items = [Touchy() for _ in range(5)]
    assert queue.cancel(queue.put_nowait(items[0], cancellable=True))
    for item in items[:3]:
        queue.put_nowait(item, criticality=SHEDDABLE, deadline=0.5)
    queue.put_nowait(items[3])
    with pytest.raises(Rejected):
        queue.put_nowait(items[4], criticality=SHEDDABLE)
    with pytest.raises(TimeoutError):
        queue.put_sync(items[4], criticality=SHEDDABLE, timeout=0)
    with queue.take() as taken:
        assert taken is items[3]
    clock.advance(1)
    queue.put_nowait(items[3])
    clock.advance(1)
    queue.put_nowait(items[4])
    repr(queue), repr(queue.snapshot())

    async def main() -> None:
        assert await queue.get() is items[4]
        getter: Any = queue.get().__await__()
        next(getter)
        await queue.put(items[0])
        with pytest.raises(StopIteration) as done:
            next(getter)
        assert done.value.value is items[0]
        for item in items[:3]:
            queue.put_nowait(item)
        putter: Any = queue.put(items[3]).__await__()
        next(putter)
        putter.close()

    asyncio.run(main())
    queue.close(immediate=True)
    expected = [items[number] for number in (2, 0, 1, 3, 0, 1, 2)] if has_hook else []
    assert list(map(id, rejected)) == list(map(id, expected))
