"""What is left behind: cycles, forgotten items and takes, tasks that only a queue knows, memory."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from queue_support import made
from sluicegate import CoDelQueue, ManualClock, Rejected, Rejection
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(60)


class Mine(CoDelQueue[Any]):
    """With a dictionary, so that it can be part of any cycle."""


class Owner:
    """Has a queue, whose hooks are its own."""

    queue: CoDelQueue[Any]

    def on_reject(self, item: Any, rejection: Rejection) -> None:
        """Is called."""

    def on_level(self) -> None:
        """Is called."""


def enclosing(owner: Owner) -> Callable[[Any, Rejection], None]:
    def on_reject(item: Any, rejection: Rejection) -> None:
        owner.on_reject(item, rejection)

    return on_reject


class Item:
    pass


@pytest.mark.parametrize("way", ["method", "closure", "partial", "subclass"])
def test_a_queue_and_its_hooks_are_collected_together(way: str) -> None:
    owner = Owner()
    if way == "method":
        owner.queue = CoDelQueue(
            3, on_reject=owner.on_reject, on_high=owner.on_level, on_low=owner.on_level
        )
    elif way == "closure":
        owner.queue = CoDelQueue(3, on_reject=enclosing(owner))
    elif way == "partial":
        owner.queue = CoDelQueue(3, on_high=functools.partial(Owner.on_level, owner))
    else:
        mine: Any = Mine(3, on_low=owner.on_level)
        owner.queue = mine
        mine.owner = owner
    item = Item()
    owner.queue.put_nowait(item)
    alive: list[weakref.ref[Any]] = [
        weakref.ref(owner),
        weakref.ref(owner.queue),
        weakref.ref(item),
    ]
    del owner, item
    mine = None
    gc.collect()
    assert [reference() for reference in alive] == [None, None, None]


@pytest.mark.parametrize("place", ["inside", "in a put", "in hand"])
def test_a_queue_and_the_items_that_know_it_are_collected_together(place: str) -> None:
    queue, item = CoDelQueue[Any](3), Item()
    holder: Any = item
    holder.queue = queue
    if place == "inside":
        queue.put_nowait(item)
    elif place == "in a put":
        holder.put = queue.put(item)
        holder.put.close()
    else:
        queue.put_nowait(item)
        holder.take = queue.take()
        assert holder.take.__enter__() is item
    alive: list[weakref.ref[Any]] = [weakref.ref(queue), weakref.ref(item)]
    del queue, item, holder
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_a_queue_that_is_its_own_item_is_collected() -> None:
    queue: CoDelQueue[Any] = CoDelQueue(3)
    queue.put_nowait(queue)
    queue.put_nowait(queue.take())
    alive = weakref.ref(queue)
    del queue
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("clock", [None, ManualClock()])
@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_queue_and_those_who_wait_at_it_are_collected_together(
    clock: ManualClock | None, timeout: float | None
) -> None:
    # queue -> waiter -> future -> task -> frame -> queue, and the loop with it
    async def get(queue: CoDelQueue[Any], ended: list[str]) -> None:
        try:
            async with queue.take(timeout=timeout):
                ended.append("ran")
        finally:
            ended.append("get")

    async def put(queue: CoDelQueue[Any], ended: list[str]) -> None:
        try:
            await queue.put(Item(), timeout=timeout)
        finally:
            ended.append("put")

    async def main() -> tuple[Any, list[str]]:
        ended: list[str] = []
        alive = []
        for wait in (get, put):
            queue: Any = Mine(1, clock=clock, interval=3600)
            if wait is put:
                queue.put_nowait(Item())
            queue.waits = []
            for _ in range(3):
                coroutine = wait(queue, ended)
                coroutine.send(None)
                queue.waits.append(coroutine)
            alive.append(weakref.ref(queue))
        await asyncio.sleep(0)
        return alive, ended

    alive, ended = asyncio.run(main())
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert sorted(ended) == ["get"] * 3 + ["put"] * 3


@pytest.mark.parametrize("what", ["get", "put"])
def test_a_pending_task_that_nobody_knows_goes_with_its_queue(what: str) -> None:
    messages: list[str] = []

    async def wait(queue: CoDelQueue[Any]) -> None:
        if what == "get":
            await queue.get()
        else:
            await queue.put("b")
        pytest.fail("nobody answered")

    async def main() -> None:
        event_loop = asyncio.get_running_loop()
        event_loop.set_exception_handler(lambda _, context: messages.append(context["message"]))
        queue: Any = Mine(1, clock=ManualClock())
        if what == "put":
            queue.put_nowait("a")
        queue.task = asyncio.create_task(wait(queue))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        alive: list[weakref.ref[Any]] = [weakref.ref(queue), weakref.ref(queue.task)]
        del queue
        gc.collect()
        assert [reference() for reference in alive] == [None, None]

    asyncio.run(main())
    assert messages == ["Task was destroyed but it is pending!"]


def test_a_queue_keeps_those_alive_who_wait_at_it() -> None:
    got: list[int] = []

    async def get(queue: CoDelQueue[int]) -> None:
        got.append(await queue.get())

    async def main() -> None:
        queue: CoDelQueue[int] = CoDelQueue(5)
        for _ in range(5):
            # asyncio itself keeps only a weak reference to a task.
            asyncio.create_task(get(queue))  # noqa: RUF006
        await asyncio.sleep(0)
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
        for number in range(5):
            queue.put_nowait(number)
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert got == list(range(5))


def test_a_queue_dies_at_once_with_all_it_has() -> None:
    gc.disable()
    try:
        queue = Mine(2, clock=ManualClock(), on_high=lambda: None)
        item = Item()
        alive: list[weakref.ref[Any]] = [weakref.ref(queue), weakref.ref(item)]
        queue.put_nowait(item)
        with queue.take() as taken:
            assert taken is item
        del taken
        queue.put_nowait(item)
        queue.put_nowait(Item())
        with pytest.raises(Rejected):
            queue.put_nowait(Item())
        with pytest.raises(TimeoutError):
            queue.put_sync(item, timeout=0)
        del item
        del queue
        assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("clock", [None, ManualClock()])
def test_what_was_taken_is_kept_by_nobody(clock: ManualClock | None) -> None:
    queue: CoDelQueue[Any] = CoDelQueue(2, clock=clock, target=60)

    async def by_await() -> None:
        await queue.put(Item())
        alive.append(weakref.ref(await queue.get()))
        getter = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        await queue.put(Item())
        alive.append(weakref.ref(await getter))
        await queue.put(Item())
        async with queue.take() as item:
            alive.append(weakref.ref(item))

    alive: list[Any] = []
    queue.put_nowait(Item())
    alive.append(weakref.ref(queue.get_nowait()))
    queue.put_nowait(Item())
    alive.append(weakref.ref(queue.get_sync()))
    take = queue.take()
    queue.put_nowait(Item())
    alive.append(weakref.ref(take.__enter__()))
    take.__exit__(None, None, None)
    asyncio.run(by_await())
    gc.collect()
    assert [reference() for reference in alive] == [None] * 6
    assert take is not None


def test_a_finished_wait_leaves_nothing_of_the_task_behind() -> None:
    class Body:
        pass

    async def wait(queue: CoDelQueue[Any], bodies: list[weakref.ref[Body]], how: str) -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        async with asyncio.timeout(0 if how == "timeout" else None):
            if "put" in how:
                await queue.put(body)
            else:
                await queue.get()

    async def main() -> None:
        queue: CoDelQueue[Any] = CoDelQueue(1)
        bodies: list[weakref.ref[Body]] = []
        for how in ("served", "cancelled", "timeout", "put", "put cancelled"):
            if "put" in how:
                queue.put_nowait("a")
            task = asyncio.create_task(wait(queue, bodies, how))
            await asyncio.sleep(0)
            if "cancelled" in how:
                task.cancel()
            elif how == "served":
                queue.put_nowait("a")
            elif how == "put":
                queue.get_nowait()
            await asyncio.gather(task, return_exceptions=True)
            while queue.depth:
                queue.get_nowait()
            del task
        # The loop lets go of what it has just run a turn later.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert [body() for body in bodies] == [None] * 5

    asyncio.run(main())


@pytest.mark.parametrize("way", ["dropped", "cycle", "generator", "task"])
def test_a_take_that_is_never_exited_teaches_nothing_and_is_not_counted(way: str) -> None:
    queue, clock, _ = made()
    for _ in range(10):
        queue.put_nowait("x", operation="read")

    def generate() -> Any:
        with queue.take() as item:
            yield item

    async def work() -> None:
        async with queue.take():
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert queue.snapshot().working == 1
        task.cancel()
        await asyncio.wait([task])

    match way:
        case "dropped":
            take = queue.take()
            take.__enter__()
            assert queue.snapshot().working == 1
            del take
        case "cycle":
            cycle: list[Any] = [queue.take()]
            cycle[0].__enter__()
            cycle.append(cycle)
            assert queue.snapshot().working == 1
            del cycle
        case "generator":
            generator = generate()
            assert next(generator) == "x"
            assert queue.snapshot().working == 1
            clock.advance(0.01)
            del generator
        case "task":
            asyncio.run(main())
    gc.collect()
    snapshot = queue.snapshot()
    assert (snapshot.working, snapshot.taken) == (0, 1)
    assert snapshot.service_mean == (pytest.approx(0.01) if way == "generator" else 0.0)


PRELUDE = """
import asyncio, gc, os, sys, threading, time
from sluicegate import CoDelQueue, Criticality, Rejected

