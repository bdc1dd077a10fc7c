"""Forks of a process with queues: the child begins with none of the parent's items and waits."""

from __future__ import annotations

import pytest

from snippets import QUEUE_CHECK, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    QUEUE_CHECK
    + UNTIL
    + """
import asyncio, faulthandler, gc, os, random, signal, sys, threading, time, warnings
from sluicegate import CoDelQueue, Criticality, QueueClosed, Reason, Rejected
warnings.simplefilter("ignore", DeprecationWarning)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
# A lock of its own that asyncio takes the first time must not be taken during a fork.
asyncio.new_event_loop().close()
SPANS = {"target": 60, "interval": 3600}
PARENT = os.getpid()
told = []

def on_reject(item, rejection):
    told.append((item, rejection.reason))

def on_level(*args):
    told.append("level")

def made(capacity, **options):
    return CoDelQueue(
        capacity, on_reject=on_reject, on_high=on_level, on_low=on_level, **(SPANS | options)
    )

def in_child(action):
    '''Fork, act in the child, and take its failure for one's own.'''
    pid = os.fork()
    if pid == 0:
        status = 1
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(60)
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
    told.clear()
    check()
    assert "level" in told or queue.capacity < 2
    told.clear()

    async def main():
        async def get():
            async with queue.take() as item:
                return item
        getters = [asyncio.create_task(get()) for _ in range(20)]
        await asyncio.sleep(0)
        for number in range(20):
            await queue.put(number)
        assert sorted(await asyncio.gather(*getters)) == list(range(20))
        try:
            await queue.get(timeout=0.02)
        except TimeoutError:
            pass
        else:
            raise AssertionError("it is empty")

    asyncio.run(main())
    def put():
        for number in range(10):
            queue.put_sync(number, timeout=2)
    threads = [threading.Thread(target=put) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert sorted(queue.get_sync(timeout=2) for _ in range(20)) == sorted([*range(10)] * 2)
    for thread in threads:
        thread.join()
    check()
    queue.put_nowait("last")
    told.clear()
    queue.close(immediate=True)
    assert told[0] == ("last", Reason.CLOSED), told

class Item:
    '''Is not to be finalised but by its own process.'''
    def __init__(self, name):
        self.name = name
    def __del__(self):
        if os.getpid() != PARENT:
            os.write(2, b"finalised in the child\\n")
            os._exit(9)
"""
)


def play(snippet: str, *arguments: str, seconds: float = 15.0, is_watched: bool = True) -> str:
    return run(PRELUDE + snippet, *arguments, seconds=seconds, is_watched=is_watched)


def test_the_items_of_the_parent_are_not_in_the_child() -> None:
    play(
        """
queue = made(4)
tickets = [queue.put_nowait(Item(number), cancellable=True) for number in range(4)]
assert told == ["level"]
with queue.take() as first:
    begun = queue.take()
    assert begun.__enter__().name == 1

    def child():
        snapshot = queue.snapshot()
        assert (snapshot.depth, snapshot.working, snapshot.closed) == (0, 0, False), snapshot
        # Neither the tickets nor the work of the parent are any here.
        assert not any(queue.cancel(ticket) for ticket in tickets)
        begun.__exit__(None, None, None)
        assert queue.snapshot().working == 0
        assert queue.snapshot().service_mean == 0
        gc.collect()
        use()
        assert not any(queue.cancel(ticket) for ticket in tickets)
        gc.collect()

    succeeds(in_child(child))
    # The parent has not noticed.
    snapshot = queue.snapshot()
    assert (snapshot.depth, snapshot.working) == (2, 2), snapshot
    begun.__exit__(None, None, None)
assert queue.cancel(tickets[3])
assert queue.get_nowait().name == 2
check()
"""
    )


def test_a_child_forgets_its_queue_without_finalising_anything() -> None:
    play(
        """
queue = made(4)
for number in range(3):
    queue.put_nowait(Item(number))

def child():
    global queue
    del queue
    gc.collect()

succeeds(in_child(child))
assert [queue.get_nowait().name for _ in range(3)] == [0, 1, 2]
"""
    )


def test_a_child_of_tasks_that_wait_begins_anew() -> None:
    play(
        """
async def main(what):
    if what == "put":
        queue.put_nowait(Item("a"))
        queue.put_nowait(Item("b"))
    async def wait(number):
        try:
            if what == "get":
                return await queue.get()
            await queue.put(Item(number))
        finally:
            if os.getpid() != PARENT:
                os.write(2, b"ran in the child\\\\n")
                os._exit(9)
    tasks = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)

    def child():
        snapshot = queue.snapshot()
        assert (snapshot.getting, snapshot.putting) == (0, 0), snapshot
        use()

    def new_thread():
        # asyncio says that a loop runs here, which is the parent's.
        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
        assert ended == [1]

    def guarded():
        child()
        ended.append(1)

    ended = []
    succeeds(in_child(new_thread))
    snapshot = queue.snapshot()
    assert snapshot.getting + snapshot.putting == 5, snapshot
    if what == "get":
        for number in range(5):
            queue.put_nowait(number)
        assert await asyncio.gather(*tasks) == list(range(5))
    else:
        names = [(await queue.get()).name for _ in range(7)]
        await asyncio.gather(*tasks)
        assert names == ["a", "b", 0, 1, 2, 3, 4], names

for what in ("get", "put"):
    queue = made(2)
    asyncio.run(main(what))
    check()
"""
    )


