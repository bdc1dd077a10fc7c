"""Random programs: in whatever order, the limit holds and everybody is answered."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import limiters
from event_loops import KINDS, run_on
from sluicegate import ManualClock, Outcome, Permit, Rejection, SemaphoreLimiter
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(300)
LIMITS = [0, 1, 1, 2, 3, 5, 8]
COSTS = [1, 1, 1, 1, 2, 3, 7]


@dataclass
class Wait:
    """Somebody in line, stepped by hand."""

    cost: int
    bound: float | None
    steps: Any
    future: Any
    number: int = 0


@dataclass
class Program:
    """Does things at random and knows, by the plain rules, what must come of each.

    The rules: first come, first served; nobody overtakes; what fits is admitted at once; a cost
    above the limit runs alone.
    """

    seed: int
    clock: ManualClock = field(default_factory=ManualClock)
    held: list[tuple[Permit, int]] = field(default_factory=list)
    gone: list[Permit] = field(default_factory=list)
    line: list[Wait] = field(default_factory=list)
    granted: list[Wait] = field(default_factory=list)
    refused: list[Wait] = field(default_factory=list)
    answered: int = 0
    strays: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.limit = float(self.random.choice(LIMITS[1:]))
        self.limiter = SemaphoreLimiter(self.limit, clock=self.clock)
        self.waits = 0

    @property
    def in_flight(self) -> int:
        return sum(cost for _, cost in self.held) + sum(wait.cost for wait in self.granted)

    def has_room(self, cost: int) -> bool:
        if self.in_flight == 0:
            return self.limit > 0
        return self.in_flight + cost <= self.limit

    def serve(self) -> None:
        while self.line and self.has_room(self.line[0].cost):
            self.granted.append(self.line.pop(0))

    # What can be done

    def try_acquire(self) -> None:
        cost = self.random.choice(COSTS)
        answer = self.limiter.try_acquire(cost)
        if not self.line and self.has_room(cost):
            assert isinstance(answer, Permit)
            self.held.append((answer, cost))
        else:
            assert isinstance(answer, Rejection)

    def acquire(self) -> None:
        cost = self.random.choice(COSTS)
        timeout = self.random.choice([None, None, 0, 1, 2, 5])
        steps = self.limiter.acquire(cost, timeout=timeout).__await__()
        self.waits += 1
        try:
            future = next(steps)
        except StopIteration as done:
            assert not self.line
            assert self.has_room(cost)
            self.held.append((done.value, cost))
            self.answered += 1
        except TimeoutError:
            assert timeout == 0
            assert self.line or not self.has_room(cost)
            self.answered += 1
        else:
            assert timeout != 0
            assert self.line or not self.has_room(cost)
            bound = None if timeout is None else self.clock.now() + timeout
            self.line.append(Wait(cost, bound, steps, future, self.waits))

    def claim(self) -> None:
        """Run somebody who was granted or refused."""
        ready = self.granted + self.refused
        if not ready:
            return
        wait = self.random.choice(ready)
        assert wait.future.done()
        self.answered += 1
        if wait in self.granted:
            self.granted.remove(wait)
            with pytest.raises(StopIteration) as done:
                next(wait.steps)
            self.held.append((done.value.value, wait.cost))
        else:
            self.refused.remove(wait)
            with pytest.raises(TimeoutError):
                next(wait.steps)

    def step_for_nothing(self) -> None:
        if self.line:
            wait = self.random.choice(self.line)
            wait.future = next(wait.steps)

    def cancel(self) -> None:
        everybody = [self.line, self.granted, self.refused]
        place = self.random.choice(everybody)
        if not place:
            return
        wait = place.pop(self.random.randrange(len(place)))
        self.answered += 1
        match self.random.randrange(3):
            case 0:
                wait.steps.close()
            case 1:
                with pytest.raises(asyncio.CancelledError):
                    wait.steps.throw(asyncio.CancelledError())
            case 2:
                # Collected, as by a loop that is closed under it.
                wait.steps = None
        self.serve()

    def release(self) -> None:
        if self.held:
            permit, _ = self.held.pop(self.random.randrange(len(self.held)))
            permit.release(self.random.choice(list(Outcome)))
            self.gone.append(permit)
            self.serve()

    def release_again(self) -> None:
        if self.gone:
            self.random.choice(self.gone).release()
            del self.gone[:-5]
            self.strays += 1

    def update(self) -> None:
        self.limit = float(self.random.choice(LIMITS))
        self.limiter.update(limit=self.limit)
        self.serve()

    def advance(self) -> None:
        span = self.random.choice([0, 0.5, 1, 3])
        end = self.clock.now() + span
        while True:
            due = [wait for wait in self.line if wait.bound is not None and wait.bound <= end]
            if not due:
                break
            moment = min(wait.bound or 0 for wait in due)
            for wait in [wait for wait in self.line if wait.bound == moment]:
                self.line.remove(wait)
                self.refused.append(wait)
            self.serve()
        self.clock.advance(span)

    def check(self) -> None:
        limiter = self.limiter
        assert limiter.limit == self.limit
        assert limiter.in_flight == self.in_flight
        assert limiter.waiting == len(self.line)
        for wait in self.line:
            assert not wait.future.done(), "woken, and it is not its turn"
        for wait in self.granted + self.refused:
            assert wait.future.done(), "its turn, and it is not woken"

    async def play(self, count: int) -> None:
        actions: list[Callable[[], None]] = [
            *[self.try_acquire] * 2,
            *[self.acquire] * 5,
            *[self.claim] * 4,
            *[self.release] * 4,
            *[self.cancel] * 2,
            self.release_again,
            self.step_for_nothing,
            self.update,
            self.advance,
        ]
        for _ in range(count):
            action = self.random.choice(actions)
            action()
            try:
                self.check()
            except AssertionError as error:
                error.add_note(f"seed {self.seed}, after {action.__name__}()")
                raise
        self.end()

    def end(self) -> None:
        """Let everybody come to an end, and see that nothing is left."""
        self.limit = 8.0
        self.limiter.update(limit=self.limit)
        self.serve()
        while self.held or self.line or self.granted or self.refused:
            self.release()
            self.claim()
            self.check()
        assert self.answered == self.waits
        assert self.limiter.snapshot().stray_releases == self.strays
        assert (self.limiter.in_flight, self.limiter.waiting) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_program_goes_as_the_plain_rules_say(kind: str, scale: float) -> None:
    programs, count = 100, int(1000 * scale)
    for seed in range(programs):
        run_on(kind, Program(seed).play(count), 60)


SHARED = """
import asyncio, random, sys, threading, time
import uvloop
from sluicegate import Outcome, Permit