def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""


@pytest.mark.parametrize(
    "way", ["nowait", "wait", "cancel", "timeout", "thread", "reject", "refuse", "take", "ticket"]
)
def test_memory_does_not_grow(way: str, scale: float) -> None:
    share = {"timeout": 0.02, "thread": 0.3, "wait": 0.5, "cancel": 0.5}.get(way, 1.0)
    count = int(100_000 * scale * share)
    growth = run(
        PRELUDE
        + """
way, count = sys.argv[1], int(sys.argv[2])
told = []
queue = CoDelQueue(
    20,
    target=0.001 if way == "reject" else 60,
    interval=0.002 if way == "reject" else 3600,
    on_reject=lambda item, rejection: told.append(1),
)

async def get():
    await queue.get(timeout=0.002 if way == "timeout" else None)

async def batch(number):
    tasks = [asyncio.create_task(get()) for _ in range(number)]
    await asyncio.sleep(0)
    if way == "cancel":
        for task in tasks:
            task.cancel()
    if way == "wait":
        for each in range(number):
            await queue.put(b"x" * 50)
    await asyncio.gather(*tasks, return_exceptions=True)

def in_threads(number):
    def put():
        for _ in range(number):
            queue.put_sync(b"x" * 50)
    def get():
        for _ in range(number):
            queue.get_sync()
    threads = [threading.Thread(target=target) for target in (put, get)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def play(number):
    match way:
        case "nowait":
            for each in range(number):
                queue.put_nowait(b"x" * 50, deadline=each % 7 + 1, operation=str(each % 1000))
                queue.get_nowait()
        case "reject":
            for _ in range(number // 20):
                for each in range(20):
                    queue.put_nowait(b"x" * 50, criticality=Criticality(each % 4))
                while queue.depth:
                    time.sleep(0.0005)
            told.clear()
        case "refuse":
            while queue.depth < 20:
                queue.put_nowait("full")
            for _ in range(number):
                try:
                    queue.put_nowait(b"x" * 50)
                except Rejected:
                    pass
        case "take":
            for each in range(number):
                queue.put_nowait(b"x" * 50, operation=str(each))
                with queue.take():
                    pass
        case "ticket":
            for _ in range(number):
                assert queue.cancel(queue.put_nowait(b"x" * 50, cancellable=True))
        case "thread":
            in_threads(number)
        case _:
            asyncio.run(batch(number))

# Many small batches, so that the allocator comes to rest before it is measured.
turns = 60
for _ in range(turns // 2):
    play(count // turns)
before = resident()
for _ in range(turns):
    play(count // turns)
print(resident() - before)
""",
        way,
        str(count),
        seconds=60,
    )
    # One forgotten item is some hundred bytes.
    assert int(growth) < max(1_000_000, 50 * count)


