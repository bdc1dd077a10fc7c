"""What is over is rejected although nobody asks: by the timers of loops, and by parked threads."""

from __future__ import annotations

import pytest

from event_loops import KINDS
from snippets import LOOP_THREAD, QUEUE_CHECK, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    QUEUE_CHECK
    + UNTIL
    + LOOP_THREAD
    + """
import asyncio, gc, sys, threading, time, weakref
import uvloop
from sluicegate import CoDelQueue, QueueClosed, Reason

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
told, is_told = [], threading.Event()

def on_reject(item, rejection):
    told.append((item, str(rejection.reason)))
    is_told.set()

def made(capacity=10, target=0.01, interval=0.05, **options):
    return CoDelQueue(capacity, target=target, interval=interval, on_reject=on_reject, **options)

def hears():
    '''Wait without touching the queue.'''
    assert is_told.wait(10), "nobody rejected it"
    is_told.clear()
"""
)


def play(snippet: str, *arguments: str, seconds: float = 25.0) -> str:
    return run(PRELUDE + snippet, *arguments, seconds=seconds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["put_nowait", "put"])
@pytest.mark.parametrize("why", ["wait", "deadline"])
def test_the_timer_of_a_loop_that_only_puts_rejects(kind: str, way: str, why: str) -> None:
    play(
        """
kind, way, why = sys.argv[1:]
queue = made(interval=0.05 if why == "wait" else 3600)
deadline = 0.05 if why == "deadline" else None

async def main():
    loop = asyncio.get_running_loop()
    for number in range(3):
        heard = asyncio.Event()
        sys.modules["__main__"].is_told = type("", (), {
            "set": lambda: loop.call_soon_threadsafe(heard.set)
        })
        if way == "put":
            await queue.put(number, deadline=deadline)
        else:
            queue.put_nowait(number, deadline=deadline)
        await asyncio.wait_for(heard.wait(), 10)
        assert told == [(each, why) for each in range(number + 1)], told

with asyncio.Runner(loop_factory=FACTORIES[kind]) as runner:
    runner.run(main())
assert queue.depth == 0
""",
        kind,
        way,
        why,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_over_earlier_is_rejected_earlier(kind: str) -> None:
    # Each moves the timer on; the bounds come in no order.
    play(
        """
queue = made(100, target=60, interval=3600)
spans = [0.05 + (7 * number % 20) * 0.01 for number in range(20)]
putter = LoopThread(FACTORIES[sys.argv[1]])

async def put():
    for span in spans:
        queue.put_nowait(span, deadline=span)
        await asyncio.sleep(0)

putter.submit(put()).result(5)
end = time.monotonic() + 10
while len(told) < len(spans) and time.monotonic() < end:
    hears()
assert [item for item, _ in told] == sorted(spans), told
putter.stop()
""",
        kind,
    )


def test_stuck_workers_do_not_keep_anybody_waiting() -> None:
    play(
        """
queue = made()
worker, putter = LoopThread(), LoopThread()
is_over = threading.Event()

async def work():
    async with queue.take() as item:
        assert item == "work"
        # It blocks its loop.
        is_over.wait(20)

async def put(item):
    queue.put_nowait(item)

stuck = worker.submit(work())
until(lambda: queue.snapshot().getting == 1)
putter.submit(put("work")).result(5)
until(lambda: queue.snapshot().working == 1)
for number in range(3):
    putter.submit(put(number)).result(5)
    hears()
assert told == [(number, "wait") for number in range(3)], told
is_over.set()
stuck.result(5)
worker.stop()
putter.stop()
check()
"""
    )


@pytest.mark.parametrize("way", ["timer", "use", "expire", "thread"])
def test_what_is_left_by_a_loop_that_is_gone_is_rejected_by_whoever_comes(way: str) -> None:
    play(
        """
way = sys.argv[1]
queue = made(1)

async def put():
    queue.put_nowait("left")

asyncio.run(put())
time.sleep(0.06)
assert told == [], "nobody could know"
match way:
    case "use":
        assert queue.depth == 0
    case "expire":
        queue.expire()
    case "thread":
        # Its loop is closed; who waits for room looks after what stands in its way.
        queue.put_sync("b", timeout=5)
        assert told == [("left", "wait")]
        assert queue.get_nowait() == "b"
    case "timer":
        async def again():
            await queue.put("b")
            await asyncio.to_thread(hears)
        asyncio.run(again())
assert told[0] == ("left", "wait"), told
""",
        way,
    )


def test_a_thread_that_waits_for_room_rejects_what_stands_in_its_way() -> None:
    play(
        """
queue = made(2)

def put(item):
    queue.put_sync(item, timeout=10)

queue.put_nowait("a")
queue.put_nowait("b")
threads = [threading.Thread(target=put, args=[name]) for name in "cd"]
for each in threads:
    each.start()
for each in threads:
    each.join(10)
    assert not each.is_alive(), queue.snapshot()
assert told[:2] == [("a", "wait"), ("b", "wait")], told
queue.close(immediate=True)
assert sorted(item for item, _ in told) == ["a", "b", "c", "d"]
"""
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_thread_puts_is_rejected_by_the_loop_of_the_workers(kind: str) -> None:
    play(
        """
queue = made()
worker = LoopThread(FACTORIES[sys.argv[1]])

async def work():
    async with queue.take() as item:
        # It takes long, and the loop is free.
        await asyncio.sleep(3600)

stuck = worker.submit(work())
until(lambda: queue.snapshot().getting == 1)
queue.put_sync("work")
until(lambda: queue.snapshot().working == 1)
for number in range(3):
    queue.put_sync(number)
    queue.put_nowait("x")
    until(lambda: len(told) == 2 * number + 2, 10)
assert told[::2] == [(number, "wait") for number in range(3)], told
stuck.cancel()
until(lambda: queue.snapshot().working == 0)
worker.stop()
""",
        kind,
    )


def test_where_only_threads_put_the_next_use_rejects() -> None:
    play(
        """
queue = made()
queue.put_nowait("a")
time.sleep(0.06)
assert told == []
queue.put_nowait("b")
assert told == [("a", "wait")]
time.sleep(0.06)
queue.expire()
assert told == [("a", "wait"), ("b", "wait")]
"""
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_of_ones_own_is_looked_at_often_enough(kind: str) -> None:
    play(
        """
class Clock:
    def __init__(self):
        self.speed = 0.1
    def now(self):
        # Its seconds are not those of the loop.
        return time.monotonic() * self.speed

queue = made(interval=0.02, target=0.01, clock=Clock())
putter = LoopThread(FACTORIES[sys.argv[1]])

async def put(item):
    queue.put_nowait(item)

for number in range(2):
    putter.submit(put(number)).result(5)
    hears()
assert told == [(0, "wait"), (1, "wait")]
putter.stop()
""",
        kind,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_timer_outlives_nothing(kind: str) -> None:
    # Neither the queue nor the loop is kept by it, and the exit does not wait for it.
    play(
        """
class Item:
    pass

async def main():
    queue = made(interval=3600, target=60)
    item = Item()
    await queue.put(item)
    alive = [weakref.ref(queue), weakref.ref(item)]
    del queue, item
    await asyncio.sleep(0)
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    left = made(interval=3600, target=60)
    left.put_nowait("at the exit")
    return left, weakref.ref(asyncio.get_running_loop())

with asyncio.Runner(loop_factory=FACTORIES[sys.argv[1]]) as runner:
    left, loop = runner.run(main())
del runner
other = made(interval=3600)

async def forget():
    # A loop that comes later is reason to forget those that are closed.
    assert left.get_nowait() == "at the exit"
    left.put_nowait("again")

asyncio.run(forget())
gc.collect()
assert loop() is None
""",
        kind,
    )
