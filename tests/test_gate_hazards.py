"""Python that a gate runs may do anything: no lock of ours is held meanwhile."""

from __future__ import annotations

import pytest

from snippets import LOOP_THREAD, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    LOOP_THREAD
    + UNTIL
    + """
import asyncio, gc, logging, sys, threading, time
from sluicegate import Criticality, Gate, ManualClock, Outcome, Rejected, TokenBucket
from sluicegate.testing import assert_idle
sys.setswitchinterval(1e-5)

def use(gate):
    permit = gate.try_acquire()
    if permit:
        permit.release()

def slow():
    # Python, and time in which other threads run.
    until = time.monotonic() + 0.0005
    while time.monotonic() < until:
        time.sleep(0)

class Handler(logging.Handler):
    def __init__(self, action):
        super().__init__()
        self.action = action
    def handle(self, record):
        self.action()

def log_to(action):
    logging.getLogger("sluicegate.gate").handlers[:] = [Handler(action)]
    logging.getLogger("sluicegate.gate").propagate = False
"""
)

HOOKS = ["pressure", "classify", "log", "clock", "rate clock", "reserve", "name"]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("does", ["re-enters", "waits for another thread"])
def test_what_a_gate_calls_may_use_it_and_take_its_time(hook: str, does: str) -> None:
    run(
        PRELUDE
        + """
hook, does = sys.argv[1:]
inside = threading.local()
gates = []
calls = 0

def look():
    inside.depth = 1
    gates[0].snapshot()

def action():
    global calls
    calls += 1
    if getattr(inside, "depth", 0) or not gates:
        return
    inside.depth = 1
    try:
        gate = gates[0]
        if does == "re-enters":
            use(gate)
            gate.snapshot(), gate.waiting, gate.expire(), repr(gate)
            gate.update(max_waiting=5)
            gc.collect()
        else:
            slow()
            # Another thread gets through meanwhile.
            other = threading.Thread(target=look)
            other.start()
            other.join(5)
            assert not other.is_alive(), "a lock is held"
    finally:
        inside.depth = 0

class Clock:
    def now(self):
        action()
        return time.monotonic()

class Levels(dict):
    def items(self):
        action()
        return super().items()

class Text(str):
    def __str__(self):
        action()
        return "name"
    __hash__ = str.__hash__

def pressure():
    action()
    return 0.0

def classify(error):
    action()
    return Outcome.OVERLOAD

options = {"limit": 2, "max_waiting": 5, "max_wait": 0.05}
match hook:
    case "pressure": options["pressure"] = [pressure]
    case "classify": options["classify"] = classify
    case "log": log_to(action)
    case "clock": options["clock"] = Clock()
    case "rate clock": options["rate"] = TokenBucket(1e6, clock=Clock())
    case "reserve": options["reserve"] = Levels({Criticality.CRITICAL: 0.5})
    case "name": options["name"] = Text("name")
limit = options.pop("limit")
gates.append(Gate(limit, **options))
if hook in ("reserve", "name"):
    gates.append(Gate(limit, **options))
gate = gates[0]

def in_thread():
    for number in range(60):
        try:
            with gate.acquire(operation=Text("op"), key=Text("key")):
                if number % 3 == 0:
                    raise TimeoutError
        except (Rejected, TimeoutError):
            pass

async def work():
    try:
        async with gate.acquire(criticality=Criticality.SHEDDABLE):
            await asyncio.sleep(0)
            raise ValueError
    except (Rejected, ValueError):
        pass

async def main():
    for _ in range(10):
        await asyncio.gather(*(work() for _ in range(10)))

threads = [threading.Thread(target=in_thread) for _ in range(3)]
threads += [threading.Thread(target=asyncio.run, args=[main()]) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert calls > 0 or hook == "name"
assert_idle(gate)
""",
        hook,
        does,
        seconds=40,
    )


@pytest.mark.parametrize("hook", ["pressure", "log", "clock", "classify"])
def test_a_hook_that_takes_long_in_one_thread_keeps_no_other_one_waiting(hook: str) -> None:
    run(
        PRELUDE
        + """
hook = sys.argv[1]
begun, go_on = threading.Event(), threading.Event()
slow_thread = None

def action():
    if threading.current_thread() is slow_thread:
        begun.set()
        go_on.wait()

class Clock:
    def now(self):
        action()
        return time.monotonic()

def pressure():
    action()
    return 0.0

def classify(error):
    action()
    return Outcome.IGNORED

options = {}
match hook:
    case "pressure": options["pressure"] = [pressure]
    case "log": log_to(action)
    case "clock": options["clock"] = Clock()
    case "classify": options["classify"] = classify
gate = Gate(2, max_waiting=0, **options)

def work():
    if hook == "log":
        permits = [gate.try_acquire(), gate.try_acquire()]
        assert not gate.try_acquire()
        for permit in permits:
            permit.release()
        return
    try:
        with gate.acquire():
            raise KeyError
    except KeyError:
        pass

slow_thread = threading.Thread(target=work)
slow_thread.start()
begun.wait()

def others():
    for _ in range(100):
        permit = gate.try_acquire()
        if permit:
            permit.release()
        gate.snapshot()
    gate.update(limit=3)

other = threading.Thread(target=others)
other.start()
other.join(5)
assert not other.is_alive()
go_on.set()
slow_thread.join()
assert_idle(gate)
""",
        hook,
    )


def test_a_permit_that_is_dropped_in_any_place_goes_back() -> None:
    run(
        PRELUDE
        + """
import random, warnings
warnings.simplefilter("ignore")
gate = Gate(3, max_waiting=5, max_wait=0.02)

class Dropping:
    # Dropped by the collector, wherever that runs.
    def __init__(self, permit):
        self.permit, self.me = permit, self

def work(seed):
    randomness = random.Random(seed)
    for _ in range(300):
        permit = gate.try_acquire(randomness.choice([1, 1, 2]))
        if permit:
            Dropping(permit)
        if randomness.random() < 0.05:
            gc.collect()

async def task():
    try:
        Dropping(await gate.acquire())
    except Rejected:
        pass

async def main():
    for _ in range(20):
        await asyncio.gather(*(task() for _ in range(10)))
        gc.collect()

gc.set_threshold(50)
threads = [threading.Thread(target=work, args=[seed]) for seed in range(3)]
threads += [threading.Thread(target=asyncio.run, args=[main()])]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
assert_idle(gate)
""",
        seconds=40,
    )
