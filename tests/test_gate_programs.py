"""Random programs at a gate: the limit holds, everybody is answered, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from event_loops import KINDS, run_on
from sluicegate import (
    Criticality,
    Gate,
    GradientLimiter,
    ManualClock,
    Outcome,
    Permit,
    Rejected,
    Rejection,
    TokenBucket,
)
from sluicegate.testing import assert_idle
from subprocesses import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(1800)
C = Criticality
LIMITS = [0.5, 1, 1, 2, 3, 5, 8]
COSTS = [1, 1, 1, 1, 2, 3, 7]
BURST = 1e6


@dataclass
class Wait:
    """Somebody in line, stepped by hand."""

    cost: int
    tokens: float
    until: float
    steps: Any
    future: Any
    is_both: bool


@dataclass
class Program:
    """Does things at random at two gates, and knows what may never be."""

    seed: int
    clock: ManualClock = field(default_factory=ManualClock)
    held: list[tuple[Permit, int, bool]] = field(default_factory=list)
    gone: list[Permit] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    tokens: dict[int, float] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0
    is_dry: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.highest = self.limit = float(self.random.choice(LIMITS))
        # Its own time stands still, so that each token can be told.
        self.bucket = TokenBucket(1, burst=BURST, clock=ManualClock())
        self.charged = 0.0
        options: dict[str, Any] = {
            "max_waiting": self.random.choice([None, 0, 1, 3, 100]),
            "max_wait": self.random.choice([None, None, 0.5, 2]),
            "reserve": self.random.choice([None, {C.CRITICAL: 0.25}, {C.CRITICAL_PLUS: 1}]),
            "pressure": self.random.choice([None, None, [self.pressure]]),
            "classify": self.random.choice([None, lambda _: Outcome.SUCCESS]),
            "clock": self.clock,
        }
        self.level = 0.0
        limit: Any = self.limit
        if self.random.random() < 0.2:
            limit = GradientLimiter(initial=5, max_limit=8, clock=self.clock)
            self.limit = 5
        self.gate = Gate(limit, rate=self.bucket, **options)
        self.is_fixed = limit is self.limit
        self.inner = Gate(2, max_waiting=2, clock=self.clock)

    def pressure(self) -> float:
        return self.level

    def ask(self) -> dict[str, Any]:
        return {
            "criticality": self.random.choice(list(C)),
            "deadline": self.random.choice([None, None, None, 0, 0.1, 1, 30]),
            "key": self.random.choice([None, "me", "you"]),
            "tokens": self.random.choice([0, 0, 1, 0.5]),
            "operation": self.random.choice([None, "read", "write"]),
            "inner": self.random.choice([None, None, self.inner]),
        }

    # What can be done

    def admit(self, permit: Any, cost: int, tokens: float, is_both: bool) -> None:
        assert isinstance(permit, Permit)
        self.charged += tokens
        self.tokens[id(permit)] = tokens
        self.held.append((permit, cost, is_both))

    def try_acquire(self) -> None:
        cost, ask = self.random.choice(COSTS), self.ask()
        self.asked += 1
        self.answered += 1
        answer = self.gate.try_acquire(cost, **ask)
        if answer:
            self.admit(answer, cost, ask["tokens"], ask["inner"] is not None)
        else:
            assert isinstance(answer, Rejection)

    def acquire(self) -> None:
        cost, ask = self.random.choice(COSTS), self.ask()
        is_both = ask["inner"] is not None
        steps = self.gate.acquire(cost, **ask).__await__()
        self.asked += 1
        until = self.clock.now() + (3600 if ask["deadline"] is None else ask["deadline"])
        try:
            future = next(steps)
        except StopIteration as done:
            self.admit(done.value, cost, ask["tokens"], is_both)
            self.answered += 1
        except Rejected:
            self.answered += 1
        else:
            self.waits.append(Wait(cost, ask["tokens"], until, steps, future, is_both))

    def step(self, wait: Wait) -> None:
        try:
            wait.future = next(wait.steps)
        except StopIteration as done:
            self.waits.remove(wait)
            self.answered += 1
            self.admit(done.value, wait.cost, wait.tokens, wait.is_both)
        except Rejected:
            self.waits.remove(wait)
            self.answered += 1

    def claim(self) -> None:
        ready = [wait for wait in self.waits if wait.future.done()]
        if ready:
            self.step(self.random.choice(ready))

    def step_for_nothing(self) -> None:
        if self.waits:
            self.step(self.random.choice(self.waits))

    def cancel(self) -> None:
        if not self.waits:
            return
        wait = self.waits.pop(self.random.randrange(len(self.waits)))
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

    def release(self) -> None:
        if self.held:
            permit, _, _ = self.held.pop(self.random.randrange(len(self.held)))
            if self.random.random() < 0.2:
                tokens = self.random.choice([0, 0.5, 1])
                permit.settle(tokens=tokens)
                self.charged += tokens - self.tokens[id(permit)]
            permit.release(self.random.choice(list(Outcome)))
            self.gone.append(permit)
            del self.gone[:-5]

    def release_again(self) -> None:
        if self.gone:
            self.random.choice(self.gone).release()

    def update(self) -> None:
        if self.is_fixed and not self.is_dry:
            self.limit = float(self.random.choice([0, *LIMITS]))
            self.gate.update(limit=self.limit)
        self.gate.update(
            max_waiting=self.random.choice([None, 1, 5]),
            max_wait=self.random.choice([None, 0.1, 1]),
        )

    def switch(self) -> None:
        if self.random.random() < 0.3:
            self.is_dry = not self.is_dry
            self.gate.update(dry_run=self.is_dry)

    def press(self) -> None:
        self.level = self.random.choice([0, 0, 1, 3, float("nan"), float("inf")])

    def advance(self) -> None:
        self.clock.advance(self.random.choice([0, 0.001, 0.05, 0.1, 0.5, 3]))

    def look(self) -> None:
        self.gate.expire()
        self.gate.snapshot()

    def check(self) -> None:
        for gate in (self.gate, self.inner):
            assert gate.in_flight >= 0
            assert gate.waiting >= 0
        assert self.bucket.snapshot().tokens <= BURST
        if self.is_dry:
            return
        assert self.gate.waiting + self.inner.waiting <= len(self.waits)
        in_flight = self.gate.in_flight
        costs = [cost for _, cost, _ in self.held] + [wait.cost for wait in self.waits]
        # A limit that was lowered lets go on what is in flight.
        assert in_flight <= max(8, *costs, 0) if costs else in_flight == 0
        both = sum(cost for _, cost, is_both in self.held if is_both)
        assert self.inner.in_flight >= both or self.was_dry
        # Nobody is overdue.
        for wait in self.waits:
            if wait.until <= self.clock.now():
                assert wait.future.done(), "he is late, and nobody told him"

    was_dry: bool = False

    async def play(self, count: int) -> None:
        actions: list[Callable[[], None]] = [
            *[self.try_acquire] * 2,
            *[self.acquire] * 5,
            *[self.claim] * 4,
            *[self.release] * 5,
            *[self.cancel] * 2,
            *[self.advance] * 2,
            self.release_again,
            self.step_for_nothing,
            self.update,
            self.switch,
            self.press,
            self.look,
        ]
        for number in range(count):
            action = self.random.choice(actions)
            try:
                action()
                self.was_dry = self.was_dry or self.is_dry
                self.check()
            except BaseException as error:
                error.add_note(f"seed {self.seed}, step {number}, after {action.__name__}()")
                raise
        await self.end()

    async def end(self) -> None:
        """Let everybody come to an end, and see that nothing is left."""
        if self.random.random() < 0.3:
            self.gate.close()
        self.gate.update(dry_run=False, limit=8)
        self.level = 0.0
        while self.held or self.waits:
            self.release()
            self.claim()
            self.advance()
            if not self.held and self.waits and not any(w.future.done() for w in self.waits):
                self.clock.advance(3600)
        assert self.answered == self.asked
        self.clock.advance(3600)
        self.gate.expire()
        self.inner.expire()
        assert_idle(self.gate, self.inner)
        snapshot = self.gate.snapshot()
        assert snapshot.admitted == sum(snapshot.outcomes.values()), snapshot
        if not self.was_dry:
            assert self.bucket.snapshot().tokens == BURST - self.charged
        assert await self.gate.drain(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_program_keeps_the_rules(kind: str, scale: float) -> None:
    # In full 10,000 programs of 100 steps on each loop: 2 million.
    programs = int(10_000 * scale * scale * scale) if scale < 1 else 10_000
    for seed in range(max(programs, 300)):
        run_on(kind, Program(seed).play(100), 60)


SHARED = """
import asyncio, random, sys, threading, warnings
import uvloop
from sluicegate import Criticality, Gate, Outcome, Permit, Rejected, TokenBucket
from sluicegate.testing import assert_idle

