"""Python that runs where one does not expect it: none of it may find a lock of a queue taken.

Each in a process of its own: a lock that is waited for by its own holder hangs all of it.
"""

from __future__ import annotations

import pytest

from subprocesses import run

PRELUDE = """
import asyncio, gc, signal, sys, threading, time, weakref
from sluicegate import CoDelQueue, Criticality, ManualClock, QueueClosed, Rejected

calls = []
SPANS = {"target": 60, "interval": 3600}
is_inside = threading.local()

def reenter(*args):
    # Every entry that takes the lock; none of it deeper than one level.
    calls.append(1)
    if getattr(is_inside, "yes", False):
        return
    is_inside.yes = True
    try:
        queue.depth, queue.saturation, queue.oldest_wait, queue.standing, queue.closed
        queue.capacity, queue.name, repr(queue), repr(take), queue.snapshot()
        queue.expire()
        queue.update(capacity=queue.capacity)
        try:
            ticket = queue.put_nowait("from within", cancellable=True)
        except (Rejected, QueueClosed):
            pass
        else:
            queue.cancel(ticket)
        try:
            item = queue.get_nowait()
        except (asyncio.QueueEmpty, QueueClosed):
            pass
        else:
            try:
                queue.put_nowait(item)
            except (Rejected, QueueClosed):
                pass
        queue.cancel(0)
    finally:
        is_inside.yes = False

class Item:
    def __del__(self):
        reenter()

def check():
    assert calls, "nothing re-entered"
    snapshot = queue.snapshot()
    assert (snapshot.getting, snapshot.putting, snapshot.working) == (0, 0, 0), snapshot

queue = CoDelQueue(3, **SPANS)
take = queue.take()
"""


def play(snippet: str, *arguments: str, seconds: float = 8.0) -> str:
    return run(PRELUDE + snippet, *arguments, seconds=seconds)


def test_the_last_reference_to_an_item_dies_in_the_queue() -> None:
    play(
        """
clock = ManualClock()

def put(**terms):
    return queue.put_nowait(Item(), cancellable=True, **terms)

def refused(put, *args, **terms):
    try:
        put(*args, **terms)
    except (Rejected, QueueClosed, TimeoutError):
        return
    raise AssertionError("it was not refused")

def play(moment):
    match moment:
        case "cancel":
            queue.cancel(put())
        case "full":
            queue.put_nowait(1)
            queue.put_nowait(2)
            refused(put)
            refused(queue.put_sync, Item(), timeout=0)
        case "closed":
            queue.close()
            refused(put)
            refused(queue.put_sync, Item())
        case "deadline":
            refused(put, deadline=0)
            put(deadline=0.5)
            clock.advance(0.5)
        case "evict":
            put(criticality=Criticality.SHEDDABLE)
            put(criticality=Criticality.SHEDDABLE)
            queue.put_nowait(3)
        case "expire":
            put()
            put()
            clock.advance(1)
        case "immediate":
            put()
            put()
            queue.close(immediate=True)
        case "get":
            put()
            queue.get_nowait()
            put()
            with queue.take() as item:
                del item
        case "drop":
            other = CoDelQueue(2)
            other.put_nowait(Item())
            other.put_nowait(Item())
            del other

for hook in (None, lambda item, rejection: None):
    for moment in "cancel full closed deadline evict expire immediate get drop".split():
        print(moment, flush=True)
        calls.clear()
        queue = CoDelQueue(2, target=0.1, interval=1, clock=clock, on_reject=hook)
        take = queue.take()
        play(moment)
        check()
"""
    )


def test_the_last_reference_to_an_item_dies_with_the_wait_for_room() -> None:
    play(
        """
import warnings
warnings.simplefilter("ignore")

async def main(moment):
    for number in range(3):
        queue.put_nowait(number)
    put = queue.put(Item(), timeout=0.01 if moment == "timeout" else None)
    if moment == "never":
        return
    steps = put.__await__() if moment in ("closed", "thrown") else None
    if steps is not None:
        next(steps)
    match moment:
        case "closed":
            steps.close()
        case "thrown":
            try:
                steps.throw(ValueError)
            except ValueError:
                pass
        case "cancelled":
            task = asyncio.create_task(put)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        case "timeout":
            try:
                await put
            except TimeoutError:
                pass
        case "end":
            task = asyncio.create_task(put)
            await asyncio.sleep(0)
            queue.close()
            await asyncio.wait([task])
            task.exception()

for moment in "never closed thrown cancelled timeout end".split():
    print(moment, flush=True)
    calls.clear()
    queue = CoDelQueue(3, **SPANS)
    take = queue.take()
    asyncio.run(main(moment))
    gc.collect()
    check()
"""
    )


