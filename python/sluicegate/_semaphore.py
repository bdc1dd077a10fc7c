"""The limiter with a fixed limit."""

from __future__ import annotations

from sluicegate import _core
from sluicegate._limiter import BaseLimiter


class SemaphoreLimiter(BaseLimiter, _core.SemaphoreLimiter):
    """A fixed limit on how much is in flight at once, with a waiting line.

    One object is one limit, wherever it is used: it may be made at import time, and be shared by
    tasks of several event loops and by plain threads.

    - `try_acquire()` answers now, with a `Permit` or a falsy `Rejection`.
    - `acquire()` waits in line: `async with limiter.acquire() as permit:`,
      `permit = await limiter.acquire()`, or `with limiter.acquire():` in a thread.
    - `acquire_sync()` waits in line in a thread.

    The line is served in order of arrival, and its head is not overtaken by those behind it, so
    that a large cost is not starved by small ones. A permit that was granted to a task or thread
    which does not come for it within 50 ms, since its event loop is blocked or gone, goes to
    whoever waits elsewhere.

    Args:
        limit: How many units may be in flight at once: a number above 0 and at most 1e9. A cost
            above the limit runs alone. A limit below 1 admits one at a time with a rest in
            between: after work that took s seconds, (1 / limit - 1) * s.
        name: What it is called in rejections, snapshots and metrics; default: "limiter",
            "limiter-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If `limit` is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()
