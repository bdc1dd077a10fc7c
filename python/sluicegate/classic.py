"""Limits that follow latency as published elsewhere: baselines, to compare with.

    from sluicegate.classic import Aimd, ClassicLimiter

    limiter = ClassicLimiter(Aimd(max_limit=100))

The limits are those of Netflix's concurrency-limits (Java), with its defaults, number for number;
`Codel` is that of Facebook's folly. They are here for comparison, and for people who come from
them. Each of them fails badly somewhere, by a fault that is named with it; where it matters, use a
`SemaphoreLimiter` or a `CoDelQueue`.
"""

from __future__ import annotations

import reprlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate import _core
from sluicegate._limiter import BaseLimiter

if TYPE_CHECKING:
    from typing import Self

    from sluicegate._clock import Clock

__all__ = [
    "Aimd",
    "Algorithm",
    "ClassicLimiter",
    "Codel",
    "Fixed",
    "Gradient",
    "Gradient2",
    "Vegas",
    "Window",
]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A limit that never moves.

    Known fault: it is right for one capacity only, and capacities change.

    Args:
        limit: From 1 to 1e9.
    """

    limit: int

    def __post_init__(self) -> None:
        self._to_core()

    def _to_core(self) -> _core.Algorithm:
        return _core.Algorithm.fixed(**asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aimd:
    """Additive increase, multiplicative decrease.

    After an OVERLOAD, or what took longer than `timeout`, the limit is multiplied by
    `backoff_ratio`; otherwise it grows by 1 if half of it or more was in flight.

    Known fault: it is blind to latency until the time-out.

    Args:
        initial: The limit to begin with, from `min_limit` to `max_limit`.
        min_limit: The least that the limit may become, from 1.
        max_limit: The most that the limit may become, up to 1e9.
        backoff_ratio: What a cut multiplies the limit by, from 0.5 up to and without 1.
        timeout: What takes longer counts as overload, in seconds, above 0 and at most 3600.
    """

    initial: int = 20
    min_limit: int = 20
    max_limit: int = 200
    backoff_ratio: float = 0.9
    timeout: float = 5.0

    def __post_init__(self) -> None:
        self._to_core()

    def _to_core(self) -> _core.Algorithm:
        return _core.Algorithm.aimd(**asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vegas:
    """After TCP Vegas: the limit follows an estimate of what is queued.

    What is queued is limit * (1 - lowest latency / latency). The limit is moved by log10(limit),
    so that this stays between `alpha` and `beta` times log10(limit).

    Known fault: the latency without load is that of one sample, which a probe takes under
    whatever load there is; with latencies that vary the limit goes far below what is needed.

    Args:
        initial: The limit to begin with, from `min_limit` to `max_limit`.
        min_limit: The least that the limit may become, from 1.
        max_limit: The most that the limit may become, up to 1e9.
        smoothing: How much of a change is made, above 0 and at most 1.
        alpha: With less than so many times log10(limit) queued the limit grows, from 0 to 1000.
        beta: With more than so many times log10(limit) queued it is cut, and with nothing queued
            it grows by so much, from `alpha` to 1000.
        probe_multiplier: The lowest latency is learned anew after about so many times the limit
            of samples, from 1 to 1e9; `None` is never.
        seed: Where chance begins, which says when exactly it probes, from 0 to 2**64 - 1;
            default: anywhere.
    """

    initial: int = 20
    min_limit: int = 1
    max_limit: int = 1000
    smoothing: float = 1.0
    alpha: int = 3
    beta: int = 6
    probe_multiplier: int | None = 30
    seed: int | None = None

    def __post_init__(self) -> None:
        self._to_core()

    def _to_core(self) -> _core.Algorithm:
        return _core.Algorithm.vegas(**asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The latency against the lowest.

    The limit becomes limit * gradient + `queue_size`, where the gradient is `tolerance` * lowest
    latency / latency, from 0.5 to 1. Netflix deprecates it.

    Known fault: it aims at twice the latency without load, and its probe cuts the limit and
    learns that latency while the queue is still there.

    Args:
        initial: The limit to begin with, from `min_limit` to `max_limit`.
        min_limit: The least that the limit may become, from 1; in effect 4, unless `queue_size`
            says otherwise.
        max_limit: The most that the limit may become, up to 1e9.
        smoothing: How much of a cut is made, above 0 and at most 1; growth is never smoothed.
        tolerance: So many times the lowest latency are no reason to cut, from 1.
        backoff_ratio: What an OVERLOAD multiplies the limit by, before smoothing, from 0.5 to 1.
        queue_size: What the limit may exceed the need by, from 0 to 1e9; default: the square root
            of the limit, and at least 4.
        probe_interval: The lowest latency is learned anew after so many samples and up to as many
            again, from 1 to 1e9; `None` is never.
        seed: Where chance begins, which says when exactly it probes, from 0 to 2**64 - 1;
            default: anywhere.
    """

    initial: int = 50
    min_limit: int = 1
    max_limit: int = 1000
    smoothing: float = 0.2
    tolerance: float = 2.0
    backoff_ratio: float = 0.9
    queue_size: int | None = None
    probe_interval: int | None = 1000
    seed: int | None = None

    def __post_init__(self) -> None:
        self._to_core()

    def _to_core(self) -> _core.Algorithm:
        return _core.Algorithm.gradient(**asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient2:
    """The latency against its long-term mean.

    The limit moves towards limit * gradient + `queue_size`, where the gradient is `tolerance` *
    long-term latency / latency, from 0.5 to 1. OVERLOAD is a sample like any other.

    Known fault: overload becomes part of the long-term latency, so that any steady latency is
    soon normal, and the limit grows without end.

    Args:
        initial: The limit to begin with, from `min_limit` to `max_limit`.
        min_limit: The least that the limit may become, from 1.
        max_limit: The most that the limit may become, up to 1e9.
        smoothing: How much of a change is made, above 0 and at most 1.
        tolerance: So many times the long-term latency are no reason to cut, from 1.
        queue_size: What the limit may exceed the need by, from 0 to 1e9.
        long_window: How many samples the long-term latency is a mean of, from 1 to 1e9.
    """

    initial: int = 20
    min_limit: int = 20
    max_limit: int = 200
    smoothing: float = 0.2
    tolerance: float = 1.5
    queue_size: int = 4
    long_window: int = 600

    def __post_init__(self) -> None:
        self._to_core()

    def _to_core(self) -> _core.Algorithm:
        return _core.Algorithm.gradient2(**asdict(self))


Algorithm: TypeAlias = Fixed | Aimd | Vegas | Gradient | Gradient2
"""What a limit may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Makes one sample of many: their mean latency, the most in flight, OVERLOAD if there was one.

    A window lasts for twice the lowest latency of the one before, from `min_duration` to
    `max_duration`, and closes with the first sample after that. With fewer than `min_samples` it
    stays open until it has them; the original throws it away.

    Args:
        min_duration: The least that a window lasts, in seconds, above 0 and at most 3600.
        max_duration: The most that a window lasts for the sake of its latency, in seconds, from
            `min_duration` to 3600.
        min_samples: Fewer samples keep a window open, from 1 to 1e9.
        min_rtt: Faster samples are ignored, OVERLOAD or not, in seconds, from 0 to 3600.
    """

    min_duration: float = 1.0
    max_duration: float = 1.0
    min_samples: int = 10
    min_rtt: float = 1e-4

    def __post_init__(self) -> None:
        self._to_core()

    def _to_core(self) -> _core.Window:
        return _core.Window(**asdict(self))


class ClassicLimiter(BaseLimiter, _core.ClassicLimiter):
    """A limiter whose limit follows a published algorithm: a baseline, to compare with.

    It admits, waits and wakes as a `SemaphoreLimiter` does. What a permit is given back with
    teaches it: a SUCCESS is a sample of the time from admission to release, an OVERLOAD the same
    and a reason to cut, and what is IGNORED teaches nothing. The time in line does not count.
    While less than half of the limit is in flight it does not grow.

    `snapshot().limit_because` says what the last sample did: "aimd: overload, cut".

    Args:
        algorithm: What the limit follows: `Fixed`, `Aimd`, `Vegas`, `Gradient` or `Gradient2`.
            It is not changed, and may be shared.
        window: What makes one sample of many; `None` hands every sample to the algorithm.
        name: What it is called in rejections, snapshots and metrics; default: "limiter",
            "limiter-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def __new__(
        cls,
        algorithm: Algorithm,
        *,
        window: Window | None = Window(),  # immutable
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Check the arguments and make it."""
        kinds = "Fixed(…), Aimd(…), Vegas(…), Gradient(…) or Gradient2(…)"
        _insist("algorithm", kinds, algorithm, Algorithm)
        _insist("window", "Window(…) or None", window, Window | None)
        return super().__new__(
            cls,
            algorithm._to_core(),  # noqa: SLF001  # its own module
            window=None if window is None else window._to_core(),  # noqa: SLF001
            name=name,
            clock=clock,
        )


def _insist(parameter: str, kinds: str, value: object, types: Any) -> None:
    if not isinstance(value, types):
        msg = f"{parameter} must be {kinds}, got {reprlib.repr(value)}"
        raise TypeError(msg)


class Codel(_core.Codel):
    """Controlled delay as in Facebook's folly: asked at each dequeue whether to reject the item.

    If the smallest delay within the last `interval` was above `target`, what has waited for more
    than twice the target is to be rejected.

        if codel.overloaded(time.monotonic() - item.queued_at):
            reject(item)

    Known fault: it sees only what is dequeued, so that a queue whose workers are stuck keeps its
    items for ever, and the published 5 and 100 ms fit services of a few milliseconds only.

    Args:
        target: The target delay, in seconds, above 0.
        interval: Over how many seconds the smallest delay is taken, longer than the target and at
            most 3600.
        clock: Where time comes from; default: the monotonic clock of the system.

    Raises:
        ValueError: If a span is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        spans = f"target {self.target:g} s, interval {self.interval:g} s"
        return f"<Codel: {spans}, load {self.load:.0f} %>"
