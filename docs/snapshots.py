"""What a GradientLimiter says of itself: prints its snapshots from a day in the life of a service.

    python docs/snapshots.py overload

The service has ten workers that take 10 ms on the mean, and it has no luck. Time is that of a
ManualClock, so that a minute takes a second.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from sluicegate import GradientLimiter, ManualClock, Outcome, Permit

if TYPE_CHECKING:
    from collections.abc import Iterator


def from_to(start: float, end: float, then: float, usual: float) -> Callable[[float], float]:
    """Return what is `then` from `start` to `end`, and usual otherwise."""
    return lambda now: then if start <= now < end else usual


@dataclass
class Day:
    """What happens to the service, each by the time in seconds."""

    watch_from: float
    words: list[str]
    """What to look for in `limit_because`, one after the other."""
    rate: Callable[[float], float] = field(default=lambda _: 700)
    """Requests per second."""
    workers: Callable[[float], float] = field(default=lambda _: 10)
    delay: Callable[[float], float] = field(default=lambda _: 0)
    """What is added without work, such as the time that another service takes."""
    outcome: Callable[[float], Outcome] = field(default=lambda _: Outcome.SUCCESS)


DAYS = {
    "calm": Day(5, ["less than half"]),
    "overload": Day(
        20,
        ["cut: latency", "held: latency", "grown: latency"],
        rate=from_to(20, 1e9, 2000, 700),
    ),
    "fewer-workers": Day(
        20,
        ["cut: latency", "test: ", "depends on the limit"],
        workers=from_to(20, 1e9, 2, 10),
    ),
    "slower-dependency": Day(
        20, ["cut: latency", "test: ", "at any limit"], delay=from_to(20, 1e9, 0.2, 0)
    ),
    "failing-dependency": Day(
        20,
        ["overload downstream"],
        outcome=lambda now: Outcome.OVERLOAD if now > 20 else Outcome.SUCCESS,
    ),
    "quiet": Day(20, ["little in flight"], rate=from_to(20, 1e9, 5, 700)),
}


def snapshots(day: Day) -> Iterator[str]:
    """Yield a snapshot for each of the words that are looked for."""
    clock = ManualClock()
    limiter = GradientLimiter(name="db", clock=clock)
    random = Random(1)  # noqa: S311
    order = count()
    events: list[tuple[float, int, Callable[[], None]]] = []
    queue: deque[Permit] = deque()
    busy = 0

    def after(seconds: float, action: Callable[[], None]) -> None:
        heappush(events, (clock.now() + seconds, next(order), action))

    def arrive() -> None:
        after(random.expovariate(day.rate(clock.now())), arrive)
        permit = limiter.try_acquire()
        if permit:
            queue.append(permit)
            work()

    def work() -> None:
        nonlocal busy
        while queue and busy < day.workers(clock.now()):
            busy += 1
            permit = queue.popleft()
            after(random.expovariate(100), partial(finish, permit))

    def finish(permit: Permit) -> None:
        nonlocal busy
        busy -= 1
        after(day.delay(clock.now()), lambda: permit.release(day.outcome(clock.now())))
        work()

    after(0, arrive)
    words = deque(day.words)
    while words:
        now, _, action = heappop(events)
        clock.advance(now - clock.now())
        action()
        snapshot = limiter.snapshot()
        if now >= day.watch_from and words[0] in snapshot.limit_because:
            words.popleft()
            yield f"{now:.1f} s: {snapshot}\n    " + (
                f"baseline {1e3 * (snapshot.baseline or 0):.1f} ms | "
                f"recent {1e3 * (snapshot.recent or 0):.1f} ms | "
                f"slowdown {snapshot.slowdown:.2f} | "
                f"significance {snapshot.significance:.1f} | cap {snapshot.cap:g}"
            )


if __name__ == "__main__":
    for name in sys.argv[1:] or DAYS:
        print(*snapshots(DAYS[name]), sep="\n")  # noqa: T201
