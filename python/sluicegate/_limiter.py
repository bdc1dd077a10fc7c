"""What every limiter offers, whatever its limit follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from sluicegate import _core
from sluicegate._guard import F, guard_with
from sluicegate._snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate._core import Acquire, Permit, Rejection


@runtime_checkable
class Limiter(Protocol):
    """Anything that limits how much is in flight."""

    def try_acquire(self, cost: int = 1, /) -> Permit | Rejection:
        """Admit now or reject now."""
        ...

    def acquire(self, cost: int = 1, /) -> Acquire:
        """Wait in line: for `with`, `async with` and `await`."""
        ...


Limit: TypeAlias = float | Limiter
"""A number stands for a `SemaphoreLimiter` of that limit."""


class BaseLimiter(_core.BaseLimiter):
    """What the limiters of this package have in common beside their core."""

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
        return Snapshot(**values)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name!r}: limit {self.limit:g}, "
            f"{self.in_flight} in flight, {self.waiting} waiting>"
        )
