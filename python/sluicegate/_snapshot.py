"""The state of a limiter at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate._enums import Outcome, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a limiter at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the limiter.
        limit: How much may be in flight at once.
        limit_because: Why the limit is what it is.
        in_flight: The cost in flight.
        waiting: How many wait in line.
        oldest_wait: How long the oldest of them has waited, in seconds.
        saturation: In flight / limit; 1 if the limit is 0.
        admitted: How many permits were given since the start.
        rejected: How many were rejected, by reason.
        outcomes: How many permits were given back, by outcome.
        revoked: How many grants went to somebody else because nobody came to claim them: their
            event loop was blocked for more than 50 ms, or gone.
        stray_releases: How many releases came for a permit that had been given back already.
    """

    name: str
    limit: float
    limit_because: str
    in_flight: int
    waiting: int
    oldest_wait: float
    saturation: float
    admitted: int
    rejected: Mapping[Reason, int]
    outcomes: Mapping[Outcome, int]
    revoked: int
    stray_releases: int

    def __str__(self) -> str:
        rejected = sum(self.rejected.values())
        waiting = f"{self.waiting} waiting"
        if self.waiting:
            waiting += f", oldest {self.oldest_wait:.2f} s"
        return (
            f"{self.name}: limit {self.limit:g} ({self.limit_because}) | "
            f"{self.in_flight} in flight | {waiting} | "
            f"{self.admitted} admitted, {rejected} rejected"
        )
