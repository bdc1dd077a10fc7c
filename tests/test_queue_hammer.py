"""Eight threads and three event loops at one queue: every item ends once, everybody is answered."""

from __future__ import annotations

import pytest

from subprocesses import run

pytestmark = pytest.mark.timeout(120)

HAMMER = """
import asyncio, collections, itertools, random, sys, threading, time
import uvloop
from sluicegate import CoDelQueue, Criticality, QueueClosed, Rejected

capacity, seed, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
sys.setswitchinterval(1e-4)
numbers = itertools.count()
accepted, taken, cancelled, told, levels, faults = [], [], [], [], [], []
# What a put raised that the queue has to have counted.
refused = []
is_over = threading.Event()

def on_reject(item, rejection):
    told.append((item, rejection.reason))
    if item % 50 == 0:
        # It may use the queue.
        look()
    if item % 97 == 0:
        raise ValueError(item)

queue = CoDelQueue(
    capacity,
    target=0.002,
    interval=0.01,
    on_reject=on_reject,
    on_high=lambda: levels.append("high"),
    on_low=lambda: levels.append("low"),
)
sys.unraisablehook = lambda unraisable: None

def look():
    snapshot = queue.snapshot()
    counted = snapshot.accepted - snapshot.taken - snapshot.cancelled
    # Those that are promised are no part of the depth.
    if not 0 <= snapshot.depth <= counted or snapshot.working < 0:
        faults.append(snapshot)

def terms(randomness):
    return {
        "criticality": randomness.choice(list(Criticality)),
        "deadline": randomness.choice([None, None, None, 1, 0.02, 0.005, 0.0005, 0]),
        "operation": randomness.choice([None, "read", "write"]),
        "cancellable": True,
    }

def settle(randomness, item, ticket):
    accepted.append(item)
    if randomness.random() < 0.15 and queue.cancel(ticket):
        cancelled.append(item)

def instant(randomness):
    # What needs no wait, for tasks and threads alike.
    match randomness.randrange(8):
        case 0 | 1 | 2:
            item = next(numbers)
            try:
                ticket = queue.put_nowait(item, **terms(randomness))
            except (Rejected, QueueClosed):
                refused.append(item)
            else:
                settle(randomness, item, ticket)
        case 3 | 4:
            try:
                taken.append(queue.get_nowait())
            except (asyncio.QueueEmpty, QueueClosed):
                pass
        case 5:
            look()
        case 6:
            queue.expire()
        case 7:
            queue.update(
                capacity=randomness.choice([capacity, capacity, capacity + 1, capacity // 2]),
                target=randomness.choice([0.001, 0.002]),
            )

async def put(randomness):
    item = next(numbers)
    way = randomness.randrange(3)
    timeout = randomness.choice([None, 0, 0.001, 0.01]) if way == 0 else None
    wish = queue.put(item, timeout=timeout, **terms(randomness))
    try:
        if way == 0:
            ticket = await wish
        else:
            try:
                if way == 1:
                    async with asyncio.timeout(randomness.choice([0.001, 0.01, 1])):
                        ticket = await wish
                else:
                    ticket = await asyncio.wait_for(wish, randomness.choice([0.001, 0.01, 1]))
            except TimeoutError as error:
                # Else it was cancelled by asyncio.
                if isinstance(error, Rejected):
                    refused.append(item)
                return
    except (Rejected, QueueClosed, TimeoutError):
        refused.append(item)
    else:
        settle(randomness, item, ticket)

async def get(randomness):
    timeout = randomness.choice([None, 0, 0.001, 0.01])
    try:
        match randomness.randrange(5):
            case 0:
                taken.append(await queue.get(timeout=timeout))
            case 1:
                async with asyncio.timeout(timeout):
                    taken.append(await queue.get())
            case 2:
                taken.append(await asyncio.wait_for(queue.get(), randomness.choice([0.001, 1])))
            case 3:
                async with queue.take(timeout=timeout) as item:
                    taken.append(item)
                    await asyncio.sleep(randomness.choice([0, 0, 0.001]))
                    if randomness.random() < 0.1:
                        raise KeyError
            case 4:
                async for item in queue:
                    taken.append(item)
                    break
    except (TimeoutError, QueueClosed, KeyError):
        pass

async def work(randomness):
    while not is_over.is_set():
        match randomness.randrange(5):
            case 0 | 1:
                await put(randomness)
            case 2 | 3:
                await get(randomness)
            case 4:
                instant(randomness)
                await asyncio.sleep(0)

async def guarded(randomness):
    # Goes on working however often it is cancelled.
    while not is_over.is_set():
        try:
            await work(randomness)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()

async def tasks(seed):
    randomness = random.Random(seed)
    running = [asyncio.create_task(guarded(random.Random(seed + n))) for n in range(12)]
    while not is_over.is_set():
        for task in randomness.sample(running, 3):
            task.cancel()
        await asyncio.sleep(randomness.choice([0, 0.0005, 0.002]))
        if seed % 3 == 0 and randomness.random() < 0.01:
            # A loop that is blocked for longer than others have patience.
            time.sleep(0.06)
    await asyncio.gather(*running)

def on_loop(seed, factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(tasks(seed))

def in_thread(seed):
    randomness = random.Random(seed)
    while not is_over.is_set():
        match randomness.randrange(6):
            case 0 | 1:
                item = next(numbers)
                timeout = randomness.choice([None, 0, 0.0005, 0.005])
                try:
                    ticket = queue.put_sync(item, timeout=timeout, **terms(randomness))
                except (Rejected, QueueClosed, TimeoutError):
                    refused.append(item)
                else:
                    settle(randomness, item, ticket)
            case 2:
                try:
                    taken.append(queue.get_sync(timeout=randomness.choice([None, 0, 0.0005])))
                except (TimeoutError, QueueClosed):
                    pass
            case 3:
                try:
                    with queue.take(timeout=randomness.choice([0, 0.0005, 0.005])) as item:
                        taken.append(item)
                        if randomness.random() < 0.1:
                            raise KeyError
                except (TimeoutError, QueueClosed, KeyError):
                    pass
            case _:
                instant(randomness)

factories = [asyncio.new_event_loop, uvloop.new_event_loop, asyncio.new_event_loop]
threads = [
    threading.Thread(target=on_loop, args=[seed + 100 * n, factory])
    for n, factory in enumerate(factories, 1)
]
threads += [threading.Thread(target=in_thread, args=[seed + n]) for n in range(8)]
for thread in threads:
    thread.start()
time.sleep(seconds)
is_over.set()
queue.close()
end = time.monotonic() + 20
for thread in threads:
    thread.join(max(0, end - time.monotonic()))
    assert not thread.is_alive(), ("somebody is not answered", queue.snapshot())
while True:
    try:
        taken.append(queue.get_nowait())
    except QueueClosed:
        break
assert not faults, faults[:3]
ends = collections.Counter(taken + cancelled + [item for item, _ in told])
doubled = [item for item, count in ends.items() if count > 1]
assert not doubled, ("doubled", doubled[:5])
assert len(set(accepted)) == len(accepted)
lost = set(accepted) - set(ends)
assert not lost, ("lost", sorted(lost)[:5], len(lost))
made_up = set(ends) - set(accepted)
assert not made_up, ("ended and never accepted", sorted(made_up)[:5])
snapshot = queue.snapshot()
assert (snapshot.depth, snapshot.getting, snapshot.putting, snapshot.working) == (0, 0, 0, 0)
assert snapshot.accepted == len(accepted), (snapshot, len(accepted))
assert snapshot.taken == len(taken), (snapshot, len(taken))
assert snapshot.cancelled == len(cancelled), (snapshot, len(cancelled))
rejected = sum(snapshot.rejected.values())
assert rejected == len(told) + len(refused), (snapshot, len(told), len(refused))
# High and low in turn, though hooks of several threads may be told in another order.
assert abs(levels.count("high") - levels.count("low")) <= 1, collections.Counter(levels)
assert len(taken) > 100 * seconds and len(told) > 0, snapshot
print(snapshot)
"""


@pytest.mark.parametrize("capacity", [0, 2, 60])
def test_nothing_is_lost_or_doubled_whatever_all_do_at_once(capacity: int, scale: float) -> None:
    seconds = 10 * scale
    run(HAMMER, str(capacity), str(17 + capacity), str(seconds), seconds=seconds + 40)