def test_a_child_of_a_process_whose_threads_wait_begins_anew() -> None:
    play(
        """
queue = made(2)
got = []

def get():
    got.append(queue.get_sync())

async def get_on_loop():
    got.append(await queue.get(timeout=10))

threads = [threading.Thread(target=get) for _ in range(3)]
threads += [threading.Thread(target=asyncio.run, args=[get_on_loop()])]
for thread in threads:
    thread.start()
until(lambda: queue.snapshot().getting == 4)
for pid in [in_child(use) for _ in range(3)]:
    succeeds(pid)
assert queue.snapshot().getting == 4
for number in range(4):
    queue.put_sync(number)
for thread in threads:
    thread.join()
assert sorted(got) == [0, 1, 2, 3]
check()

def put(number):
    queue.put_sync(number)

queue.put_nowait("a")
queue.put_nowait("b")
threads = [threading.Thread(target=put, args=[number]) for number in range(3)]
for thread in threads:
    thread.start()
until(lambda: queue.snapshot().putting == 3)
for pid in [in_child(use) for _ in range(3)]:
    succeeds(pid)
assert queue.snapshot().putting == 3
assert sorted(str(queue.get_sync(timeout=2)) for _ in range(5)) == ["0", "1", "2", "a", "b"]
for thread in threads:
    thread.join()
check()
""",
        seconds=25,
    )


def test_a_fork_while_other_threads_hammer_the_queue() -> None:
    play(
        """
sys.setswitchinterval(1e-5)
queue = made(3, target=0.001, interval=0.003)
is_over = threading.Event()

def hammer(number):
    randomness = random.Random(number)
    while not is_over.is_set():
        try:
            if number % 2:
                deadline = randomness.choice([None, 0.01])
                queue.put_sync(number, timeout=0.002, deadline=deadline)
            else:
                with queue.take(timeout=0.002):
                    pass
        except (TimeoutError, Rejected):
            pass

async def wait():
    while not is_over.is_set():
        try:
            await queue.put("x", timeout=0.002)
            await queue.get(timeout=0.002)
        except TimeoutError:
            pass

def child():
    # The spans of the parent are short, and the machine may be slow.
    queue.update(interval=3600, target=60)
    use()

threads = [threading.Thread(target=hammer, args=[number]) for number in range(4)]
threads += [threading.Thread(target=asyncio.run, args=[wait()])]
for thread in threads:
    thread.start()
for _ in range(8):
    for pid in [in_child(child) for _ in range(2)]:
        succeeds(pid)
is_over.set()
for thread in threads:
    thread.join()
queue.close(immediate=True)
assert queue.snapshot().depth == 0
""",
        seconds=110,
    )


@pytest.mark.parametrize("timeout", ["0.3", "None"])
@pytest.mark.parametrize("what", ["get", "put", "take"])
def test_a_thread_that_is_forked_while_it_waits_is_answered_in_the_child(
    timeout: str, what: str
) -> None:
    # The fork is in a handler that runs inside of the wait.
    play(
        """
timeout, what = eval(sys.argv[1]), sys.argv[2]
queue = made(1)
if what == "put":
    queue.put_nowait("a")
children = []

def fork(*args):
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(60)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

signal.signal(signal.SIGUSR1, fork)
threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()
answer = queue.get_nowait if what == "put" else lambda: queue.put_nowait("b")
threading.Timer(0.2, answer).start()
try:
    match what:
        case "get":
            assert queue.get_sync(timeout=timeout) == "b"
        case "take":
            with queue.take(timeout=timeout) as item:
                assert item == "b"
        case "put":
            queue.put_sync("b", timeout=timeout)
            assert queue.get_nowait() == "b"
except (TimeoutError, RuntimeError) as error:
    # Its place in line is gone; to say so is an answer.
    assert children == [0], "only the child may lose its place"
    assert isinstance(error, TimeoutError) or "before a fork" in str(error), error
if children == [0]:
    assert not queue.closed
    use()
    os._exit(0)
succeeds(children[0])
check()
""",
        timeout,
        what,
    )


def test_a_closed_queue_is_closed_in_the_child_too() -> None:
    play(
        """
queue = made(2)
queue.put_nowait(Item("a"))
queue.close()

def child():
    assert queue.closed
    for call in (queue.get_nowait, queue.get_sync, lambda: queue.put_nowait("b")):
        try:
            call()
        except QueueClosed:
            continue
        raise AssertionError("it is closed, and its item is the parent's")

succeeds(in_child(child))
assert queue.get_nowait().name == "a"
"""
    )