def test_reference_counts_stay_as_they_were() -> None:
    clock = ManualClock()

    def hook(*_: Any) -> None:
        """Is called."""

    item = Item()
    queue: CoDelQueue[Any] = CoDelQueue(
        2, name="a name of its own", clock=clock, on_reject=hook, on_high=hook, on_low=hook
    )

    async def main() -> None:
        event_loop = asyncio.get_running_loop()

        async def use() -> None:
            queue.put_nowait(item)
            await queue.put(item, deadline=5, operation="read")
            with pytest.raises(Rejected):
                queue.put_nowait(item)
            putter = asyncio.ensure_future(queue.put(item))
            await asyncio.sleep(0)
            async with queue.take():
                pass
            await putter
            queue.get_nowait()
            ticket = queue.put_nowait(item, cancellable=True)
            assert queue.cancel(ticket)
            clock.advance(2)
            getter = asyncio.ensure_future(queue.get())
            await asyncio.sleep(0)
            getter.cancel()
            await asyncio.gather(getter, return_exceptions=True)
            with pytest.raises(TimeoutError):
                await queue.get(timeout=0)
            queue.snapshot()

        def counts() -> list[int]:
            gc.collect()
            objects = (queue, clock, event_loop, queue.name, hook, item, None, CoDelQueue)
            return [sys.getrefcount(thing) for thing in objects]

        await use()
        before = counts()
        for _ in range(200):
            await use()
        after = counts()
        assert all(new - old < 50 for old, new in zip(before, after, strict=True)), (before, after)

    asyncio.run(main())
