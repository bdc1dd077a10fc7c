"""The closed sets of words that everything else speaks in."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Criticality(IntEnum):
    """How much a unit of work matters, least first.

    The four classes of Google's SRE book. The default everywhere is `CRITICAL`: whoever says
    nothing is served like everybody else.
    """

    SHEDDABLE = 0
    """Partial unavailability is expected: batch work, prefetching."""
    SHEDDABLE_PLUS = 1
    """Occasional unavailability is expected."""
    CRITICAL = 2
    """Users see it when it fails."""
    CRITICAL_PLUS = 3
    """Users see it at once and badly when it fails."""


class Outcome(StrEnum):
    """How a unit of work ended, as far as a limiter is concerned."""

    SUCCESS = "success"
    """The work was done; its duration teaches a limiter."""
    IGNORED = "ignored"
    """Says nothing of its own about load: client errors, cancellations, our own rejections."""
    OVERLOAD = "overload"
    """Overload was seen downstream: a time-out, a 504; at clients also a 429 or a 503."""


class Reason(StrEnum):
    """Why work was rejected: a closed set, used as a metric label.

    `RATE` answers 429, all others 503.
    """

    CLOSED = "closed"
    """The gate or queue is closed."""
    DEADLINE = "deadline"
    """The deadline has passed, or what is left of it cannot suffice."""
    RATE = "rate"
    """Over a rate or quota."""
    PRIORITY = "priority"
    """Below the priority that is being admitted."""
    LIMIT = "limit"
    """No room, and waiting was not asked for."""
    FULL = "full"
    """No room in the waiting line either."""
    WAIT = "wait"
    """Waited for as long as it may."""
    EVICTED = "evicted"
    """Pushed out of the line by more critical work."""
    THROTTLED = "throttled"
    """Refused by a client-side throttle."""
    SATURATED = "saturated"
    """The next stage reports saturation."""
    STREAMS = "streams"
    """Too many streams or websockets are open."""
    BUDGET = "budget"
    """The retry budget is used up."""
