"""The awaitable itself: what takes it, what drives it, and what refuses it."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from event_loops import KINDS, run_on
from sluicegate import Acquire, Permit

if TYPE_CHECKING:
    from limiters import Limiter, New

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

pytestmark = pytest.mark.timeout(10)


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Run a coroutine on a loop of each kind."""
    return functools.partial(run_on, request.param)


def take(limiter: Limiter, cost: int = 1) -> Permit:
    permit = limiter.try_acquire(cost)
    assert isinstance(permit, Permit)
    return permit


@pytest.mark.parametrize("is_full", [False, True])
def test_wait_for_and_gather_take_it(new: New, run: Run[None], is_full: bool) -> None:
    limiter = new(3)

    async def main() -> None:
        other = take(limiter, 3) if is_full else None
        if other is not None:
            asyncio.get_running_loop().call_soon(other.release)
        one: Permit = await asyncio.wait_for(limiter.acquire(), 5)
        permits: Any = await asyncio.gather(limiter.acquire(), limiter.acquire())
        assert limiter.in_flight == 3
        for permit in [one, *permits]:
            assert isinstance(permit, Permit)
            permit.release()
        task = asyncio.ensure_future(limiter.acquire())
        (await task).release()
        assert limiter.in_flight == 0

    run(main())


def test_wait_for_gives_up_in_time(new: New, run: Run[None]) -> None:
    limiter = new(1)

    async def main() -> None:
        with take(limiter):
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(limiter.acquire(), 0.01)
            assert limiter.waiting == 0
        assert limiter.in_flight == 0

    run(main())


@pytest.mark.parametrize("is_full", [False, True])
def test_it_is_awaited_once(new: New, run: Run[None], is_full: bool) -> None:
    limiter = new(1)

    async def main() -> None:
        other = take(limiter) if is_full else None
        wish = limiter.acquire()
        first = asyncio.ensure_future(wish)
        await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can be used once"):
                await wish
            with pytest.raises(RuntimeError, match="can be used once"):
                async with wish:
                    pytest.fail("it must not run")
        if other is not None:
            other.release()
        with await first as permit:
            assert permit is wish
            assert limiter.in_flight == 1
            with pytest.raises(RuntimeError, match="can be used once"):
                await wish
        with pytest.raises(RuntimeError, match="can be used once"):
            await wish
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run(main())


@pytest.mark.parametrize("has_room", [False, True])
def test_a_running_loop_is_never_blocked(new: New, run: Run[None], has_room: bool) -> None:
    limiter = new(1)

    async def main() -> None:
        other = None if has_room else take(limiter)
        wish = limiter.acquire()
        with pytest.raises(RuntimeError, match="use async with acquire"), wish:
            pytest.fail("it must not run")
        with pytest.raises(RuntimeError, match="use await acquire"):
            limiter.acquire_sync()
        with pytest.raises(RuntimeError, match="use await acquire"):
            limiter.acquire_sync(timeout=0)
        if other is not None:
            other.release()
        # The refusal has not used it up.
        async with wish:
            assert limiter.in_flight == 1
        assert limiter.in_flight == 0
        assert limiter.snapshot().stray_releases == 0

    run(main())


@pytest.mark.parametrize("is_full", [False, True])
def test_a_thread_beside_the_loop_may_block(new: New, run: Run[None], is_full: bool) -> None:
    limiter = new(1)

    def work() -> str:
        with limiter.acquire(timeout=5), pytest.raises(TimeoutError):
            limiter.acquire_sync(timeout=0.01)
        return threading.current_thread().name

    async def main() -> None:
        other = take(limiter) if is_full else None
        thread = asyncio.get_running_loop().run_in_executor(None, work)
        while is_full and limiter.waiting == 0:  # noqa: ASYNC110 - it is another thread
            await asyncio.sleep(0.001)
        if other is not None:
            other.release()
        assert await thread != threading.main_thread().name

    run(main())
    assert limiter.in_flight == 0