seed, count = int(sys.argv[1]), int(sys.argv[2])
warnings.simplefilter("ignore")
HIGHEST = 6
COSTS = [1, 1, 1, 2, 3, 9]
bucket = TokenBucket(1e9, burst=1e9)
gate = Gate(HIGHEST, rate=bucket, max_waiting=20, reserve={Criticality.CRITICAL: 0.2})
part = Gate(3, max_waiting=10)
lock = threading.Lock()
inside, faults, begun, ended = [], [], 0, 0
sys.setswitchinterval(1e-4)

def enter(permit, cost):
    assert isinstance(permit, Permit)
    with lock:
        inside.append(cost)
        if sum(inside) > HIGHEST and len(inside) > 1:
            faults.append(("too many", list(inside)))

def leave(cost):
    with lock:
        inside.remove(cost)

def look():
    in_flight = gate.in_flight
    if not (0 <= in_flight <= HIGHEST or in_flight == max(COSTS)):
        faults.append(("in flight", in_flight))

def answer(number):
    global begun, ended
    with lock:
        if number > 0:
            begun += 1
        else:
            ended += 1

def terms(randomness):
    return {
        "criticality": randomness.choice(list(Criticality)),
        "deadline": randomness.choice([None, None, 0, 0.001, 0.05, 5]),
        "key": randomness.choice([None, "me"]),
        "tokens": randomness.choice([0, 1, 5]),
        "operation": randomness.choice([None, "read", "write"]),
        "inner": randomness.choice([None, None, part]),
    }

