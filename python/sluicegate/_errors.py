"""The exceptions. A configuration that cannot be is a `ValueError` or a `TypeError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate import _core
from sluicegate._enums import Reason

if TYPE_CHECKING:
    from sluicegate._core import Rejection


class SluicegateError(Exception):
    """The base of all exceptions of this package."""

    __slots__ = ()


class QueueClosed(SluicegateError):
    """The queue is closed: nothing can be put, or there is nothing left to get."""

    __slots__ = ()


class TimedOut(SluicegateError, TimeoutError):
    """A wait for a permit, for tokens, for an item or for room took as long as it may.

    It is ours: unlike other time-outs it says nothing about whoever is called.
    """


class Rejected(SluicegateError):
    """Work was rejected on purpose.

    It carries a `Rejection` and nothing else, so that it is cheap to raise and can be pickled.
    Unlike the rejection it is truthy.

    Args:
        rejection: Why, when to come back, and how full it was.
    """

    __slots__ = ()

    def __init__(self, rejection: Rejection, /) -> None:
        super().__init__(rejection)

    @property
    def rejection(self) -> Rejection:
        """The rejection as a value."""
        rejection: Rejection = self.args[0]
        return rejection

    @property
    def reason(self) -> Reason:
        """Why."""
        return self.rejection.reason

    @property
    def retry_after(self) -> float | None:
        """Seconds after which it is worth coming back, if that is known."""
        return self.rejection.retry_after

    def __str__(self) -> str:
        r = self.args[0] if self.args else None
        if not isinstance(r, _core.Rejection):
            return super().__str__()
        text = f"{r.gate!r} rejected {r.criticality.name} work: {r.reason}"
        if r.reason is Reason.BUDGET:
            text += f" ({r.in_flight} of {r.limit:g} retries)"
        elif r.reason is not Reason.THROTTLED:
            text += f" ({r.in_flight} in flight, {r.waiting} waiting, limit {r.limit:g})"
        if r.retry_after is not None:
            text += f"; retry after {r.retry_after:.1f} s"
        return text
