"""What put(), get() and take() return: what takes it, what drives it, and what refuses it."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from event_loops import KINDS, run_on
from queue_support import drained, made
from sluicegate import CoDelQueue, QueueClosed

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

pytestmark = pytest.mark.timeout(10)


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Run a coroutine on a loop of each kind."""
    return functools.partial(run_on, request.param)


@pytest.mark.parametrize("has_to_wait", [False, True])
@pytest.mark.parametrize("what", ["get", "put"])
def test_it_is_awaited_once(run: Run[None], has_to_wait: bool, what: str) -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        if (what == "put") is has_to_wait:
            queue.put_nowait("a")
        wish: Any = queue.get() if what == "get" else queue.put("b")
        first = asyncio.ensure_future(wish)
        await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=rf"a {what}\(\) can be used once; call {what}"):
                await wish
        if has_to_wait:
            queue.put_nowait("a") if what == "get" else queue.get_nowait()
        assert await first == ("a" if what == "get" else None)
        with pytest.raises(RuntimeError, match="can be used once"):
            await wish
        assert drained(queue) == ["b"] * (what == "put")

    run(main())


@pytest.mark.parametrize("way", ["with", "async with"])
def test_a_take_is_entered_once(run: Run[None], way: str) -> None:
    queue, _, _ = made()
    for item in "abc":
        queue.put_nowait(item)
    take = queue.take()

    async def main() -> None:
        async with take as item:
            assert item == "a"
            with pytest.raises(RuntimeError, match=r"a take\(\) can be used once; call take\(\)"):
                async with take:
                    pytest.fail("it must not run")
            # The mistake has not ended the work.
            assert queue.snapshot().working == 1
        with pytest.raises(RuntimeError, match="can be used once"):
            await take.__aenter__()

    if way == "async with":
        run(main())
    else:
        with take as item:
            assert item == "a"
            with pytest.raises(RuntimeError, match="can be used once"):
                take.__enter__()
            assert queue.snapshot().working == 1
        with pytest.raises(RuntimeError, match="can be used once"), take:
            pytest.fail("it must not run")
    assert drained(queue) == ["b", "c"]
    assert queue.snapshot().working == 0


def test_a_take_that_gave_up_is_not_entered_again(run: Run[None]) -> None:
    queue, _, _ = made()

    async def main() -> None:
        take = queue.take(timeout=0)
        with pytest.raises(TimeoutError):
            await take.__aenter__()
        queue.put_nowait("a")
        with pytest.raises(RuntimeError, match="can be used once"):
            await take.__aenter__()

    run(main())


def test_an_end_without_a_begin_is_nothing() -> None:
    queue, _, _ = made()
    queue.put_nowait("a")
    take = queue.take()
    take.__exit__(None, None, None)
    assert (queue.depth, queue.snapshot().working) == (1, 0)


@pytest.mark.parametrize("has_to_wait", [False, True])
def test_a_running_loop_is_never_blocked(run: Run[None], has_to_wait: bool) -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        for full in (has_to_wait, not has_to_wait):
            if full and not queue.depth:
                queue.put_nowait("a")
            take = queue.take()
            with pytest.raises(RuntimeError, match=r"use async with take\(\)"), take:
                pytest.fail("it must not run")
            calls: list[tuple[Callable[[], Any], str]] = [
                (lambda: queue.put_sync("b"), "put"),
                (lambda: queue.put_sync("b", timeout=0), "put"),
                (queue.get_sync, "get"),
                (lambda: queue.get_sync(timeout=0), "get"),
            ]
            for call, instead in calls:
                with pytest.raises(RuntimeError, match=rf"use await {instead}\(\)"):
                    call()
            assert queue.depth == full
            if queue.depth:
                # The refusal has not used it up.
                async with take as item:
                    assert item == "a"
        assert queue.depth == 0

    run(main())


def test_a_thread_beside_the_loop_may_block(run: Run[None]) -> None:
    queue: CoDelQueue[Any] = CoDelQueue(1, target=60)

    def work() -> list[Any]:
        queue.put_sync("to the loop")
        queue.put_sync("to the loop")
        with queue.take(timeout=5) as item:
            return [threading.current_thread().name, item, queue.get_sync()]

    async def main() -> None:
        thread = asyncio.get_running_loop().run_in_executor(None, work)
        assert await queue.get() == "to the loop"
        assert await queue.get() == "to the loop"
        await queue.put("first")
        await queue.put("second")
        name, *items = await thread
        assert name != threading.main_thread().name
        assert items == ["first", "second"]

    run(main())


def test_without_asyncio_it_does_what_needs_no_wait_and_says_what_else_works() -> None:
    queue, _, _ = made(1)

    async def put() -> None:
        await queue.put("a")

    async def get() -> Any:
        return await queue.get()

    async def take() -> Any:
        async with queue.take() as item:
            return item

    # They are driven as any other library's loop would.
    with pytest.raises(StopIteration):
        put().send(None)
    with pytest.raises(RuntimeError, match=r"asyncio.*put_nowait\(\), or put_sync\(\) in a thread"):
        put().send(None)
    for getting in (get, take):
        with pytest.raises(StopIteration) as done:
            getting().send(None)
        assert done.value.value == "a"
        with pytest.raises(
            RuntimeError, match=r"asyncio.*get_nowait\(\), or get_sync\(\) in a thread"
        ):
            getting().send(None)
        queue.put_nowait("a")
    snapshot = queue.snapshot()
    assert (snapshot.getting, snapshot.putting, snapshot.depth, snapshot.working) == (0, 0, 1, 0)


