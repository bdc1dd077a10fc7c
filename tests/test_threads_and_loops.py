"""One limiter is one limit, for the threads and event loops that share it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import limiters
from snippets import CHECK, LOOP_THREAD, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    CHECK
    + UNTIL
    + LOOP_THREAD
    + """
import asyncio, gc, sys, threading, time
import uvloop

class Peak:
    '''Counts who is inside, by itself.'''
    def __init__(self):
        self.lock, self.inside, self.highest, self.entries = threading.Lock(), 0, 0, 0
    def enter(self, cost=1):
        with self.lock:
            self.inside += cost
            self.entries += 1
            self.highest = max(self.highest, self.inside)
    def leave(self, cost=1):
        with self.lock:
            self.inside -= cost

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""
)


Play = Callable[..., str]


@pytest.fixture(params=limiters.NAMES)
def play(request: pytest.FixtureRequest) -> Play:
    """Run a snippet, with limiters of each kind, in a process of its own."""
    prelude = limiters.IMPORTS[request.param] + PRELUDE

    def play(snippet: str, *arguments: str, seconds: float = 15.0, is_watched: bool = True) -> str:
        return run(prelude + snippet, *arguments, seconds=seconds, is_watched=is_watched)

    return play


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_two_runs_in_a_row_with_contention_both_finish(play: Play, kind: str) -> None:
    play(
        """
limiter = Limiter(2)
peak = Peak()

async def work():
    async with limiter.acquire():
        peak.enter()
        try:
            await asyncio.sleep(0)
        finally:
            peak.leave()

async def main(leave_behind):
    if leave_behind:
        held = [await limiter.acquire(), await limiter.acquire()]
        tasks = [asyncio.create_task(work()) for _ in range(5)]
        await asyncio.sleep(0)
        for permit in held:
            permit.release()
        return
    await asyncio.gather(*(work() for _ in range(100)))

for leave_behind in (False, False, True, False, True, False):
    with asyncio.Runner(loop_factory=FACTORIES[sys.argv[1]]) as runner:
        runner.run(main(leave_behind))
    check(2)
assert peak.highest == 2 and 400 <= peak.entries <= 410, (peak.highest, peak.entries)
""",
        kind,
    )


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("is_debug", [False, True])
def test_a_release_in_a_thread_wakes_a_task_at_once(play: Play, kind: str, is_debug: bool) -> None:
    play(
        """
kind, is_debug = sys.argv[1], sys.argv[2] == "True"
limiter = Limiter(1)

async def wait(turns):
    for _ in range(turns):
        # Nothing else happens on this loop, so that it sleeps until it is woken.
        async with limiter.acquire():
            pass

def run_loop():
    with asyncio.Runner(loop_factory=FACTORIES[kind], debug=is_debug) as runner:
        runner.run(wait(10))

permit = limiter.try_acquire()
thread = threading.Thread(target=run_loop)
thread.start()
for turn in range(10):
    until(lambda: limiter.waiting == 1 or not thread.is_alive())
    ahead = threading.Thread(target=lambda: setattr(sys, "permit", limiter.acquire_sync()))
    ahead.start()
    until(lambda: limiter.waiting == 2)
    begin = time.monotonic()
    permit.release()
    ahead.join(2)
    assert time.monotonic() - begin < 0.5
    permit = sys.permit
thread.join(2)
assert not thread.is_alive()
permit.release()
check()
""",
        kind,
        str(is_debug),
    )


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["release", "update", "drop"])
def test_a_loop_that_sleeps_is_woken_from_a_thread(play: Play, kind: str, way: str) -> None:
    play(
        """
kind, way = sys.argv[1:]
limiter = Limiter(1)

async def wait():
    async with limiter.acquire():
        pass

permit = limiter.try_acquire()
sleeper = LoopThread(FACTORIES[kind])
waits = sleeper.submit(wait())
until(lambda: limiter.waiting == 1)
# Long enough for it to have gone to sleep, without any timer.
time.sleep(0.1)
match way:
    case "release":
        permit.release()
    case "update":
        limiter.update(limit=2)
    case "drop":
        sys.unraisablehook = lambda unraisable: None
        del permit
waits.result(1)
if way == "update":
    permit.release()
sleeper.stop()
check()
""",
        kind,
        way,
    )


def test_one_limiter_is_one_limit_for_two_loops_and_two_threads(play: Play) -> None:
    play(
        """
limiter = Limiter(2)
peak = Peak()
ENTRIES = 1000

async def work():
    async with limiter.acquire():
        peak.enter()
        await asyncio.sleep(0)
        peak.leave()

async def main():
    await asyncio.gather(*(work() for _ in range(ENTRIES)))

def run_loop(factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())

def run_plain():
    for _ in range(ENTRIES):
        with limiter.acquire():
            peak.enter()
            peak.leave()

threads = [threading.Thread(target=run_loop, args=[factory]) for factory in FACTORIES.values()]
threads += [threading.Thread(target=run_plain) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert (peak.highest, peak.entries) == (2, 4 * ENTRIES), (peak.highest, peak.entries)
check(2)
""",
        seconds=30,
    )


@pytest.mark.parametrize("way", ["try_acquire", "acquire_sync", "costs"])
def test_sixteen_threads_never_exceed_the_limit(play: Play, way: str, scale: float) -> None:
    count = int(100_000 * scale * {"try_acquire": 1, "acquire_sync": 0.1, "costs": 0.1}[way])
    play(
        """
way, count = sys.argv[1], int(sys.argv[2])
sys.setswitchinterval(1e-5)
limiter = Limiter(10)
peak = Peak()
lowest = []

def work(number):
    for turn in range(count):
        cost = 1 + (number + turn) % 5 if way == "costs" else 1
        if way == "try_acquire":
            permit = limiter.try_acquire()
            if not permit:
                continue
        else:
            permit = limiter.acquire_sync(cost)
        peak.enter(cost)
        seen = limiter.in_flight
        if not cost <= seen <= 10:
            lowest.append(seen)
        peak.leave(cost)
        permit.release()

threads = [threading.Thread(target=work, args=[number]) for number in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not lowest, lowest[:5]
assert peak.highest <= 10 and peak.inside == 0, (peak.highest, peak.inside)
assert peak.entries == limiter.snapshot().admitted
check(10)
""",
        way,
        str(count),
        seconds=100,
    )


def test_a_permit_is_released_once_however_many_threads_try(play: Play) -> None:
    play(
        """
sys.setswitchinterval(1e-5)
limiter = Limiter(1)
barrier = threading.Barrier(8)
box = []

def work():
    for _ in range(300):
        if barrier.wait() == 0:
            box[:] = [limiter.acquire_sync()]
        barrier.wait()
        box[0].release()
        assert limiter.in_flight == 0
        barrier.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
snapshot = limiter.snapshot()
assert snapshot.outcomes == {"success": 300}, snapshot
assert snapshot.stray_releases == 300 * 7, snapshot
check()
"""
    )
