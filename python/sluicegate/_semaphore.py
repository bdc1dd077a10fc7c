"""The limiter with a fixed limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate import _core
from sluicegate._guard import F, guard_with
from sluicegate._snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate._core import Acquire, Permit


class SemaphoreLimiter(_core.SemaphoreLimiter):
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

    def guard(
        self, *, cost: int = 1, operation: str | None = None, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Make a decorator that holds a permit while a function runs.

        Works on functions, where it waits in the calling thread, and on coroutine functions. One
        guarded function must not call another of the same limiter: each takes a permit.

        Args:
            cost: As in `acquire()`.
            operation: As in `acquire()`.
            timeout: As in `acquire()`; without it a call waits for as long as it takes.

        Raises:
            TypeError: If the function is a generator function, or an argument of a wrong type.
            ValueError: If `cost` is out of its range.
        """
        # What is wrong is refused here, and not at each call.
        self.acquire(cost, operation=operation, timeout=timeout).close()

        def acquire() -> Acquire:
            return self.acquire(cost, operation=operation, timeout=timeout)

        def acquire_sync() -> Permit:
            return self.acquire_sync(cost, operation=operation, timeout=timeout)

        return guard_with(acquire, acquire_sync)

    def snapshot(self) -> Snapshot:
        """Return the state at this moment."""
        values = self._snapshot()
        del values["next_expiry"]
        return Snapshot(name=self.name, limit_because="fixed", **values)

    def __repr__(self) -> str:
        return (
            f"<SemaphoreLimiter {self.name!r}: limit {self.limit:g}, "
            f"{self.in_flight} in flight, {self.waiting} waiting>"
        )
