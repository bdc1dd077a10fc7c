"""Ctrl-C and other signals, while somebody waits at a queue or uses it."""

from __future__ import annotations

import pytest

from snippets import QUEUE_CHECK, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    QUEUE_CHECK
    + UNTIL
    + """
import asyncio, gc, os, random, signal, sys, threading, time, warnings
from sluicegate import CoDelQueue, QueueClosed, Rejected

SPANS = {"target": 60, "interval": 3600}

def getting():
    return queue.snapshot().getting

def putting():
    return queue.snapshot().putting
"""
)


def play(snippet: str, *arguments: str, seconds: float = 15.0) -> str:
    return run(PRELUDE + snippet, *arguments, seconds=seconds)


@pytest.mark.parametrize("way", ["get_sync", "take", "put_sync"])
@pytest.mark.parametrize("timeout", ["None", "60"])
def test_an_interrupt_ends_a_wait_in_the_main_thread(way: str, timeout: str) -> None:
    play(
        """
way, timeout = sys.argv[1], eval(sys.argv[2])
queue = CoDelQueue(1, **SPANS)
if way == "put_sync":
    queue.put_nowait("a")

def wait():
    if way == "get_sync":
        queue.get_sync(timeout=timeout)
    elif way == "take":
        with queue.take(timeout=timeout):
            pass
    else:
        queue.put_sync("b", timeout=timeout)

for _ in range(3):
    def interrupt():
        until(lambda: getting() + putting() == 1)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = time.monotonic()
    try:
        wait()
    except KeyboardInterrupt:
        # Long before the wait is over.
        assert time.monotonic() - begin < 10
    else:
        raise AssertionError("it was not interrupted")
    thread.join()
    assert (getting(), putting()) == (0, 0)
if way == "put_sync":
    assert queue.get_nowait() == "a"
check()
""",
        way,
        timeout,
        seconds=20,
    )


@pytest.mark.parametrize("what", ["get", "put"])
def test_an_interrupt_in_the_moment_of_the_grant_hands_on(what: str) -> None:
    # The handler makes the grant, so that both have come when the wait looks up.
    play(
        """
what = sys.argv[1]
queue = CoDelQueue(1, **SPANS)
if what == "put":
    queue.put_nowait("a")

def handle(*args):
    if what == "get":
        queue.put_nowait("a")
        assert queue.depth == 0
    else:
        assert queue.get_nowait() == "a"
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)
def interrupt():
    until(lambda: getting() + putting() == 1)
    os.kill(os.getpid(), signal.SIGINT)

thread = threading.Thread(target=interrupt)
thread.start()
try:
    queue.get_sync() if what == "get" else queue.put_sync("b")
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("it was not interrupted")
thread.join()
assert (queue.depth, getting(), putting()) == (what == "get", 0, 0)
if what == "get":
    assert queue.get_nowait() == "a"
check()
""",
        what,
    )


def test_interrupts_at_any_moment_lose_nothing_inside() -> None:
    play(
        """
sys.setswitchinterval(1e-4)
queue = CoDelQueue(2, **SPANS)
is_over = threading.Event()
is_armed, interrupts = False, 0
got, put = [], []

def handle(*args):
    # One for each time it is armed, so that none strikes where nobody expects it.
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)

def beside():
    number = 0
    while not is_over.is_set():
        number += 1
        item = ("beside", number)
        queue.put_sync(item)
        put.append(item)
        got.append(queue.get_sync())

def interrupt():
    randomness = random.Random(5)
    while not is_over.is_set():
        time.sleep(randomness.uniform(0, 0.004))
        os.kill(os.getpid(), signal.SIGINT)

# What is made and not used any more says so.
warnings.simplefilter("ignore", RuntimeWarning)
threads = [threading.Thread(target=beside), threading.Thread(target=interrupt)]
for thread in threads:
    thread.start()
end = time.monotonic() + 1.5
tried, number = [], 0

def work():
    global is_armed, number
    is_armed = True
    while time.monotonic() < end:
        number += 1
        item = ("main", number)
        tried.append(item)
        queue.put_sync(item)
        put.append(item)
        with queue.take() as item:
            got.append(item)
    is_armed = False

while time.monotonic() < end:
    try:
        work()
    except KeyboardInterrupt:
        interrupts += 1
is_over.set()
while threads[0].is_alive():
    # It may wait for room or for an item.
    try:
        if getting():
            queue.put_nowait(("main", "end"))
        got.append(queue.get_nowait())
    except (asyncio.QueueEmpty, Rejected):
        pass
    threads[0].join(0.001)
threads[1].join()
while queue.depth:
    got.append(queue.get_nowait())
assert interrupts > 20, interrupts
got = [item for item in got if item != ("main", "end")]
assert len(set(got)) == len(got), "doubled"
# An interrupt also strikes between a call and what is done with its answer: each may have cost one
# item, but none that the queue had.
missing = set(put) - set(got)
assert len(missing) <= interrupts, (missing, interrupts)
assert set(got) - set(put) <= set(tried)
snapshot = queue.snapshot()
assert snapshot.accepted == snapshot.taken + snapshot.cancelled, snapshot
check()
"""
    )


