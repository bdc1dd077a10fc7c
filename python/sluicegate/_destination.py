"""One policy for one backend, at whoever calls it."""

from __future__ import annotations

import functools
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from sluicegate import _core, context
from sluicegate._admission import Admission
from sluicegate._bucket import TokenBucket
from sluicegate._calls import Attempt, Work
from sluicegate._checks import check_callable, check_is_not_async, check_kind, check_seconds
from sluicegate._classify import classify_error, classify_result
from sluicegate._enums import Outcome
from sluicegate._errors import Rejected, TimedOut
from sluicegate._gradient import GradientLimiter
from sluicegate._guard import is_coroutine_function, refuse_generator_function
from sluicegate._limiter import Limiter
from sluicegate._retry_budget import RetryBudget, TokenRetryBudget
from sluicegate._semaphore import SemaphoreLimiter
from sluicegate._throttle import AdaptiveThrottle, ThrottleSnapshot
from sluicegate._waits import TASK, THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sluicegate._classify import Classify
    from sluicegate._clock import Clock
    from sluicegate._core import RetryPermit
    from sluicegate._limiter import Limit
    from sluicegate._waits import Waits

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[..., Any]")

# Of such a debt, at such a rate, nobody sees the end: who asks waits for as long as he may.
_SLOW: Final = 1e-6
_DEBT: Final = 1e9
# What is added to a Retry-After at most, as a share of it.
_JITTER: Final = 0.1
_MOST_ATTEMPTS: Final = 100
_LONGEST: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationSnapshot:
    """The state of a destination at one moment.

    Attributes:
        name: The name of the destination.
        limiter: The state of its limiter; `None` if that has no `snapshot()`.
        throttle: The state of its throttle.
        budget: The state of its retry budget.
        pushback: For how many seconds nothing is sent yet, since the backend said so.
        waiting: How many wait for that to end.
    """

    name: str
    limiter: Any
    throttle: ThrottleSnapshot
    budget: Any
    pushback: float
    waiting: int

    def __str__(self) -> str:
        parts = [str(part) for part in (self.limiter, self.throttle, self.budget) if part]
        if self.pushback:
            parts.insert(0, f"{self.name}: nothing is sent for {self.pushback:.1f} s")
        return " || ".join(parts)


