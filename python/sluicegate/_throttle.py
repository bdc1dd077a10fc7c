"""Client-side throttling."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from sluicegate import _classify, _core
from sluicegate._enums import Criticality, Outcome
from sluicegate._guard import is_coroutine_function, refuse_generator_function

if TYPE_CHECKING:
    from sluicegate._classify import Classify

# What is no response, as is known without a look.
_PLAIN = frozenset({type(None), bool, bytes, dict, float, int, list, str, tuple})

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSnapshot:
    """The state of a throttle at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the throttle.
        k: How many requests may be sent for each one that is accepted.
        window: For how many seconds a request counts.
        max_rejection: The highest probability of a refusal.
        min_requests: Below so many requests within the window nothing is refused.
        requests: How many requests bear on the probability: those that were answered or refused
            here within the window, and those that were sent lately.
        accepts: How many of them were accepted, or were sent lately and may be.
        in_flight: How many were admitted within the window and are not answered yet.
        rejection_probability: How likely the next request is to be refused, by criticality.
        admitted: How many requests were let through since the start.
        rejected: How many were refused since the start, by criticality.
        outcomes: How many were answered since the start, by outcome.
    """

    name: str
    k: float
    window: float
    max_rejection: float
    min_requests: int
    requests: int
    accepts: int
    in_flight: int
    rejection_probability: Mapping[Criticality, float]
    admitted: int
    rejected: Mapping[Criticality, int]
    outcomes: Mapping[Outcome, int]

    def __str__(self) -> str:
        shares = " ".join(
            f"{share:.0%} {criticality.name}"
            for criticality, share in self.rejection_probability.items()
            if share
        )
        return (
            f"{self.name}: rejecting {shares or 'nothing'} | "
            f"{self.accepts} of {self.requests} accepted in {self.window:g} s, k {self.k:g} | "
            f"{self.in_flight} in flight | "
            f"{self.admitted} admitted, {sum(self.rejected.values())} rejected"
        )


class AdaptiveThrottle(_core.AdaptiveThrottle):
    """Refuses requests here that the backend would most likely refuse.

    The client-side throttling of Google's SRE book. While a backend is overloaded, sending it what
    it has to refuse costs both sides work. So as soon as fewer than one in `k` requests of the
    last `window` seconds is accepted, requests are refused here at random, with the probability

        min(max_rejection, max(0, (requests - k * accepts) / (requests + 1)))

    where `requests` counts those that were refused here, too, and whatever is not OVERLOAD is an
    accept: a 404 is an answer. Keep one throttle for each backend.

        throttle = AdaptiveThrottle()

        @throttle.guard()
        async def fetch(path: str) -> bytes: ...

    or `allow()` before and `record()` after each request.

    - Requests that were sent within the last fifth of the window and are not answered yet are
      taken for accepted, so that a first burst of slow ones throttles nothing. What waits for
      longer says nothing: put a time-out inside of what is guarded.
    - The least critical requests are refused first. Answers are not told apart by criticality:
      what has to be refused is taken from the lowest class, by its share of the requests, and only
      what goes beyond `max_rejection` of it from the next one.
    - Some always pass, so that a healed backend is found: if none has for a thirtieth of the
      window and nine were refused since, the next one does.

    One object serves all threads and event loops. After a fork, what is in flight is the parent's.

    Args:
        k: How many requests may be sent for each one that is accepted, from 1 to 1e6. Less spares
            the backend more refusals; more finds out sooner that it is well again. With 1 no more
            is sent than is accepted, and it hardly ever finds out: use 1.1 or more.
        window: For how many seconds a request counts, above 0 and at most 3600; several times as
            long as an answer takes. The SRE book has 120.
        max_rejection: The highest probability of a refusal, from 0 to 1. The SRE book has 1.
        min_requests: Below so many requests within the window nothing is refused; an integer from
            0 to 1e9.
        name: What it is called in rejections, snapshots and metrics; default: "throttle",
            "throttle-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If a number is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def guard(
        self,
        *,
        accept: type[BaseException] | tuple[type[BaseException], ...] = (),
        classify: Classify | None = None,
        criticality: Criticality | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Make a decorator that asks before each call of a function and records how it ended.

        Works on functions and coroutine functions. A call that is refused raises `Rejected`, with
        the reason THROTTLED.

        Without `classify`, a result is a SUCCESS, unless it looks like a response (of httpx,
        requests, aiohttp, …): 429, 503 and 504 are OVERLOAD, and other statuses from 400 on are
        answers, IGNORED. So it is with an exception that holds such a response. A `TimeoutError`
        or `ConnectionRefusedError`, also behind another exception, is OVERLOAD. Any other
        exception, a cancellation, and our own errors are IGNORED, which counts as accepted.

        Args:
            accept: Exceptions that are answers of a backend that is well. They, their subclasses,
                and what is raised from them count as accepted, whatever `classify` says.
            classify: Says how a call ended: gets its result, or the exception that it raised, of
                whatever kind. If it fails, or returns no `Outcome`, that is reported to
                `sys.unraisablehook` and the call counts as IGNORED; it ends as it would have.
            criticality: How much the calls matter; default: CRITICAL.

        Raises:
            TypeError: If the function is a generator function, or an argument of a wrong type.
        """
        accepted = _exception_classes(accept)
        _check(classify, criticality)
        of_error = classify or _classify.classify_error
        of_result = classify or _classify.classify_result

        def of_error_unless_accepted(error: object) -> Outcome:
            if isinstance(error, BaseException) and any(
                isinstance(cause, accepted) for cause in _classify.causes(error)
            ):
                return Outcome.IGNORED
            return of_error(error)

        classify_raised = of_error_unless_accepted if accepted else of_error
        admit, record, record_as = self._admit, self.record, self._record_as
        success = Outcome.SUCCESS
        plain = _PLAIN if classify is None else ()

        async def recorded(coroutine: CoroutineType[Any, Any, Any]) -> Any:
            try:
                result = await coroutine
            except BaseException as error:
                record_as(classify_raised, error)
                raise
            if type(result) in plain:
                record(success)
            else:
                record_as(of_result, result)
            return result

        def decorate(function: Callable[P, R], /) -> Callable[P, R]:
            refuse_generator_function(function, "ask allow() and record() inside it instead")
            if is_coroutine_function(function):
                awaited = cast("Callable[P, Any]", function)

                @functools.wraps(function)
                async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                    admit(criticality)
                    try:
                        result = await awaited(*args, **kwargs)
                    except BaseException as error:
                        record_as(classify_raised, error)
                        raise
                    if type(result) in plain:
                        record(success)
                    else:
                        record_as(of_result, result)
                    return result

                return cast("Callable[P, R]", guarded_async)

            @functools.wraps(function)
            def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
                admit(criticality)
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:
                    record_as(classify_raised, error)
                    raise
                if isinstance(result, CoroutineType):
                    # A coroutine function in the clothes of a plain one.
                    return cast("R", recorded(result))
                if type(result) in plain:
                    record(success)
                else:
                    record_as(of_result, result)
                return result

            return guarded

        return decorate

    def snapshot(self) -> ThrottleSnapshot:
        """Return the state at this moment."""
        return ThrottleSnapshot(name=self.name, **self._snapshot())

    def __repr__(self) -> str:
        return (
            f"<AdaptiveThrottle {self.name!r}: rejection probability "
            f"{self.rejection_probability:.2f}>"
        )


def _check(classify: object, criticality: object) -> None:
    if classify is not None and not callable(classify):
        msg = f"classify must be callable, or None, got {reprlib.repr(classify)}"
        raise TypeError(msg)
    if criticality is not None and not isinstance(criticality, Criticality):
        msg = f"criticality must be a Criticality, or None, got {reprlib.repr(criticality)}"
        raise TypeError(msg)


def _exception_classes(accept: object) -> tuple[type[BaseException], ...]:
    classes = accept if isinstance(accept, tuple) else (accept,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            msg = f"accept must be exception classes, got {reprlib.repr(one)}"
            raise TypeError(msg)
    return classes
