"""What the clients saw, phase by phase: the figures of the report and the promises."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.demo.load import Phase, Tally

PROTECTED_SHARE = 0.90
"""The protected server keeps at least this share of the capacity as goodput."""

UNPROTECTED_SHARE = 0.30
"""The unprotected server keeps less than this share."""

REFUSAL_SECONDS = 0.020
"""99 % of the refusals reach their client within this time."""

LAG_SECONDS = 0.020
"""If the load's own p99 delay exceeds this, the figures cannot be trusted."""


@dataclass(frozen=True)
class PhaseFigures:
    """One server in one phase. Rates are per second, times are seconds; None: nothing to rank."""

    name: str
    offered: float
    """New requests per second."""
    retried: float
    """Second attempts per second, on top of what is offered."""
    goodput: float
    """Answers that count, per second."""
    p50: float | None
    """Median latency of the answers that count."""
    p99: float | None
    attempt_p99: float | None
    """Of the attempt that was answered, without what went before it."""
    refused: int
    refusal_p99: float | None
    """From the start of an attempt to its refusal."""
    timed_out: int
    errors: int
    lag_p99: float | None
    """How late the load itself was: from the scheduled to the real start of a request."""
    goodput_by_second: list[int]
    """Answers that count in each second of the load, the seconds before counting included."""


@dataclass(frozen=True)
class ServerFigures:
    """One server in all phases, and how it came to rest."""

    phases: list[PhaseFigures]
    backlog: int
    """In flight when the last client had its answer or had given up."""
    in_flight: int
    """In flight at the very end."""
    drain_seconds: float | None
    """From the last arrival until nothing was in flight; None: that was not reached."""

    @classmethod
    def from_json(cls, figures: dict[str, Any]) -> "ServerFigures":
        """Read what a driver has sent."""
        phases = [PhaseFigures(**phase) for phase in figures.pop("phases")]
        return cls(phases=phases, **figures)

    @property
    def overload(self) -> PhaseFigures:
        """The last phase."""
        return self.phases[-1]


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that at least ``share`` (0..1) of the values do not exceed."""
    ranked = sorted(values)
    if not ranked:
        return None
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def summarise(tally: Tally, phases: Sequence[Phase], start: float) -> list[PhaseFigures]:
    """Reckon the figures of each phase; everything counts in the phase in which it happened."""
    figures = []
    for phase in phases:
        figures.append(_summarise(tally, phase, start))
        start += phase.length
    return figures


def _summarise(tally: Tally, phase: Phase, start: float) -> PhaseFigures:
    since, until = start + phase.settle, start + phase.length

    def counted(at: float) -> bool:
        return since <= at < until

    lags = [lag for at, lag in tally.arrivals if counted(at)]
    latencies = [latency for at, latency, _ in tally.answers if counted(at)]
    attempts = [attempt for at, _, attempt in tally.answers if counted(at)]
    refusals = [took for at, took in tally.refusals if counted(at)]
    by_second = [0] * math.ceil(phase.length)
    for at, _, _ in tally.answers:
        if start <= at < until:
            by_second[int(at - start)] += 1
    return PhaseFigures(
        name=phase.name,
        offered=len(lags) / phase.seconds,
        retried=sum(map(counted, tally.retries)) / phase.seconds,
        goodput=len(latencies) / phase.seconds,
        p50=percentile(latencies, 0.50),
        p99=percentile(latencies, 0.99),
        attempt_p99=percentile(attempts, 0.99),
        refused=len(refusals),
        refusal_p99=percentile(refusals, 0.99),
        timed_out=sum(map(counted, tally.timeouts)),
        errors=sum(map(counted, tally.errors)),
        lag_p99=percentile(lags, 0.99),
        goodput_by_second=by_second,
    )


def missed(unprotected: ServerFigures, protected: ServerFigures, capacity: float) -> list[str]:
    """Return one line for each promise that the run did not keep."""
    lines = []
    share = protected.overload.goodput / capacity
    if share < PROTECTED_SHARE:
        lines.append(
            f"the protected server's goodput was {share:.0%} of capacity, "
            f"promised are at least {PROTECTED_SHARE:.0%}"
        )
    share = unprotected.overload.goodput / capacity
    if share >= UNPROTECTED_SHARE:
        lines.append(
            f"the unprotected server's goodput was {share:.0%} of capacity, "
            f"expected was less than {UNPROTECTED_SHARE:.0%}"
        )
    slowest = protected.overload.refusal_p99
    if slowest is None:
        lines.append("the protected server refused nothing")
    elif slowest >= REFUSAL_SECONDS:
        lines.append(
            f"a refusal took {slowest * 1e3:.1f} ms (p99), "
            f"promised are less than {REFUSAL_SECONDS * 1e3:.0f} ms"
        )
    for name, server in (("unprotected", unprotected), ("protected", protected)):
        if server.in_flight:
            lines.append(f"{server.in_flight} requests were still in flight in the {name} server")
    return lines


def worst_lag(servers: Iterable[ServerFigures]) -> float:
    """Return how late the load itself was, in seconds: the worst p99 of all phases."""
    return max(phase.lag_p99 or 0.0 for server in servers for phase in server.phases)