@pytest.mark.parametrize("way", ["await", "coroutine"])
@pytest.mark.parametrize("what", ["get", "put"])
def test_its_steps_are_those_of_a_generator(way: str, what: str) -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        if what == "put":
            queue.put_nowait("a")
        wish: Any = queue.get() if what == "get" else queue.put("b", cancellable=True)
        # asyncio takes it for a coroutine, which is stepped without `__await__`.
        assert asyncio.iscoroutine(wish)
        steps: Any = wish.__await__() if way == "await" else wish
        assert iter(steps) is steps
        future: Any = next(steps)
        assert isinstance(future, asyncio.Future)
        # Woken for nothing, it waits on, with its place kept.
        future.set_result(None)
        assert isinstance(next(steps), asyncio.Future)
        snapshot = queue.snapshot()
        assert (snapshot.getting, snapshot.putting) == ((1, 0) if what == "get" else (0, 1))
        queue.put_nowait("a") if what == "get" else queue.get_nowait()
        with pytest.raises(StopIteration) as done:
            steps.send(None)
        if what == "get":
            assert done.value.value == "a"
        else:
            assert queue.cancel(done.value.value)
        with pytest.raises(RuntimeError):
            next(steps)
        snapshot = queue.snapshot()
        assert (snapshot.getting, snapshot.putting, snapshot.depth) == (0, 0, 0)

    asyncio.run(main())


@pytest.mark.parametrize("state", ["new", "waiting", "granted"])
@pytest.mark.parametrize("what", ["get", "put"])
def test_what_is_thrown_into_it_comes_out(state: str, what: str) -> None:
    error = ValueError("x")
    cases: list[tuple[tuple[Any, ...], type[BaseException]]] = [
        ((error,), ValueError),
        ((ValueError, error), ValueError),
        ((ValueError,), ValueError),
        ((ValueError, "x"), ValueError),
        ((ValueError, error, None), ValueError),
        ((asyncio.CancelledError(),), asyncio.CancelledError),
        ((GeneratorExit,), GeneratorExit),
    ]

    async def main() -> None:
        for arguments, kind in cases:
            queue, _, _ = made(1)
            if what == "put":
                queue.put_nowait("a")
            wish: Any = queue.get() if what == "get" else queue.put("b")
            steps = wish.__await__()
            if state != "new":
                next(steps)
            if state == "granted":
                queue.put_nowait("a") if what == "get" else queue.get_nowait()
            with pytest.raises(kind) as raised:
                steps.throw(*arguments)
            assert error not in arguments or raised.value is error
            snapshot = queue.snapshot()
            assert (snapshot.getting, snapshot.putting) == (0, 0)
            # What was for it is for others again.
            assert queue.depth == ((what == "get") is (state == "granted"))
            steps.close()
            with pytest.raises(RuntimeError):
                next(steps)

    asyncio.run(main())


def test_it_says_what_it_is() -> None:
    queue, _, _ = made(1)

    async def main() -> None:
        get, put = queue.get(), queue.put("b")
        assert (repr(get), repr(put)) == (
            "<get() (not awaited yet)>",
            "<put() (not awaited yet)>",
        )
        getting = asyncio.ensure_future(get)
        await asyncio.sleep(0)
        assert repr(get) == "<get() (waiting)>"
        queue.put_nowait("a")
        assert await getting == "a"
        assert repr(get) == "<get() (over)>"
        await put
        assert repr(put) == "<put() (over)>"

    asyncio.run(main())


@pytest.mark.parametrize("what", ["get", "put", "anext", "aenter"])
def test_what_is_never_awaited_is_reported_and_does_nothing(what: str) -> None:
    queue, _, _ = made()
    queue.put_nowait("a")
    wishes: dict[str, Callable[[], Any]] = {
        "get": queue.get,
        "put": lambda: queue.put("b"),
        "anext": queue.__anext__,
        "aenter": queue.take().__aenter__,
    }
    word = "put" if what == "put" else "get"
    with pytest.warns(RuntimeWarning, match=rf"^{word}\(\) was never awaited"):
        wishes[what]()
    assert (drained(queue), queue.snapshot().working) == (["a"], 0)


def test_a_take_that_is_never_used_is_nothing() -> None:
    queue, _, _ = made()
    queue.put_nowait("a")
    queue.take()
    gc.collect()
    assert drained(queue) == ["a"]


def test_a_closed_wish_is_over() -> None:
    queue, _, _ = made()
    queue.put_nowait("a")

    async def main() -> None:
        wish: Any = queue.get()
        wish.close()
        with pytest.raises(RuntimeError, match="can be used once"):
            await wish
        put: Any = queue.put("b")
        put.close()
        queue.close()
        assert [item async for item in queue] == ["a"]
        with pytest.raises(QueueClosed):
            await queue.get()

    asyncio.run(main())
