"""Forks, while somebody waits or holds a permit: the child begins anew, the parent goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import limiters
from snippets import CHECK, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    CHECK
    + UNTIL
    + """
import asyncio, faulthandler, gc, os, random, signal, sys, threading, time, warnings
from sluicegate import Outcome
warnings.simplefilter("ignore", DeprecationWarning)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
# A lock of its own that asyncio takes the first time must not be taken during a fork.
asyncio.new_event_loop().close()

def in_child(action):
    '''Fork, act in the child, and take its failure for one's own.'''
    pid = os.fork()
    if pid == 0:
        status = 1
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(5)
        try:
            action()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid

def succeeds(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"

def use():
    '''All that there is, in a process that begins anew.'''
    assert (limiter.in_flight, limiter.waiting) == (0, 0), limiter
    capacity = int(limiter.limit)
    with limiter.acquire_sync(capacity, timeout=1):
        assert not limiter.try_acquire()

    async def work():
        async with limiter.acquire():
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(work() for _ in range(50)))
        with limiter.try_acquire(capacity):
            try:
                await limiter.acquire(timeout=0.02)
            except TimeoutError:
                pass
            else:
                raise AssertionError("it is full")

    asyncio.run(main())
    ran = []
    def block():
        with limiter.acquire(timeout=2):
            ran.append(1)
    with limiter.acquire(capacity):
        threads = [threading.Thread(target=block) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: limiter.waiting == 4)
    for thread in threads:
        thread.join()
    assert len(ran) == 4
    assert (limiter.in_flight, limiter.waiting) == (0, 0), limiter
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


def test_a_child_of_a_task_that_waits_begins_anew(play: Play) -> None:
    play(
        """
limiter = Limiter(2)

async def wait():
    async with limiter.acquire():
        await asyncio.sleep(0)

def child():
    use()
    # The permits of the parent give nothing back here.
    with limiter.try_acquire():
        for permit in held:
            permit.release(Outcome.OVERLOAD)
        assert limiter.in_flight == 1
    assert Outcome.OVERLOAD not in limiter.snapshot().outcomes

async def main():
    global held
    held = [limiter.try_acquire(), limiter.try_acquire()]
    tasks = [asyncio.create_task(wait()) for _ in range(5)]
    await asyncio.sleep(0)
    assert limiter.waiting == 5
    succeeds(in_child(child))
    # The parent has not noticed.
    assert (limiter.in_flight, limiter.waiting) == (2, 5)
    for permit in held:
        permit.release()
    await asyncio.gather(*tasks)

asyncio.run(main())
check(2)
"""
    )


def test_a_child_of_a_process_whose_threads_wait_begins_anew(play: Play) -> None:
    play(
        """
limiter = Limiter(2)
held = [limiter.try_acquire(), limiter.try_acquire()]
ran = []

def block(timeout):
    with limiter.acquire(timeout=timeout):
        ran.append(1)

async def wait():
    async with limiter.acquire(timeout=5):
        ran.append(1)

threads = [threading.Thread(target=block, args=[timeout]) for timeout in (None, 5, None, 5)]
threads += [threading.Thread(target=asyncio.run, args=[wait()])]
for thread in threads:
    thread.start()
until(lambda: limiter.waiting == 5)
for pid in [in_child(use) for _ in range(5)]:
    succeeds(pid)
assert (limiter.in_flight, limiter.waiting) == (2, 5)
for permit in held:
    permit.release()
for thread in threads:
    thread.join()
assert len(ran) == 5
check(2)
"""
    )


def test_a_fork_while_other_threads_hammer_the_limiter(play: Play) -> None:
    play(
        """
sys.setswitchinterval(1e-5)
limiter = Limiter(3)
others = [Limiter(1) for _ in range(20)]
is_over = threading.Event()

def hammer(number):
    randomness = random.Random(number)
    while not is_over.is_set():
        try:
            with limiter.acquire(randomness.choice((1, 1, 2, 5)), timeout=0.01):
                others[number].try_acquire().release()
        except TimeoutError:
            pass
        limiter.update(limit=3)

async def wait():
    while not is_over.is_set():
        try:
            async with limiter.acquire(timeout=0.005):
                await asyncio.sleep(0)
        except TimeoutError:
            pass

threads = [threading.Thread(target=hammer, args=[number]) for number in range(4)]
threads += [threading.Thread(target=asyncio.run, args=[wait()])]
for thread in threads:
    thread.start()
for _ in range(15):
    for pid in [in_child(use) for _ in range(2)]:
        succeeds(pid)
is_over.set()
for thread in threads:
    thread.join()
check(3)
""",
        seconds=30,
    )


def test_a_child_exits_at_once_whatever_the_threads_of_its_parent_did(play: Play) -> None:
    play(
        """
sys.setswitchinterval(1e-5)
is_over = threading.Event()

class Clock:
    def now(self):
        # Python, in which a thread is likely to be at the moment of the fork.
        for _ in range(200):
            pass
        return time.monotonic()

limiter = Limiter(2, clock=Clock())

def hammer():
    while not is_over.is_set():
        try:
            with limiter.acquire(timeout=0.01):
                pass
        except TimeoutError:
            pass

async def wait():
    while not is_over.is_set():
        async with limiter.acquire():
            await asyncio.sleep(0)

async def main():
    await asyncio.gather(*(wait() for _ in range(10)))

threads = [threading.Thread(target=hammer) for _ in range(3)]
threads += [threading.Thread(target=asyncio.run, args=[main()]) for _ in range(2)]
for thread in threads:
    thread.start()
spans = []
for _ in range(20):
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        # An exit with all that belongs to it.
        threads.clear()
        sys.exit(0)
    succeeds(pid)
    spans.append(time.monotonic() - begin)
is_over.set()
for thread in threads:
    thread.join()
slow = [span for span in spans if span > 0.8]
assert len(slow) < 5, spans
check(2)
""",
        seconds=30,
        is_watched=False,
    )


def test_a_grandchild_and_a_permit_of_each_generation(play: Play) -> None:
    play(
        """
limiter = Limiter(1)
first = limiter.try_acquire()

def child():
    second = limiter.try_acquire()
    assert second
    first.release()
    assert limiter.in_flight == 1
    def grandchild():
        third = limiter.try_acquire()
        assert third
        first.release()
        second.release()
        assert limiter.in_flight == 1
        third.release()
        use()
    succeeds(in_child(grandchild))
    assert limiter.in_flight == 1
    second.release()
    use()

succeeds(in_child(child))
assert limiter.in_flight == 1
first.release()
check()
"""
    )


@pytest.mark.parametrize("timeout", ["0.3", "None"])
def test_a_thread_that_is_forked_while_it_waits_is_answered_in_the_child(
    play: Play, timeout: str
) -> None:
    # The fork is in a handler that runs inside of the wait.
    play(
        """
timeout = eval(sys.argv[1])
limiter = Limiter(1)
other = limiter.try_acquire()
children = []

def fork(*args):
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(3)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

signal.signal(signal.SIGUSR1, fork)
threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()
threading.Timer(0.2, other.release).start()
try:
    limiter.acquire_sync(timeout=timeout).release()
except (TimeoutError, RuntimeError):
    # Its place in line is gone; to say so is an answer.
    assert children == [0], "only the child may lose its place"
if children == [0]:
    use()
    os._exit(0)
succeeds(children[0])
check()
""",
        timeout,
    )
