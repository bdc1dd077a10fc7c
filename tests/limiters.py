"""What permits come from: where a test holds for all of it, it runs for each.

A gate is patient here: it lets everybody wait who does not say for how long, and takes a time-out
for a deadline. Both raise a `TimeoutError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate import Acquire, Clock, Gate, Permit, SemaphoreLimiter

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

HOUR = 3600.0


class PatientGate(Gate):
    """A gate that is used like a limiter."""

    __slots__ = ()

    def __new__(cls, limit: float, *, name: str | None = None, clock: Clock | None = None) -> Self:
        """Let as many wait as come."""
        return super().__new__(cls, limit, name=name, max_waiting=10**6, clock=clock)

    def acquire(self, cost: int = 1, /, *, timeout: float | None = None, **ask: Any) -> Acquire:
        """Wait for an hour, if nobody says."""
        return super().acquire(cost, deadline=HOUR if timeout is None else timeout, **ask)

    def acquire_sync(self, cost: int = 1, /, *, timeout: float | None = None, **ask: Any) -> Permit:
        """Wait for an hour, if nobody says."""
        return super().acquire_sync(cost, deadline=HOUR if timeout is None else timeout, **ask)


Limiter: TypeAlias = SemaphoreLimiter | PatientGate
New: TypeAlias = "Callable[..., Limiter]"

KINDS: dict[str, New] = {"limiter": SemaphoreLimiter, "gate": PatientGate}
NAMES = list(KINDS)

# For snippets: they call it Limiter.
IMPORTS = {
    "limiter": "from sluicegate import SemaphoreLimiter as Limiter\n",
    "gate": "from limiters import PatientGate as Limiter\n",
}
