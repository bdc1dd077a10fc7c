from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, final

from typing_extensions import disjoint_base

from sluicegate._clock import Clock
from sluicegate._enums import Criticality, Outcome, Reason

__all__ = [
    "Acquire",
    "AdaptiveThrottle",
    "ManualClock",
    "Permit",
    "Rejection",
    "RetryBudget",
    "RetryPermit",
    "SemaphoreLimiter",
    "TokenRetryBudget",
    "__version__",
]

__version__: str

@final
class Rejection:
    """A refusal, as a falsy value: why, when to come back, and how full it was.

    `with` over it raises `Rejected`, so that `with limiter.try_acquire():` says why it did not run.
    """

    def __new__(
        cls,
        gate: str,
        reason: str,
        retry_after: float | None = None,
        criticality: int = 2,
        limit: float = 0.0,
        in_flight: int = 0,
        waiting: int = 0,
    ) -> Self: ...
    @property
    def gate(self) -> str:
        """The name of the gate or limiter that refused."""

    @property
    def reason(self) -> Reason:
        """Why."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which it is worth coming back, if that is known."""

    @property
    def criticality(self) -> Criticality:
        """The criticality of the work that was refused."""

    @property
    def status(self) -> Literal[429, 503]:
        """The HTTP status that says so: 429 over a rate or quota, 503 for all else."""

    @property
    def limit(self) -> float:
        """The limit at that moment."""

    @property
    def in_flight(self) -> int:
        """The cost in flight at that moment."""

    @property
    def waiting(self) -> int:
        """How many waited in line at that moment."""

    def __bool__(self) -> Literal[False]: ...
    def __enter__(self) -> NoReturn: ...
    def __exit__(self, *_exc: object) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]: ...

