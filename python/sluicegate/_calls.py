"""A call of a destination, and one attempt at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sluicegate import _core, context
from sluicegate._classify import causes
from sluicegate._enums import Outcome
from sluicegate._errors import SluicegateError
from sluicegate._retry_after import retry_after_of

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
        may_repeat: Whether it may be done twice.
    """

    __slots__ = ("function", "may_repeat", "operation", "settle", "tokens")

    def __init__(
        self,
        function: Callable[[], Any],
        operation: str | None = None,
        tokens: float | None = None,
        settle: Callable[[Any], float] | None = None,
        *,
        may_repeat: bool = True,
    ) -> None:
        self.function = function
        self.operation = operation
        self.tokens = tokens
        self.settle = settle
        self.may_repeat = may_repeat

    async def discard(self, result: R) -> None:
        """Drop the result of an attempt that is made again."""

    def keep(self, attempt: Attempt[R], result: R) -> R:
        """Take the result of an attempt that may be the last; nothing is held by it any more."""
        attempt.end()
        return result


class Attempt(Generic[R]):
    """One attempt, which holds a permit until it ends.

    Attributes:
        outcome: How it ended, as soon as there is a result or an exception.
        is_final: Whether the answer says not to try again.
    """

    __slots__ = ("_destination", "_permit", "_work", "is_final", "outcome")

    def __init__(self, destination: Destination, work: Work[R], permit: Permit) -> None:
        self._destination = destination
        self._work = work
        # Of a limiter of the user's own it may be anything that can be left.
        self._permit: Any = permit
        self.outcome: Outcome | None = None
        self.is_final = False

    async def make(self, waits: Waits) -> tuple[R | None, BaseException | None]:
        """Do the work; return its result, or the exception that it raised."""
        destination, work = self._destination, self._work
        timeout, left = destination.attempt_timeout, context.remaining()
        if left is not None and (timeout is None or left < timeout):
            timeout = max(left, 0.0)
        try:
            if timeout is None:
                result = await waits.run(work.function, None)
            else:
                with context.deadline(timeout):
                    result = await waits.run(work.function, timeout)
        except BaseException as error:
            self._note(error, is_error=True)
            self.end()
            if not isinstance(error, Exception):
                raise
            return None, error
        try:
            self._note(result, is_error=False)
            self._settle(result)
            return work.keep(self, result), None
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Give the permit back, once."""
        if isinstance(self._permit, _core.Permit):
            self._permit.release(self.outcome or Outcome.IGNORED)
        else:
            self._permit.__exit__(None, None, None)

    def _note(self, ended: object, *, is_error: bool) -> None:
        destination = self._destination
        if is_error and any(isinstance(one, SluicegateError) for one in causes(ended)):  # type: ignore[arg-type]
            self.outcome = Outcome.IGNORED
        else:
            self.outcome = destination._outcome_of(ended, is_error=is_error)  # noqa: SLF001
        destination.throttle.record(self.outcome)
        if self.outcome is Outcome.OVERLOAD:
            seconds = retry_after_of(ended)
            if seconds is not None:
                destination.push_back(min(seconds, 3600.0))

    def _settle(self, result: R) -> None:
        bucket, work = self._destination.token_rate, self._work
        if bucket is None or not work.tokens:
            return
        if self.outcome is Outcome.OVERLOAD:
            bucket.adjust(work.tokens)
        elif self.outcome is Outcome.SUCCESS and work.settle is not None:
            bucket.adjust(work.tokens - work.settle(result))