def test_the_last_reference_to_a_future_dies_with_its_wait() -> None:
    play(
        """
async def main(what, moment):
    if what == "put":
        for number in range(3):
            queue.put_nowait(number)
    steps = (queue.get() if what == "get" else queue.put("x")).__await__()
    future = next(steps)
    weakref.finalize(future, reenter)
    match moment:
        case "step":
            future.set_result(None)
            del future
            try:
                next(steps)
                steps.close()
            except StopIteration:
                # What came back in has made room for it.
                assert what == "put"
        case "claim":
            queue.put_nowait("a") if what == "get" else queue.get_nowait()
            del future
            try:
                next(steps)
            except StopIteration:
                pass
        case "end":
            queue.close()
            del future
            try:
                next(steps)
            except QueueClosed:
                pass
        case "throw":
            del future
            try:
                steps.throw(ValueError)
            except ValueError:
                pass
        case "close":
            del future
            steps.close()
        case "drop":
            del future, steps

for what in ("get", "put"):
    for moment in "close throw step claim drop end".split():
        print(what, moment, flush=True)
        calls.clear()
        queue = CoDelQueue(3, **SPANS)
        take = queue.take()
        asyncio.run(main(what, moment))
        check()
"""
    )


def test_a_future_of_an_own_kind_calls_back_when_it_dies() -> None:
    play(
        """
class Future(asyncio.Future):
    def __del__(self):
        reenter()

class Loop(asyncio.SelectorEventLoop):
    def create_future(self):
        return Future(loop=self)

async def wait(what, number):
    timeout = 0.05 if kind == "expire" else None
    if what == "get":
        await queue.get(timeout=timeout)
    else:
        await queue.put(number, timeout=timeout)

async def main():
    what = "get" if kind in ("put", "close") else "put"
    if what == "put":
        for number in range(3):
            queue.put_nowait(number)
    tasks = [asyncio.create_task(wait(what, number)) for number in range(5)]
    await asyncio.sleep(0)
    match kind:
        case "put":
            for number in range(5):
                queue.put_nowait(number)
        case "get":
            for _ in range(3):
                queue.get_nowait()
            await asyncio.sleep(0)
        case "close":
            queue.close()
        case "update":
            queue.update(capacity=9)
        case "expire":
            await asyncio.sleep(0.1)
    await asyncio.wait(tasks, timeout=0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

for kind in "put get close update expire".split():
    print(kind, flush=True)
    calls.clear()
    queue = CoDelQueue(3, **SPANS)
    take = queue.take()
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    check()
"""
    )


def test_names_and_hooks_die_with_their_queue() -> None:
    play(
        """
class Mine(CoDelQueue):
    def __del__(self):
        reenter()

class Name(str):
    def __del__(self):
        reenter()

class Hook:
    def __call__(self, *args):
        reenter()
    def __del__(self):
        reenter()

for _ in range(50):
    mine = Mine(1, name=Name("x"), on_reject=Hook(), on_high=Hook(), on_low=Hook())
    mine.put_nowait(Item(), operation=Name("y"))
    begun = mine.take()
    with begun:
        del mine
    del begun
    mine = Mine(1, on_reject=Hook())
    mine.put_nowait(Item())
    mine.close(immediate=True)
check()
"""
    )


@pytest.mark.parametrize("way", ["task", "thread"])
def test_the_clock_comes_back_in(way: str) -> None:
    play(
        """
class Clock:
    def now(self):
        reenter()
        return time.monotonic()

queue = CoDelQueue(3, target=0.01, interval=0.05)
take = queue.take()
queue = CoDelQueue(3, target=0.01, interval=0.05, clock=Clock())
take = queue.take()

async def put(number):
    try:
        await queue.put(number, timeout=0.1)
    except TimeoutError:
        pass

async def get():
    try:
        async with queue.take(timeout=0.1):
            await asyncio.sleep(0.005)
    except TimeoutError:
        pass

async def main():
    await asyncio.gather(*(put(number) for number in range(10)), *(get() for _ in range(10)))

def work(number):
    for _ in range(3):
        try:
            if number % 2:
                queue.put_sync(number, timeout=0.02)
            else:
                queue.get_sync(timeout=0.02)
        except TimeoutError:
            pass

if sys.argv[1] == "task":
    asyncio.run(main())
else:
    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
check()
""",
        way,
    )


BUSY = """
got = []

async def put(number):
    queue.put_nowait(Item()) if queue.depth < 2 else None
    try:
        await queue.put(Item(), timeout=0.001 if number % 2 else 1)
    except TimeoutError:
        pass

async def get(number):
    try:
        async with queue.take(timeout=0.001 if number % 3 else 1) as item:
            got.append(item)
            await asyncio.sleep(0)
    except TimeoutError:
        pass

async def main():
    tasks = [asyncio.create_task(way(n)) for n in range(40) for way in (put, get)]
    await asyncio.sleep(0)
    for task in tasks[::7]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    got.clear()

def block():
    for _ in range(10):
        try:
            queue.put_sync(Item(), timeout=0.01)
            queue.get_sync(timeout=0.01)
        except TimeoutError:
            pass

def all_of_it():
    thread = threading.Thread(target=block)
    thread.start()
    asyncio.run(main())
    thread.join()
    queue.update(capacity=4)
    with queue.take(timeout=0) if queue.depth else threading.Lock():
        pass
    queue.close(immediate=True)
"""