@disjoint_base
class Permit:
    """The right to be in flight, given back exactly once.

    `with permit:` gives it back at the end of the block: as a SUCCESS if the block ends normally,
    as OVERLOAD if it ends by a `TimeoutError`, as IGNORED if by any other exception. A permit that
    is collected unreleased is given back with a `ResourceWarning` (shown by `python -X dev`).

    It belongs to no task: whoever takes a second one while holding the first waits like everybody
    else, and at a limit of 1 for ever.
    """

    @property
    def outcome(self) -> Outcome | None:
        """Set it inside the block to overrule how its end is classified."""

    @outcome.setter
    def outcome(self, value: Outcome | None, /) -> None: ...
    @property
    def operation(self) -> str | None:
        """What kind of work it is for; may be set until the release."""

    @operation.setter
    def operation(self, value: str | None, /) -> None: ...
    @property
    def waited(self) -> float:
        """How long it waited in line, in seconds."""

    def release(self, outcome: Outcome = ..., /) -> None:
        """Give it back; a second call does nothing and is counted.

        Args:
            outcome: How the work ended; default: SUCCESS.

        Raises:
            TypeError: If `outcome` is not an `Outcome`. The permit is then still held.
        """

    def __bool__(self) -> Literal[True]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Acquire(Permit, Coroutine[Any, Any, Permit]):
    """A wish for a permit, for `async with`, `await` and, in a thread, `with`; once.

    When it comes true it is the permit itself. Nothing is taken before it is used. One that is
    never used is reported with a `RuntimeWarning`.
    """

    def __await__(self) -> Generator[Any, None, Permit]: ...
    def send(self, _value: None, /) -> Any: ...
    def throw(self, class_: Any, value: Any = None, traceback: Any = None, /) -> Any: ...
    def close(self) -> None: ...
    async def __aenter__(self) -> Permit: ...
    async def __aexit__(
        self,
        _class: type[BaseException] | None,
        exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@disjoint_base
class SemaphoreLimiter:
    """See `sluicegate.SemaphoreLimiter`."""

    def __new__(
        cls, limit: float, *, name: str | None = None, clock: Clock | None = None
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in rejections, snapshots and metrics."""

    @property
    def limit(self) -> float:
        """How many units may be in flight at once."""

    @property
    def in_flight(self) -> int:
        """The cost in flight, including what is granted and about to be claimed."""

    @property
    def waiting(self) -> int:
        """How many wait in line."""

    @property
    def saturation(self) -> float:
        """In flight / limit; 1 if the limit is 0."""

    def try_acquire(self, cost: int = 1, /, *, operation: str | None = None) -> Permit | Rejection:
        """Admit now or reject now; never waits, and overtakes nobody who waits.

        Args:
            cost: How many units it occupies, from 1 to 1e9.
            operation: What kind of work it is for.

        Returns:
            A `Permit`, or a falsy `Rejection` with the reason LIMIT.
        """

    def acquire(
        self, cost: int = 1, /, *, operation: str | None = None, timeout: float | None = None
    ) -> Acquire:
        """Wait in line, in `async with`, `await`, or in a thread `with`.

        Args:
            cost: How many units it occupies, from 1 to 1e9.
            operation: What kind of work it is for.
            timeout: For how many seconds it may wait, from 0 to 3600; `None` is without bound.

        Raises:
            TimeoutError: If it waited for `timeout` seconds.
            RuntimeError: If it is used by `with` in a thread that runs an event loop, or has to
                wait where no asyncio event loop runs.
        """

    def acquire_sync(
        self, cost: int = 1, /, *, operation: str | None = None, timeout: float | None = None
    ) -> Permit:
        """Wait in line in this thread, which lets other threads run.

        Args:
            cost: How many units it occupies, from 1 to 1e9.
            operation: What kind of work it is for.
            timeout: For how many seconds it may wait, from 0 to 3600; `None` is without bound.

        Raises:
            TimeoutError: If it waited for `timeout` seconds.
            RuntimeError: If this thread runs an event loop.
        """

    def update(self, *, limit: float | None = None) -> None:
        """Change the limit: from 0, which admits nobody, to 1e9.

        A raised limit admits at once as many waiters as it makes room for. A lowered one admits
        nobody until enough has been given back.

        Raises:
            ValueError: If `limit` is out of its range.
        """

    def _snapshot(self) -> dict[str, Any]: ...

@disjoint_base
class AdaptiveThrottle:
    """See `sluicegate.AdaptiveThrottle`."""

    def __new__(
        cls,
        *,
        k: float = 2.0,
        window: float = 30.0,
        max_rejection: float = 0.9,
        min_requests: int = 10,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in rejections, snapshots and metrics."""

    @property
    def rejection_probability(self) -> float:
        """How likely the next request is to be refused, if it is CRITICAL; from 0 to 1."""

    def allow(self, criticality: Criticality | None = None, /) -> bool:
        """Whether to send a request now; it counts as one either way.

        One that is allowed is followed by one `record()`. Whoever never records is never refused.

        Args:
            criticality: How much it matters; default: CRITICAL.
        """

    def record(self, outcome: Outcome, /) -> None:
        """Say how a request that was allowed ended; whatever is not OVERLOAD is an accept.

        Args:
            outcome: IGNORED is a refusal of our own, a cancellation, or a failure of the caller.

        Raises:
            TypeError: If `outcome` is not an `Outcome`.
        """

    def update(
        self,
        *,
        k: float | None = None,
        max_rejection: float | None = None,
        min_requests: int | None = None,
    ) -> None:
        """Change what is given, from now on and for what was counted.

        Raises:
            ValueError: If a number is out of its range; nothing is changed then.
            TypeError: If an argument is of a wrong type; nothing is changed then.
        """

    def _allow(self, criticality: Criticality | None, draw: float, /) -> bool: ...
    def _admit(self, criticality: Criticality | None) -> None: ...
    def _record_as(self, classify: Callable[[Any], Outcome], value: object) -> None: ...
    def _snapshot(self) -> dict[str, Any]: ...

@final
class RetryPermit:
    """The right to one retry, from its back-off through its attempt, given back exactly once.

    `with permit:` gives it back at the end of the block. One that is collected unreleased is given
    back with a `ResourceWarning` (shown by `python -X dev`).
    """

    def release(self) -> None:
        """Give it back; a second call does nothing and is counted."""

    def __bool__(self) -> Literal[True]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exc: object) -> None: ...

@disjoint_base
class RetryBudget:
    """See `sluicegate.RetryBudget`."""

    def __new__(
        cls,
        ratio: float = 0.1,
        *,
        floor: float = 0.1,
        window: float = 10.0,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in rejections, snapshots and metrics."""

    def record_request(self) -> None:
        """Count a call, of which retries may be a share.

        Once a call, however often it is tried. If it is called for each attempt instead, `ratio`
        is a share of the attempts.
        """

    def try_retry(self) -> RetryPermit | Rejection:
        """Ask for a retry; never waits.

        Returns:
            A `RetryPermit`, to hold from the back-off through the attempt, or a falsy `Rejection`
            with the reason BUDGET.
        """

    def update(self, *, ratio: float | None = None, floor: float | None = None) -> None:
        """Change what is given, from now on and for what was counted.

        Raises:
            ValueError: If a number is out of its range; nothing is changed then.
            TypeError: If an argument is of a wrong type; nothing is changed then.
        """

    def _snapshot(self) -> dict[str, Any]: ...

@disjoint_base
class TokenRetryBudget:
    """See `sluicegate.TokenRetryBudget`."""

    def __new__(
        cls, max_tokens: float = 10, token_ratio: float = 0.1, *, name: str | None = None
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in rejections, snapshots and metrics."""

    def record_success(self) -> None:
        """Count a request, or a retry, that succeeded."""

    def record_failure(self) -> None:
        """Count one that failed and could be retried, or whose answer said not to retry."""

    def try_retry(self) -> RetryPermit | Rejection:
        """Ask for a retry; never waits.

        Returns:
            A `RetryPermit`, to hold from the back-off through the attempt, or a falsy `Rejection`
            with the reason BUDGET.
        """

    def update(self, *, max_tokens: float | None = None, token_ratio: float | None = None) -> None:
        """Change what is given; what is left stays the same share of `max_tokens`.

        Raises:
            ValueError: If a number is out of its range; nothing is changed then.
            TypeError: If an argument is of a wrong type; nothing is changed then.
        """

    def _snapshot(self) -> dict[str, Any]: ...

@disjoint_base
class ManualClock:
    """See `sluicegate.ManualClock`."""

    def __new__(cls, start: float = 0.0) -> Self: ...
    def now(self) -> float:
        """Return the seconds that it was advanced to."""

    def advance(self, seconds: float, /) -> None:
        """Move on, step by step through every expiry that falls due on the way.

        Args:
            seconds: By how much; finite, 0 or more.
        """

    def _has_unclaimed(self) -> bool: ...
