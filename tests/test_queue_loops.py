"""One queue is one queue, for the threads and event loops that share it, blocked or gone."""

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
import asyncio, gc, sys, threading, time
import uvloop
from sluicegate import CoDelQueue, QueueClosed, Reason

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
# Long enough that nothing is over, where that is not what it is about.
SPANS = {"target": 60, "interval": 3600}

def getting():
    return queue.snapshot().getting

def putting():
    return queue.snapshot().putting

def thread(target, *args):
    started = threading.Thread(target=target, args=args)
    started.start()
    return started

def finish(threads):
    for each in threads:
        each.join(10)
        assert not each.is_alive(), queue.snapshot()
"""
)


def play(snippet: str, *arguments: str, seconds: float = 15.0) -> str:
    return run(PRELUDE + snippet, *arguments, seconds=seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_in_a_row_with_contention_both_finish(kind: str) -> None:
    play(
        """
queue = CoDelQueue(2, **SPANS)
got = []

async def put(number):
    await queue.put(number)

async def get():
    async with queue.take() as item:
        got.append(item)
        await asyncio.sleep(0)

async def main(leave_behind):
    if leave_behind == "getters":
        tasks = [asyncio.create_task(get()) for _ in range(5)]
        await asyncio.sleep(0)
        # Their loop ends, before they can run or after.
        queue.put_nowait("kept")
        queue.put_nowait("kept")
        return
    if leave_behind == "putters":
        tasks = [asyncio.create_task(put("late")) for _ in range(5)]
        await asyncio.sleep(0)
        assert {queue.get_nowait(), queue.get_nowait()} == {"late"}
        return
    await asyncio.gather(*(put(number) for number in range(50)), *(get() for _ in range(50)))

for turn, leave_behind in enumerate((None, None, "getters", None, "putters", None, "getters")):
    with asyncio.Runner(loop_factory=FACTORIES[sys.argv[1]]) as runner:
        runner.run(main(leave_behind))
    got += [queue.get_sync(timeout=1) for _ in range(queue.depth)]
    words = [item for item in got if isinstance(item, str)]
    assert words == ["kept"] * 2 if leave_behind == "getters" else len(words) <= 2, words
    del got[len(got) - len(words):]
    check()
assert got == list(range(50)) * 4, got
""",
        kind,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["put", "get", "cancel", "close", "update", "immediate"])
def test_a_loop_that_sleeps_is_woken_from_a_thread(kind: str, way: str) -> None:
    play(
        """
kind, way = sys.argv[1:]
queue = CoDelQueue(1, **SPANS)
sleeper = LoopThread(FACTORIES[kind])

async def get():
    return await queue.get()

async def put():
    await queue.put("b")

if way == "put":
    wait = sleeper.submit(get())
    until(lambda: getting() == 1)
else:
    ticket = queue.put_nowait("a", cancellable=True)
    wait = sleeper.submit(put())
    until(lambda: putting() == 1)
# Long enough for it to have gone to sleep, without any timer.
time.sleep(0.1)
match way:
    case "put":
        queue.put_nowait("b")
        assert wait.result(2) == "b"
    case "get":
        assert queue.get_nowait() == "a"
    case "cancel":
        assert queue.cancel(ticket)
    case "update":
        queue.update(capacity=2)
    case _:
        queue.close(immediate=way == "immediate")
if way in ("close", "immediate"):
    assert isinstance(wait.exception(2), QueueClosed)
elif way != "put":
    wait.result(2)
    assert "b" in [queue.get_nowait() for _ in range(queue.depth)]
sleeper.stop()
""",
        kind,
        way,
    )


def test_one_queue_for_two_loops_and_four_threads() -> None:
    play(
        """
sys.setswitchinterval(1e-4)
queue = CoDelQueue(3, **SPANS)
COUNT = 300
lock, got = threading.Lock(), []

async def produce(name):
    for number in range(COUNT):
        await queue.put((name, number))

async def consume():
    async for item in queue:
        with lock:
            got.append(item)

async def main(name):
    await asyncio.gather(produce(name), consume(), consume())

def run_loop(name, factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(name))

def produce_plainly(name):
    for number in range(COUNT):
        queue.put_sync((name, number))

def consume_plainly():
    try:
        while True:
            with queue.take() as item, lock:
                got.append(item)
    except QueueClosed:
        pass

loops = [thread(run_loop, name, factory) for name, factory in FACTORIES.items()]
producers = [thread(produce_plainly, name) for name in "ab"]
consumers = [thread(consume_plainly) for _ in range(2)]
finish(producers)
until(lambda: queue.snapshot().accepted == 4 * COUNT, 10)
queue.close()
finish(loops + consumers)
assert sorted(got) == sorted((name, n) for name in ["a", "b", *FACTORIES] for n in range(COUNT))
snapshot = queue.snapshot()
assert snapshot.taken == snapshot.accepted == 4 * COUNT, snapshot
assert (snapshot.depth, snapshot.getting, snapshot.putting, snapshot.working) == (0, 0, 0, 0)
""",
        seconds=30,
    )


@pytest.mark.parametrize("way", ["loop", "thread", "nowait"])
def test_what_a_blocked_loop_does_not_come_for_is_for_others(way: str) -> None:
    # The first in line is on a loop that is blocked, and nothing but time tells.
    play(
        """
