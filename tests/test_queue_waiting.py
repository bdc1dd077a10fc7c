"""Waiting for an item, and for room: who is next, for how long, and until the end of the queue."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from event_loops import KINDS, run_on
from queue_support import drained, let_stand, made
from sluicegate import CoDelQueue, Criticality, QueueClosed, Reason, Rejected

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

pytestmark = pytest.mark.timeout(30)

SHEDDABLE, SHEDDABLE_PLUS, CRITICAL, CRITICAL_PLUS = Criticality


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Run a coroutine on a loop of each kind."""
    return functools.partial(run_on, request.param)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def begin(*waits: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Let them come one after the other, and wait."""
    tasks = []
    for wait in waits:
        tasks.append(asyncio.create_task(wait))
        await turns(2)
    return tasks


def lines(queue: CoDelQueue[Any]) -> tuple[int, int]:
    snapshot = queue.snapshot()
    return snapshot.getting, snapshot.putting


# For an item


def test_who_waits_for_an_item_is_served_in_order_of_arrival(run: Run[None]) -> None:
    queue, _, _ = made(1)
    order: list[tuple[int, int]] = []

    async def get(number: int) -> None:
        order.append((number, await queue.get()))

    async def main() -> None:
        tasks = await begin(*(get(number) for number in range(30)))
        assert lines(queue) == (30, 0)
        # They need no room: a worker waits for each.
        for item in range(30):
            queue.put_nowait(item)
        assert (queue.depth, lines(queue)) == (0, (0, 0))
        await asyncio.gather(*tasks)

    run(main())
    assert order == [(number, number) for number in range(30)]


@pytest.mark.parametrize("way", ["get", "take", "async for"])
def test_each_way_to_get_waits(run: Run[None], way: str) -> None:
    queue, _, _ = made()

    async def get() -> Any:
        if way == "get":
            return await queue.get()
        if way == "take":
            async with queue.take() as item:
                return item
        return await anext(queue)

    async def main() -> None:
        tasks = await begin(get(), get())
        queue.put_nowait("a")
        await queue.put("b")
        assert await asyncio.gather(*tasks) == ["a", "b"]
        assert queue.snapshot().working == 0

    run(main())


def test_get_nowait_takes_nothing_from_who_waits(run: Run[None]) -> None:
    queue, _, _ = made()

    async def main() -> None:
        [first] = await begin(queue.get())
        queue.put_nowait("a")
        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()
        queue.put_nowait("b")
        assert queue.get_nowait() in ("a", "b")
        assert {await first} < {"a", "b"}
        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()

    run(main())


def test_a_worker_gets_what_is_next_when_it_comes(run: Run[None]) -> None:
    queue, _, _ = made()

    async def main() -> None:
        [worker] = await begin(queue.get())
        queue.put_nowait("a", criticality=SHEDDABLE)
        queue.put_nowait("b", criticality=CRITICAL_PLUS)
        assert queue.depth == 1
        assert await worker == "b"
        assert drained(queue) == ["a"]

    run(main())


def test_who_comes_for_an_item_that_is_gone_waits_on_in_its_place(run: Run[None]) -> None:
    queue, clock, told = made()

    async def main() -> None:
        first, second = await begin(queue.get(), queue.get())
        queue.put_nowait("a", deadline=0.01)
        # It is over before the worker can run.
        clock.advance(0.01)
        assert told == [("a", Reason.DEADLINE)]
        await turns(4)
        assert lines(queue) == (2, 0)
        ticket = queue.put_nowait("b", cancellable=True)
        assert queue.cancel(ticket)
        await turns(4)
        assert lines(queue) == (2, 0)
        queue.put_nowait("c")
        queue.put_nowait("d")
        assert (await first, await second) == ("c", "d")

    run(main())


def test_what_a_worker_waits_for_may_begin_with_any_remainder(run: Run[None]) -> None:
    queue, clock, told = made()

    async def work(service: float) -> None:
        async with queue.take():
            clock.advance(service)

    async def main() -> None:
        for _ in range(20):
            queue.put_nowait("x")
            await work(0.1)
        [worker] = await begin(queue.get())
        queue.put_nowait("a", deadline=0.01)
        clock.advance(0.009)
        assert await worker == "a"
        queue.put_nowait("b")
        with pytest.raises(Rejected) as raised:
            await queue.put("c", deadline=0.01)
        assert raised.value.reason is Reason.DEADLINE
        assert told == []

    run(main())


def test_a_wait_for_an_item_lasts_as_long_as_it_may(run: Run[None]) -> None:
    queue, clock, _ = made(name="jobs")

    async def take() -> Any:
        async with queue.take(timeout=1.5) as item:
            return item

    async def main() -> None:
        short, taking, long, endless = await begin(
            queue.get(timeout=1), take(), queue.get(timeout=2), queue.get()
        )
        await clock.settle(0.999)
        assert lines(queue) == (4, 0)
        await clock.settle(0.001)
        with pytest.raises(TimeoutError, match=r'^no item of "jobs" within 1 s$'):
            await short
        await clock.settle(0.5)
        with pytest.raises(TimeoutError, match=r'^no item of "jobs" within 1\.5 s$'):
            await taking
        queue.put_nowait("a")
        await clock.settle(0.4)
        assert await long == "a"
        queue.put_nowait("b")
        assert await endless == "b"
        with pytest.raises(TimeoutError, match=r"within 0 s"):
            await queue.get(timeout=0)
        assert lines(queue) == (0, 0)

    run(main())


def test_with_a_timeout_of_nothing_it_takes_what_is_there(run: Run[None]) -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        await queue.put("a", timeout=0)
        with pytest.raises(TimeoutError, match=r"no room in .* within 0 s"):
            await queue.put("b", timeout=0)
        assert await queue.get(timeout=0) == "a"
        await queue.put("b", timeout=0)
        async with queue.take(timeout=0) as item:
            assert item == "b"

    run(main())


# For room


def test_who_waits_for_room_is_served_in_order_of_arrival(run: Run[None]) -> None:
    queue, _, _ = made(2)

    async def main() -> None:
        tasks = await begin(*(queue.put(number) for number in range(10)))
        assert (queue.depth, lines(queue)) == (2, (0, 8))
        for number in range(10):
            assert queue.get_nowait() == number
            await turns(3)
            assert queue.depth == min(2, 9 - number)
        await asyncio.gather(*tasks)
        assert lines(queue) == (0, 0)

    run(main())


def test_put_nowait_overtakes_nobody_who_waits_for_room(run: Run[None]) -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        queue.put_nowait("a")
        [second] = await begin(queue.put("b"))
        assert queue.get_nowait() == "a"
        with pytest.raises(Rejected) as raised:
            queue.put_nowait("c")
        assert raised.value.reason is Reason.FULL
        with pytest.raises(TimeoutError):
            await queue.put("c", timeout=0)
        await second
        assert drained(queue) == ["b"]
        queue.put_nowait("c")
        assert drained(queue) == ["c"]

    run(main())


def test_who_is_more_critical_gets_room_first(run: Run[None]) -> None:
    queue, _, told = made(1)

    async def main() -> None:
        queue.put_nowait("first", criticality=CRITICAL_PLUS)
        tasks = await begin(
            *(queue.put((level, number), criticality=Criticality(level))
              for number, level in enumerate([0, 2, 3, 1, 2, 0, 3]))
        )  # fmt: skip
        got = []
        for _ in range(8):
            got.append(queue.get_nowait())
            await turns(3)
        await asyncio.gather(*tasks)
        assert got == ["first", (3, 2), (3, 6), (2, 1), (2, 4), (1, 3), (0, 0), (0, 5)]

    run(main())
    assert told == []


def test_put_nowait_goes_before_the_less_critical_who_wait(run: Run[None]) -> None:
    queue, _, told = made(2)

    async def main() -> None:
        queue.put_nowait("a")
        queue.put_nowait("b")
        [less] = await begin(queue.put("less", criticality=SHEDDABLE))
        queue.put_nowait("more", criticality=CRITICAL_PLUS)
        assert told == [("b", Reason.EVICTED)]
        assert queue.get_nowait() == "more"
        await less
        assert drained(queue) == ["a", "less"]

    run(main())


def test_put_makes_room_only_where_the_less_critical_wait(run: Run[None]) -> None:
    queue, clock, told = made(2)
    let_stand(queue, clock, told)

    async def main() -> None:
        await queue.put("a")
        await queue.put("b", criticality=SHEDDABLE)
        # It would evict nobody of its own kind, as put_nowait() does now.
        await queue.put("c")
        assert told == [("b", Reason.EVICTED)]
        [waits] = await begin(queue.put("d"))
        assert lines(queue) == (0, 1)
        assert queue.get_nowait() == "c"
        await waits
        assert drained(queue) == ["d", "a"]

    run(main())


def test_where_there_is_no_room_at_all_a_put_waits_for_a_worker(run: Run[None]) -> None:
    queue, _, _ = made(0)
    got: list[int] = []

    async def main() -> None:
        producers = await begin(*(queue.put(number) for number in range(10)))
        assert (queue.depth, lines(queue)) == (0, (0, 10))

        async def consume() -> None:
            got.append(await queue.get())

        consumers = await begin(*(consume() for _ in range(20)))
        await asyncio.gather(*producers)
        assert sorted(got) == list(range(10))
        for number in range(10, 20):
            await queue.put(number)
        await asyncio.gather(*consumers)
        assert sorted(got) == list(range(20))
        with pytest.raises(Rejected):
            queue.put_nowait("x")

    run(main())


def test_more_capacity_is_for_who_waits_at_once(run: Run[None]) -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        tasks = await begin(*(queue.put(number) for number in range(10)))
        queue.update(capacity=5)
        assert lines(queue) == (0, 5)
        await turns(3)
        assert queue.depth == 5
        queue.update(capacity=100)
        await asyncio.gather(*tasks)
        assert drained(queue) == list(range(10))

    run(main())


@pytest.mark.parametrize("how", ["taken", "cancelled", "wait", "deadline", "evicted"])
def test_whatever_makes_room_makes_it_for_who_waits(run: Run[None], how: str) -> None:
    queue, clock, told = made(1)

    async def main() -> None:
        deadline = 0.5 if how == "deadline" else None
        ticket = queue.put_nowait("a", cancellable=True, criticality=SHEDDABLE, deadline=deadline)
        [waits] = await begin(queue.put("b", criticality=SHEDDABLE))
        match how:
            case "taken":
                assert await queue.get() == "a"
            case "cancelled":
                assert queue.cancel(ticket)
            case "evicted":
                queue.put_nowait("c")
                assert queue.get_nowait() == "c"
            case _:
                clock.advance(1)
        assert lines(queue) == (0, 0)
        await waits
        assert drained(queue) == ["b"]
        assert told == ([] if how in ("taken", "cancelled") else [("a", Reason(how))])

    run(main())


def test_a_wait_for_room_lasts_as_long_as_it_may(run: Run[None]) -> None:
    queue, clock, _ = made(1, interval=3600, name="jobs")

    async def main() -> None:
        queue.put_nowait("a")
        waits = await begin(
            queue.put("b", timeout=1),
            queue.put("c", timeout=2, deadline=3),
            queue.put("d", timeout=3, deadline=2),
            queue.put("e", deadline=2.5),
            queue.put("f"),
        )
        await clock.settle(0.999)
        assert lines(queue) == (0, 5)
        await clock.settle(0.001)
        with pytest.raises(TimeoutError, match=r'^no room in "jobs" within 1 s$'):
            await waits[0]
        await clock.settle(1)
        with pytest.raises(TimeoutError, match=r"within 2 s"):
            await waits[1]
        with pytest.raises(Rejected) as raised:
            await waits[2]
        assert raised.value.reason is Reason.DEADLINE
        await clock.settle(0.5)
        with pytest.raises(Rejected) as raised:
            await waits[3]
        assert raised.value.reason is Reason.DEADLINE
        assert queue.get_nowait() == "a"
        await waits[4]
        assert drained(queue) == ["f"]
        # Whoever gave up is counted among the rejected.
        assert queue.snapshot().rejected == {Reason.DEADLINE: 2, Reason.WAIT: 2}

    run(main())


def test_a_deadline_counts_from_the_call(run: Run[None]) -> None:
    queue, clock, told = made()

    async def main() -> None:
        late, timely = queue.put("a", deadline=1), queue.put("b", deadline=1.5)
        clock.advance(1)
        with pytest.raises(Rejected) as raised:
            await late
        assert raised.value.reason is Reason.DEADLINE
        await timely
        clock.advance(0.5)
        assert told == [("b", Reason.DEADLINE)]

    run(main())


# The end


@pytest.mark.parametrize("immediate", [False, True])
def test_who_waits_for_an_item_of_a_closed_queue_is_told(run: Run[None], immediate: bool) -> None:
    queue, _, told = made()

    async def iterate() -> list[Any]:
        return [item async for item in queue]

    async def main() -> None:
        waits = await begin(queue.get(), queue.get(timeout=60), iterate(), iterate())
        queue.put_nowait("a")
        queue.close(immediate=immediate)
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert answers[0] == "a" or (immediate and isinstance(answers[0], QueueClosed))
        assert isinstance(answers[1], QueueClosed)
        assert answers[2:] == [[], []]
        assert told == [("a", Reason.CLOSED)] * immediate

    run(main())


def test_what_is_inside_is_still_for_who_waits(run: Run[None]) -> None:
    queue, _, _ = made()

    async def main() -> None:
        waits = await begin(*(queue.get() for _ in range(5)))
        for number in range(3):
            queue.put_nowait(number)
        queue.close()
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert answers[:3] == [0, 1, 2]
        assert [type(answer) for answer in answers[3:]] == [QueueClosed] * 2
        with pytest.raises(QueueClosed):
            await queue.get()

    run(main())


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("is_granted", [False, True])
def test_who_waits_for_room_in_a_closed_queue_is_told(
    run: Run[None], immediate: bool, is_granted: bool
) -> None:
    queue, _, told = made(1)

    async def main() -> None:
        queue.put_nowait("a")
        waits = await begin(queue.put("b"), queue.put("c", deadline=60), queue.put("d", timeout=60))
        if is_granted:
            assert queue.get_nowait() == "a"
        queue.close(immediate=immediate)
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(answer) for answer in answers] == [QueueClosed] * 3
        assert queue.depth == (not is_granted and not immediate)
        assert told == [("a", Reason.CLOSED)] * (immediate and not is_granted)

    run(main())


def test_the_last_item_of_a_closed_queue_is_the_end_for_the_others(run: Run[None]) -> None:
    queue, clock, told = made()

    async def main() -> None:
        first, second = await begin(queue.get(), queue.get())
        queue.put_nowait("a", deadline=0.5)
        queue.close()
        clock.advance(0.5)
        assert told == [("a", Reason.DEADLINE)]
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(answer) for answer in answers] == [QueueClosed] * 2

    run(main())


# All at once


def test_producers_and_consumers_in_a_task_group(run: Run[None]) -> None:
    queue, _, told = made(3)
    got: list[tuple[int, int]] = []

    async def produce(name: int) -> None:
        for number in range(50):
            await queue.put((name, number))

    async def consume() -> None:
        async for item in queue:
            got.append(item)
            if len(got) % 7 == 0:
                await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as consumers:
            for _ in range(4):
                consumers.create_task(consume())
            async with asyncio.TaskGroup() as producers:
                for name in range(5):
                    producers.create_task(produce(name))
            queue.close()

    run(main())
    assert sorted(got) == [(name, number) for name in range(5) for number in range(50)]
    for name in range(5):
        # Of each producer in its order.
        assert [number for each, number in got if each == name] == list(range(50))
    assert told == []
    snapshot = queue.snapshot()
    assert (snapshot.accepted, snapshot.taken, lines(queue)) == (250, 250, (0, 0))


def test_gather_takes_it(run: Run[None]) -> None:
    queue, _, _ = made(2)

    async def main() -> None:
        puts = [queue.put(number) for number in range(5)]
        gets = [queue.get() for _ in range(5)]
        assert await asyncio.gather(*puts, *gets) == [None] * 5 + list(range(5))
        assert await asyncio.wait_for(asyncio.shield(queue.put("a")), 5) is None  # type: ignore[func-returns-value]
        task: asyncio.Task[str] = asyncio.create_task(queue.get())
        done, _ = await asyncio.wait([task])
        assert done.pop().result() == "a"

    run(main())
