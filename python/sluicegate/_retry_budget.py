"""Bounds on retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluicegate import _core
from sluicegate._retrying import Asker, RetryOn, RetryStop

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate._retrying import IsRetryable


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudgetSnapshot:
    """The state of a retry budget at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the budget.
        ratio: How many retries there may be for each request.
        floor: How many retries a second there may be however few the requests are.
        window: For how many seconds requests and retries count.
        requests: How many requests were recorded within the window.
        retries: How many retries were given within the window, or are held.
        held: How many of them are held: in back-off, or in their attempt.
        allowance: How many there may be.
        admitted: How many retries were given since the start.
        rejected: How many were refused since the start.
        stray_releases: How many releases came for a retry that had been given back already.
    """

    name: str
    ratio: float
    floor: float
    window: float
    requests: int
    retries: int
    held: int
    allowance: float
    admitted: int
    rejected: int
    stray_releases: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.retries} of {self.allowance:.1f} retries for {self.requests} "
            f"requests in {self.window:g} s | {self.held} held | "
            f"{self.admitted} admitted, {self.rejected} rejected"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRetryBudgetSnapshot:
    """The state of a token retry budget at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the budget.
        max_tokens: How many tokens there are at most.
        token_ratio: How many tokens a success brings.
        tokens: How many are left.
        held: How many retries are held: in back-off, or in their attempt.
        admitted: How many retries were given since the start.
        rejected: How many were refused since the start.
        stray_releases: How many releases came for a retry that had been given back already.
    """

    name: str
    max_tokens: float
    token_ratio: float
    tokens: float
    held: int
    admitted: int
    rejected: int
    stray_releases: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.tokens:g} of {self.max_tokens:g} tokens, retries above "
            f"{self.max_tokens / 2:g} | {self.held} held | "
            f"{self.admitted} admitted, {self.rejected} rejected"
        )


class RetryBudget(_core.RetryBudget):
    """Keeps retries to a share of the requests, so that they cannot multiply the load.

    A retry is given if, with it, those that count are at most `ratio` times the requests within
    the window, or `floor` times the window, whichever is more; where that is less than one, one
    in every 1 / `floor` seconds is given. A retry counts for `window` seconds, and for as long as
    it is held: from its back-off through its attempt.

        budget = RetryBudget()

        @stamina.retry(on=budget.on(httpx.TransportError), attempts=3)
        async def fetch(path: str) -> bytes: ...

        async def handler() -> None:
            budget.record_request()
            await fetch("/")

    It cannot know of requests that succeed at once: call `record_request()` for each call, however
    often it is tried. By hand: `if permit := budget.try_retry():`, then back off and try again
    inside `with permit:`.

    One object serves all threads and event loops. A forked child begins with an empty one.

    Args:
        ratio: How many retries there may be for each request, from 0 to 1.
        floor: How many retries a second there may be however few the requests are, from 0 to 1e6;
            0.1 is one in ten seconds.
        window: For how many seconds requests and retries count, above 0 and at most 3600; longer
            than a back-off and an attempt.
        name: What it is called in rejections, snapshots and metrics; default: "budget",
            "budget-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If a number is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def on(self, *retryable: type[Exception] | IsRetryable) -> RetryOn:
        """Make a predicate for stamina's `on=`, or for tenacity's `retry=`.

        It is true for an exception that is `retryable` if the budget gives a retry, which counts
        for one window. `Rejected`, and what was raised from it, is never retried: it was refused
        on purpose.

        Both ask after the last attempt, too, and that retry counts although it is not made. With
        tenacity, `stop()` avoids it.

        Args:
            *retryable: Exception classes, or functions that are asked about an exception.
        """
        return RetryOn(Asker(self), retryable)

    def stop(self, *others: Callable[[Any], bool]) -> RetryStop:
        """Make a condition for tenacity's `stop=`, which stops when the budget gives no retry.

        `@tenacity.retry(retry=…, stop=budget.stop(tenacity.stop_after_attempt(3)))`, instead of
        `on()`. A retry counts for one window. `Rejected`, and what was raised from it, is never
        retried.

        Args:
            *others: More conditions to stop on, which are asked first.
        """
        return RetryStop(Asker(self), others)

    def snapshot(self) -> RetryBudgetSnapshot:
        """Return the state at this moment."""
        return RetryBudgetSnapshot(name=self.name, **self._snapshot())

    def __repr__(self) -> str:
        s = self.snapshot()
        return f"<RetryBudget {self.name!r}: {s.retries} of {s.allowance:.1f} retries>"


class TokenRetryBudget(_core.TokenRetryBudget):
    """Stops retries while too few requests succeed: the retry throttling of gRPC (gRFC A6).

    A failure that could be retried costs one token, a success brings `token_ratio` back. A retry
    is given as long as more than half of `max_tokens` are left: by default, five failures in a row
    stop retries, and it takes ten successes to make up for one failure.

    `on()` as tenacity's `retry=` sees every end and needs nothing else. `on()` as stamina's `on=`,
    and `stop()`, see failures only: call `record_success()` for each success. By hand:
    `record_failure()`, then `if permit := budget.try_retry():`.

    One object serves all threads and event loops.

    Args:
        max_tokens: How many tokens there are at most, and at first: from 0.001 to 1000.
        token_ratio: How many tokens a success brings: from 0.001 to 1000, of which three decimals
            count.
        name: What it is called in rejections, snapshots and metrics; default: "budget",
            "budget-2", …

    Raises:
        ValueError: If a number is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def on(self, *retryable: type[Exception] | IsRetryable) -> RetryOn:
        """Make a predicate for stamina's `on=`, or for tenacity's `retry=`.

        As `RetryBudget.on()`; it records the failures that are `retryable`, and with tenacity the
        successes.

        Args:
            *retryable: Exception classes, or functions that are asked about an exception.
        """
        asker = Asker(self, self.record_success, self.record_failure)
        return RetryOn(asker, retryable)

    def stop(self, *others: Callable[[Any], bool]) -> RetryStop:
        """Make a condition for tenacity's `stop=`, which stops when the budget gives no retry.

        As `RetryBudget.stop()`; it records the failures that it is asked about.

        Args:
            *others: More conditions to stop on, which are asked first.
        """
        asker = Asker(self, self.record_success, self.record_failure)
        return RetryStop(asker, others)

    def snapshot(self) -> TokenRetryBudgetSnapshot:
        """Return the state at this moment."""
        return TokenRetryBudgetSnapshot(name=self.name, **self._snapshot())

    def __repr__(self) -> str:
        s = self.snapshot()
        return f"<TokenRetryBudget {self.name!r}: {s.tokens:g} of {s.max_tokens:g} tokens>"
