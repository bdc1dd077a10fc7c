from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    MutableMapping,
    Sequence,
)
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, final, overload

from typing_extensions import disjoint_base

from sluicegate._classify import Classify
from sluicegate._clock import Clock
from sluicegate._enums import Criticality, Outcome, Reason

__all__ = [
    "Acquire",
    "AdaptiveThrottle",
    "Algorithm",
    "Answer",
    "Backoff",
    "BaseLimiter",
    "ClassicLimiter",
    "CoDelQueue",
    "Codel",
    "CpuUsage",
    "Deadline",
    "Detached",
    "Entrance",
    "Gate",
    "GradientLimiter",
    "KeyedTokenBucket",
    "LagWindow",
    "ManualClock",
    "Permit",
    "Rejection",
    "RetryBudget",
    "RetryPermit",
    "Scope",
    "SemaphoreLimiter",
    "Take",
    "TokenBucket",
    "TokenRetryBudget",
    "Window",
    "__version__",
    "current",
    "default_clock",
    "outcome_here",
    "remaining",
    "report",
    "set_default_clock",
    "simulate",
    "target",
    "variants",
]

_T = TypeVar("_T")

__version__: str

def current() -> tuple[Deadline | None, Criticality | None, str | None, str | None, float | None]:
    """Return what is asked here and now; see `sluicegate.context.current`."""

def outcome_here(outcome: Outcome, /) -> Outcome:
    """Return what an outcome says about load here.

    OVERLOAD is IGNORED once half of the earliest deadline is over, if a stranger chose that.
    """

def remaining() -> float | None:
    """Return how many seconds are left until the earliest deadline, if there is one.

    It is 0 once that is over.
    """

def report(error: BaseException, context: object, /) -> None:
    """Report an exception that nobody can be told, by `sys.unraisablehook`."""

def default_clock() -> Clock | None:
    """Return the clock that stands in for the system's."""

def set_default_clock(clock: Clock | None, /) -> Clock | None:
    """Let a clock stand in for the system's, or with `None` let that be back.

    Returns:
        What stood in before; see `sluicegate.testing.use_clock`.
    """

def simulate(
    path: str,
    json: str | None,
    variant: str | None,
    policy: str | None,
    seed: int,
    /,
) -> str:
    """Play a scenario; see `sluicegate.simulate`."""

def variants(path: str, json: str | None, /) -> list[tuple[str, int]]:
    """Name the variants of a scenario, and say with how many seeds each is judged."""

def target(value: float, most: float, /) -> float:
    """Check what a pressure is to be 1 at: a number above 0 and at most `most`."""

@final
class Rejection:
    """A refusal, as a falsy value: why, when to come back, and how full it was.

    `with` over it raises `Rejected`, so that `with limiter.try_acquire():` says why it did not run;
    or `DeadlineExceeded`, which is one, where the reason is DEADLINE. As a string it is one line
    for a log.

    Only here, where it is made by hand or from a pickle, a reason and a criticality may also be
    given by their value.
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
        max_waiting: int | None = None,
        operation: str | None = None,
        kind: str = "gate",
        threshold: int | None = None,
        time_left: float | None = None,
    ) -> Self: ...
    @property
    def kind(self) -> str:
        """What rejected.

        "gate", "limiter", "queue", "bucket", "throttle", "retry budget" or "destination".
        """

    @property
    def gate(self) -> str:
        """The name of what rejected."""

    @property
    def operation(self) -> str | None:
        """What kind of work was rejected, if it was named."""

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

    @property
    def max_waiting(self) -> int | None:
        """How many may wait in line, if that is bounded."""

    @property
    def threshold(self) -> Criticality | None:
        """The least critical work that was admitted, if that is why."""

    @property
    def time_left(self) -> float | None:
        """Seconds that were left of its deadline, if that is why."""

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
    is collected unreleased is given back with a `ResourceWarning` (shown by `python -X dev`). One
    that was given back cannot be entered again: that is a `RuntimeError`.

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

    def settle(self, *, tokens: float) -> None:
        """Say what it cost of the rate: the difference is charged or given back.

        Args:
            tokens: What it cost in truth, from 0 to 1e9. The bucket may go into debt.

        Raises:
            ValueError: If `tokens` is out of its range.
        """

    def begun(self) -> None:
        """Say that the work begins: what it was held for until now is not timed.

        For what has to wait for something else first, such as a connection of a pool: it occupies
        its place, and that is no latency. The last call counts.
        """

    def answered(self) -> None:
        """Say that the answer is given: what it is held for from now on is not timed.

        For work that goes on after the answer, such as a background task: it occupies its place,
        and is no latency. The first call counts.
        """

    def extend_to(self, future: Any, /) -> None:
        """Hold it until a future is done, too.

        For work in a thread that goes on although its caller has given up.

        Args:
            future: What has `add_done_callback()`, of `concurrent.futures` or asyncio.

        Raises:
            RuntimeError: If it is not held.
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
class Entrance:
    """Where most requests come in: those that no rule is about, and whose headers tell nothing."""

    def __new__(
        cls,
        gate: Gate,
        paths: dict[str, Any],
        telling: Sequence[bytes],
        hold: Literal["work", "response", "headers"],
        /,
    ) -> Self: ...
    def begin(
        self,
        scope: MutableMapping[str, Any],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        /,
    ) -> Answer | Rejection | Acquire | None:
        """Admit it, refuse it, or say that it has to wait; `None` if more is to be looked at."""

