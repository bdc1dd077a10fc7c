"""What every limiter offers, whatever its limit follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
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
