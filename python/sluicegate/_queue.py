"""The bounded queue that keeps the wait short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sluicegate import _core
from sluicegate._enums import Reason

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The state of a queue at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the queue.
        capacity: How many items may wait.
        depth: How many wait, without those for which a worker is on its way.
        saturation: Depth / capacity; 1 if the capacity is 0.
        oldest_wait: How long the oldest item has waited, in seconds.
        standing: Whether it had no moment of health within the last interval.
        target: For how many seconds an item may wait while the queue is standing.
        interval: For how many seconds an item may wait while it is not.
        getting: How many wait for an item.
        putting: How many wait for room.
        working: How many `take()` blocks are under way.
        service_mean: The mean of recent service times, in seconds; 0 if unknown.
        service_p95: Their 95th percentile; 0 if unknown.
        service_estimate: How long an item is expected to take that is begun now; with less time
            left than this it is rejected. 0 if unknown.
        service_baseline: The mean without overload, if known.
        accepted: How many items were accepted since the start.
        taken: How many were taken.
        cancelled: How many were cancelled.
        rejected: How many were rejected, at once or later, by reason.
        closed: Whether it is closed.
    """

    name: str
    capacity: int
    depth: int
    saturation: float
    oldest_wait: float
    standing: bool
    target: float
    interval: float
    getting: int
    putting: int
    working: int
    service_mean: float
    service_p95: float
    service_estimate: float
    service_baseline: float | None
    accepted: int
    taken: int
    cancelled: int
    rejected: Mapping[Reason, int]
    closed: bool

    def __str__(self) -> str:
        state = "closed" if self.closed else "standing" if self.standing else "healthy"
        bound = self.target if self.standing else self.interval
        depth = f"{self.depth}/{self.capacity} waiting"
        if self.depth:
            depth += f", oldest {self.oldest_wait:.2f} of {bound:g} s"
        rejected = sum(self.rejected.values())
        return (
            f"{self.name}: {state} | {depth} | {self.getting} getting, {self.putting} putting | "
            f"{self.taken} taken, {rejected} rejected"
        )


class CoDelQueue(_core.CoDelQueue[T]):
    """A bounded queue that keeps the wait short: what cannot be served in time is rejected early.

    One object is one queue, wherever it is used: it may be made at import time, and be shared by
    tasks of several event loops and by plain threads.

    - `put_nowait()`, `await put()` and, in a thread, `put_sync()`.
    - `async with queue.take() as item:` or, in a thread, `with queue.take() as item:`. The block
      is the work on the item. It is timed, and the queue learns from it.
    - `get_nowait()`, `await get()`, `get_sync()` and `async for item in queue:` time nothing.

    Served is by criticality, then the oldest first; while the queue is *standing*, the newest
    first: the oldest have waited for so long that their callers may have left.

    An item may wait for `interval`. When the queue had no moment of health within the last
    interval, in which it was empty or its oldest item had waited for less than `target`, it is
    standing, and an item may wait for `target`, until for an interval nothing had to be rejected
    for its wait or for want of room, and nobody waited for longer than `target`.

    By default the target is as long as the workers need for 18 items by the baseline of the service
    time, and at least one service and 5 ms: where fewer wait, chance leaves workers idle. It is at
    most 2/3 of the time that callers lately gave by their deadlines; who does not say is thought to
    give 1 s, or 10 services if these are longer. The interval is twice that, from 20 ms to the time
    that callers give. Before the service time is known they are 0.25 and 1 s.

    By default also an item waits for as long as its caller gives; while the queue is standing, and
    more comes than can be done, for half of that at most, and for the target if that is longer. If
    one of both spans is given, a deadline only ever shortens the wait.

    An item with a `deadline` is rejected as soon as what is left is less than the service takes, by
    `operation`, unless a worker waits for it already: the 85th percentile of the recent work that
    took no longer than callers give, since longer work is in vain anyway; the 97th if target or
    interval are given.
    A full queue rejects, unless something less critical waits, or, while it is standing, something
    equally critical: then that is evicted which would be served last.

    A forked child begins with an empty queue; the items are the parent's.

    What was accepted and is rejected later goes to `on_reject`, from wherever the queue is used or
    its timer runs, in whichever thread that is (for a future of asyncio take
    `loop.call_soon_threadsafe`), and never under a lock. It may raise, which is reported by
    `sys.unraisablehook`, and may use the queue. Timers run on the event loops that use the queue;
    where only threads do, and none of them waits, call `expire()` now and then.

    Args:
        capacity: How many items may wait, from 0 to 1e9. Those for which a worker waits do not
            count, and stay should the worker leave; with 0 only they are accepted.
        target: For how many seconds an item may wait while the queue is standing, above 0 and at
            most 3600; default: automatic, or interval / 20 if that is given.
        interval: For how many seconds an item may wait else, longer than the target; default:
            automatic, or 20 * target if that is given.
        low: The share of the capacity at which the queue is low again after it was high.
        high: The share of the capacity at which it is high, above `low` and at most 1.
        on_reject: Called as `on_reject(item, rejection)`; like the others a function that is not
            async.
        on_high: Called without arguments when the queue becomes high.
        on_low: The same when it becomes low again.
        name: What it is called in rejections, snapshots and metrics; default: "queue", "queue-2",
            …
        clock: Where time comes from: an object with `now()` in seconds, such as a `ManualClock`;
            default: the monotonic clock of the system.

    Raises:
        ValueError: If an argument is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def snapshot(self) -> QueueSnapshot:
        """Return the state at this moment."""
        values = self._snapshot()
        del values["next_expiry"]
        return QueueSnapshot(name=self.name, **values)

    def __repr__(self) -> str:
        return f"<CoDelQueue {self.name!r}: {self.depth} of {self.capacity} waiting>"
