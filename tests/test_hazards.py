"""Python that runs where one does not expect it: none of it may find a lock of ours taken.

Each in a process of its own: a lock that is waited for by its own holder hangs all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import limiters
from subprocesses import run

PRELUDE = """
import asyncio, gc, signal, sys, threading, time, weakref
from sluicegate import ManualClock, Permit, Rejected

calls = []

def reenter(*args):
    # Every entry that takes the lock.
    calls.append(1)
    limiter.in_flight, limiter.waiting, limiter.limit, limiter.saturation, repr(limiter)
    permit = limiter.try_acquire()
    if permit:
        permit.release()
        permit.release()
    limiter.update(limit=limiter.limit)
    limiter.snapshot()

def check(capacity=1):
    gc.collect()
    assert calls, "nothing re-entered"
    assert (limiter.in_flight, limiter.waiting) == (0, 0), limiter
    limiter.acquire_sync(capacity, timeout=0.5).release()
"""


Play = Callable[..., str]


@pytest.fixture(params=limiters.NAMES)
def play(request: pytest.FixtureRequest) -> Play:
    """Run a snippet, with limiters of each kind, in a process of its own."""
    prelude = limiters.IMPORTS[request.param] + PRELUDE

    def play(snippet: str, *arguments: str, seconds: float = 8.0) -> str:
        return run(prelude + snippet, *arguments, seconds=seconds)

    return play


@pytest.mark.parametrize("moment", ["close", "throw", "step", "claim", "drop"])
def test_the_last_reference_to_a_future_dies_with_its_wait(play: Play, moment: str) -> None:
    play(
        """
limiter = Limiter(1)

async def main():
    other = limiter.try_acquire()
    steps = limiter.acquire().__await__()
    future = next(steps)
    weakref.finalize(future, reenter)
    del future
    match sys.argv[1]:
        case "close":
            steps.close()
        case "throw":
            try:
                steps.throw(ValueError)
            except ValueError:
                pass
        case "step":
            next(steps)
            steps.close()
        case "claim":
            other.release()
            try:
                next(steps)
            except StopIteration as done:
                done.value.release()
        case "drop":
            del steps
    other.release()

asyncio.run(main())
check()
""",
        moment,
    )


@pytest.mark.parametrize("moment", ["cancel", "timeout", "release", "update"])
def test_a_future_of_an_own_kind_calls_back_when_it_dies(play: Play, moment: str) -> None:
    play(
        """
class Future(asyncio.Future):
    def __del__(self):
        reenter()

class Loop(asyncio.SelectorEventLoop):
    def create_future(self):
        return Future(loop=self)

limiter = Limiter(1)

async def wait():
    async with limiter.acquire(timeout=0.05 if sys.argv[1] == "timeout" else None):
        pass

async def main():
    other = limiter.try_acquire()
    tasks = [asyncio.create_task(wait()) for _ in range(5)]
    await asyncio.sleep(0)
    match sys.argv[1]:
        case "cancel":
            for task in tasks:
                task.cancel()
        case "timeout":
            await asyncio.sleep(0.1)
        case "update":
            limiter.update(limit=5)
    if sys.argv[1] != "cancel":
        other.release()
    await asyncio.gather(*tasks, return_exceptions=True)
    other.release()

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
check()
""",
        moment,
    )


def test_the_last_reference_dies_under_release(play: Play) -> None:
    play(
        """
class Mine(Limiter):
    def __del__(self):
        reenter()

class Name(str):
    def __del__(self):
        reenter()

limiter = Limiter(2)
for _ in range(100):
    mine = Mine(1, name=Name("x"))
    permit = mine.acquire_sync(operation=Name("y"))
    del mine
    permit.operation = Name("z")
    try:
        permit.release(Name("success"))
    except TypeError:
        permit.release()
    del permit
    mine = Mine(1)
    permit = mine.try_acquire()
    del mine
    with permit:
        del permit
check(2)
"""
    )


def test_callbacks_of_tasks_come_back_in(play: Play) -> None:
    play(
        """
limiter = Limiter(2)

async def work(number):
    async with limiter.acquire():
        await asyncio.sleep(0)
        if number % 3 == 0:
            asyncio.current_task().cancel()
        await asyncio.sleep(0)