seed, count = int(sys.argv[1]), int(sys.argv[2])
HIGHEST = 6
COSTS = [1, 1, 1, 2, 3, 9]
limiter = Limiter(HIGHEST)
lock = threading.Lock()
inside, faults, begun, ended = [], [], 0, 0
sys.setswitchinterval(1e-4)

def enter(permit, cost):
    # Counted after it is acquired and until before it is released: never more than is in flight.
    assert isinstance(permit, Permit)
    with lock:
        inside.append(cost)
        if sum(inside) > HIGHEST and len(inside) > 1:
            faults.append(("too many", list(inside)))

def leave(cost):
    with lock:
        inside.remove(cost)

def look():
    in_flight = limiter.in_flight
    if not (0 <= in_flight <= HIGHEST or in_flight == max(COSTS)):
        faults.append(("in flight", in_flight))

def answer(number):
    global begun, ended
    with lock:
        if number > 0:
            begun += 1
        else:
            ended += 1

async def task(randomness):
    cost = randomness.choice(COSTS)
    answer(+1)
    try:
        match randomness.randrange(4):
            case 0:
                async with limiter.acquire(cost, timeout=randomness.choice([None, 0, 0.001])) as p:
                    enter(p, cost)
                    try:
                        await asyncio.sleep(randomness.choice([0, 0, 0.0005]))
                    finally:
                        leave(cost)
            case 1:
                async with asyncio.timeout(randomness.choice([None, 0, 0.001])):
                    permit = await limiter.acquire(cost)
                    enter(permit, cost)
                    try:
                        await asyncio.sleep(0)
                    finally:
                        leave(cost)
                        permit.release()
                        permit.release()
            case 2:
                permit = await asyncio.wait_for(limiter.acquire(cost), 5)
                with permit:
                    enter(permit, cost)
                    leave(cost)
            case 3:
                instant(randomness, cost)
    except (TimeoutError, asyncio.CancelledError):
        pass
    finally:
        answer(-1)

def instant(randomness, cost):
    permit = limiter.try_acquire(cost)
    if permit:
        enter(permit, cost)
        leave(cost)
        permit.release(randomness.choice(list(Outcome)))

async def tasks(seed):
    randomness = random.Random(seed)
    running = set()
    for _ in range(count):
        running.add(asyncio.create_task(task(randomness)))
        look()
        if randomness.random() < 0.3:
            randomness.choice(list(running)).cancel()
        if len(running) > 30 or randomness.random() < 0.2:
            await asyncio.sleep(0)
            running = {each for each in running if not each.done()}
        while len(running) > 60:
            await asyncio.sleep(0.001)
            running = {each for each in running if not each.done()}
    await asyncio.gather(*running, return_exceptions=True)

def on_loop(seed, factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(tasks(seed))

def in_thread(seed):
    randomness = random.Random(seed)
    for _ in range(count):
        cost = randomness.choice(COSTS)
        answer(+1)
        look()
        try:
            match randomness.randrange(4):
                case 0:
                    with limiter.acquire(cost, timeout=randomness.choice([None, 0, 0.001])) as p:
                        enter(p, cost)
                        leave(cost)
                case 1:
                    permit = limiter.acquire_sync(cost, timeout=randomness.choice([5, 0.0005]))
                    enter(permit, cost)
                    leave(cost)
                    permit.release(randomness.choice(list(Outcome)))
                    permit.release()
                case 2:
                    instant(randomness, cost)
                case 3:
                    limiter.update(limit=randomness.choice([0.0, 1, 2.5, HIGHEST, HIGHEST]))
                    limiter.update(limit=randomness.choice([1, HIGHEST]))
        except TimeoutError:
            pass
        finally:
            answer(-1)

threads = [
    threading.Thread(target=on_loop, args=[seed, asyncio.new_event_loop]),
    threading.Thread(target=on_loop, args=[seed + 1, uvloop.new_event_loop]),
    threading.Thread(target=in_thread, args=[seed + 2]),
    threading.Thread(target=in_thread, args=[seed + 3]),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not faults, faults[:5]
# One that is cancelled before it began does not begin.
assert begun == ended > 3 * count, (begun, ended)
assert inside == [] and (limiter.in_flight, limiter.waiting) == (0, 0), limiter
limiter.update(limit=HIGHEST)
limiter.acquire_sync(HIGHEST, timeout=1).release()
snapshot = limiter.snapshot()
assert snapshot.admitted == sum(snapshot.outcomes.values()) > 0, snapshot
"""


@pytest.mark.parametrize("kind", limiters.NAMES)
@pytest.mark.parametrize("seed", range(10, 60, 10))
def test_random_programs_on_two_loops_and_two_threads(seed: int, kind: str, scale: float) -> None:
    run(
        limiters.IMPORTS[kind] + SHARED, str(seed), str(int(5000 * scale)), seconds=20 + 200 * scale
    )
