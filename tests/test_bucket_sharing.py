"""One bucket is one bucket, for the threads, event loops and processes that share it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from sluicegate import ManualClock, TokenBucket
from snippets import LOOP_THREAD
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    LOOP_THREAD
    + """
import asyncio, faulthandler, gc, os, random, signal, sys, threading, time
import uvloop
from sluicegate import ManualClock, TokenBucket

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, bucket
        time.sleep(0.001)

class Log:
    '''What was taken, each between two moments.'''
    def __init__(self):
        self.spans = []

    def add(self, begin, n):
        self.spans.append((begin, time.monotonic(), n))

    def check(self, rate, burst):
        '''What was taken between two moments was taken in the time between them.'''
        spans = sorted(self.spans)
        for begin, _, _ in spans[:: max(1, len(spans) // 300)]:
            inside = sorted((end, n) for at, end, n in spans if at >= begin)
            total = 0
            for end, n in inside:
                total += n
                most = burst + rate * (end - begin)
                assert total <= most + 1e-6, (total, most, end - begin)
"""
)


def play(snippet: str, *arguments: str, seconds: float = 15.0, is_watched: bool = True) -> str:
    return run(PRELUDE + snippet, *arguments, seconds=seconds, is_watched=is_watched)


def test_threads_and_loops_together_get_no_more_than_promised() -> None:
    play(
        """
RATE, BURST = 3000, 40
bucket, log = TokenBucket(RATE, burst=BURST), Log()
end = time.monotonic() + 1.5

def hammer(number):
    randomness = random.Random(number)
    while (begin := time.monotonic()) < end:
        n = randomness.choice((1, 1, 0.5, 7.25))
        match randomness.randrange(3):
            case 0:
                if bucket.try_take(n):
                    log.add(begin, n)
            case 1:
                try:
                    bucket.take_sync(n, timeout=randomness.choice((0, 0.001, 0.01, 1)))
                except TimeoutError:
                    continue
                log.add(begin, n)
            case 2:
                time.sleep(0.0005)

async def work(number):
    randomness = random.Random(number)
    while (begin := time.monotonic()) < end:
        n = randomness.choice((1, 1, 0.5, 7.25))
        try:
            async with asyncio.timeout(randomness.choice((None, 0.001, 0.01))):
                await bucket.take(n, timeout=randomness.choice((None, 0.002, 0.02)))
        except TimeoutError:
            continue
        log.add(begin, n)
        if not randomness.randrange(4):
            await asyncio.sleep(0)

async def main(number):
    await asyncio.gather(*(work(number * 100 + task) for task in range(10)))

threads = [threading.Thread(target=hammer, args=[number]) for number in range(4)]
for number, factory in enumerate(FACTORIES.values(), 1):
    runner = asyncio.Runner(loop_factory=factory)
    threads.append(threading.Thread(target=runner.run, args=[main(number)]))
begin = time.monotonic()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(log.spans) > 200, len(log.spans)
log.check(RATE, BURST)
assert bucket.waiting == 0
# Nothing is lost either: it fills again.
until(lambda: bucket.tokens == BURST)
""",
        seconds=30,
    )


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_two_loops_and_a_thread_are_served_in_the_order_in_which_they_came(kind: str) -> None:
    play(
        """
bucket = TokenBucket(0.001, burst=1)
assert bucket.try_take()
one, other = LoopThread(FACTORIES[sys.argv[1]]), LoopThread(FACTORIES[sys.argv[1]])
order = []

async def wait(number):
    await bucket.take()
    order.append(number)

def block(number):
    bucket.take_sync()
    order.append(number)

waits = []
for number in range(9):
    match number % 3:
        case 0:
            waits.append(one.submit(wait(number)).result)
        case 1:
            waits.append(other.submit(wait(number)).result)
        case 2:
            thread = threading.Thread(target=block, args=[number])
            thread.start()
            waits.append(thread.join)
    until(lambda: bucket.waiting == number + 1)
bucket.update(rate=100)
for wait in waits:
    wait()
one.stop()
other.stop()
assert sorted(order) == list(range(9)), order
# Two may come at once and be late in their own order, and no more.
assert all(abs(place - number) <= 2 for place, number in enumerate(order)), order
""",
        kind,
    )


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_blocked_loop_keeps_no_tokens_from_others(kind: str) -> None:
    play(
        """
bucket = TokenBucket(0.001, burst=1)
bucket.take_sync()
blocked, free = LoopThread(FACTORIES[sys.argv[1]]), LoopThread(FACTORIES[sys.argv[1]])

async def wait():
    await bucket.take()

stuck = [blocked.submit(wait()) for _ in range(3)]
until(lambda: bucket.waiting == 3)
event = threading.Event()
blocked.loop.call_soon_threadsafe(event.wait)
bucket.update(rate=20)
# Both come although the blocked loop stands before them.
free.submit(wait()).result(timeout=5)
bucket.take_sync(timeout=5)
assert not any(future.done() for future in stuck)
event.set()
for future in stuck:
    future.result(timeout=5)
blocked.stop()
free.stop()
assert bucket.snapshot().admitted == 6
assert bucket.snapshot().revoked >= 1
""",
        kind,
    )


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_loop_that_is_closed_under_those_who_wait(kind: str) -> None:
    play(
        """
bucket = TokenBucket(50, burst=1)

async def wait():
    await bucket.take()

for way in ("abandoned", "run again"):
    bucket.take_sync()
    bucket.update(rate=0.001)
    event_loop = FACTORIES[sys.argv[1]]()
    tasks = [event_loop.create_task(wait()) for _ in range(3)]
    event_loop.run_until_complete(asyncio.sleep(0))
    assert bucket.waiting == 3
    bucket.update(rate=50)
    if way == "run again":
        event_loop.run_until_complete(asyncio.gather(*tasks))
        event_loop.close()
        continue
    event_loop.close()
    # Whoever cannot be woken is passed over.
    bucket.take_sync(timeout=5)
    for task in tasks:
        task._log_destroy_pending = False
    del tasks, task, event_loop
    gc.collect()
    until(lambda: bucket.waiting == 0)
bucket.take_sync(timeout=5)
""",
        kind,
    )


def test_take_sync_lets_other_threads_run_and_a_clock_wake_it() -> None:
    play(
        """
clock = ManualClock()
bucket = TokenBucket(1, burst=1, clock=clock)
assert bucket.try_take()
done, late = [], []

def block(number):
    try:
        bucket.take_sync(timeout=3.5)
    except TimeoutError:
        late.append(number)
    else:
        done.append(number)

threads = []
for number in range(4):
    threads.append(threading.Thread(target=block, args=[number]))
    threads[-1].start()
    until(lambda: bucket.waiting == number + 1)
for number in range(3):
    assert (done, late) == (list(range(number)), [])
    clock.advance(0.999999999)
    assert bucket.waiting == 4 - number
    clock.advance(1e-9)
    threads[number].join()
clock.advance(0.5)
threads[3].join()
assert (done, late) == ([0, 1, 2], [3])
"""
    )


@pytest.mark.parametrize("timeout", ["None", "60"])
def test_an_interrupt_ends_take_sync_and_loses_nothing(timeout: str) -> None:
    play(
        """
bucket = TokenBucket(0.001, burst=1)
assert bucket.try_take()
for _ in range(3):
    def interrupt():
        until(lambda: bucket.waiting == 1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        bucket.take_sync(timeout=eval(sys.argv[1]))
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it was not interrupted")
    assert bucket.waiting == 0
bucket.adjust(1)
assert bucket.try_take()
""",
        timeout,
    )


def test_interrupts_at_any_moment_lose_nothing() -> None:
    play(
        """
clock = ManualClock()
bucket = TokenBucket(1, burst=100, clock=clock)
is_over, interrupts = threading.Event(), 0
is_armed = False

def handle(*args):
    global interrupts
    if is_armed:
        interrupts += 1
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)

def interrupt():
    randomness = random.Random(1)
    while not is_over.is_set():
        time.sleep(randomness.random() / 500)
        os.kill(os.getpid(), signal.SIGINT)

async def work():
    for _ in range(20):
        await bucket.take(randomness.choice((1, 2.5)))

async def main():
    tasks = [asyncio.create_task(work()) for _ in range(5)]
    while not all(task.done() for task in tasks):
        bucket.adjust(randomness.choice((1, 2, 5)))
        await asyncio.sleep(0)

thread = threading.Thread(target=interrupt)
thread.start()
randomness = random.Random(2)
end = time.monotonic() + 3
while time.monotonic() < end:
    try:
        is_armed = True
        try:
            asyncio.run(main())
        finally:
            is_armed = False
    except KeyboardInterrupt:
        pass
    is_armed = False
is_over.set()
thread.join()
gc.collect()
assert interrupts > 20, interrupts
assert bucket.waiting == 0, bucket
bucket.adjust(1e6)
assert bucket.tokens == 100
assert bucket.try_take(100) and not bucket.try_take(1e-9)
""",
        seconds=20,
    )


def test_a_child_begins_with_the_tokens_and_without_those_who_wait() -> None:
    play(
        """
bucket = TokenBucket(1, per=1000, burst=5)
assert bucket.try_take(2)
bucket.adjust(-2.5)

def in_child(action):
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(30)
        try:
            action()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    if status:
        sys.stderr.write(f'the child ended with {status}\\n')
        os._exit(1)

def child():
    assert bucket.waiting == 0
    assert 0.5 <= bucket.tokens < 0.6, bucket.tokens
    bucket.adjust(4.5)
    assert bucket.try_take(4)
    bucket.update(rate=100_000)
    asyncio.run(many())
    threads = [threading.Thread(target=bucket.take_sync) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

async def many():
    await asyncio.gather(*(bucket.take(5) for _ in range(10)))

def child_of_a_task():
    child()
    # What began in the parent is over here.
    for step in steps:
        try:
            step.send(None)
        except RuntimeError as error:
            assert "before a fork" in str(error), error
        else:
            raise AssertionError

async def main():
    global steps
    steps = [bucket.take().__await__() for _ in range(3)]
    tasks = [asyncio.create_task(bucket.take()) for _ in range(3)]
    for step in steps:
        next(step)
    await asyncio.sleep(0)
    assert bucket.waiting == 6
    in_child(child_of_a_task)
    assert bucket.waiting == 6
    for step in steps:
        step.close()
    bucket.adjust(4)
    await asyncio.gather(*tasks)

thread = threading.Thread(target=bucket.take_sync)
thread.start()
until(lambda: bucket.waiting == 1)
in_child(child)
bucket.adjust(1)
thread.join()
asyncio.run(main())
""",
        seconds=80,
        is_watched=False,
    )


class Mine(TokenBucket):
    """With a dictionary, so that it can be part of any cycle."""


@pytest.mark.parametrize("clock", [None, ManualClock()])
@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_bucket_and_those_who_wait_for_it_are_collected_together(
    clock: ManualClock | None, timeout: float | None
) -> None:
    # bucket -> waiter -> future -> task -> frame -> wait -> bucket, and the loop with it
    async def wait(bucket: TokenBucket, ended: list[str]) -> None:
        try:
            await bucket.take(timeout=timeout)
            ended.append("ran")
        finally:
            ended.append("collected")

    async def main() -> tuple[Any, list[str]]:
        bucket: Any = Mine(1, per=1000, burst=1, clock=clock)
        assert bucket.try_take()
        ended: list[str] = []
        for _ in range(3):
            coroutine = wait(bucket, ended)
            coroutine.send(None)
            bucket.waits = [*getattr(bucket, "waits", []), coroutine]
        await asyncio.sleep(0)
        assert bucket.waiting == 3
        return weakref.ref(bucket), ended

    alive, ended = asyncio.run(main())
    gc.collect()
    assert alive() is None
    assert ended == ["collected"] * 3


def test_a_wait_that_is_collected_leaves_the_line() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, burst=1, clock=clock)
    assert bucket.try_take()

    async def main() -> None:
        for is_granted in (False, True):
            steps: Any = bucket.take().__await__()
            next(steps)
            behind = asyncio.create_task(bucket.take())
            await asyncio.sleep(0)
            assert bucket.waiting == 2
            if is_granted:
                clock.advance(1)
                assert bucket.waiting == 1
            del steps
            gc.collect()
            # Granted or not, it is the next one's.
            if not is_granted:
                clock.advance(1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert behind.done()
            assert bucket.waiting == 0
            assert bucket.tokens == 0

    asyncio.run(main())


def test_a_bucket_without_waiters_dies_at_once() -> None:
    gc.disable()
    try:
        bucket = Mine(1, clock=ManualClock())
        bucket.take_sync()
        with pytest.raises(TimeoutError):
            bucket.take_sync(timeout=0)
        bucket.take().close()
        alive = weakref.ref(bucket)
        del bucket
        assert alive() is None
    finally:
        gc.enable()
