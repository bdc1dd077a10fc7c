"""Whatever ends a wait, and whenever: no item and no waiter is lost, and none is doubled."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from event_loops import KINDS, run_on
from sluicegate import CoDelQueue

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

pytestmark = pytest.mark.timeout(60)
TURNS = 6


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Run a coroutine on a loop of each kind."""
    return functools.partial(run_on, request.param)


def made(capacity: int) -> CoDelQueue[Any]:
    # Long enough that nothing is over.
    return CoDelQueue(capacity, target=60, interval=3600)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def lines(queue: CoDelQueue[Any]) -> tuple[int, int]:
    snapshot = queue.snapshot()
    return snapshot.getting, snapshot.putting


async def is_whole(queue: CoDelQueue[Any], left: list[Any]) -> None:
    """Check that these items are inside, nobody is in line, and both lines still work."""
    assert lines(queue) == (0, 0)
    assert queue.snapshot().working == 0
    async with asyncio.timeout(5):
        assert [await queue.get() for _ in left] == left
        assert queue.depth == 0
        getter = asyncio.ensure_future(queue.get())
        await turns(2)
        assert lines(queue) == (1, 0)
        for number in range(queue.capacity + 1):
            await queue.put(number)
        assert (await getter, queue.depth) == (0, queue.capacity)
        putter = asyncio.ensure_future(queue.put("last"))
        await turns(2)
        assert lines(queue) == (0, 1)
        for number in range(1, queue.capacity + 1):
            assert queue.get_nowait() == number
        await putter
        assert queue.get_nowait() == "last"
    snapshot = queue.snapshot()
    assert lines(queue) == (0, 0)
    assert snapshot.accepted == snapshot.taken + snapshot.cancelled


# By hand, step by step

ENDS: list[BaseException | None] = [
    asyncio.CancelledError(),
    GeneratorExit(),
    KeyboardInterrupt(),
    ValueError(),
    None,
]


def histories() -> Iterator[tuple[str, BaseException | None]]:
    """Steps of a program, with what the other does at some point, and then an end."""
    for length in range(7):
        for place in range(length + 1):
            steps = "s" * place + "o" + "s" * (length - place)
            for cut, end in itertools.product(range(len(steps) + 1), ENDS):
                yield steps[:cut], end


def play(
    steps: str, end: BaseException | None, running: Coroutine[Any, Any, None], other: Any
) -> None:
    """Go through the steps, and then end it."""
    waits_for: asyncio.Future[None] | None = None
    for step in steps:
        if step == "o":
            other()
        elif waits_for is None or waits_for.done():
            try:
                waits_for = running.send(None)
            except StopIteration:
                break
    if end is None:
        running.close()
    else:
        with pytest.raises((type(end), RuntimeError)):
            running.throw(end)


@pytest.mark.parametrize("way", ["get", "take", "async for"])
@pytest.mark.parametrize("has_next", [False, True])
def test_a_program_that_ends_at_whatever_step_loses_no_item(way: str, has_next: bool) -> None:
    async def program(queue: CoDelQueue[Any], got: list[Any]) -> None:
        await asyncio.sleep(0)
        if way == "get":
            got.append(await queue.get())
        elif way == "take":
            async with queue.take() as item:
                got.append(item)
                await asyncio.sleep(0)
        else:
            async for item in queue:
                got.append(item)
                break
        await asyncio.sleep(0)

    async def one(steps: str, end: BaseException | None) -> None:
        queue, got, given = made(1), list[Any](), list[Any]()
        after: Any = None

        def give() -> None:
            nonlocal after
            if has_next:
                after = queue.get().__await__()
                next(after)
            queue.put_nowait("a")
            given.append("a")

        play(steps, end, program(queue, got), give)
        if after is not None:
            # The next in line gets it, if nobody else did.
            if got:
                after.close()
            else:
                with pytest.raises(StopIteration) as done:
                    after.send(None)
                got.append(done.value.value)
        assert got in ([], given)
        await is_whole(queue, [] if got else given)

    async def main() -> None:
        for steps, end in histories():
            await one(steps, end)

    asyncio.run(main())


@pytest.mark.parametrize("has_next", [False, True])
def test_a_program_that_ends_at_whatever_step_loses_no_room(has_next: bool) -> None:
    async def program(queue: CoDelQueue[Any], put: list[Any]) -> None:
        await asyncio.sleep(0)
        await queue.put("b")
        put.append("b")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def one(steps: str, end: BaseException | None) -> None:
        queue, put = made(1), list[Any]()
        queue.put_nowait("a")
        inside = ["a"]
        after: Any = None

        def make_room() -> None:
            nonlocal after
            if has_next:
                after = queue.put("c").__await__()
                next(after)
            inside.remove(queue.get_nowait())

        play(steps, end, program(queue, put), make_room)
        inside += put
        if after is not None:
            if put:
                after.close()
            else:
                with pytest.raises(StopIteration):
                    after.send(None)
                inside.append("c")
        await is_whole(queue, inside)

    async def main() -> None:
        for steps, end in histories():
            await one(steps, end)

    asyncio.run(main())