@final
class Answer:
    """The `send()` of a request that holds a permit, which it gives back when it is time to.

    Timed is the work until the last byte of the answer, of server-sent events until the first:
    what comes after that is the client's time, or work that nobody waits for. The work is named by
    the route that a framework has put into the scope, unless a rule has named it.
    """

    def __new__(
        cls,
        permit: Permit,
        scope: MutableMapping[str, Any],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        hold: Literal["work", "response", "headers"],
        is_named: bool,
        /,
    ) -> Self: ...
    @property
    def has_body(self) -> bool:
        """Whether the client may still have to send a body, as far as the entrance has looked."""

    def send(self, message: MutableMapping[str, Any], /) -> Awaitable[None]:
        """Take note of a message, and send it on."""

    def end(self, scope: MutableMapping[str, Any] | None, /) -> None:
        """Give the permit back; what the status says is the outcome."""

    def fail(self, exception: BaseException, scope: MutableMapping[str, Any], /) -> None:
        """Give the permit back; what the exception says is the outcome."""

    def ignore(self, scope: MutableMapping[str, Any], /) -> None:
        """Give the permit back; what was done says nothing of how loaded anybody is."""

@final
class Acquire(Permit, Coroutine[Any, Any, Permit]):
    """A wish for a permit, for `async with`, `await` and, in a thread, `with`; once.

    When it comes true it is the permit itself. Nothing is taken before it is used. One that is
    never used is reported with a `RuntimeWarning`.
    """

    def __await__(self) -> Generator[Any, None, Permit]: ...
    def send(self, _value: None, /) -> Any:
        """Go one step, as a coroutine does."""
    def throw(self, class_: Any, value: Any = None, traceback: Any = None, /) -> Any:
        """Leave the line and raise, as a coroutine does."""
    def close(self) -> None:
        """Leave the line, as a coroutine does; a permit that it is already stays held."""

    async def __aenter__(self) -> Permit: ...
    async def __aexit__(
        self,
        _class: type[BaseException] | None,
        exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@disjoint_base
class Gate:
    """Admission as one call; see `sluicegate.Gate`."""

    def __new__(
        cls,
        limit: float | BaseLimiter | None = None,
        *,
        name: str | None = None,
        max_waiting: int | None = None,
        max_wait: float | None = None,
        reserve: Mapping[Criticality, float] | None = None,
        rate: TokenBucket | None = None,
        pressure: Sequence[Callable[[], float]] | None = None,
        classify: Classify | None = None,
        dry_run: bool = False,
        clock: Clock | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called in rejections, snapshots and metrics."""

    @property
    def limit(self) -> float:
        """How many units may be in flight at once."""

    @property
    def in_flight(self) -> int:
        """The cost in flight, with what is granted; in a dry run, what would be."""

    @property
    def waiting(self) -> int:
        """How many wait in line."""

    @property
    def saturation(self) -> float:
        """In flight / limit; 1 if the limit is 0."""

    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    def try_acquire(
        self,
        cost: int = 1,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        key: str | None = None,
        tokens: float | None = None,
        operation: str | None = None,
        inner: Gate | None = None,
        retry: bool = False,
    ) -> Permit | Rejection:
        """Admit now or reject now; never waits, and overtakes nobody who waits.

        Args:
            cost: How many units it occupies, from 1 to 1e9. A cost above the limit runs alone.
            criticality: How much it matters; default: CRITICAL.
            deadline: In how many seconds nobody wants the answer any more, at most 3600.
            key: Who asks: a user, a session, a tenant. Where some of a criticality are shed, it is
                the same ones for a while.
            tokens: How much of the rate it costs, from 0 to the burst; default: 1.
            operation: What kind of work it is for.
            inner: The gate of a part, such as a slow route, which is asked first and for the
                same. A refusal by either leaves nothing taken of the other, and the permit is one.
            retry: Whether it was asked before, and refused or failed. Then it is shed before those
                of its criticality who ask for the first time, and waits only in the first half of
                the line.

        Returns:
            A `Permit`, or a falsy `Rejection`.
        """

    def acquire(
        self,
        cost: int = 1,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        key: str | None = None,
        tokens: float | None = None,
        operation: str | None = None,
        inner: Gate | None = None,
        retry: bool = False,
    ) -> Acquire:
        """Wait in line if need be, in `async with`, `await`, or in a thread `with`.

        Args:
            cost: As in `try_acquire()`.
            criticality: As in `try_acquire()`.
            deadline: As in `try_acquire()`, from this call on.
            key: As in `try_acquire()`.
            tokens: As in `try_acquire()`.
            operation: As in `try_acquire()`.
            inner: As in `try_acquire()`. Who waits for the inner one holds nothing of this one.
            retry: As in `try_acquire()`.

        Raises:
            Rejected: If it is not admitted, with the reason.
            RuntimeError: If it is used by `with` in a thread that runs an event loop, or has to
                wait where no asyncio event loop runs.
        """

    def _begin(
        self,
        cost: int = 1,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        key: str | None = None,
        tokens: float | None = None,
        operation: str | None = None,
        inner: Gate | None = None,
        retry: bool = False,
    ) -> Permit | Rejection | Acquire:
        """Do as `acquire()`, but answer at once where that is possible.

        Who has to wait gets what is to be awaited; whoever is refused at once, no exception.
        """

    def acquire_sync(
        self,
        cost: int = 1,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        key: str | None = None,
        tokens: float | None = None,
        operation: str | None = None,
        inner: Gate | None = None,
        retry: bool = False,
    ) -> Permit:
        """Wait in line if need be, in this thread, which lets other threads run.

        Args:
            cost: As in `try_acquire()`.
            criticality: As in `try_acquire()`.
            deadline: As in `try_acquire()`.
            key: As in `try_acquire()`.
            tokens: As in `try_acquire()`.
            operation: As in `try_acquire()`.
            inner: As in `try_acquire()`. Who waits for the inner one holds nothing of this one.
            retry: As in `try_acquire()`.

        Raises:
            Rejected: If it is not admitted, with the reason.
            RuntimeError: If an event loop runs in this thread.
        """

    def update(
        self,
        *,
        limit: float | Literal["auto"] | None = None,
        max_waiting: int | Literal["auto"] | None = None,
        max_wait: float | Literal["auto"] | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """Change what is given; `None` leaves it as it is, and `"auto"` makes it automatic.

        Args:
            limit: From 0, which admits nobody, to 1e9. A limit that follows latency is held there
                until `"auto"` lets it follow again, from there on, or from where it was before if
                that is 0; that of a `ClassicLimiter` is a whole number.
            max_waiting: From 0 to 1e9, or `"auto"`: as many as can be done within the time that
                callers give. Who waits already goes on waiting.
            max_wait: From 0 to 3600 seconds, or `"auto"`: as long as it is of use; for who comes
                from now on.
            dry_run: Whether to admit everybody and only to count.

        Raises:
            ValueError: If an argument is out of its range, or `"auto"` is said of a fixed limit;
                then nothing is changed.
        """

    def close(self) -> None:
        """Reject all who wait and whoever comes; what is in flight goes on.

        So is rejected who waits for an `inner` gate, and would be asked here after that.
        """

    def drain(self, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        """Close it, and wait until nothing is in flight; whether that is so in time.

        Under `SLUICEGATE_DISABLED` a closed gate goes on admitting everybody: then it is whether
        nothing was in flight at one moment. In a dry run it waits for what really runs.

        Args:
            timeout: For how many seconds to wait, from 0 to 3600; `None` is without bound.

        Returns:
            Whether nothing is in flight any more.
        """

    def drain_sync(self, timeout: float | None = None) -> bool:
        """Do as `drain()`, in this thread, which lets other threads run.

        Args:
            timeout: As in `drain()`.

        Raises:
            RuntimeError: If an event loop runs in this thread.
        """

    def expire(self) -> None:
        """Reject what is overdue, as every use of the gate does, and its timers do."""

    def _reject(self, reason: Reason | None, retry_after: float, /) -> tuple[Reason | None, float]:
        """Reject whoever comes, or by `None` nobody, and return what it was called with before."""

    def _snapshot(self) -> dict[str, Any]: ...

@disjoint_base
class BaseLimiter:
    """What all limiters are, whatever their limit follows."""

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

    def _snapshot(self) -> dict[str, Any]: ...

@disjoint_base
class SemaphoreLimiter(BaseLimiter):
    """A fixed limit; see `sluicegate.SemaphoreLimiter`."""

    def __new__(
        cls, limit: float, *, name: str | None = None, clock: Clock | None = None
    ) -> Self: ...
    def update(self, *, limit: float | None = None) -> None:
        """Change the limit: from 0, which admits nobody, to 1e9.

        A raised limit admits at once as many waiters as it makes room for. A lowered one admits
        nobody until enough has been given back.

        Raises:
            ValueError: If `limit` is out of its range.
        """

@disjoint_base
class GradientLimiter(BaseLimiter):
    """See `sluicegate.GradientLimiter`."""

    def __new__(
        cls,
        *,
        initial: float,
        min_limit: float,
        max_limit: float,
        latency_target: float | None,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    def update(
        self,
        *,
        min_limit: float | None = None,
        max_limit: float | None = None,
        latency_target: float | None = None,
    ) -> None:
        """Change what is given; `None` leaves it as it is.

        The limit moves into its range, and what that makes room for is admitted at once. What was
        learned is kept.

        Args:
            min_limit: The least that the limit may become, above 0 and at most `max_limit`.
            max_limit: The most that the limit may become, from `min_limit` to 1e9.
            latency_target: What 95 % are to take at most from now on, in seconds, above 0 and at
                most 3600.

        Raises:
            ValueError: If a value is out of its range; then nothing is changed.
            TypeError: If one is of a wrong type.
        """

@disjoint_base
class ClassicLimiter(BaseLimiter):
    """A limit that follows an algorithm; see `sluicegate.classic.ClassicLimiter`."""

    def __new__(
        cls,
        algorithm: Algorithm,
        *,
        window: Window | None,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    def update(self, *, min_limit: int | None = None, max_limit: int | None = None) -> None:
        """Change the least or the most that the limit may become, and move the limit into it.

        What it makes room for is admitted at once.

        Args:
            min_limit: From 1 to `max_limit`; `None` leaves it as it is.
            max_limit: From `min_limit` to 1e9; `None` leaves it as it is.

        Raises:
            ValueError: If one is out of its range, or the limit is `Fixed`.
        """

@final
class Algorithm:
    """A limit algorithm in its initial state; see `sluicegate.classic`."""

    @staticmethod
    def fixed(*, limit: int) -> Algorithm:
        """Make one that never moves; see `sluicegate.classic.Fixed`."""
    @staticmethod
    def aimd(
        *, initial: int, min_limit: int, max_limit: int, backoff_ratio: float, timeout: float
    ) -> Algorithm:
        """Make an additive increase and multiplicative decrease; see `sluicegate.classic.Aimd`."""

    @staticmethod
    def vegas(
        *,
        initial: int,
        min_limit: int,
        max_limit: int,
        smoothing: float,
        alpha: int,
        beta: int,
        probe_multiplier: int | None,
        seed: int | None,
    ) -> Algorithm:
        """Make one after TCP Vegas; see `sluicegate.classic.Vegas`."""

    @staticmethod
    def gradient(
        *,
        initial: int,
        min_limit: int,
        max_limit: int,
        smoothing: float,
        tolerance: float,
        backoff_ratio: float,
        queue_size: int | None,
        probe_interval: int | None,
        seed: int | None,
    ) -> Algorithm:
        """Make one of the latency against the lowest; see `sluicegate.classic.Gradient`."""

    @staticmethod
    def gradient2(
        *,
        initial: int,
        min_limit: int,
        max_limit: int,
        smoothing: float,
        tolerance: float,
        queue_size: int,
        long_window: int,
    ) -> Algorithm:
        """Make one of the latency against its mean; see `sluicegate.classic.Gradient2`."""

@final
class Window:
    """The parameters of a window; see `sluicegate.classic.Window`."""

    def __new__(
        cls, *, min_duration: float, max_duration: float, min_samples: int, min_rtt: float
    ) -> Self: ...

@disjoint_base
class Codel:
    """The controlled-delay algorithm of folly; see `sluicegate.classic.Codel`."""

    def __new__(
        cls, *, target: float = 0.005, interval: float = 0.1, clock: Clock | None = None
    ) -> Self: ...
    @property
    def target(self) -> float:
        """The target delay, in seconds."""

    @property
    def interval(self) -> float:
        """Over how many seconds the smallest delay is taken."""

    @property
    def load(self) -> float:
        """The smallest delay of this interval by twice the target, in percent, at most 100."""

    def overloaded(self, delay: float, /) -> bool:
        """Say whether an item that is dequeued now is to be rejected.

        Args:
            delay: For how many seconds it has waited, from 0 to 3600.
        """

@final
class Deadline:
    """The moment after which nobody wants the answer any more.

    It cancels nothing. Whoever takes a `deadline` takes one of these or a number of seconds from
    now; made once and handed on, it stays the same moment.
    """

    @classmethod
    def after(cls, seconds: float, /, *, clock: Clock | None = None) -> Deadline:
        """Make the one that is so many seconds from now.

        Args:
            seconds: At most 3600; at 0 and below it is over already.
            clock: Where time comes from: an object with `now()` in seconds, such as a
                `ManualClock`; default: the monotonic clock of the system.

        Raises:
            ValueError: If `seconds` is out of its range.
            TypeError: If an argument is of a wrong type.
        """

    @classmethod
    def _by_stranger(cls, seconds: float, /) -> Deadline: ...
    def remaining(self) -> float:
        """Return how many seconds are left; 0 once it is over."""

@final
class Scope:
    """A block in which something is asked for all work; see `sluicegate.context`.

    `None` says nothing. It can be entered once.
    """

    def __new__(
        cls,
        *,
        deadline: float | Deadline | None = None,
        criticality: Criticality | None = None,
        key: str | None = None,
        operation: str | None = None,
        tokens: float | None = None,
    ) -> Self: ...
    def __enter__(self) -> Deadline | None: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        _exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Detached:
    """A block in which nothing travels; see `sluicegate.context.detached`.

    It can be entered once.
    """

    def __new__(cls) -> Self: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        _exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@disjoint_base
class CoDelQueue(Generic[_T]):
    """A bounded queue that keeps the wait short; see `sluicegate.CoDelQueue`."""

    def __new__(
        cls,
        capacity: int,
        *,
        target: float | None = None,
        interval: float | None = None,
        low: float = 0.3,
        high: float = 0.7,
        on_reject: Callable[[_T, Rejection], object] | None = None,
        on_high: Callable[[], object] | None = None,
        on_low: Callable[[], object] | None = None,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    @property
    def name(self) -> str:
        """What it is called in rejections, snapshots and metrics."""

    @property
    def capacity(self) -> int:
        """How many items may wait."""

    @property
    def depth(self) -> int:
        """How many items wait, without those for which a worker is on its way.

        Like all that is asked of a queue, it first lets go what is over.
        """

    @property
    def saturation(self) -> float:
        """Depth / capacity; 1 if the capacity is 0."""

    @property
    def oldest_wait(self) -> float:
        """How long the oldest item has waited, in seconds."""

    @property
    def standing(self) -> bool:
        """Whether it had no moment of health within the last interval."""

    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    @overload
    def put_nowait(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: Literal[False] = False,
    ) -> None: ...
    @overload
    def put_nowait(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: Literal[True],
    ) -> int: ...
    @overload
    def put_nowait(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: bool,
    ) -> int | None:
        """Put an item now or raise; overtakes nobody who waits for room and matters as much.

        Args:
            item: What is put; anything.
            criticality: How much it matters; default: CRITICAL.
            deadline: When nobody wants it any more: in how many seconds, at most 3600, or a
                `Deadline`.
            operation: What kind of work it is, for the estimate of its service time.
            cancellable: Return a ticket for `cancel()`.

        Raises:
            Rejected: If it is full.
            DeadlineExceeded: If the deadline cannot be met.
            QueueClosed: If the queue is closed.
        """

    @overload
    def put(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: Literal[False] = False,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, None]: ...
    @overload
    def put(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: Literal[True],
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, int]: ...
    @overload
    def put(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: bool,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, int | None]:
        """Wait for room, then put; evicts only what is less critical.

        Args:
            item: As in `put_nowait()`.
            criticality: As in `put_nowait()`.
            deadline: As in `put_nowait()`; counts from the call, and bounds the wait too.
            operation: As in `put_nowait()`.
            cancellable: As in `put_nowait()`.
            timeout: For how many seconds it may wait, from 0 to 3600; `None` is without bound.

        Raises:
            TimeoutError: If it waited for `timeout` seconds.
            DeadlineExceeded: If the deadline cannot be met.
            QueueClosed: If the queue is closed, or becomes so.
        """

    @overload
    def put_sync(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: Literal[False] = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def put_sync(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: Literal[True],
        timeout: float | None = None,
    ) -> int: ...
    @overload
    def put_sync(
        self,
        item: _T,
        /,
        *,
        criticality: Criticality | None = None,
        deadline: float | Deadline | None = None,
        operation: str | None = None,
        cancellable: bool,
        timeout: float | None = None,
    ) -> int | None:
        """Do as `put()`, in this thread, which lets other threads run.

        Raises:
            TimeoutError: If it waited for `timeout` seconds.
            DeadlineExceeded: If the deadline cannot be met.
            QueueClosed: If the queue is closed, or becomes so.
            RuntimeError: If this thread runs an event loop.
        """

    def get_nowait(self) -> _T:
        """Take the next item now or raise; takes none that is for somebody who waits.

        Raises:
            asyncio.QueueEmpty: If there is none.
            QueueClosed: If there is none and the queue is closed.
        """

    def get(self, *, timeout: float | None = None) -> Coroutine[Any, Any, _T]:
        """Wait for an item; the work on it is not timed, see `take()`.

        Args:
            timeout: For how many seconds it may wait, from 0 to 3600; `None` is without bound.

        Raises:
            TimeoutError: If it waited for `timeout` seconds.
            QueueClosed: If there is none and the queue is closed, or becomes so.
        """

    def get_sync(self, *, timeout: float | None = None) -> _T:
        """Do as `get()`, in this thread, which lets other threads run.

        Raises:
            TimeoutError: If it waited for `timeout` seconds.
            QueueClosed: If there is none and the queue is closed, or becomes so.
            RuntimeError: If this thread runs an event loop.
        """

    def take(self, *, timeout: float | None = None) -> Take[_T]:
        """Wait for an item and time the work on it, in `async with` or, in a thread, `with`.

        A block that ends by an exception teaches the queue only if it took longer than the mean.

        Args:
            timeout: As in `get()`.
        """

    def __aiter__(self) -> AsyncIterator[_T]: ...
    def __anext__(self) -> Coroutine[Any, Any, _T]: ...
    def cancel(self, ticket: int, /) -> bool:
        """Take an item out that is not wanted any more.

        Args:
            ticket: What the put returned, if it was `cancellable`.

        Returns:
            Whether it was still inside. It is not told to `on_reject`.
        """

    def close(self, *, immediate: bool = False) -> None:
        """Let nothing in any more.

        What is inside can still be taken, and is still rejected in time. Whoever waits for room
        gets `QueueClosed`; who waits for an item, as soon as none is left.

        Args:
            immediate: Reject what is inside, with the reason CLOSED.
        """

    def update(
        self,
        *,
        capacity: int | None = None,
        target: float | None = None,
        interval: float | None = None,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Change what is given, as in the constructor; `None` leaves it as it is.

        What is inside stays, and the new bounds apply to it.

        Raises:
            ValueError: If a value is out of its range; then nothing is changed.
        """

    def expire(self) -> None:
        """Reject what is overdue, as every use of the queue does, and its timers do.

        For a queue that only plain threads use, when none of them waits.
        """

    def _snapshot(self) -> dict[str, Any]: ...

@final
class Take(Generic[_T]):
    """An item for `async with` or, in a thread, `with`, once; the block is the work on it."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __aenter__(self) -> Coroutine[Any, Any, _T]: ...
    async def __aexit__(
        self,
        _class: type[BaseException] | None,
        exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __enter__(self) -> _T: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@disjoint_base
class AdaptiveThrottle:
    """Client-side throttling; see `sluicegate.AdaptiveThrottle`."""

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

    def withdraw(self) -> None:
        """Say that a request that was allowed was not sent after all.

        Instead of `record()`: it says nothing about the backend, neither good nor bad.
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
    back with a `ResourceWarning` (shown by `python -X dev`). One that was given back cannot be
    entered again: that is a `RuntimeError`.
    """

    def release(self) -> None:
        """Give it back; a second call does nothing and is counted."""

    def __bool__(self) -> Literal[True]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exc: object) -> None: ...

@final
class Backoff:
    """For how long to wait before a retry."""

    def __new__(cls, first: float, /) -> Self: ...
    def after(self, attempts: int, /) -> float:
        """Draw the wait after so many attempts, in seconds."""

@disjoint_base
class RetryBudget:
    """A bound on retries; see `sluicegate.RetryBudget`."""

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
    """The retry throttling of gRPC; see `sluicegate.TokenRetryBudget`."""

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
class TokenBucket:
    """A token bucket; see `sluicegate.TokenBucket`."""

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

    def pause(self, seconds: float, /) -> None:
        """Let nobody take for so many seconds, as whoever is called asks for by `Retry-After`.

        The bucket is empty then, and fills from there. Of several pauses the one counts that ends
        last. It is a debt: a pause never lasts longer than 1e9 tokens take to come, and what is
        given back by `adjust()`, or a higher rate, shortens it.

        Args:
            seconds: From 0 to 3600.

        Raises:
            ValueError: If it is out of its range.
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
    """One token bucket for each key; see `sluicegate.KeyedTokenBucket`."""

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

    def _take_from_quota(
        self, key: str, n: float = 1, /
    ) -> tuple[float | None, int, int | None, int, int]: ...
    def tokens(self, key: str, /) -> float:
        """Return how many tokens a key has now, without taking any.

        Of a key without a bucket of its own those with which it would begin, or which it would
        share with others.

        Args:
            key: Whose tokens.
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

@final
class LagWindow:
    """How late an event loop is; see `sluicegate.pressure.loop_lag`."""

    def __new__(cls, *, clock: Clock | None = None) -> Self: ...
    def sample(self, interval: float, /) -> None:
        """Take a sample: how much later than `interval` seconds after the one before it is.

        The first one only begins. At once after it was due is no lag, and too early neither.
        """

    def pressure(self, target: float, /) -> float:
        """Return the lag by `target` seconds.

        It is the 99th percentile of the last 2 to 4 s, without the one worst sample, and 0 once
        half a second was on time.
        """

@final
class CpuUsage:
    """How busy a processor is; see `sluicegate.pressure.cpu`."""

    def __new__(cls, *, clock: Clock | None = None) -> Self: ...
    def is_due(self) -> bool:
        """Whether it is time to read the counters again."""

    def record(self, used: float, available: float, /) -> None:
        """Take a reading of what was used and of what there was to use, since any moment.

        Args:
            used: As a counter that only grows; one that went back begins anew.
            available: The same, in the same unit.
        """

    def pressure(self, target: float, /) -> float:
        """Return the usage by `target`, a share.

        It is smoothed over half a second, and at least 1.5 if all is in use and the target is
        less.
        """

@disjoint_base
class ManualClock:
    """A clock that stands still until it is told to move; see `sluicegate.ManualClock`."""

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
    def _has_unclaimed(self, *, here: bool) -> bool: ...