async def task(randomness):
    cost, ask = randomness.choice(COSTS), terms(randomness)
    answer(+1)
    try:
        match randomness.randrange(4):
            case 0:
                async with gate.acquire(cost, **ask) as permit:
                    enter(permit, cost)
                    try:
                        await asyncio.sleep(randomness.choice([0, 0, 0.0005]))
                    finally:
                        leave(cost)
            case 1:
                async with asyncio.timeout(randomness.choice([None, 0, 0.001])):
                    permit = await gate.acquire(cost, **ask)
                    enter(permit, cost)
                    try:
                        await asyncio.sleep(0)
                    finally:
                        leave(cost)
                        permit.release()
                        permit.release()
            case 2:
                permit = await asyncio.wait_for(gate.acquire(cost, **ask), 5)
                with permit:
                    enter(permit, cost)
                    leave(cost)
            case 3:
                instant(randomness, cost)
    except (Rejected, TimeoutError, asyncio.CancelledError):
        pass
    finally:
        answer(-1)

def instant(randomness, cost):
    permit = gate.try_acquire(cost, **terms(randomness))
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
        cost, ask = randomness.choice(COSTS), terms(randomness)
        answer(+1)
        look()
        try:
            match randomness.randrange(5):
                case 0:
                    with gate.acquire(cost, **ask) as permit:
                        enter(permit, cost)
                        leave(cost)
                case 1:
                    permit = gate.acquire_sync(cost, **ask)
                    enter(permit, cost)
                    leave(cost)
                    permit.release(randomness.choice(list(Outcome)))
                    permit.release()
                case 2 | 3:
                    instant(randomness, cost)
                case 4:
                    gate.update(limit=randomness.choice([0.0, 1, 2.5, HIGHEST, HIGHEST]))
                    gate.expire()
                    gate.update(
                        limit=randomness.choice([1, HIGHEST]),
                        max_waiting=randomness.choice([0, 5, 20]),
                    )
        except (Rejected, TimeoutError):
            pass
        finally:
            answer(-1)

threads = [
    threading.Thread(target=on_loop, args=[seed, asyncio.new_event_loop]),
    threading.Thread(target=on_loop, args=[seed + 1, uvloop.new_event_loop]),
    *(threading.Thread(target=in_thread, args=[seed + 2 + number]) for number in range(8)),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not faults, faults[:5]
# One that is cancelled before it began does not begin.
assert begun == ended > 8 * count, (begun, ended)
assert inside == []
assert_idle(gate, part)
gate.update(limit=HIGHEST)
gate.acquire_sync(HIGHEST).release()
for each in (gate, part):
    snapshot = each.snapshot()
    assert snapshot.admitted == sum(snapshot.outcomes.values()) > 0, snapshot
assert bucket.snapshot().tokens <= 1e9
"""


@pytest.mark.parametrize("seed", range(100, 200, 20))
def test_one_gate_is_one_limit_for_two_loops_and_eight_threads(seed: int, scale: float) -> None:
    run(SHARED, str(seed), str(int(20_000 * scale)), seconds=30 + 300 * scale)
