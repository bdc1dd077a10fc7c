"""What runs beside the limit has a bound of its own: exempt requests, and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate._core import Rejection
from sluicegate._enums import Reason
from sluicegate._gate import Gate

if TYPE_CHECKING:
    from sluicegate._core import Permit
    from sluicegate._enums import Criticality


class Cap:
    """How many of a kind may be in flight, whatever else is.

    It is a gate at which nobody waits: so it counts who is refused, and writes it to the log, as
    the main one does. Where that admits everybody, so does this.

    Args:
        most: How many, from 1.
        kind: What they are, for the name: `"api exempt"` beside the gate `"api"`.
        whole: What decides about all others.
        reason: Why one too many is refused.
    """

    __slots__ = ("_reason", "_whole", "gate")

    def __init__(self, most: int, kind: str, whole: object, reason: Reason = Reason.LIMIT) -> None:
        name = f"{getattr(whole, 'name', '')} {kind}".lstrip()
        # It follows the main one, whatever the environment says.
        self.gate = Gate(most, name=name, max_waiting=0, dry_run=False)
        self._whole = whole if isinstance(whole, Gate) else None
        self._reason = reason

    def take(
        self,
        *,
        criticality: Criticality | None = None,
        deadline: float | None = None,
        operation: str | None = None,
    ) -> Permit | Rejection:
        """Return a permit, or a rejection if there are as many as may be."""
        gate = self.gate
        if self._whole is not None and gate.in_flight >= gate.limit:
            state = self._whole.snapshot()
            gate.update(dry_run=state.dry_run or state.disabled)
        verdict = gate.try_acquire(criticality=criticality, deadline=deadline, operation=operation)
        if verdict or verdict.reason is not Reason.LIMIT or self._reason is Reason.LIMIT:
            return verdict
        return Rejection(
            verdict.gate,
            self._reason,
            verdict.retry_after,
            verdict.criticality,
            verdict.limit,
            verdict.in_flight,
            operation=operation,
        )