async def main():
    tasks = [asyncio.create_task(work(number)) for number in range(100)]
    for task in tasks:
        task.add_done_callback(reenter)
    await asyncio.sleep(0)
    for task in tasks[::7]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

asyncio.run(main())
check(2)
"""
    )


@pytest.mark.parametrize("way", ["task", "thread"])
def test_the_clock_comes_back_in(play: Play, way: str) -> None:
    play(
        """
class Clock:
    is_inside = False
    def now(self):
        if not self.is_inside:
            self.is_inside = True
            try:
                reenter()
            finally:
                self.is_inside = False
        return time.monotonic()

limiter = Limiter(1)
limiter = Limiter(1, clock=Clock())

async def main():
    async def work():
        try:
            async with limiter.acquire(timeout=0.1):
                await asyncio.sleep(0.03)
        except TimeoutError:
            pass
    await asyncio.gather(*(work() for _ in range(10)))

def work():
    for _ in range(5):
        try:
            with limiter.acquire(timeout=0.02):
                time.sleep(0.01)
        except TimeoutError:
            pass

if sys.argv[1] == "task":
    asyncio.run(main())
else:
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
check()
""",
        way,
    )


@pytest.mark.parametrize("way", ["del", "callback"])
def test_the_collector_comes_back_in(play: Play, way: str) -> None:
    play(
        """
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        reenter()

limiter = Limiter(2)
if sys.argv[1] == "callback":
    gc.callbacks.append(reenter)
gc.set_threshold(1, 1, 1)

async def work(number):
    Cycle()
    try:
        async with limiter.acquire(timeout=0.001 if number % 2 else None):
            await asyncio.sleep(0)
    except TimeoutError:
        pass

async def main():
    tasks = [asyncio.create_task(work(number)) for number in range(150)]
    await asyncio.sleep(0)
    for task in tasks[::5]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

def block():
    for _ in range(20):
        Cycle()
        with limiter.acquire(timeout=1):
            Cycle()

thread = threading.Thread(target=block)
thread.start()
asyncio.run(main())
thread.join()
gc.callbacks.clear()
gc.set_threshold(700, 10, 10)
check(2)
""",
        way,
        seconds=15,
    )


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_a_tracer_comes_back_in(play: Play, kind: str) -> None:
    # It sees every call that we make into Python, from C too if it profiles.
    play(
        """
limiter = Limiter(1)
is_inside = threading.local()

def watch(frame, event, argument):
    if not getattr(is_inside, "yes", False):
        is_inside.yes = True
        try:
            reenter()
        finally:
            is_inside.yes = False
    return watch

async def work(number):
    limiter.snapshot()
    limiter.update(limit=limiter.limit)
    try:
        async with limiter.acquire(timeout=0.01 if number % 2 else None):
            await asyncio.sleep(0)
    except TimeoutError:
        pass

async def main():
    await asyncio.gather(*(work(number) for number in range(20)))
    task = asyncio.create_task(work(0))
    with limiter.try_acquire():
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)

def block():
    with limiter.acquire(timeout=2):
        pass

set_here, set_elsewhere = {
    "trace": (sys.settrace, threading.settrace),
    "profile": (sys.setprofile, threading.setprofile),
}[sys.argv[1]]
set_elsewhere(watch)
set_here(watch)
thread = threading.Thread(target=block)
thread.start()
asyncio.run(main())
thread.join()
set_here(None)
check()
""",
        kind,
        seconds=15,
    )


def test_a_signal_handler_comes_back_in(play: Play) -> None:
    play(
        """
limiter = Limiter(1)
signal.signal(signal.SIGALRM, reenter)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    with limiter.acquire():
        try:
            limiter.acquire_sync(timeout=0.002)
        except TimeoutError:
            pass
signal.setitimer(signal.ITIMER_REAL, 0)
check()
"""
    )


def test_a_warning_that_is_shown_comes_back_in(play: Play) -> None:
    play(
        """
import warnings
warnings.simplefilter("always")
warnings.showwarning = reenter
limiter = Limiter(1)
for _ in range(20):
    limiter.try_acquire()
    limiter.acquire()
check()
"""
    )