def test_without_asyncio_it_takes_what_is_free_and_says_what_else_works(new: New) -> None:
    limiter = new(1)

    async def program() -> None:
        async with limiter.acquire():
            pass

    # Drives it as any other library's loop would.
    with pytest.raises(StopIteration):
        program().send(None)
    with take(limiter):
        with pytest.raises(RuntimeError, match=r"asyncio.*try_acquire\(\), or acquire_sync\(\)"):
            program().send(None)
        with pytest.raises(RuntimeError, match="asyncio"):
            limiter.acquire().__await__().send(None)
        assert limiter.waiting == 0
    assert limiter.in_flight == 0


@pytest.mark.parametrize("way", ["await", "coroutine"])
def test_its_steps_are_those_of_a_generator(new: New, way: str) -> None:
    limiter = new(1)

    async def main() -> None:
        other = take(limiter)
        wish: Any = limiter.acquire()
        # asyncio takes it for a coroutine, which is stepped without `__await__`.
        assert asyncio.iscoroutine(wish)
        steps: Any = wish.__await__() if way == "await" else wish
        assert iter(steps) is steps
        first = next(steps)
        assert isinstance(first, asyncio.Future)
        # Woken for nothing, it waits on, with its place kept.
        assert isinstance(next(steps), asyncio.Future)
        assert limiter.waiting == 1
        other.release()
        with pytest.raises(StopIteration) as done:
            steps.send(None)
        assert done.value.value is wish
        wish.release()
        with pytest.raises(RuntimeError):
            next(steps)
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    asyncio.run(main())


@pytest.mark.parametrize("state", ["new", "waiting", "granted"])
def test_what_is_thrown_into_it_comes_out(new: New, state: str) -> None:
    limiter = new(1)
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
            other = take(limiter)
            steps: Any = limiter.acquire().__await__()
            if state != "new":
                next(steps)
            if state == "granted":
                other.release()
                assert limiter.in_flight == 1
            with pytest.raises(kind) as raised:
                steps.throw(*arguments)
            assert error not in arguments or raised.value is error
            other.release()
            assert (limiter.in_flight, limiter.waiting) == (0, 0)
            steps.close()
            with pytest.raises(RuntimeError):
                next(steps)

    asyncio.run(main())


def test_what_is_thrown_keeps_its_traceback(new: New) -> None:
    limiter = new(1)

    async def fails() -> None:
        try:
            async with asyncio.timeout(0.01):
                await limiter.acquire()
        except TimeoutError as error:
            raise ValueError("slow") from error

    async def main() -> None:
        with take(limiter), pytest.raises(ValueError, match="slow") as raised:
            await fails()
        names = [entry.name for entry in raised.traceback]
        assert "fails" in names
        assert isinstance(raised.value.__cause__, TimeoutError)

    asyncio.run(main())


def test_closing_gives_everything_up(new: New) -> None:
    limiter = new(1)

    async def main() -> None:
        for moment in ("new", "waiting", "granted", "held"):
            other = take(limiter)
            wish = limiter.acquire()
            steps: Any = wish.__await__() if moment != "new" else wish
            if moment != "new":
                next(steps)
            if moment in ("granted", "held"):
                other.release()
            if moment == "held":
                with pytest.raises(StopIteration):
                    next(steps)
            steps.close()
            steps.close()
            if moment == "held":
                assert limiter.in_flight == 1
                wish_as_permit: Any = wish
                wish_as_permit.release()
            other.release()
            assert (limiter.in_flight, limiter.waiting) == (0, 0)

    asyncio.run(main())


def test_it_says_what_it_is(new: New) -> None:
    limiter = new(1, name="api")

    async def main() -> None:
        other = take(limiter)
        wish = limiter.acquire()
        assert isinstance(wish, Acquire)
        assert repr(wish) == "<Acquire of 'api' (not used yet)>"
        task = asyncio.ensure_future(wish)
        await asyncio.sleep(0)
        assert repr(wish) == "<Acquire of 'api' (waiting)>"
        other.release()
        with await task:
            assert "held" in repr(wish)
        assert "released" in repr(wish)

    asyncio.run(main())


def test_a_refusal_by_a_running_loop_is_the_only_complaint(
    new: New,
    recwarn: pytest.WarningsRecorder,
) -> None:
    limiter = new(1)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="use async with acquire"), limiter.acquire():
            pytest.fail("it must not run")

    asyncio.run(main())
    assert not [str(warning.message) for warning in recwarn]