@pytest.mark.parametrize("moment", ["waits", "works", "is granted"])
def test_an_interrupt_of_a_loop_loses_nothing(moment: str) -> None:
    play(
        """
moment = sys.argv[1]
queue = CoDelQueue(3, **SPANS)
ended, got = [], []

async def work():
    try:
        async with queue.take() as item:
            got.append(item)
            await asyncio.sleep(5)
    finally:
        ended.append(1)

async def main():
    loop = asyncio.get_running_loop()
    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    if moment != "waits":
        loop.call_soon(queue.put_nowait, "a")
    if moment == "is granted":
        loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
    else:
        loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
    await asyncio.gather(*tasks)

begin = time.monotonic()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    assert time.monotonic() - begin < 4
else:
    raise AssertionError("it was not interrupted")
assert ended == [1] * 3
got += [queue.get_nowait() for _ in range(queue.depth)]
assert got == ["a"] * (moment != "waits")
check()
""",
        moment,
    )


LOOP = """
class Interrupted(BaseException):
    pass

class Loop(asyncio.SelectorEventLoop):
    '''Is interrupted once, before or after it has done it, when it is told to.'''
    failure = None
    when = "before"

    def _fail(self, callback, when):
        # Only what our wakes do: the loop itself needs it too.
        is_ours = type(callback).__module__ == "sluicegate._core" or getattr(
            callback, "__name__", ""
        ) == "wake"
        if self.failure is not None and when == self.when and is_ours:
            failure, self.failure = self.failure, None
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
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("act", ["put_nowait", "put_sync", "put"])
def test_an_interrupt_while_a_worker_is_woken_takes_the_put_back(act: str, when: str) -> None:
    play(
        LOOP
        + """
act, when = sys.argv[1:]
queue = CoDelQueue(1, **SPANS)
loop, got = Loop(), []

async def get():
    got.append(await queue.get())

thread = in_thread(get(), loop)
until(lambda: getting() == 1)
loop.when, loop.failure = when, Interrupted()
try:
    match act:
        case "put_nowait":
            queue.put_nowait("a")
        case "put_sync":
            queue.put_sync("a")
        case "put":
            asyncio.run(queue.put("a"))
except Interrupted:
    pass
else:
    raise AssertionError("the interrupt is swallowed")
thread.join(0.1)
if not got:
    # It was not put, and who waited goes on waiting in its place.
    assert (getting(), queue.depth) == (1, 0)
    queue.put_nowait("b")
    thread.join(5)
# Else the worker had it before the interrupt could be told.
assert got in (["a"], ["b"]), got
check()
""",
        act,
        when,
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "act", ["get_nowait", "get_sync", "take", "get", "cancel", "update", "close"]
)
def test_an_interrupt_while_a_putter_is_woken_loses_neither(act: str, when: str) -> None:
    play(
        LOOP
        + """
act, when = sys.argv[1:]
queue = CoDelQueue(1, **SPANS)
loop, ended = Loop(), []

async def put():
    try:
        await queue.put("b")
        ended.append("put")
    except QueueClosed:
        ended.append("closed")

ticket = queue.put_nowait("a", cancellable=True)
thread = in_thread(put(), loop)
until(lambda: putting() == 1)
loop.when, loop.failure = when, Interrupted()
try:
    match act:
        case "get_nowait":
            queue.get_nowait()
        case "get_sync":
            queue.get_sync()
        case "take":
            queue.take().__enter__()
        case "get":
            asyncio.run(queue.get())
        case "cancel":
            queue.cancel(ticket)
        case "update":
            queue.update(capacity=2)
        case "close":
            queue.close()
except Interrupted:
    pass
else:
    raise AssertionError("the interrupt is swallowed")
if act in ("get_nowait", "get_sync", "take", "get"):
    # It was not handed over, so that it is still there, and the room is not.
    left = [queue.get_sync(timeout=5) for _ in range(2)]
    assert sorted(left) == ["a", "b"], left
thread.join(5)
assert ended == ["closed" if act == "close" else "put"], ended
assert queue.snapshot().working == 0
if act in ("cancel", "update"):
    left = [queue.get_nowait() for _ in range(queue.depth)]
    assert left == ["a", "b"] if act == "update" else left == ["b"], left
if act != "close":
    check()
""",
        act,
        when,
    )


def test_an_interrupt_while_a_timer_is_set_takes_the_put_back() -> None:
    play(
        LOOP
        + """
told = []
queue = CoDelQueue(5, target=0.01, interval=0.05, on_reject=lambda item, _: told.append(item))

async def main():
    loop = asyncio.get_running_loop()
    for put in (queue.put_nowait, queue.put):
        loop.failure = Interrupted()
        try:
            answer = put("a")
            if answer is not None:
                await answer
        except Interrupted:
            pass
        else:
            raise AssertionError("nothing was interrupted")
        assert queue.depth == 0
        # The next one has its timer.
        answer = put("b")
        if answer is not None:
            await answer
        async with asyncio.timeout(5):
            while not told:
                await asyncio.sleep(0.005)
        assert told == ["b"], told
        told.clear()
        await asyncio.sleep(0.01)

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
"""
    )


def test_a_process_ends_although_its_threads_wait() -> None:
    # Daemons at the exit of the interpreter: no abort, and no wait for them.
    play(
        """
queue = CoDelQueue(1, target=0.001, interval=0.003, on_reject=lambda item, rejection: None)
full = CoDelQueue(0, **SPANS)

def get():
    while True:
        try:
            queue.get_sync(timeout=0.001)
        except TimeoutError:
            pass

def put():
    while True:
        try:
            queue.put_sync("x", timeout=0.001)
        except TimeoutError:
            pass

async def both():
    while True:
        try:
            await queue.put("x", timeout=0.001)
            await queue.get(timeout=0.001)
        except TimeoutError:
            pass

targets = [get, put, lambda: asyncio.run(both()), queue.get_sync]
targets += [lambda: full.put_sync("x"), full.get_sync, full.get_sync]
for target in targets:
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.1)
"""
    )
