"""A retry budget where somebody else makes the retries: stamina, or tenacity."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sluicegate._classify import causes
from sluicegate._errors import Rejected

if TYPE_CHECKING:
    from sluicegate._core import Rejection, RetryPermit

IsRetryable: TypeAlias = Callable[[Exception], bool]


def _nothing() -> None:
    pass


class Attempted(Protocol):
    """What an attempt came to."""

    def exception(self) -> BaseException | None:
        """Return what it raised, if anything."""
        ...


class RetryState(Protocol):
    """Where a call stands: the part of tenacity's `RetryCallState` that is used here."""

    @property
    def outcome(self) -> Attempted | None:
        """What the latest attempt came to."""
        ...


class Budget(Protocol):
    """What gives retries."""

    def try_retry(self) -> RetryPermit | Rejection:
        """Give a retry, or refuse it."""
        ...


class Asker:
    """Asks a budget for retries of which nobody says when they are over.

    Args:
        budget: The budget.
        note_success: Is called for each success that is seen.
        note_failure: Is called for each failure that could be retried.
    """

    __slots__ = ("_budget", "note_failure", "note_success")

    def __init__(
        self,
        budget: Budget,
        note_success: Callable[[], None] = _nothing,
        note_failure: Callable[[], None] = _nothing,
    ) -> None:
        self._budget = budget
        self.note_success = note_success
        self.note_failure = note_failure

    def fail(self) -> bool:
        """Count a failure that could be retried; whether it is."""
        self.note_failure()
        return self.ask()

    def ask(self) -> bool:
        """Whether there is a retry; it counts for a window, since nobody will give it back."""
        permit = self._budget.try_retry()
        if permit:
            permit.release()
        return bool(permit)


class RetryOn:
    """Whether to retry after an exception: for stamina's `on=` and tenacity's `retry=`."""

    __slots__ = ("_asker", "_classes", "_predicates")

    def __init__(self, asker: Asker, retryable: tuple[type[Exception] | IsRetryable, ...]) -> None:
        if not retryable:
            msg = "on() must be told at least one Exception class"
            raise TypeError(msg)
        classes: list[type[Exception]] = []
        predicates: list[IsRetryable] = []
        for one in retryable:
            if isinstance(one, type):
                if not issubclass(one, Exception):
                    raise _not_retryable(one)
                classes.append(one)
            elif callable(one):
                predicates.append(one)
            else:
                raise _not_retryable(one)
        self._asker = asker
        self._classes = tuple(classes)
        self._predicates = tuple(predicates)

    def __call__(self, failed: BaseException | RetryState, /) -> bool:
        error = failed if isinstance(failed, BaseException) else _error_of(failed)
        if error is None:
            self._asker.note_success()
            return False
        return self._is_retryable(error) and self._asker.fail()

    def _is_retryable(self, error: BaseException) -> bool:
        if not isinstance(error, Exception) or _is_rejection(error):
            return False
        return isinstance(error, self._classes) or any(ask(error) for ask in self._predicates)


class RetryStop:
    """Whether to give up, although an attempt could be retried: for tenacity's `stop=`."""

    __slots__ = ("_asker", "_others")

    def __init__(self, asker: Asker, others: tuple[Callable[[Any], bool], ...]) -> None:
        asked: tuple[object, ...] = others
        for one in asked:
            if not callable(one):
                msg = f"stop() must be told what tenacity takes as stop=, got {reprlib.repr(one)}"
                raise TypeError(msg)
        self._asker = asker
        self._others = others

    def __call__(self, state: RetryState, /) -> bool:
        error = _error_of(state)
        if error is not None and _is_rejection(error):
            return True
        self._asker.note_failure()
        return any(other(state) for other in self._others) or not self._asker.ask()


def _error_of(state: RetryState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _is_rejection(error: BaseException) -> bool:
    return any(isinstance(cause, Rejected) for cause in causes(error))


def _not_retryable(what: object) -> TypeError:
    return TypeError(f"retryable must be Exception classes or predicates, got {reprlib.repr(what)}")
