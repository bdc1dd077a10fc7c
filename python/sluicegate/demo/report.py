"""What the user reads at the end: the table, the seconds of the overload, one sentence."""

from typing import Final

from rich.table import Table

from sluicegate.demo import PATIENCE_SECONDS
from sluicegate.demo.results import (
    PROTECTED_SHARE,
    UNPROTECTED_SHARE,
    PhaseFigures,
    ServerFigures,
)

PHASE_ROWS: Final = (
    "offered, rps",
    "retries, rps",
    "goodput, rps",
    "share of capacity",
    "answered, p50",
    "answered, p99",
    "  its attempt, p99",
    "refused",
    "time to refuse, p99",
    "timed out",
    "errors",
)
REST_ROWS: Final = ("in flight, clients gone", "empty after", "in flight at the end")
SECTION_ENDS: Final = frozenset({"share of capacity", "  its attempt, p99", "errors"})


def seconds(value: float | None) -> str:
    """Write a time with about three digits."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1e3:.{1 if value < 0.1 else 0}f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def table(servers: dict[str, ServerFigures], capacity: float, settle: float) -> Table:
    """Make the table: a column for each phase and server."""
    result = Table(
        caption=f"Capacity is {capacity:.0f} rps. The first {settle:g} s of each phase are not "
        f"counted. Clients leave after {PATIENCE_SECONDS:g} s and retry once. Goodput: answers "
        "before they leave. Answered: from the scheduled arrival, so with the wait that a refusal "
        "asked for; who got no answer in time is in no time. Empty after: from the last arrival.",
        caption_justify="left",
    )
    result.add_column("")
    columns: list[list[str]] = []
    names = [phase.name for phase in next(iter(servers.values())).phases]
    for index, name in enumerate(names):
        for server, figures in servers.items():
            result.add_column(f"{name}\n{server}", justify="right")
            rest = _rest(figures) if index == len(names) - 1 else [""] * len(REST_ROWS)
            columns.append(_phase(figures.phases[index], capacity) + rest)
    for title, *row in zip(PHASE_ROWS + REST_ROWS, *columns, strict=True):
        result.add_row(title, *row, end_section=title in SECTION_ENDS)
    return result


def _phase(phase: PhaseFigures, capacity: float) -> list[str]:
    return [
        f"{phase.offered:.0f}",
        f"{phase.retried:.0f}",
        f"{phase.goodput:.0f}",
        f"{phase.goodput / capacity:.0%}",
        seconds(phase.p50),
        seconds(phase.p99),
        seconds(phase.attempt_p99),
        str(phase.refused),
        seconds(phase.refusal_p99),
        str(phase.timed_out),
        str(phase.errors),
    ]


def _rest(server: ServerFigures) -> list[str]:
    empty = "never" if server.drain_seconds is None else seconds(server.drain_seconds)
    return [str(server.backlog), empty, str(server.in_flight)]


def by_second(servers: dict[str, ServerFigures]) -> list[str]:
    """Write the goodput of every second of the overload, the uncounted ones included."""
    width = max(map(len, servers))
    return [
        f"{name:<{width}} " + "".join(f"{count:>4}" for count in server.overload.goodput_by_second)
        for name, server in servers.items()
    ]


def sentence(unprotected: ServerFigures, protected: ServerFigures, capacity: float) -> str:
    """Say in one sentence what happened when more was offered than could be done."""
    bare, safe = unprotected.overload, protected.overload
    bare_share, safe_share = bare.goodput / capacity, safe.goodput / capacity

    kept = "kept answering" if safe_share >= PROTECTED_SHARE else "fell to"
    first = (
        f"Offered {safe.offered / capacity:.1f} times its capacity, the protected server {kept} "
        f"{safe.goodput:.0f} requests per second in time ({safe_share:.0%} of capacity)"
    )
    if safe.refusal_p99 is not None:
        first += f" and refused the rest within {seconds(safe.refusal_p99)} (p99)"

    fell = "fell to" if bare_share < UNPROTECTED_SHARE else "answered"
    second = f"the unprotected one {fell} {bare.goodput:.0f} ({bare_share:.0%})"
    if unprotected.drain_seconds is None:
        second += f" and never came to rest: {unprotected.in_flight} are still in flight"
    elif unprotected.backlog:
        second += (
            f" and needed {unprotected.drain_seconds:.0f} s after the last arrival to work off "
            f"{unprotected.backlog} requests that nobody was waiting for any more"
        )
    return f"{first}; {second}."
