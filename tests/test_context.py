"""What is asked for a request counts wherever its work is done, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import math
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import Criticality, Deadline, ManualClock, _core, context
from sluicegate.testing import use_clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

NOTHING = context.Current(None, None, None, None, None)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    assert context.current() == NOTHING
    yield
    assert context.current() == NOTHING


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    with use_clock(clock := ManualClock()):
        yield clock


def test_everything_that_is_told_is_there_inside(clock: ManualClock) -> None:
    with (
        context.deadline(2) as deadline,
        context.criticality(Criticality.SHEDDABLE),
        context.key("user"),
        context.operation("GET /"),
        context.tokens(12.5),
    ):
        expected = context.Current(deadline, Criticality.SHEDDABLE, "user", "GET /", 12.5)
        assert context.current() == expected
        assert context.current().criticality is Criticality.SHEDDABLE
        assert context.remaining() == 2
        clock.advance(0.5)
        assert context.remaining() == 1.5
        clock.advance(5)
        assert context.remaining() == 0
    assert context.remaining() is None


def test_the_innermost_counts() -> None:
    with context.key("outer"), context.criticality(Criticality.SHEDDABLE), context.tokens(1):
        with context.key("inner"), context.criticality(Criticality.CRITICAL_PLUS):
            assert context.current()[1:3] == (Criticality.CRITICAL_PLUS, "inner")
            assert context.current().tokens == 1
        assert context.current()[1:3] == (Criticality.SHEDDABLE, "outer")


@given(st.lists(st.integers(0, 3600), max_size=8))
def test_a_deadline_is_never_extended(spans: list[int]) -> None:
    with use_clock(ManualClock()), contextlib.ExitStack() as blocks:
        for number, span in enumerate(spans):
            got = blocks.enter_context(context.deadline(span))
            assert got is context.current().deadline
            assert context.remaining() == got.remaining() == min(spans[: number + 1])


def test_deadlines_on_different_clocks_are_compared_by_what_is_left() -> None:
    early, late = ManualClock(9000), ManualClock(1)
    long, short = Deadline.after(9, clock=early), Deadline.after(5, clock=late)
    with context.deadline(long), context.deadline(short) as effective:
        assert effective is short
        early.advance(6)
        assert context.remaining() == 3
    with context.deadline(short), context.deadline(long) as effective:
        assert effective is long


class Clock:
    error: BaseException | None = None

    def now(self) -> float:
        if self.error is not None:
            raise self.error
        return 0.0


def test_a_clock_that_fails_opens_nothing() -> None:
    clock = Clock()
    on_it = Deadline.after(1, clock=clock)
    clock.error = OSError("no time")
    with context.deadline(5):
        with pytest.raises(OSError, match="no time"), context.deadline(on_it):
            pytest.fail("it must not be entered")
        assert context.current().deadline is not on_it
    # Alone it is nothing to compare with.
    with context.deadline(on_it) as got:
        assert got is on_it
        with pytest.raises(OSError, match="no time"):
            context.remaining()


WRONG: list[tuple[Callable[[Any], Any], Any, type[Exception], str]] = [
    (context.deadline, None, TypeError, "deadline must be"),
    (context.deadline, math.nan, ValueError, "deadline must be"),
    (context.deadline, math.inf, ValueError, "deadline must be"),
    (context.deadline, 3601, ValueError, "seconds, not milliseconds"),
    (context.deadline, "1", TypeError, "deadline must be"),
    (context.deadline, True, TypeError, "deadline must be"),
    (context.criticality, None, TypeError, "criticality must be"),
    (context.criticality, 2, TypeError, "criticality must be"),
    (context.criticality, "CRITICAL", TypeError, "criticality must be"),
    (context.key, None, TypeError, "key must be"),
    (context.key, b"user", TypeError, "key must be"),
    (context.operation, None, TypeError, "operation must be"),
    (context.operation, 5, TypeError, "operation must be"),
    (context.tokens, None, TypeError, "tokens must be"),
    (context.tokens, 0, ValueError, "tokens must be"),
    (context.tokens, -1, ValueError, "tokens must be"),
    (context.tokens, math.nan, ValueError, "tokens must be"),
    (context.tokens, 1e10, ValueError, "tokens must be"),
    (context.tokens, "1", TypeError, "tokens must be"),
    (context.tokens, True, TypeError, "tokens must be"),
]


@pytest.mark.parametrize(("tell", "value", "kind", "text"), WRONG)
def test_what_cannot_be_told(
    tell: Callable[[Any], Any], value: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        tell(value)


@pytest.mark.parametrize("make", [lambda: context.key("user"), context.detached])
def test_a_block_can_be_entered_once(make: Callable[[], Any]) -> None:
    block = make()
    with block, pytest.raises(RuntimeError, match="entered already"):
        block.__enter__()
    with pytest.raises(RuntimeError, match="entered already"):
        block.__enter__()
    block.__exit__(None, None, None)


def test_a_block_that_was_not_entered_ends_nothing() -> None:
    with context.key("user"):
        context.key("other").__exit__(None, None, None)
        assert context.current().key == "user"


def test_an_exception_passes() -> None:
    with pytest.raises(ZeroDivisionError), context.key("user"):
        _ = 1 / 0


# Tasks.


def test_tasks_get_it_and_do_not_share_it() -> None:
    async def work(key: str) -> tuple[str | None, Criticality | None]:
        with context.key(key):
            await asyncio.sleep(0)
            return context.current().key, context.current().criticality

    async def main() -> None:
        with context.criticality(Criticality.SHEDDABLE):
            got = await asyncio.gather(*(work(str(number)) for number in range(20)))
        assert got == [(str(number), Criticality.SHEDDABLE) for number in range(20)]

    asyncio.run(main())


def test_a_task_that_outlives_the_request_is_not_bound_by_it() -> None:
    async def main() -> None:
        is_over = asyncio.Event()

        async def plain() -> context.Current:
            assert context.current().key == "request"
            await is_over.wait()
            return context.current()

        async def with_a_block_of_its_own() -> tuple[context.Current, context.Current]:
            with context.operation("refresh"):
                assert context.current().key == "request"
                await is_over.wait()
                inside = context.current()
            return inside, context.current()

        with context.deadline(5), context.key("request"):
            tasks = asyncio.create_task(plain()), asyncio.create_task(with_a_block_of_its_own())
            await asyncio.sleep(0)
        is_over.set()
        assert await tasks[0] == NOTHING
        assert await tasks[1] == (NOTHING._replace(operation="refresh"), NOTHING)

    asyncio.run(main())


def test_the_request_counts_for_what_outlives_a_block_inside_it() -> None:
    async def main() -> None:
        is_over = asyncio.Event()

        async def work() -> str | None:
            await is_over.wait()
            return context.current().key

        with context.key("request"):
            with context.key("inner"):
                task = asyncio.create_task(work())
                await asyncio.sleep(0)
            is_over.set()
            assert await task == "request"

    asyncio.run(main())


def test_a_task_made_lazily_in_a_request_serves_all_later_ones() -> None:
    """A refresher whose first request is long over is not refused for ever."""

    async def main() -> None:
        jobs = asyncio.Queue[asyncio.Future[context.Current]]()
        refresher: asyncio.Task[None] | None = None

        async def refresh_for_ever() -> None:
            while True:
                (await jobs.get()).set_result(context.current())

        async def request(number: int) -> context.Current:
            nonlocal refresher
            with context.deadline(5), context.key(str(number)):
                if refresher is None:
                    refresher = asyncio.create_task(refresh_for_ever())
                job: asyncio.Future[context.Current]
                job = asyncio.get_running_loop().create_future()
                jobs.put_nowait(job)
                return await job

        assert (await request(0)).key == "0"
        assert await request(1) == NOTHING
        assert refresher is not None
        refresher.cancel()

    asyncio.run(main())


def test_detached_work_inherits_nothing() -> None:
    async def work() -> context.Current:
        await asyncio.sleep(0)
        return context.current()

    async def main() -> None:
        with context.deadline(5), context.key("request"):
            with context.detached():
                assert context.current() == NOTHING
                assert context.remaining() is None
                task = asyncio.create_task(work())
                with context.key("own"):
                    other = asyncio.create_task(work())
                    assert context.current() == NOTHING._replace(key="own")
                    assert await other == NOTHING._replace(key="own")
            assert context.current().key == "request"
            # Also while the request goes on, and the block is over.
            assert await task == NOTHING

    asyncio.run(main())


# Generators: what is told in one counts for its consumer while it stands still, and no longer.


async def numbers() -> AsyncIterator[int]:
    with context.key("generator"):
        for number in range(3):
            yield number


def test_an_async_generator_that_is_closed_in_another_context() -> None:
    async def main() -> None:
        generator = numbers()
        await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
        assert context.current() == NOTHING
        await generator.aclose()  # type: ignore[attr-defined]
        assert context.current() == NOTHING

    asyncio.run(main())


def test_an_async_generator_that_is_left() -> None:
    async def main() -> None:
        async for _ in numbers():
            assert context.current().key == "generator"
            break
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert context.current() == NOTHING

    asyncio.run(main())


def test_blocks_that_end_out_of_order() -> None:
    outer, inner = context.key("outer"), context.operation("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert context.current() == NOTHING._replace(operation="inner")
    inner.__exit__(None, None, None)
    assert context.current() == NOTHING


def test_a_block_that_ends_in_another_context_is_over_in_its_own() -> None:
    here = contextvars.copy_context()
    for block, expected in ((context.key("user"), None), (context.detached(), None)):
        here.run(block.__enter__)
        block.__exit__(None, None, None)
        assert here.run(context.current).key is expected
    here.run(context.key("again").__enter__)
    assert here.run(context.current).key == "again"
    del here


def test_a_block_that_is_never_ended_ends_with_its_context() -> None:
    elsewhere = contextvars.copy_context()
    block = _core.Scope(key="user")
    known = weakref.ref(block)
    elsewhere.run(block.__enter__)
    assert elsewhere.run(context.current).key == "user"
    del block, elsewhere
    gc.collect()
    assert known() is None


# Threads.


def test_a_thread_gets_it_by_asyncio() -> None:
    async def main() -> None:
        with context.key("user"):
            assert (await asyncio.to_thread(context.current)).key == "user"

    asyncio.run(main())


def test_a_thread_gets_it_only_if_it_is_carried() -> None:
    with ThreadPoolExecutor(2) as executor:
        with context.key("user"), context.deadline(60):
            assert executor.submit(context.carry(context.current)).result().key == "user"
            carried = context.carry(context.current)
        assert executor.submit(carried).result() == NOTHING
        assert executor.submit(context.current).result() == NOTHING


def test_what_is_carried_runs_often_and_at_the_same_time() -> None:
    barrier = threading.Barrier(8)

    def work(number: int, *, factor: int = 1) -> tuple[int, str | None, str | None]:
        with context.operation(str(number)):
            barrier.wait(20)
            return number * factor, context.current().key, context.current().operation

    with context.key("user"), ThreadPoolExecutor(8) as executor:
        carried = context.carry(work)
        jobs = [executor.submit(carried, number, factor=10) for number in range(16)]
        assert [job.result() for job in jobs] == [
            (number * 10, "user", str(number)) for number in range(16)
        ]
        assert context.current() == NOTHING._replace(key="user")
    assert carried.__name__ == "work"


def test_what_is_carried_may_call_itself() -> None:
    carried: Callable[[int], int]

    def work(depth: int) -> int:
        return carried(depth - 1) + 1 if depth else 0

    carried = context.carry(work)
    assert carried(5) == 5


def test_what_has_no_name_can_be_carried() -> None:
    assert context.carry(functools.partial(int, "12"))() == 12


async def is_async() -> None: ...


@pytest.mark.parametrize("value", [None, 5, "work", is_async, functools.partial(is_async)])
def test_what_cannot_be_carried(value: Any) -> None:
    with pytest.raises(TypeError, match="callable and not async"):
        context.carry(value)


def test_threads_that_open_and_close_at_the_same_time(scale: float) -> None:
    rounds = int(5000 * scale)
    errors: list[object] = []
    barrier = threading.Barrier(6)

    def work(name: str) -> None:
        barrier.wait(20)
        for _ in range(rounds):
            with context.operation(name), context.deadline(60):
                with context.tokens(2):
                    current = context.current()
                if (current.key, current.operation, current.tokens) != ("user", name, 2):
                    errors.append(current)

    with context.key("user"):
        threads = [
            threading.Thread(target=context.carry(work), args=(str(number),)) for number in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors


# Memory.


def links() -> int:
    gc.collect()
    return sum(isinstance(one, _core.Scope) for one in gc.get_objects())


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize("is_inside", [False, True])
def test_work_that_begets_work_for_ever_keeps_nothing(overlap: int, is_inside: bool) -> None:
    """Each piece is made inside the block of the one before, which ends `overlap` pieces later."""
    before = links()
    open_blocks = []
    here = contextvars.copy_context()
    around = context.operation("for ever")
    if is_inside:
        here.run(around.__enter__)
    for number in range(200):
        block = context.key(str(number))
        here.run(block.__enter__)
        open_blocks.append((here, block))
        here = here.copy()
        current = here.run(context.current)
        assert current.key == str(number)
        assert current.operation == ("for ever" if is_inside else None)
        if len(open_blocks) > overlap:
            where, block = open_blocks.pop(0)
            where.run(block.__exit__, None, None, None)
    # Those that are open, and what the last contexts still have.
    assert links() - before <= 2 * overlap + 4
    for where, block in open_blocks:
        where.run(block.__exit__, None, None, None)
    del here, open_blocks, block, where, around


@pytest.mark.parametrize("tell", [context.deadline, context.tokens])
def test_each_of_many_nested_blocks_costs_the_same(tell: Callable[[float], Any]) -> None:
    def nest(depth: int) -> float:
        here = contextvars.copy_context()
        blocks = [tell(1 + number % 100) for number in range(depth)]
        begin = time.process_time()
        for block in blocks:
            here.run(block.__enter__)
        for block in reversed(blocks):
            here.run(block.__exit__, None, None, None)
        return time.process_time() - begin

    # If each looked at all that it is in, this would be a hundred.
    few, many = (min(nest(depth) for _ in range(3)) for depth in (1000, 10_000))
    assert many < 40 * few


@pytest.mark.parametrize("seed", range(20))
def test_the_earliest_of_those_that_are_open_counts_wherever_they_end(
    seed: int, clock: ManualClock
) -> None:
    """In a tree of contexts, as tasks make them, in which blocks end in any order."""
    random = Random(seed)
    other = ManualClock()
    most = random.choice([3, 30])
    is_mixed = random.random() < 0.3
    is_open: set[int] = set()
    moments: dict[int, float] = {}
    # Each context, with the blocks that were entered on the way to it.
    contexts: list[tuple[contextvars.Context, tuple[int, ...]]]
    contexts = [(contextvars.copy_context(), ())]
    blocks: dict[int, tuple[contextvars.Context, Any]] = {}
    for number in range(400):
        here, path = random.choice(contexts[-most:])
        if is_open and random.random() < 0.5:
            # Mostly those that were entered last.
            ended = sorted(is_open)[-min(len(is_open), random.randint(1, 5))]
            where, block = blocks.pop(ended)
            random.choice([where, here]).run(block.__exit__, None, None, None)
            is_open.remove(ended)
        else:
            here = here.copy()
            span = random.choice([None, random.randint(1, 50)])
            keeper = other if is_mixed and random.random() < 0.5 else clock
            block = context.key(str(number))
            if span is not None:
                moments[number] = span
                block = context.deadline(Deadline.after(span, clock=keeper))
            entered = here.run(block.__enter__)
            path = (*path, number)
            contexts.append((here, path))
            is_open.add(number)
            blocks[number] = here, block
            if span is not None:
                assert isinstance(entered, Deadline)
                least = min(moments[one] for one in path if one in is_open & moments.keys())
                assert entered.remaining() == least
        here, path = random.choice(contexts[-most:])
        left = [moments[one] for one in path if one in is_open & moments.keys()]
        assert here.run(context.remaining) == min(left, default=None)
    for where, block in blocks.values():
        where.run(block.__exit__, None, None, None)


def test_a_chain_that_is_longer_than_the_stack_can_be_let_go() -> None:
    before = links()
    depth = 5000
    here = contextvars.copy_context()
    threading.stack_size(256 * 1024)
    try:

        def nest() -> None:
            nonlocal here
            blocks = [context.key(str(number)) for number in range(depth)]
            for block in blocks:
                here.run(block.__enter__)
            assert here.run(context.current).key == str(depth - 1)
            del blocks, block
            here = contextvars.copy_context()

        thread = threading.Thread(target=nest)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert links() == before


def test_a_block_is_collected_with_a_clock_that_has_it() -> None:
    class Holder(Clock):
        block: _core.Scope
        context: contextvars.Context

    def make() -> weakref.ref[_core.Scope]:
        clock = Holder()
        clock.block = _core.Scope(deadline=Deadline.after(1, clock=clock))
        clock.context = contextvars.copy_context()
        clock.context.run(clock.block.__enter__)
        inner = _core.Scope(key="inner")
        clock.context.run(inner.__enter__)
        return weakref.ref(clock.block)

    known = make()
    gc.collect()
    assert known() is None


def test_blocks_do_not_leak(scale: float) -> None:
    def use() -> None:
        with context.deadline(60), context.key("user"), context.detached(), context.tokens(1):
            context.current()

    use()
    before = links()
    blocks = sys.getallocatedblocks()
    for _ in range(int(20000 * scale)):
        use()
    assert links() == before
    assert sys.getallocatedblocks() - blocks < 200
