from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, final

from typing_extensions import disjoint_base

from sluicegate._clock import Clock
from sluicegate._enums import Criticality, Outcome, Reason

__all__ = [
    "Acquire",
    "KeyedTokenBucket",
    "ManualClock",
    "Permit",
    "Rejection",
    "SemaphoreLimiter",
    "TokenBucket",
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
class TokenBucket:
    """See `sluicegate.TokenBucket`."""

    def __new__(
        cls,
        rate: float,
        *,
        per: float = 1.0,
        burst: float | None = None,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in errors, snapshots and metrics."""

    @property
    def rate(self) -> float:
        """How many tokens come in every `per` seconds."""

    @property
    def per(self) -> float:
        """How many seconds the rate is meant for."""

    @property
    def burst(self) -> float:
        """How many tokens it holds at most."""

    @property
    def tokens(self) -> float:
        """How many tokens are in it; negative in debt."""

    @property
    def waiting(self) -> int:
        """How many wait in line."""

    def try_take(self, n: float = 1, /) -> bool:
        """Take the tokens now or not at all; never waits, and overtakes nobody who waits.

        Args:
            n: How many, from 1e-9 to the burst, to a billionth.

        Returns:
            Whether they were taken.

        Raises:
            ValueError: If `n` is out of its range; above the burst they could never be there.
        """

    def take(self, n: float = 1, /, *, timeout: float | None = None) -> Coroutine[Any, Any, None]:
        """Take the tokens, and wait in line until they are there: `await bucket.take()`.

        Nobody is turned away because the wait would be too long: tokens may be given back,
        others may leave the line, and the rate may be raised. `retry_after()` tells how long it
        would be.

        Args:
            n: How many, from 1e-9 to the burst, to a billionth.
            timeout: For how many seconds it may wait, from 0 to 3600; `None` is without bound.

        Raises:
            ValueError: If `n` is out of its range.
            TimeoutError: If it waited for `timeout` seconds.
            RuntimeError: If it has to wait where no asyncio event loop runs.
        """

    def take_sync(self, n: float = 1, /, *, timeout: float | None = None) -> None:
        """Wait in line in this thread, which lets other threads run.

        Args:
            n: How many, from 1e-9 to the burst, to a billionth.
            timeout: For how many seconds it may wait, from 0 to 3600; `None` is without bound.

        Raises:
            ValueError: If `n` is out of its range.
            TimeoutError: If it waited for `timeout` seconds.
            RuntimeError: If this thread runs an event loop.
        """

    def adjust(self, n: float, /) -> None:
        """Correct what was taken when the true price is known.

        Args:
            n: How many tokens to give back, at most to the burst; if negative, how many to charge,
                if need be into debt (of at most 1e9). From -1e9 to 1e9.

        Raises:
            ValueError: If `n` is out of its range.
        """

    def retry_after(self, n: float = 1, /) -> float:
        """Return in how many seconds `try_take(n)` will succeed if nobody else comes.

        It is exact to the nanosecond, but for those who wait in line: they are supposed to take
        what is theirs as soon as it is there.

        Args:
            n: How many tokens, from 1e-9 to the burst.

        Raises:
            ValueError: If `n` is out of its range.
        """

    def update(self, *, rate: float | None = None, burst: float | None = None) -> None:
        """Change the rate, the burst, or both, also while others wait.

        The tokens that are there stay, as far as they fit. A burst that was never chosen follows
        the rate. Who waits for more than a lowered burst is served when the bucket is full, and
        leaves it in debt.

        Args:
            rate: How many tokens come in every `per` seconds.
            burst: How many tokens it holds at most.

        Raises:
            ValueError: If an argument is out of its range. Nothing is changed then.
        """

    def _snapshot(self) -> dict[str, Any]: ...

@disjoint_base
class KeyedTokenBucket:
    """See `sluicegate.KeyedTokenBucket`."""

    def __new__(
        cls,
        rate: float,
        *,
        per: float = 1.0,
        burst: float | None = None,
        max_keys: int = 10_000,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in snapshots and metrics."""

    @property
    def rate(self) -> float:
        """How many tokens come for each key in every `per` seconds."""

    @property
    def per(self) -> float:
        """How many seconds the rate is meant for."""

    @property
    def burst(self) -> float:
        """How many tokens a key can have at most."""

    @property
    def keys(self) -> int:
        """How many keys have a bucket of their own."""

    @property
    def max_keys(self) -> int:
        """How many keys can have one."""

    def try_take(self, key: str, n: float = 1, /) -> bool:
        """Take the tokens of a key now or not at all.

        Args:
            key: Whose tokens.
            n: How many, from 1e-9 to the burst, to a billionth.

        Returns:
            Whether they were taken.

        Raises:
            ValueError: If `n` is out of its range; above the burst they could never be there.
        """

    def retry_after(self, key: str, n: float = 1, /) -> float:
        """Return in how many seconds `try_take(key, n)` will succeed if nobody else comes.

        Args:
            key: Whose tokens.
            n: How many, from 1e-9 to the burst.

        Raises:
            ValueError: If `n` is out of its range.
        """

    def update(self, *, rate: float | None = None, burst: float | None = None) -> None:
        """Change the rate, the burst, or both, for all keys.

        The tokens that are there stay, as far as they fit. A burst that was never chosen follows
        the rate. It takes a while if there are many keys: about 0.1 s for a million.

        Args:
            rate: How many tokens come for each key in every `per` seconds.
            burst: How many tokens a key can have at most.

        Raises:
            ValueError: If an argument is out of its range. Nothing is changed then.
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

    def _target(self, seconds: float, /) -> int: ...
    def _step(self, target: int, /) -> bool: ...
    def _has_unclaimed(self) -> bool: ...