way = sys.argv[1]
queue = CoDelQueue(5, **SPANS)
blocked, free = LoopThread(), LoopThread()
is_over = threading.Event()

async def get():
    return await queue.get()

first = blocked.submit(get())
until(lambda: getting() == 1)
blocked.loop.call_soon_threadsafe(is_over.wait, 10)
if way == "loop":
    second = free.submit(get()).result
elif way == "thread":
    box = []
    other = thread(lambda: box.append(queue.get_sync(timeout=5)))
    second = lambda _: (other.join(5), box[0])[1]
if way != "nowait":
    until(lambda: getting() == 2)
queue.put_nowait("a")
if way == "nowait":
    until(lambda: queue.snapshot().getting == 0)
    try:
        assert queue.get_nowait() is None
    except asyncio.QueueEmpty:
        pass
    else:
        raise AssertionError("its loop may still come")
    time.sleep(0.06)
    assert queue.get_nowait() == "a"
else:
    assert second(5) == "a"
# The blocked one has kept its place.
third = free.submit(get())
until(lambda: getting() == 2)
is_over.set()
queue.put_nowait("b")
queue.put_nowait("c")
assert {first.result(5), third.result(5)} == {"b", "c"}
blocked.stop()
free.stop()
check()
""",
        way,
    )


@pytest.mark.parametrize("way", ["loop", "thread", "nowait"])
def test_the_room_that_a_blocked_loop_does_not_come_for_is_for_others(way: str) -> None:
    play(
        """
way = sys.argv[1]
queue = CoDelQueue(1, **SPANS)
blocked, free = LoopThread(), LoopThread()
is_over = threading.Event()

async def put(item):
    await queue.put(item)

queue.put_nowait("a")
first = blocked.submit(put("blocked"))
until(lambda: putting() == 1)
blocked.loop.call_soon_threadsafe(is_over.wait, 10)
if way == "loop":
    second = free.submit(put("b"))
elif way == "thread":
    other = thread(queue.put_sync, "b")
if way != "nowait":
    until(lambda: putting() == 2)
assert queue.get_nowait() == "a"
if way == "nowait":
    time.sleep(0.06)
    queue.put_nowait("b")
assert queue.get_sync(timeout=5) == "b"
is_over.set()
first.result(5)
assert queue.get_nowait() == "blocked"
blocked.stop()
free.stop()
check()
""",
        way,
    )


@pytest.mark.parametrize("state", ["closed", "stopped"])
@pytest.mark.parametrize("what", ["get", "put"])
def test_who_waits_on_a_loop_that_is_gone_is_passed_over(state: str, what: str) -> None:
    play(
        """
state, what = sys.argv[1:]
queue = CoDelQueue(1, **SPANS)

async def wait(item):
    if what == "get":
        return await queue.get()
    await queue.put(item)

gone = asyncio.new_event_loop()
if what == "put":
    queue.put_nowait("a")
tasks = [gone.create_task(wait("gone")) for _ in range(3)]
gone.run_until_complete(asyncio.sleep(0))
assert (getting() + putting()) == 3
if state == "closed":
    gone.close()

async def elsewhere():
    other = asyncio.create_task(wait("b"))
    await asyncio.sleep(0)
    queue.put_nowait("b") if what == "get" else queue.get_nowait()
    async with asyncio.timeout(5):
        answer = await other
    assert (answer if what == "get" else queue.get_nowait()) == "b"

asyncio.run(elsewhere())
# The same for a thread.
if what == "get":
    queue.put_nowait("c")
    assert queue.get_sync(timeout=1) == "c"
else:
    queue.put_sync("c", timeout=1)
    assert queue.get_sync(timeout=1) == "c"
if state == "stopped":
    if what == "get":
        queue.update(capacity=3)
        for _ in range(3):
            queue.put_nowait("late")
        assert gone.run_until_complete(asyncio.gather(*tasks)) == ["late"] * 3
    else:
        for task in tasks:
            gone.run_until_complete(asyncio.wait(tasks, timeout=0.01))
            assert queue.get_nowait() == "gone"
        gone.run_until_complete(asyncio.gather(*tasks))
else:
    gone.set_exception_handler(lambda loop, context: None)
    for task in tasks:
        task._log_destroy_pending = False
    del task, tasks
check()
""",
        state,
        what,
    )


def test_a_loop_goes_on_in_another_thread() -> None:
    play(
        """
queue = CoDelQueue(1, **SPANS)
loop = asyncio.new_event_loop()

async def get():
    async with queue.take(timeout=5) as item:
        return item, threading.current_thread().name

task = loop.create_task(get())
thread(loop.run_until_complete, asyncio.sleep(0.01)).join()
assert getting() == 1
elsewhere = threading.Thread(target=loop.run_until_complete, args=[task], name="elsewhere")
elsewhere.start()
queue.put_nowait("a")
elsewhere.join(5)
assert task.result() == ("a", "elsewhere")
# Put while it runs nowhere, and then run in the thread that put.
task = loop.create_task(get())
thread(loop.run_until_complete, asyncio.sleep(0.01)).join()
queue.put_nowait("b")
assert loop.run_until_complete(asyncio.wait_for(task, 5)) == ("b", "MainThread")
loop.close()
check()
"""
    )
