"""Backpressure and load shedding for Python services.

A service that uses it keeps its goodput and its latency when more work arrives than it can do:
what it cannot do it refuses early, cheaply, on purpose and counted.
"""

from __future__ import annotations

from sluicegate._bucket import (
    BucketSnapshot,
    KeyedBucketSnapshot,
    KeyedTokenBucket,
    TokenBucket,
)
from sluicegate._clock import Clock, ManualClock
from sluicegate._core import Acquire, Permit, Rejection, __version__
from sluicegate._enums import Criticality, Outcome, Reason
from sluicegate._errors import Rejected, SluicegateError
from sluicegate._limiter import Limit, Limiter
from sluicegate._semaphore import SemaphoreLimiter
from sluicegate._snapshot import Snapshot

__all__ = [
    "Acquire",
    "BucketSnapshot",
    "Clock",
    "Criticality",
    "KeyedBucketSnapshot",
    "KeyedTokenBucket",
    "Limit",
    "Limiter",
    "ManualClock",
    "Outcome",
    "Permit",
    "Reason",
    "Rejected",
    "Rejection",
    "SemaphoreLimiter",
    "SluicegateError",
    "Snapshot",
    "TokenBucket",
    "__version__",
]
