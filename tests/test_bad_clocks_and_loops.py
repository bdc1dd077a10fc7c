"""Clocks and event loops that fail: refused or reported, and never at the cost of a permit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import limiters
from sluicegate import Permit, SemaphoreLimiter
from subprocesses import run

if TYPE_CHECKING:
    from limiters import New

pytestmark = pytest.mark.timeout(30)


class Clock:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.reading: Any = 1.0

    def now(self) -> float:
        if isinstance(self.reading, BaseException):
            raise self.reading
        reading: float = self.reading
        return reading


BAD_READINGS: list[tuple[Any, type[BaseException]]] = [
    (OSError("no clock"), OSError),
    (RecursionError("deep"), RecursionError),
    (math.nan, ValueError),
    (math.inf, ValueError),
    (-math.inf, ValueError),
    ("1", TypeError),
    (None, TypeError),
    (b"", TypeError),
]


@pytest.mark.parametrize(("reading", "kind"), BAD_READINGS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_clock_that_fails_admits_nobody_and_loses_nothing(
    new: New, reading: Any, kind: type[BaseException]
) -> None:
    clock = Clock()
    limiter = new(2, clock=clock)
    permit = limiter.try_acquire()
    assert isinstance(permit, Permit)
    clock.reading = reading
    for enter in (
        limiter.try_acquire,
        limiter.acquire_sync,
        lambda: limiter.acquire().__enter__(),
        limiter.snapshot,
        lambda: limiter.update(limit=5),
    ):
        with pytest.raises(kind):
            enter()
    assert (limiter.limit, limiter.in_flight) == (2.0, 1)
    # There is no going back from a release: for it, time stands still.
    permit.release()
    assert limiter.in_flight == 0
    clock.reading = 2.0
    assert limiter.waiting == 0
    with limiter.acquire_sync(2):
        assert not limiter.try_acquire()
    assert limiter.in_flight == 0


@pytest.mark.parametrize("reading", [-1.0, -1e300, 0.0, 1e300, 5, True])
def test_an_odd_clock_is_as_good_as_any(reading: Any) -> None:
    clock = Clock()
    limiter = SemaphoreLimiter(1, clock=clock)
    for value in (1.0, reading, 2.0, reading):
        clock.reading = value
        with limiter.acquire_sync() as permit:
            assert permit.waited == 0.0
            with pytest.raises(TimeoutError):
                limiter.acquire_sync(timeout=0)
        assert limiter.snapshot().oldest_wait == 0.0
    assert limiter.in_flight == 0


def test_a_limit_below_one_survives_a_clock_that_jumps() -> None:
    clock = Clock()
    limiter = SemaphoreLimiter(0.5, clock=clock)
    for reading in (1e300, 0.0, -5.0, 1e9, 3.0):
        clock.reading = reading
        permit = limiter.try_acquire()
        if permit:
            assert isinstance(permit, Permit)
            permit.release()
    assert limiter.in_flight == 0
    limiter.update(limit=1)
    limiter.acquire_sync(timeout=1).release()


PRELUDE = """
import asyncio, itertools, math, random, sys, threading, time

class Interrupted(BaseException):
    pass

def check(capacity=1):
    assert (limiter.in_flight, limiter.waiting) == (0, 0), limiter
    limiter.acquire_sync(capacity, timeout=1).release()
"""


@pytest.fixture(params=limiters.NAMES)
def prelude(request: pytest.FixtureRequest) -> str:
    """Make a limiter of each kind."""
    return limiters.IMPORTS[request.param] + PRELUDE


@pytest.mark.parametrize("kind", ["raises", "nan", "stands still", "jumps back", "leaps", "random"])
@pytest.mark.parametrize("way", ["tasks", "threads"])
def test_who_waits_on_a_failing_clock_is_answered(prelude: str, kind: str, way: str) -> None:
    run(
        prelude
        + """
kind, way = sys.argv[1:]
sys.unraisablehook = lambda unraisable: None
randomness = random.Random(1)

class Clock:
    count = 0
    def now(self):
        self.count += 1
        if self.count < 4:
            return time.monotonic()
        match kind:
            case "raises":
                if self.count % 3 == 0:
                    raise OSError
                return time.monotonic()
            case "nan":
                return math.nan if self.count % 2 else time.monotonic()
            case "stands still":
                return 5.0
            case "jumps back":
                return time.monotonic() - self.count
            case "leaps":
                return time.monotonic() + 1e6 * self.count
            case "random":
                return randomness.uniform(-1e9, 1e9)

