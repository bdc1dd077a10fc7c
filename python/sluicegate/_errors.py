"""The exceptions. A configuration that cannot be is a `ValueError` or a `TypeError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate import _core

if TYPE_CHECKING:
    from sluicegate._core import Rejection
    from sluicegate._enums import Reason


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

    # At run time that of `Exception` does it, in a third of the time.
    if TYPE_CHECKING:

        def __init__(self, rejection: Rejection, /) -> None: ...

    @property
    def rejection(self) -> Rejection:
        """The rejection as a value."""
        rejection: Rejection = self.args[0]
        return rejection

    @property
    def reason(self) -> Reason:
        """Why."""
        reason: Reason = self.args[0].reason
        return reason

    @property
    def retry_after(self) -> float | None:
        """Seconds after which it is worth coming back, if that is known."""
        seconds: float | None = self.args[0].retry_after
        return seconds

    def __str__(self) -> str:
        rejection = self.args[0] if self.args else None
        return str(rejection) if isinstance(rejection, _core.Rejection) else super().__str__()


class DeadlineExceeded(Rejected, TimeoutError):
    """Work was rejected since it could not be done by its deadline any more.

    It is raised where the reason is DEADLINE, and is ours: unlike other time-outs it says nothing
    about whoever is called.
    """