# By asyncio, turn by turn

Action = Callable[[], Coroutine[Any, Any, None]]


async def plainly(action: Action) -> None:
    await action()


async def in_timeout(action: Action) -> None:
    async with asyncio.timeout(60):
        await action()


async def in_wait_for(action: Action) -> None:
    await asyncio.wait_for(action(), 60)


async def in_task_group(action: Action) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(action())
        group.create_task(turns(TURNS))


async def in_gather(action: Action) -> None:
    await asyncio.gather(action(), turns(TURNS))


async def in_shield(action: Action) -> None:
    await asyncio.shield(action())


WAYS = [plainly, in_timeout, in_wait_for, in_task_group, in_gather, in_shield]


async def cancelled(
    task: asyncio.Task[None], at: int, act: Callable[[], Any], act_at: int, is_first: bool
) -> None:
    """Cancel a task in one turn and do something else in another, or in the same."""
    for turn in range(TURNS + 1):
        if is_first and turn == act_at:
            act()
        if turn == at:
            task.cancel()
        if not is_first and turn == act_at:
            act()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)
    # What was shielded goes on.
    await turns(TURNS)


TIMES = list(itertools.product(range(TURNS), range(TURNS), [False, True]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("getter", ["get", "take", "wait_for"])
def test_a_task_that_is_cancelled_in_any_turn_loses_no_item(
    run: Run[None], way: Callable[[Action], Coroutine[Any, Any, None]], getter: str
) -> None:
    async def one(at: int, put_at: int, put_first: bool) -> None:
        queue, got = made(1), list[Any]()

        async def get() -> None:
            if getter == "get":
                got.append(await queue.get())
            elif getter == "wait_for":
                got.append(await asyncio.wait_for(queue.get(), 60))
            else:
                async with queue.take() as item:
                    got.append(item)
                    await turns(2)

        task = asyncio.create_task(way(get))
        await cancelled(task, at, lambda: queue.put_nowait("a"), put_at, put_first)
        assert got in ([], ["a"])
        await is_whole(queue, [] if got else ["a"])

    async def main() -> None:
        for times in TIMES:
            await one(*times)

    run(main())


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_cancelled_in_any_turn_loses_no_room(
    run: Run[None], way: Callable[[Action], Coroutine[Any, Any, None]]
) -> None:
    async def one(at: int, get_at: int, get_first: bool) -> None:
        queue, put = made(2), list[Any]()
        queue.put_nowait("a")
        queue.put_nowait("b")

        async def do_put(item: str) -> None:
            await queue.put(item)
            put.append(item)

        task = asyncio.create_task(way(lambda: do_put("c")))
        after = asyncio.create_task(turns(0))

        def make_room() -> None:
            nonlocal after
            after = asyncio.create_task(do_put("d"))
            assert queue.get_nowait() == "a"

        await cancelled(task, at, make_room, get_at, get_first)
        # One of the two is inside, or both wait in vain.
        assert put in (["c"], ["d"])
        assert queue.get_nowait() == "b"
        await turns(TURNS)
        await after
        await is_whole(queue, put)

    async def main() -> None:
        for times in TIMES:
            await one(*times)

    run(main())


@pytest.mark.parametrize("way", ["timeout", "wait_for", "own"])
@pytest.mark.parametrize("what", ["get", "put"])
def test_a_timeout_in_the_same_turn_as_the_grant_loses_nothing(
    run: Run[None], way: str, what: str
) -> None:
    async def bounded(wait: Callable[..., Any], span: float) -> Any:
        if way == "own":
            return await wait(timeout=span)
        if way == "wait_for":
            return await asyncio.wait_for(wait(), span)
        async with asyncio.timeout(span):
            return await wait()

    async def main() -> None:
        event_loop = asyncio.get_running_loop()
        queue = made(1)
        for number in range(60):
            done = asyncio.Event()

            def act(done: asyncio.Event = done) -> None:
                queue.put_nowait("a") if what == "get" else queue.get_nowait()
                done.set()

            if what == "get":
                waits = [bounded(queue.get, 0.002) for _ in range(3)]
            else:
                queue.put_nowait("a")
                waits = [bounded(functools.partial(queue.put, name), 0.002) for name in "bcd"]
            event_loop.call_later(0.0015 + 0.00002 * number, act)
            answers = await asyncio.gather(*waits, return_exceptions=True)
            await done.wait()
            served = [answer for answer in answers if not isinstance(answer, TimeoutError)]
            left = [queue.get_nowait() for _ in range(queue.depth)]
            if what == "get":
                # Either somebody got it, or it is still there.
                assert served + left == ["a"]
            else:
                # Those are inside whose put returned.
                assert [None] * len(left) == served
            assert lines(queue) == (0, 0)
        await is_whole(queue, [])

    run(main())