@pytest.mark.parametrize("way", ["del", "callback"])
def test_the_collector_comes_back_in(way: str) -> None:
    play(
        BUSY
        + """
class Item:
    def __init__(self):
        self.me = self
    def __del__(self):
        reenter()

queue = CoDelQueue(3, target=0.01, interval=0.05, on_reject=lambda item, rejection: Item())
take = queue.take()
if sys.argv[1] == "callback":
    gc.callbacks.append(reenter)
gc.set_threshold(1, 1, 1)
all_of_it()
gc.callbacks.clear()
gc.set_threshold(700, 10, 10)
check()
""",
        way,
        seconds=20,
    )


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_a_tracer_comes_back_in(kind: str) -> None:
    # It sees every call that we make into Python, from C too if it profiles.
    play(
        BUSY
        + """
queue = CoDelQueue(3, target=0.01, interval=0.05, on_reject=lambda item, rejection: None)
take = queue.take()

def watch(frame, event, argument):
    reenter()
    return watch

set_here, set_elsewhere = {
    "trace": (sys.settrace, threading.settrace),
    "profile": (sys.setprofile, threading.setprofile),
}[sys.argv[1]]
set_elsewhere(watch)
set_here(watch)
all_of_it()
set_here(None)
check()
""",
        kind,
        seconds=20,
    )


def test_a_signal_handler_comes_back_in() -> None:
    play(
        """
signal.signal(signal.SIGALRM, reenter)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
queue = CoDelQueue(2, target=0.001, interval=0.003, on_reject=lambda item, rejection: None)
take = queue.take()
end = time.monotonic() + 0.5
while time.monotonic() < end:
    for way in (
        lambda: queue.put_sync(Item(), timeout=0.002),
        lambda: queue.put_nowait(Item()),
        lambda: queue.get_sync(timeout=0.002),
        lambda: queue.take(timeout=0.001).__enter__(),
    ):
        try:
            way()
        except (TimeoutError, Rejected):
            pass
signal.setitimer(signal.ITIMER_REAL, 0)
check()
"""
    )


@pytest.mark.parametrize("what", ["log", "warning", "unraisable"])
def test_what_is_said_comes_back_in(what: str) -> None:
    play(
        """
import logging, warnings
what = sys.argv[1]
clock = ManualClock()

def fail(*args):
    raise ValueError

queue = CoDelQueue(3, clock=clock, on_reject=fail)
take = queue.take()

class Handler(logging.Handler):
    def emit(self, record):
        reenter()

match what:
    case "log":
        logging.getLogger("sluicegate").addHandler(Handler())
        queue.put_nowait("a")
        assert queue.get_nowait() == "a"
    case "warning":
        warnings.simplefilter("always")
        warnings.showwarning = reenter
        queue.get()
        queue.put("b")
    case "unraisable":
        sys.unraisablehook = reenter
        queue.put_nowait("a")
        queue.put_nowait("b")
        clock.advance(1)
check()
""",
        what,
    )


def test_a_hook_comes_back_in() -> None:
    play(
        """
async def main():
    getter = asyncio.create_task(queue.get(timeout=0.2))
    await asyncio.sleep(0)
    queue.put_nowait("to the getter")
    assert await getter
    async with asyncio.timeout(5):
        queue.put_nowait("a")
        calls.clear()
        while not calls:
            await asyncio.sleep(0.005)

hooks = {"on_reject": reenter, "on_high": reenter, "on_low": reenter}
for when in "put evict close timer".split():
    print(when, flush=True)
    calls.clear()
    queue = CoDelQueue(2, target=0.01, interval=0.05, **hooks)
    take = queue.take()
    match when:
        case "put":
            queue.put_nowait("a")
            queue.put_nowait("b")
        case "evict":
            for level in Criticality:
                queue.put_nowait(level, criticality=level)
        case "close":
            queue.put_nowait("a")
            queue.close(immediate=True)
        case "timer":
            asyncio.run(main())
    check()
"""
    )


def test_the_last_reference_to_the_queue_dies_in_its_hook() -> None:
    play(
        """
holder = {}

def forget(*args):
    holder.clear()
    gc.collect()
    reenter()

class Mine(CoDelQueue):
    def __del__(self):
        calls.append("del")

for act in (
    lambda mine: mine.close(immediate=True),
    lambda mine: mine.put_nowait("c", criticality=Criticality.CRITICAL_PLUS),
    lambda mine: mine.cancel(0),
    lambda mine: mine.get_nowait(),
    lambda mine: clock.advance(1),
):
    clock = ManualClock()
    holder["mine"] = Mine(2, interval=3600, clock=clock, on_reject=forget, on_low=forget)
    holder["mine"].put_nowait("a")
    holder["mine"].put_nowait("b", deadline=1)
    calls.clear()
    try:
        act(holder["mine"])
    except KeyError:
        pass
    while holder:
        clock.advance(1)
    assert "del" in calls
check()
"""
    )
