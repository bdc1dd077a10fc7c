"""The limiter whose limit follows latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluicegate import _core
from sluicegate._limiter import BaseLimiter
from sluicegate._snapshot import Snapshot

if TYPE_CHECKING:
    from typing import Self

    from sluicegate._clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSnapshot(Snapshot):
    """The state of a `GradientLimiter` at one moment; `dataclasses.asdict()` of it is JSON.

    `limit_because` says it all in short: "cut: latency 2.4x of 52 ms". While it says "test: …" the
    limit is halved, to see whether latency depends on it.

    Attributes:
        min_limit: The least that the limit may become.
        max_limit: The most that the limit may become.
        latency_target: What 95 % are to take at most, in seconds; `None`: twice the baseline, on
            the mean.
        baseline: The mean latency without overload, in seconds, of what was done in the last
            window; `None` before the first one.
        recent: The mean latency in the last window, in seconds.
        slowdown: So many times the baseline is what is recent; 1 if nothing is known.
        significance: By how many standard errors latency is above what is tolerated, from -1000
            to 1000; from 2 on the limit is cut.
        cap: What the limit may not exceed now, by what was in flight of late.
    """

    min_limit: float
    max_limit: float
    latency_target: float | None
    baseline: float | None
    recent: float | None
    slowdown: float
    significance: float
    cap: float


class GradientLimiter(BaseLimiter, _core.GradientLimiter):
    """A limiter whose limit follows latency: it finds by itself how much may be in flight.

    It admits, waits and wakes as a `SemaphoreLimiter` does. What a permit is given back with
    teaches it; the time from admission to release is a sample, without the time in line.

    - SUCCESS is a sample.
    - OVERLOAD is a reason to cut, once in a window, however many there are, if it is one in 20 or
      more; and a sample if it took longer than is usual.
    - IGNORED was cut off: shorter than is usual it teaches nothing, longer it is a sample, and
      at twice the baseline or more it counts as OVERLOAD. So a time-out that comes as a
      cancellation is seen, and strangers who hang up cut nothing.

    The mean latency of a window is compared with a *baseline*, the mean latency without overload.
    If it is significantly more than twice as high while the limit is reached, the limit is cut;
    if it is not too high while half of the limit or more is in use, the limit grows, and fast
    while latency is as without load. After three cuts in a row the limit is halved for a while,
    to tell a service that is overloaded, and does as much as before, from one that has become
    slower, and does half as much: that latency is the new baseline.

    Name the kind of work, as in `acquire(operation="GET /report")`, or `permit.operation = …`
    until the release, if kinds differ much: each has a baseline of its own, so that more of a slow
    kind is no overload. The names should be few, such as those of routes; up to 64 are kept apart.

    The limit is at most four times the peak in flight within the last minute (or 20 mean
    latencies, if that is longer), or `initial`, if that is more: it does not grow unused. If nobody
    comes for as long, it is `initial` again, whatever it was cut to.

    Args:
        initial: The limit to begin with, from `min_limit` to `max_limit`.
        min_limit: The least that the limit may become, above 0 and at most 1e9. Below 1 it admits
            one at a time with a rest in between.
        max_limit: The most that the limit may become, from `min_limit` to 1e9.
        latency_target: What 95 % are to take at most, in seconds, above 0 and at most 3600: the
            limit is not cut while they do, and is cut while significantly more take longer and
            something is queued. What takes longer without a queue too is not to be had by a
            limit: then the queue is kept short. `None` aims at twice the baseline, on the mean.
        name: What it is called in rejections, snapshots and metrics; default: "limiter",
            "limiter-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If an argument is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def __new__(
        cls,
        *,
        initial: float = 20,
        min_limit: float = 1,
        max_limit: float = 1000,
        latency_target: float | None = None,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Check the arguments and make it."""
        return super().__new__(
            cls,
            initial=initial,
            min_limit=min_limit,
            max_limit=max_limit,
            latency_target=latency_target,
            name=name,
            clock=clock,
        )

    def snapshot(self) -> GradientSnapshot:
        """Return the state at this moment."""
        values = self._snapshot()
        del values["next_expiry"]
        return GradientSnapshot(**values)
