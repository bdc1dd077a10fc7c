"""What is left behind: cycles, forgotten permits, tasks that only a limiter knows, memory."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import limiters
from sluicegate import ManualClock, Permit
from subprocesses import run

if TYPE_CHECKING:
    from limiters import Limiter, New

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def mine(new: type[Limiter]) -> New:
    """With a dictionary, so that it can be part of any cycle."""
    return type("Mine", (new,), {})


def take(limiter: Limiter, cost: int = 1) -> Permit:
    permit = limiter.try_acquire(cost)
    assert isinstance(permit, Permit)
    return permit


@pytest.mark.filterwarnings("ignore:a permit of:ResourceWarning")
@pytest.mark.parametrize("clock", [None, ManualClock()])
@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_limiter_and_those_who_wait_for_it_are_collected_together(
    mine: New, clock: ManualClock | None, timeout: float | None
) -> None:
    # limiter -> waiter -> future -> task -> frame -> limiter, and the loop with it
    async def wait(limiter: Limiter, ended: list[str]) -> None:
        try:
            async with limiter.acquire(timeout=timeout):
                ended.append("ran")
        finally:
            ended.append("collected")

    async def main() -> tuple[Any, list[str]]:
        limiter: Any = mine(1, clock=clock)
        limiter.permit = take(limiter)
        ended: list[str] = []
        for _ in range(3):
            coroutine = wait(limiter, ended)
            coroutine.send(None)
            limiter.waits = [*getattr(limiter, "waits", []), coroutine]
        await asyncio.sleep(0)
        assert limiter.waiting == 3
        return weakref.ref(limiter), ended

    alive, ended = asyncio.run(main())
    gc.collect()
    assert alive() is None
    assert ended == ["collected"] * 3


@pytest.mark.filterwarnings("ignore:a permit of:ResourceWarning")
def test_a_pending_task_that_nobody_knows_goes_with_its_limiter(mine: New) -> None:
    messages: list[str] = []

    async def wait(limiter: Limiter) -> None:
        async with limiter.acquire():
            pytest.fail("nobody released")

    async def main() -> None:
        event_loop = asyncio.get_running_loop()
        event_loop.set_exception_handler(lambda _, context: messages.append(context["message"]))
        limiter: Any = mine(1)
        limiter.permit = take(limiter)
        limiter.task = asyncio.create_task(wait(limiter))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        alive = [weakref.ref(limiter), weakref.ref(limiter.task)]
        del limiter
        gc.collect()
        assert [reference() for reference in alive] == [None, None]

    asyncio.run(main())
    assert messages == ["Task was destroyed but it is pending!"]


def test_a_permit_keeps_those_alive_who_wait_for_it(mine: New) -> None:
    ran: list[int] = []

    async def wait(limiter: Limiter, number: int) -> None:
        async with limiter.acquire():
            ran.append(number)

    async def main() -> None:
        limiter = mine(1)
        permit = take(limiter)
        for number in range(5):
            # asyncio itself keeps only a weak reference to a task.
            asyncio.create_task(wait(limiter, number))  # noqa: RUF006
        await asyncio.sleep(0)
        del limiter
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
        permit.release()
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert ran == list(range(5))


def test_a_limiter_without_waiters_dies_at_once(mine: New) -> None:
    gc.disable()
    try:
        limiter = mine(1, clock=ManualClock())
        with limiter.acquire():
            pass
        with pytest.raises(TimeoutError), limiter.acquire():
            limiter.acquire_sync(timeout=0)
        alive = weakref.ref(limiter)
        del limiter
        assert alive() is None
    finally:
        gc.enable()


def test_a_finished_wait_leaves_nothing_of_the_task_behind(new: New) -> None:
    class Body:
        pass

    async def wait(limiter: Limiter, bodies: list[weakref.ref[Body]], how: str) -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        async with asyncio.timeout(0 if how == "timeout" else None), limiter.acquire():
            pass

    async def main() -> None:
        limiter = new(1)
        bodies: list[weakref.ref[Body]] = []
        for how in ("granted", "cancelled", "timeout"):
            other = take(limiter)
            task = asyncio.create_task(wait(limiter, bodies, how))
            await asyncio.sleep(0)
            if how == "cancelled":
                task.cancel()
            if how == "granted":
                other.release()
            await asyncio.gather(task, return_exceptions=True)
            other.release()
            del task
        # The loop lets go of what it has just run a turn later.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert [body() for body in bodies] == [None, None, None]

    asyncio.run(main())


PRELUDE = """
import asyncio, gc, sys, time, warnings

limiter = Limiter(1, name="api")
reported = []
sys.unraisablehook = lambda unraisable: reported.append(unraisable.exc_value)
"""


@pytest.fixture(params=limiters.NAMES)
def prelude(request: pytest.FixtureRequest) -> str:
    """Make a limiter of each kind."""
    return limiters.IMPORTS[request.param] + PRELUDE


@pytest.mark.parametrize("way", ["permit", "awaited", "sync", "cycle"])
@pytest.mark.parametrize("action", ["error", "ignore", "default"])
def test_a_forgotten_permit_goes_back_whatever_warnings_do(
    prelude: str, action: str, way: str
) -> None:
    run(
        prelude
        + """
action, way = sys.argv[1:]
warnings.simplefilter(action)

