"""What the end of a call says about the load of whoever was called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from sluicegate._enums import Outcome
from sluicegate._errors import Rejected

Classify: TypeAlias = Callable[[object], Outcome]
"""Says how a call ended; gets its result, or the exception that it raised."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what it was raised from, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__


def classify_error(error: object) -> Outcome:
    """Say what an exception means where nobody said otherwise.

    `TimeoutError` and `ConnectionRefusedError` are overload, also if they are what another
    exception was raised from. Our own `Rejected` says nothing about whoever was called, nor does
    anything else.
    """
    if isinstance(error, BaseException):
        chain = tuple(causes(error))
        # First, since a rejection may be a TimeoutError, too.
        if any(isinstance(cause, Rejected) for cause in chain):
            return Outcome.IGNORED
        if any(isinstance(cause, (TimeoutError, ConnectionRefusedError)) for cause in chain):
            return Outcome.OVERLOAD
    return Outcome.IGNORED