limiter = Limiter(1, clock=Clock())
answers = []

async def task(number):
    try:
        async with limiter.acquire(timeout=5 if number % 2 else None):
            await asyncio.sleep(0.001)
        answers.append("done")
    except (TimeoutError, OSError, ValueError) as error:
        answers.append(error)

def thread(number):
    try:
        with limiter.acquire(timeout=5 if number % 2 else None):
            time.sleep(0.001)
        answers.append("done")
    except (TimeoutError, OSError, ValueError) as error:
        answers.append(error)

async def main():
    await asyncio.gather(*(task(number) for number in range(40)))

if way == "tasks":
    asyncio.run(main())
else:
    threads = [threading.Thread(target=thread, args=[number]) for number in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
assert len(answers) == (40 if way == "tasks" else 12)
assert "done" in answers
kind = "stands still"
assert (limiter.in_flight, limiter.waiting) == (0, 0), limiter
""",
        kind,
        way,
    )


LOOP = """
class Loop(asyncio.SelectorEventLoop):
    '''Fails, before or after it has done it, when it is told to.'''
    failure = None
    always = False
    when = "before"

    def _fail(self, callback, when):
        # Only what our wakes do: the loop itself needs it too.
        is_ours = type(callback).__module__ == "sluicegate._core" or getattr(
            callback, "__name__", ""
        ) == "wake"
        if self.failure is not None and when == self.when and is_ours:
            failure = self.failure
            if not self.always:
                self.failure = None
            raise failure

    def call_soon_threadsafe(self, callback, *args, context=None):
        self._fail(callback, "before")
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._fail(callback, "after")
        return handle

    def call_later(self, delay, callback, *args, context=None):
        self._fail(callback, "before")
        return super().call_later(delay, callback, *args, context=context)

def in_thread(coroutine, loop):
    thread = threading.Thread(target=loop.run_until_complete, args=[coroutine], daemon=True)
    thread.start()
    return thread

def until(condition, seconds=3.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, limiter
        time.sleep(0.001)
"""


TWO_LOOPS = """
limiter = Limiter(1)
order = []

async def wait(name):
    async with limiter.acquire():
        order.append(name)

bad, good = Loop(), Loop()
bad.always = always
other = limiter.try_acquire()
first = in_thread(wait("bad"), bad)
until(lambda: limiter.waiting == 1)
second = in_thread(wait("good"), good)
until(lambda: limiter.waiting == 2)
kind = {"RuntimeError": RuntimeError, "OSError": OSError, "ValueError": ValueError}[sys.argv[1]]
bad.failure = kind()
reported = []
sys.unraisablehook = lambda unraisable: reported.append(unraisable.exc_value)
try:
    other.release()
except kind:
    assert not always, "a loop that fails is not the fault of who releases"
else:
    assert always, "what struck once came from elsewhere, and is swallowed"
    assert bad.failure in reported
second.join(3)
"""

FAILURES = ["RuntimeError", "OSError", "ValueError"]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_loop_that_fails_once_is_woken_all_the_same(prelude: str, failure: str) -> None:
    run(
        prelude
        + LOOP
        + "always = False"
        + TWO_LOOPS
        + """
first.join(3)
assert order == ["bad", "good"], order
check()
""",
        failure,
    )


@pytest.mark.parametrize("failure", FAILURES)
def test_a_loop_that_cannot_be_woken_is_passed_over_until_it_can(
    prelude: str, failure: str
) -> None:
    run(
        prelude
        + LOOP
        + "always = True"
        + TWO_LOOPS
        + """
assert order == ["good"], order
assert (limiter.in_flight, limiter.waiting) == (0, 1)
bad.failure = None
time.sleep(0.06)
with limiter.acquire(timeout=3):
    pass
first.join(3)
assert order == ["good", "bad"], order
check()
""",
        failure,
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("act", ["release", "update", "drop", "cancel"])
def test_an_interrupt_while_somebody_is_woken_loses_neither(
    prelude: str, act: str, when: str
) -> None:
    # As Ctrl-C does, which may strike inside of call_soon_threadsafe().
    run(
        prelude
        + LOOP
        + """
act, when = sys.argv[1:]
limiter = Limiter(1)
order = []

async def wait(name):
    async with limiter.acquire():
        order.append(name)

loop = Loop()
loop.when = when
other = limiter.try_acquire()
if act == "cancel":
    steps = None
    async def begin():
        global steps
        steps = limiter.acquire().__await__()
        next(steps)
    own = asyncio.new_event_loop()
    own.run_until_complete(begin())
threads = [in_thread(wait("first"), loop)]
until(lambda: limiter.waiting == 1 + (act == "cancel"))
threads.append(in_thread(wait("second"), Loop()))
until(lambda: limiter.waiting == 2 + (act == "cancel"))
if act == "cancel":
    other.release()
    assert limiter.in_flight == 1
loop.failure = Interrupted()
sys.unraisablehook = lambda unraisable: None
try:
    match act:
        case "release":
            other.release()
        case "update":
            limiter.update(limit=2)
        case "drop":
            del other
        case "cancel":
            steps.close()
except Interrupted:
    pass
else:
    assert act == "drop", "the interrupt is swallowed"
assert loop.failure is None
for thread in threads:
    thread.join(3)
assert sorted(order) == ["first", "second"], (order, limiter)
if act == "update":
    other.release()
check()
""",
        act,
        when,
    )


def test_an_interrupt_while_a_claim_wakes_others_loses_nothing() -> None:
    run(
        limiters.IMPORTS["limiter"]
        + PRELUDE
        + LOOP
        + """
class Clock:
    reading = 0.0
    def now(self):
        return self.reading

clock = Clock()
limiter = Limiter(0.5, clock=clock)
elsewhere = Loop()

async def wait():
    async with limiter.acquire():
        pass

async def main():
    other = limiter.try_acquire()
    task = elsewhere.create_task(wait())
    thread = in_thread(asyncio.sleep(0), elsewhere)
    while thread.is_alive():
        await asyncio.sleep(0.001)
    steps = limiter.acquire().__await__()
    next(steps)
    clock.reading = 1.0
    other.release()
    clock.reading = 3.0
    elsewhere.failure = Interrupted()
    try:
        next(steps)
    except Interrupted:
        pass
    else:
        raise AssertionError("nothing was interrupted")
    steps.close()
    del steps
    elsewhere.failure = None
    limiter.update(limit=1)
    thread = in_thread(asyncio.wait_for(asyncio.shield(task), 2), elsewhere)
    while thread.is_alive():
        await asyncio.sleep(0.001)
    assert task.done() and task.exception() is None, task

asyncio.run(main())
check()
"""
    )


def test_an_interrupt_while_a_timer_is_set_does_not_stop_the_timer(prelude: str) -> None:
    run(
        prelude
        + LOOP
        + """
limiter = Limiter(1)
other = limiter.try_acquire()

async def main():
    asyncio.get_running_loop().failure = Interrupted()
    try:
        await limiter.acquire(timeout=0.1)
    except Interrupted:
        pass
    else:
        raise AssertionError("nothing was interrupted")
    begin = time.monotonic()
    try:
        async with asyncio.timeout(3):
            await limiter.acquire(timeout=0.2)
    except TimeoutError:
        assert time.monotonic() - begin < 2, "the timer was not set"

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
other.release()
check()
"""
    )


def test_a_timer_that_could_not_be_set_costs_the_others_no_time_out(prelude: str) -> None:
    run(
        prelude
        + LOOP
        + """
limiter = Limiter(1)
other = limiter.try_acquire()
timed_out = []

async def wait(name, timeout):
    try:
        async with limiter.acquire(timeout=timeout):
            pass
    except TimeoutError:
        timed_out.append(name)

async def main():
    tasks = [asyncio.create_task(wait(name, timeout)) for name, timeout in [("a", .3), ("b", .5)]]
    await asyncio.sleep(0.01)
    loop = asyncio.get_running_loop()
    loop.failure, loop.always = OSError(), True
    sys.unraisablehook = lambda unraisable: None
    third = asyncio.create_task(wait("c", 0.1))
    await asyncio.sleep(0.01)
    loop.failure = None
    await asyncio.wait([*tasks, third], timeout=3)
    assert timed_out == ["c", "a", "b"] or timed_out == ["a", "c", "b"], timed_out

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
other.release()
check()
"""
    )