class Cycle:
    pass

async def forget():
    await limiter.acquire()

with warnings.catch_warnings(record=action == "default") as seen:
    for _ in range(3):
        match way:
            case "permit":
                limiter.try_acquire()
            case "awaited":
                asyncio.run(forget())
            case "sync":
                limiter.acquire_sync()
            case "cycle":
                cycle = Cycle()
                cycle.me, cycle.permit = cycle, limiter.acquire_sync()
                del cycle
        gc.collect()
        assert limiter.in_flight == 0
    match action:
        case "error":
            assert [type(error) for error in reported] == [ResourceWarning] * 3, reported
            assert "never released" in str(reported[0])
        case "ignore":
            assert reported == []
        case "default":
            assert seen and all(w.category is ResourceWarning for w in seen)
            assert reported == []
with limiter.acquire_sync(timeout=1):
    pass
assert limiter.snapshot().outcomes == {"success": 1, "ignored": 3}
""",
        action,
        way,
    )


def test_a_forgotten_permit_wakes_who_waits_for_it(prelude: str) -> None:
    run(
        prelude
        + """
warnings.simplefilter("error")

async def main():
    permit = limiter.try_acquire()
    waiter = asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)
    try:
        raise KeyError
    except KeyError:
        # What is being handled must not be disturbed.
        del permit
        assert isinstance(sys.exc_info()[1], KeyError)
    async with asyncio.timeout(2):
        (await waiter).release()

asyncio.run(main())
assert [type(error) for error in reported] == [ResourceWarning]
"""
    )


@pytest.mark.parametrize("action", ["error", "always"])
def test_an_acquire_that_is_never_used_is_reported_once(prelude: str, action: str) -> None:
    run(
        prelude
        + """
action = sys.argv[1]
warnings.simplefilter(action)

async def other_ways():
    async with limiter.acquire():
        pass
    (await limiter.acquire()).release()
    limiter.acquire().close()

with warnings.catch_warnings(record=action == "always") as seen:
    with limiter.acquire():
        pass
    asyncio.run(other_ways())
    assert not seen and not reported
    limiter.acquire()
    limiter.acquire(timeout=1)
    gc.collect()
    if action == "error":
        assert [type(error) for error in reported] == [RuntimeWarning] * 2, reported
        assert "never used" in str(reported[0])
    else:
        assert [w.category for w in seen] == [RuntimeWarning] * 2
assert limiter.in_flight == 0
""",
        action,
    )


@pytest.mark.parametrize("way", ["wait", "cancel", "timeout", "refuse", "thread", "sync timeout"])
def test_memory_does_not_grow(prelude: str, way: str, scale: float) -> None:
    share = 0.02 if "timeout" in way else 1.0
    count = int(100_000 * scale * share)
    growth = run(
        prelude
        + """
import os, threading
way, count = sys.argv[1], int(sys.argv[2])

def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def wait():
    async with limiter.acquire(timeout=0.002 if way == "timeout" else None):
        await asyncio.sleep(0)

async def batch(number):
    other = limiter.try_acquire()
    tasks = [asyncio.create_task(wait()) for _ in range(number)]
    await asyncio.sleep(0)
    assert limiter.waiting == number or way == "timeout"
    if way == "cancel":
        for task in tasks:
            task.cancel()
    if way == "timeout":
        await asyncio.gather(*tasks, return_exceptions=True)
    other.release()
    await asyncio.gather(*tasks, return_exceptions=True)

def in_threads(number):
    def work():
        for _ in range(number // 2):
            with limiter.acquire():
                pass
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def play(number):
    if way == "thread":
        in_threads(number)
    elif way == "refuse":
        with limiter.acquire():
            for _ in range(number):
                assert not limiter.try_acquire()
    elif way == "sync timeout":
        with limiter.acquire():
            for _ in range(number):
                try:
                    limiter.acquire_sync(timeout=0.0005)
                except TimeoutError:
                    pass
    else:
        asyncio.run(batch(number))

# Many small batches, so that the allocator comes to rest before it is measured.
turns = 100
for _ in range(turns // 2):
    play(count // turns)
before = resident()
for _ in range(turns):
    play(count // turns)
assert limiter.in_flight == limiter.waiting == 0
print(resident() - before)
""",
        way,
        str(count),
        seconds=60,
    )
    # One forgotten waiter is some hundred bytes.
    assert int(growth) < max(1_000_000, 50 * count)


def test_reference_counts_stay_as_they_were(new: New) -> None:
    clock = ManualClock()
    limiter = new(1, name="a name of its own", clock=clock)

    async def main() -> None:
        event_loop = asyncio.get_running_loop()

        async def use() -> None:
            with take(limiter):
                assert not limiter.try_acquire()
                with pytest.raises(TimeoutError):
                    await limiter.acquire(timeout=0)
                task = asyncio.ensure_future(limiter.acquire())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            async with limiter.acquire():
                limiter.snapshot()

        def counts() -> list[int]:
            gc.collect()
            objects = (limiter, clock, event_loop, limiter.name, None, new)
            return [sys.getrefcount(thing) for thing in objects]

        await use()
        before = counts()
        for _ in range(200):
            await use()
        after = counts()
        assert all(new - old < 50 for old, new in zip(before, after, strict=True)), (before, after)

    asyncio.run(main())
