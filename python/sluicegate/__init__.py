"""Backpressure and load shedding for Python services.

A service that uses it keeps its goodput and its latency when more work arrives than it can do:
what it cannot do it refuses early, cheaply, on purpose and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate._bucket import (
    BucketSnapshot,
    KeyedBucketSnapshot,
    KeyedTokenBucket,
    TokenBucket,
)
from sluicegate._classify import Classify
from sluicegate._clock import Clock, ManualClock
from sluicegate._core import Acquire, Deadline, Permit, Rejection, RetryPermit, Take, __version__
from sluicegate._destination import Destination, DestinationSnapshot
from sluicegate._enums import Criticality, Outcome, Reason
from sluicegate._errors import (
    DeadlineExceeded,
    QueueClosed,
    Rejected,
    SluicegateError,
    TimedOut,
)
from sluicegate._gate import Gate, GateSnapshot
from sluicegate._gradient import GradientLimiter, GradientSnapshot
from sluicegate._limiter import Limit, Limiter
from sluicegate._queue import CoDelQueue, QueueSnapshot
from sluicegate._retry_budget import (
    RetryBudget,
    RetryBudgetSnapshot,
    TokenRetryBudget,
    TokenRetryBudgetSnapshot,
)
from sluicegate._semaphore import SemaphoreLimiter
from sluicegate._snapshot import Snapshot
from sluicegate._throttle import AdaptiveThrottle, ThrottleSnapshot

if TYPE_CHECKING:
    from sluicegate.simulation import Result, simulate

__all__ = [
    "Acquire",
    "AdaptiveThrottle",
    "BucketSnapshot",
    "Classify",
    "Clock",
    "CoDelQueue",
    "Criticality",
    "Deadline",
    "DeadlineExceeded",
    "Destination",
    "DestinationSnapshot",
    "Gate",
    "GateSnapshot",
    "GradientLimiter",
    "GradientSnapshot",
    "KeyedBucketSnapshot",
    "KeyedTokenBucket",
    "Limit",
    "Limiter",
    "ManualClock",
    "Outcome",
    "Permit",
    "QueueClosed",
    "QueueSnapshot",
    "Reason",
    "Rejected",
    "Rejection",
    "Result",
    "RetryBudget",
    "RetryBudgetSnapshot",
    "RetryPermit",
    "SemaphoreLimiter",
    "SluicegateError",
    "Snapshot",
    "Take",
    "ThrottleSnapshot",
    "TimedOut",
    "TokenBucket",
    "TokenRetryBudget",
    "TokenRetryBudgetSnapshot",
    "__version__",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Import the simulator once it is asked for: no service needs it."""
    if name not in ("Result", "simulate"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sluicegate import simulation

    found: object = getattr(simulation, name)
    globals()[name] = found
    return found
