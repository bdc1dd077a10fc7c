"""A call of a destination, and one attempt at it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sluicegate import _core, context
from sluicegate._classify import causes
from sluicegate._enums import Outcome
from sluicegate._errors import SluicegateError
from sluicegate._retry_after import retry_after_of
from sluicegate._waits import TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate._core import Permit
    from sluicegate._destination import Destination
    from sluicegate._waits import Waits

R = TypeVar("R")


class Work(Generic[R]):
    """What is to be done, and what it costs.

    Args:
        function: What calls the backend.
        operation: What kind of call it is.
        tokens: What it will cost of the `token_rate`.
        settle: Says what it cost in truth, from its result.
        attempts: How often it is tried at most, if not as often as the destination says.
    """

    __slots__ = ("attempts", "function", "operation", "settle", "tokens")

    def __init__(
        self,
        function: Callable[[], Any],
        operation: str | None = None,
        tokens: float | None = None,
        settle: Callable[[Any], float] | None = None,
        attempts: int | None = None,
    ) -> None:
        self.function = function
        self.operation = operation
        self.tokens = tokens
        self.settle = settle
        self.attempts = attempts

    async def discard(self, result: R, waits: Waits) -> None:
        """Close the result of an attempt that is made again: a response holds a connection."""
        close = waits is TASK and getattr(result, "aclose", None)
        close = close or getattr(result, "close", None)
        if not callable(close):
            return
        try:
            closing = close()
            if waits is TASK and inspect.isawaitable(closing):
                await closing
        except Exception as error:
            _core.report(error, close)


class Attempt(Generic[R]):
    """One attempt, which holds a permit until it ends.

    Attributes:
        outcome: How it ended, as soon as there is a result or an exception.
    """

    __slots__ = ("_destination", "_permit", "_work", "outcome")

    def __init__(self, destination: Destination, work: Work[R], permit: Permit) -> None:
        self._destination = destination
        self._work = work
        self._permit = permit
        self.outcome: Outcome | None = None

    async def make(self, waits: Waits) -> tuple[R | None, BaseException | None]:
        """Do the work; return its result, or the exception that it raised."""
        own, left = self._destination.attempt_timeout, context.remaining()
        is_own = own is not None and (left is None or own <= left)
        timeout = own if is_own else left
        try:
            if timeout is None:
                result = await waits.run(self._work.function, None)
            else:
                timeout = max(timeout, 0.0)
                with context.deadline(timeout):
                    result = await waits.run(self._work.function, timeout)
        except BaseException as error:
            # By how little time a caller gives nobody knows a backend that is overloaded.
            is_over = (context.remaining() or 0.0) <= 0
            is_callers = (
                isinstance(error, TimeoutError) and left is not None and not is_own and is_over
            )
            self._end(error, is_error=True, is_known=not is_callers)
            if not isinstance(error, Exception):
                raise
            return None, error
        self._end(result, is_error=False, is_known=True)
        return result, None

    def _end(self, ended: Any, *, is_error: bool, is_known: bool) -> None:
        """Say how it ended, and give back what it holds."""
        destination, outcome = self._destination, Outcome.IGNORED
        is_ours = is_error and any(isinstance(one, SluicegateError) for one in causes(ended))
        try:
            if not is_ours and is_known:
                outcome = destination._outcome_of(ended, is_error=is_error)  # noqa: SLF001
        finally:
            self.outcome = outcome
            if is_known:
                destination.throttle.record(outcome)
            else:
                destination.throttle.withdraw()
            give_back(self._permit, outcome)
        if outcome is Outcome.OVERLOAD and (seconds := retry_after_of(ended)) is not None:
            destination.push_back(min(seconds, 3600.0))
        self._settle(ended, is_error=is_error, is_ours=is_ours)

    def _settle(self, ended: Any, *, is_error: bool, is_ours: bool) -> None:
        bucket, work = self._destination.token_rate, self._work
        if bucket is None:
            return
        estimate = work.tokens or 0.0
        if self.outcome is Outcome.OVERLOAD or is_ours:
            # Of what timed out nobody knows what became of it.
            if not isinstance(ended, TimeoutError):
                bucket.adjust(estimate)
        elif self.outcome is Outcome.SUCCESS and work.settle is not None and not is_error:
            try:
                bucket.adjust(estimate - work.settle(ended))
            except Exception as error:
                _core.report(error, work.settle)


def give_back(permit: Any, outcome: Outcome) -> None:
    """Give a permit back, also one of a limiter of the user's own."""
    if isinstance(permit, _core.Permit):
        permit.release(outcome)
    else:
        # It knows no more than to be held.
        permit.__exit__(None, None, None)
