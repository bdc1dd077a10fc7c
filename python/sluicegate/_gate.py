"""Admission as one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluicegate import _core
from sluicegate._enums import Criticality, Outcome, Reason
from sluicegate._gradient import GradientLimiter
from sluicegate._guard import F, guard_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from sluicegate._bucket import TokenBucket
    from sluicegate._classify import Classify
    from sluicegate._clock import Clock
    from sluicegate._core import Acquire, Permit
    from sluicegate._limiter import BaseLimiter


_DRY_RUN = "SLUICEGATE_DRY_RUN"
_YES = {"1", "true", "yes", "on"}
_NO = {"", "0", "false", "no", "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSnapshot:
    """The state of a `Gate` at one moment; `dataclasses.asdict()` of it is JSON.

    `str()` of it is one line for a log: the limit and why it is so, what is in flight and in line,
    who is rejected, and how many were.

    Attributes:
        name: The name of the gate.
        limit: How much may be in flight at once.
        limit_because: Why the limit is what it is.
        in_flight: The cost in flight; in a dry run, of what would be. Where everybody is admitted
            since `SLUICEGATE_DISABLED` is set, it may be above the limit.
        waiting: How many wait in line.
        max_waiting: How many may wait.
        oldest_wait: How long the oldest of them has waited, in seconds.
        wait_bound: For how long somebody who comes now may wait, in seconds, if no deadline ends
            it sooner.
        service_mean: How long recent work took, from admission to release, in seconds; 0 if
            nothing is known.
        service_p95: The 95th percentile of that, in seconds; 0 below 20 samples.
        service_estimate: How long work is expected to take that begins now, in seconds; with less
            time left than this it is rejected, by what is known of its own `operation` if that has
            a name. 0 below 20 samples.
        threshold: The least critical that are not all rejected, whatever room there is.
        saturation: In flight / limit; 1 if the limit is 0.
        dry_run: Whether everybody is admitted and what would have been done is counted.
        disabled: Whether everybody is admitted since `SLUICEGATE_DISABLED` is set.
        closed: Whether it is closed.
        admitted: How many permits were given since the start.
        rejected: How many were rejected, by reason; in a dry run, how many would have been.
        outcomes: How many permits were given back, by outcome.
        pressure: What the sources of pressure said last, by name.
        revoked: How many grants went to somebody else because nobody came to claim them.
        stray_releases: How many releases came for a permit that had been given back already.
    """

    name: str
    limit: float
    limit_because: str
    in_flight: int
    waiting: int
    max_waiting: int
    oldest_wait: float
    wait_bound: float
    service_mean: float
    service_p95: float
    service_estimate: float
    threshold: Criticality
    saturation: float
    dry_run: bool
    disabled: bool
    closed: bool
    admitted: int
    rejected: Mapping[Reason, int]
    outcomes: Mapping[Outcome, int]
    pressure: Mapping[str, float]
    revoked: int
    stray_releases: int

    def __str__(self) -> str:
        parts = [
            f"{self.name}: limit {self.limit:.4g} ({self.limit_because})",
            f"{self.in_flight} in flight",
        ]
        waiting = f"{self.waiting}/{self.max_waiting} waiting"
        if self.waiting:
            waiting += f", oldest {self.oldest_wait:.2f} of {self.wait_bound:.2f} s"
        parts.append(waiting)
        if self.threshold > Criticality.SHEDDABLE:
            parts.append(f"below {self.threshold.name} rejected")
        for name, value in self.pressure.items():
            parts.append(f"{name} {value:.2f}")
        rejected = f"{sum(self.rejected.values())} rejected"
        reasons = [f"{reason} {count}" for reason, count in self.rejected.items() if count]
        parts.append(f"{rejected} ({', '.join(reasons)})" if reasons else rejected)
        for is_so, word in (
            (self.closed, "closed"),
            (self.dry_run, "dry run: all are admitted"),
            (self.disabled, "disabled: all are admitted"),
        ):
            if is_so:
                parts.append(word)
        return " | ".join(parts)


class Gate(_core.Gate):
    """Admission as one call: limit, waiting line, deadline, criticality, reserve and rate.

    `Gate()` tunes itself: its limit follows latency, and its line lets nobody wait for what would
    come too late. `Gate(64)` admits 64 at once.

    - `try_acquire()` answers now, with a `Permit` or a falsy `Rejection`.
    - `acquire()` waits in line if need be: `async with gate.acquire() as permit:`,
      `permit = await gate.acquire()`, or `with gate.acquire():` in a thread. Who is not admitted
      gets a `Rejected`.
    - `acquire_sync()` does so in a thread.
    - `@gate.guard()` holds a permit while a function runs.

    What is asked, in this order: whether it is closed, the deadline has passed, the rate allows
    it, there is room, somebody may wait, and could then still be in time. Whoever is rejected got
    nothing: what was taken of the rate goes back.

    The line is served by criticality; within one the oldest first, and the newest first while
    there is more than can be done. Who waits is rejected as soon as what is left until the
    deadline is less than the work takes, or by who is more critical if the line is full.

    One object is one limit, wherever it is used: it may be made at import time, and be shared by
    tasks of several event loops and by plain threads.

    Args:
        limit: How much may be in flight at once: a number above 0 and at most 1e9, or a limiter
            of this package, which the gate takes over: it is to be new, and to be used by nobody
            else from then on. `None`: a `GradientLimiter()`.
        name: What it is called in rejections, snapshots and metrics; default: "gate", "gate-2", …
        max_waiting: How many may wait, from 0 (nobody ever waits) to 1e9. `None`: as many as can
            be done within the time that callers give.
        max_wait: For how many seconds one may wait, from 0 (nobody ever waits) to 3600. `None`: as
            long as it is of use, as in a `CoDelQueue`.
        reserve: Shares of the limit that are there for a criticality and above, such as
            `{Criticality.CRITICAL: 0.2}`: floor(limit * share) units. What of it is idle is lent,
            all but one unit where the limit is 4 or more.
        rate: A bucket of which each admission takes `tokens`; may be shared by several gates.
        pressure: What the less critical are shed by, see `sluicegate.pressure`: sources of pressure
            such as `loop_lag()`, or functions of your own, reject them whatever room there is,
            and `queue_wait()` those whom the line would reject in the end, for the same callers to
            be rejected for a while.
            `None`, and `()`: nothing.
        classify: What an exception that ends a block says about load; default: `TimeoutError` is
            OVERLOAD, all else IGNORED. An `Exception` that it raises is reported by
            `sys.unraisablehook`, and the default counts; what is no `Exception`, such as a
            `KeyboardInterrupt`, is raised where the block ends.
        dry_run: Whether to admit everybody and to count what would have been done: who would have
            waited begins at once. `None`: if `SLUICEGATE_DRY_RUN` is set in the environment, as it
            says (1 or 0); else not.
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If an argument, or `SLUICEGATE_DRY_RUN`, is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

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
        dry_run: bool | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Check the arguments and make it."""
        return super().__new__(
            cls,
            limit,
            name=name,
            max_waiting=max_waiting,
            max_wait=max_wait,
            reserve=reserve,
            rate=rate,
            pressure=pressure,
            classify=classify,
            dry_run=_is_dry(_DRY_RUN) if dry_run is None else dry_run,
            clock=clock,
        )

    @classmethod
    def from_env(cls, prefix: str = "SLUICEGATE_") -> Self:
        """Make one as the environment says; what is not set is automatic.

        Read are `SLUICEGATE_LIMIT`, `SLUICEGATE_LATENCY_TARGET` (of a limit that follows latency),
        `SLUICEGATE_MAX_WAITING`, `SLUICEGATE_MAX_WAIT`, `SLUICEGATE_DRY_RUN` (1 or 0) and
        `SLUICEGATE_NAME`.

        Args:
            prefix: What the names of the variables begin with. `SLUICEGATE_DRY_RUN` is read as well
                if there is none of that prefix, as by every gate.

        Raises:
            ValueError: If a variable is out of its range, by its name.
        """
        limit: float | BaseLimiter | None = _number(prefix + "LIMIT")
        target = _number(prefix + "LATENCY_TARGET")
        if target is not None:
            if limit is not None:
                msg = f"{prefix}LIMIT and {prefix}LATENCY_TARGET exclude each other"
                raise ValueError(msg)
            limit = _checked(
                prefix + "LATENCY_TARGET", lambda: GradientLimiter(latency_target=target)
            )
        max_waiting = _number(prefix + "MAX_WAITING")
        if max_waiting is not None and not max_waiting.is_integer():
            msg = f"{prefix}MAX_WAITING must be an integer, got {max_waiting}"
            raise ValueError(msg)
        max_wait = _number(prefix + "MAX_WAIT")
        own = prefix + "DRY_RUN"
        dry_run = _is_dry(own if os.environ.get(own) else _DRY_RUN)
        try:
            return cls(
                limit,
                name=os.environ.get(prefix + "NAME") or None,
                max_waiting=None if max_waiting is None else int(max_waiting),
                max_wait=max_wait,
                dry_run=dry_run,
            )
        except ValueError as error:
            parameter, _, rest = str(error).partition(" ")
            msg = f"{prefix}{parameter.upper()} {rest}"
            raise ValueError(msg) from None

    def guard(
        self,
        *,
        cost: int = 1,
        criticality: Criticality | None = None,
        operation: str | None = None,
    ) -> Callable[[F], F]:
        """Make a decorator that holds a permit while a function runs.

        Works on functions, where it waits in the calling thread, and on coroutine functions. One
        guarded function must not call another of the same gate: each takes a permit.

        Args:
            cost: As in `acquire()`.
            criticality: As in `acquire()`.
            operation: As in `acquire()`.

        Raises:
            TypeError: If the function is a generator function, or an argument of a wrong type.
            ValueError: If `cost` is out of its range.
        """
        # What is wrong is refused here, and not at each call.
        self.acquire(cost, criticality=criticality, operation=operation).close()

        def acquire() -> Acquire:
            return self.acquire(cost, criticality=criticality, operation=operation)

        def acquire_sync() -> Permit:
            return self.acquire_sync(cost, criticality=criticality, operation=operation)

        return guard_with(acquire, acquire_sync)

    def snapshot(self) -> GateSnapshot:
        """Return the state at this moment."""
        values: dict[str, Any] = self._snapshot()
        del values["next_expiry"]
        return GateSnapshot(**values)

    def __repr__(self) -> str:
        state = self.snapshot()
        dry_run = ", dry run" if state.dry_run else ""
        disabled = ", disabled" if state.disabled else ""
        return (
            f"<{type(self).__name__} {self.name!r}: limit {state.limit:.4g}, "
            f"{state.in_flight} in flight, {state.waiting} waiting{dry_run}{disabled}>"
        )


def _is_dry(variable: str) -> bool:
    text = os.environ.get(variable, "").strip().lower()
    if text not in _YES | _NO:
        msg = f"{variable} must be 1 or 0, got {text!r}"
        raise ValueError(msg)
    return text in _YES


def _number(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        msg = f"{variable} must be a number, got {text!r}"
        raise ValueError(msg) from None


def _checked(variable: str, make: Callable[[], BaseLimiter]) -> BaseLimiter:
    try:
        return make()
    except ValueError as error:
        _, _, rest = str(error).partition(" ")
        msg = f"{variable} {rest}"
        raise ValueError(msg) from None