class Destination:
    """What one backend is called by: slowed down, throttled, retried and timed as it can bear.

        payments = Destination("payments", attempt_timeout=2.0)

        @payments.guard()
        async def charge(order: Order) -> Receipt: ...

    For each attempt, in this order:

    1. The throttle refuses at once what the backend would most likely refuse: `Rejected`, with the
       reason THROTTLED.
    2. If the backend has said when to come back (`Retry-After`), all callers wait until then, also
       those who are in line already.
    3. A permit of the limiter is taken, by waiting: this slows the callers down to what the
       backend can do. Time that is waited is no latency.
    4. A token of `rate`, and `tokens` of `token_rate`, are taken, by waiting if need be.
    5. The call is made, within `attempt_timeout` and the deadline of the context.
    6. Its end is classified, for the limiter and the throttle; see `AdaptiveThrottle.guard()`.

    Who has a deadline (`sluicegate.context.deadline()`) waits until then at most, and not at all
    for what ends after it: `DeadlineExceeded`. Who has none waits for as long as it takes.

    What ends as OVERLOAD is tried again, as long as there are attempts left, the budget gives a
    retry, and the deadline allows for it: after a random wait of up to `backoff` seconds, up to
    twice that after the second attempt, and so on, and never before `Retry-After`. Nothing else
    is, least of all what was refused here, or is refused by another part of this package. So give
    `attempts=1` for what must not be done twice.

    One object serves all threads and event loops. `call_sync()` and guarded plain functions block
    the calling thread, and cannot end an attempt: `attempt_timeout` is only there as the deadline
    of the context, for a client that heeds it.

    Args:
        name: What it is called in rejections, snapshots and metrics.
        limit: How many calls may be in flight: a number, a limiter or a gate. Default: a
            `GradientLimiter`, which follows the latency.
        rate: A bucket of which each attempt takes a token; default: no bound.
        token_rate: A bucket of what calls are priced in, such as the tokens of a language model;
            see `guard()`.
        throttle: Default: `AdaptiveThrottle()`.
        budget: What retries come from: a `RetryBudget` or `TokenRetryBudget`; default:
            `RetryBudget()`, a tenth of the calls.
        attempts: How often a call is tried at most, from 1 to 100.
        attempt_timeout: After how many seconds an attempt is given up, above 0 and at most 3600;
            default: only the deadline counts.
        backoff: Up to how many seconds to wait after the first attempt, from 0 to 3600.
        max_retry_after: How many seconds of a `Retry-After` are believed at most, from 0 to 3600;
            then one finds out.
        classify: Says how a call ended: gets its result, or the exception that it raised. If it
            fails, or returns no `Outcome`, that is reported to `sys.unraisablehook` and the call
            counts as IGNORED.
        clock: Where time comes from, for what is made here; default: the clock of the system.

    Raises:
        ValueError: If a number is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = (
        "__weakref__",
        "_admission",
        "_backoff",
        "_classify",
        "_max_retry_after",
        "_nobody",
        "attempt_timeout",
        "attempts",
        "budget",
        "limiter",
        "name",
        "rate",
        "throttle",
        "token_rate",
    )

    name: str
    #: What the permits come from.
    limiter: Limiter
    throttle: AdaptiveThrottle
    budget: RetryBudget | TokenRetryBudget
    rate: TokenBucket | None
    token_rate: TokenBucket | None
    attempts: int
    attempt_timeout: float | None

    def __init__(
        self,
        name: str,
        *,
        limit: Limit | None = None,
        rate: TokenBucket | None = None,
        token_rate: TokenBucket | None = None,
        throttle: AdaptiveThrottle | None = None,
        budget: RetryBudget | TokenRetryBudget | None = None,
        attempts: int = 3,
        attempt_timeout: float | None = None,
        backoff: float = 0.1,
        max_retry_after: float = 60.0,
        classify: Classify | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_kind("name", "a string", name, str)
        check_kind("rate", "a TokenBucket, or None", rate, (TokenBucket, type(None)))
        check_kind("token_rate", "a TokenBucket, or None", token_rate, (TokenBucket, type(None)))
        throttles = (AdaptiveThrottle, type(None))
        check_kind("throttle", "an AdaptiveThrottle, or None", throttle, throttles)
        kind = "a RetryBudget, a TokenRetryBudget, or None"
        check_kind("budget", kind, budget, (RetryBudget, TokenRetryBudget, type(None)))
        check_callable("classify", classify)
        check_is_not_async("classify", classify)
        self.name = name
        self.limiter = _limiter(limit, name, clock)
        self.throttle = throttle or AdaptiveThrottle(name=name, clock=clock)
        self.budget = RetryBudget(name=name, clock=clock) if budget is None else budget
        self.rate = rate
        self.token_rate = token_rate
        self.attempts = _checked_attempts(attempts)
        self.attempt_timeout = _checked_timeout(attempt_timeout)
        self._backoff = _core.Backoff(backoff)
        self._max_retry_after = _seconds("max_retry_after", max_retry_after)
        self._classify = classify
        self._admission = Admission(name, self.throttle, self.limiter, rate, token_rate, clock)
        self._nobody = TokenBucket(_SLOW, burst=1, name=f"{name} backoff", clock=clock)
        self._nobody.adjust(-_DEBT)

    async def call(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call a function, and await it.

        Args:
            function: What calls the backend.
            *args: Its arguments.
            **kwargs: Its arguments.

        Raises:
            Rejected: If it is not sent: throttled, or a gate that is the limiter refuses it.
            DeadlineExceeded: If it would be sent too late; it is a `Rejected`, too.
            TimeoutError: If an attempt took as long as it may.
        """
        work: Work[R] = Work(functools.partial(function, *args, **kwargs))
        return await self._run(TASK, work)

    def call_sync(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in this thread, which waits if need be.

        Args:
            function: What calls the backend.
            *args: Its arguments.
            **kwargs: Its arguments.

        Raises:
            Rejected: As in `call()`.
            DeadlineExceeded: As in `call()`.
            RuntimeError: If it has to wait in a thread that runs an event loop.
        """
        work: Work[R] = Work(functools.partial(function, *args, **kwargs))
        return run_in_thread(self._run(THREAD, work))

    def guard(
        self,
        *,
        operation: str | None = None,
        attempts: int | None = None,
        tokens: Callable[..., float] | None = None,
        settle: Callable[[Any], float] | None = None,
    ) -> Callable[[F], F]:
        """Make a decorator that calls a function, sync or async, by this policy.

        One guarded function must not call another of the same destination: each takes a permit.

        Args:
            operation: What kind of call it is, for the limiter.
            attempts: How often such a call is tried at most, from 1 to 100: 1 for what must not be
                done twice. Default: as the destination says.
            tokens: Says what a call will cost of `token_rate`, from its arguments.
            settle: Says what it cost in truth, from its result, if that is a SUCCESS; the
                difference is charged or given back. One that fails is reported, and the estimate
                stays. What ended as OVERLOAD with an answer, or was never sent, costs nothing.

        Raises:
            TypeError: If the function is a generator function, or an argument of a wrong type.
            ValueError: If `tokens` or `settle` is given and the destination has no `token_rate`.
        """
        check_kind("operation", "a string, or None", operation, (str, type(None)))
        if attempts is not None:
            _checked_attempts(attempts)
        for parameter, said in (("tokens", tokens), ("settle", settle)):
            check_callable(parameter, said)
            check_is_not_async(parameter, said)
            if said is not None and self.token_rate is None:
                msg = f"{parameter} needs a destination with a token_rate, got {said!r:.100}"
                raise ValueError(msg)

        def decorate(function: F, /) -> F:
            refuse_generator_function(function, "call what it yields from instead")

            def work_of(args: Any, kwargs: Any) -> Work[Any]:
                cost = None if tokens is None else tokens(*args, **kwargs)
                call = functools.partial(function, *args, **kwargs)
                return Work(call, operation, cost, settle, attempts)

            if is_coroutine_function(function):

                @functools.wraps(function)
                async def guarded_async(*args: Any, **kwargs: Any) -> Any:
                    return await self._run(TASK, work_of(args, kwargs))

                return cast("F", guarded_async)

            @functools.wraps(function)
            def guarded(*args: Any, **kwargs: Any) -> Any:
                return run_in_thread(self._run(THREAD, work_of(args, kwargs)))

            return cast("F", guarded)

        return decorate

    def push_back(self, seconds: float, /) -> None:
        """Let nobody send for so long, since the backend has said so.

        What a `Retry-After` of an answer says is heeded without it. A little is added at random,
        since others were told the same.

        Args:
            seconds: For how many seconds, at most 3600; no more than `max_retry_after` is heeded.

        Raises:
            ValueError: If `seconds` is out of its range.
            TypeError: If it is no number.
        """
        seconds = min(_seconds("seconds", seconds), self._max_retry_after)
        if seconds:
            seconds += random.uniform(0, _JITTER * seconds)  # noqa: S311
            self._admission.push_back(min(seconds, _LONGEST))

    def snapshot(self) -> DestinationSnapshot:
        """Return the state at this moment."""
        snapshot = getattr(self.limiter, "snapshot", None)
        return DestinationSnapshot(
            name=self.name,
            limiter=snapshot() if callable(snapshot) else None,
            throttle=self.throttle.snapshot(),
            budget=self.budget.snapshot(),
            pushback=self._admission.pushback,
            waiting=self._admission.waiting,
        )

    def __repr__(self) -> str:
        return (
            f"<Destination {self.name!r}: {self.limiter!r}, attempts={self.attempts}, "
            f"attempt_timeout={self.attempt_timeout}>"
        )

    async def _run(self, waits: Waits, work: Work[R]) -> R:
        """Make a call: as many attempts as it takes and is given."""
        if isinstance(self.budget, RetryBudget):
            self.budget.record_request()
        number = 1
        attempt = await self._begin(waits, work)
        result, error = await attempt.make(waits)
        while (again := self._again(number, work, attempt)) is not None:
            retry, wait = again
            number += 1
            # Held through the back-off as well.
            with retry:
                await self._rest(waits, wait)
                try:
                    attempt = await self._begin(waits, work)
                except Rejected:
                    # What has been sent ends as it ended: that no more is sent is no answer.
                    break
                if error is None:
                    await work.discard(cast("R", result), waits)
                result, error = await attempt.make(waits)
        if error is not None:
            try:
                raise error
            finally:
                # Else it would hold this frame, which holds it.
                error = None
        return cast("R", result)

    async def _rest(self, waits: Waits, seconds: float) -> None:
        with suppress(TimedOut):
            await waits.take(self._nobody, 1, seconds)

    async def _begin(self, waits: Waits, work: Work[R]) -> Attempt[R]:
        return Attempt(self, work, await self._admission.wait(waits, work))

    def _again(
        self, number: int, work: Work[Any], attempt: Attempt[Any]
    ) -> tuple[RetryPermit, float] | None:
        """Return the right to a retry and how long to wait before it, if there is to be one."""
        if isinstance(self.budget, TokenRetryBudget):
            if attempt.outcome is Outcome.OVERLOAD:
                self.budget.record_failure()
            elif attempt.outcome is Outcome.SUCCESS:
                self.budget.record_success()
        attempts = self.attempts if work.attempts is None else work.attempts
        if attempt.outcome is not Outcome.OVERLOAD or number >= attempts:
            return None
        wait = self._backoff.after(number)
        left = context.remaining()
        if left is not None and left <= max(wait, self._admission.pushback):
            return None
        retry = self.budget.try_retry()
        return (retry, wait) if retry else None

    def _outcome_of(self, ended: object, *, is_error: bool) -> Outcome:
        classify = self._classify or (classify_error if is_error else classify_result)
        try:
            outcome: object = classify(ended)
            check_kind("what classify returns", "an Outcome", outcome, Outcome)
        except Exception as error:
            _core.report(error, classify)
            return Outcome.IGNORED
        return cast("Outcome", outcome)


def _limiter(limit: Limit | None, name: str, clock: Clock | None) -> Limiter:
    if limit is None:
        return GradientLimiter(name=name, clock=clock)
    if isinstance(limit, (int, float)):
        return SemaphoreLimiter(limit, name=name, clock=clock)
    given: object = limit
    check_kind("limit", "a number, a limiter, a gate, or None", given, Limiter)
    return limit


def _checked_attempts(attempts: int) -> int:
    text = f"attempts must be an integer from 1 to {_MOST_ATTEMPTS}, got {attempts!r:.100}"
    given: object = attempts
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(text)
    if not 1 <= given <= _MOST_ATTEMPTS:
        raise ValueError(text)
    return given


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    check_seconds("attempt_timeout", timeout)
    return _seconds("attempt_timeout", timeout)


def _seconds(parameter: str, value: float) -> float:
    text = f"{parameter} must be a number of seconds from 0 to 3600, got {value!r:.100}"
    given: object = value
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(text)
    if not 0 <= given <= _LONGEST:
        raise ValueError(text)
    return float(given)
