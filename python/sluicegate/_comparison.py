"""The table that compares policies: what ``sluicegate simulate`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluicegate.simulation import Check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

SPANS: Final = frozenset({"mean", "p50", "p95", "p99", "slowest", "good_p50", "good_p99"})
SHARES: Final = frozenset({"good", "lost", "rejected", "late", "failed"})
RATES: Final = frozenset({"offered", "goodput", "throughput", "attempts", "throttled"})

MISSED: Final = "✗"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of one scenario."""

    scenario: str
    seeds: int
    """How many it was played with."""
    policies: dict[str, tuple[Check, ...]]
    """Of each policy, for each bound of the scenario, the check of the worst seed."""

    @property
    def bounds(self) -> tuple[Check, ...]:
        """The bounds, whatever came of them."""
        return next(iter(self.policies.values()))


def worst(checks: Iterable[Check]) -> Check:
    """Return the one that is furthest beyond its bound, or else nearest to it."""
    return max(checks, key=_excess)


def _excess(check: Check) -> float:
    """Return by how much the bound is missed; below zero if it holds."""
    if check.value is None:  # nothing was measured, which is as bad as can be
        return float("inf")
    beyond = [float("-inf")]
    if check.min is not None:
        beyond.append(check.min - check.value)
    if check.max is not None:
        beyond.append(check.value - check.max)
    return max(beyond)


def number(measure: str, value: float) -> str:
    """Write a value with its unit and about four digits."""
    if measure in SPANS:
        return f"{value:.4g} s" if value >= 1 else f"{value * 1e3:.4g} ms"
    if measure in SHARES:
        return f"{value:.2%}".replace(".00%", "%").replace("%", " %")
    return _plain(value) + ("/s" if measure in RATES else "")


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def bound(check: Check) -> str:
    """Write what is bounded, and by what."""
    low, high = (None if it is None else number(check.measure, it) for it in (check.min, check.max))
    if low is not None and high is not None:
        return f"{check.measure} {low} … {high}"
    if low is not None:
        return f"{check.measure} ≥ {low}"
    return check.measure if high is None else f"{check.measure} ≤ {high}"


def window(check: Check) -> str:
    """Write when it has to hold, and of which class."""
    of = "" if check.of is None else f", {check.of}"
    return f"{check.start:g}-{check.end:g} s{of}"


def _value(check: Check) -> str:
    value = "-" if check.value is None else number(check.measure, check.value)
    return value if check.holds else f"{value} {MISSED}"


def table(comparison: Comparison) -> Table:
    """Make the table of one scenario: a row for each policy, a column for each bound."""
    from rich.table import Table
    from rich.text import Text

    worst_of = f"worst of {comparison.seeds} seeds" if comparison.seeds > 1 else "seed 1"
    result = Table(
        title=Text(f"{comparison.scenario} ({worst_of})"), title_justify="left", title_style="bold"
    )
    result.add_column("policy")
    for check in comparison.bounds:
        header = Text(f"{bound(check)}\n{window(check)}")
        result.add_column(header, justify="right", overflow="fold")
    for policy, checks in comparison.policies.items():
        cells = [Text(_value(check), style="" if check.holds else "bold red") for check in checks]
        result.add_row(Text(policy), *cells)
    return result


def markdown(comparisons: list[Comparison]) -> Iterator[str]:
    """Write one table of all scenarios: a row for each bound, a column for each policy."""
    policies = list(totals(comparisons))
    yield _row(["scenario", "bound", "window", *policies])
    yield "|---|---|---|" + "---:|" * len(policies)
    for comparison in comparisons:
        name = comparison.scenario
        for number_of, check in enumerate(comparison.bounds):
            row = [name if number_of == 0 else "", bound(check), window(check)]
            for policy in policies:
                checks = comparison.policies.get(policy)
                row.append("" if checks is None else _value(checks[number_of]))
            yield _row(row)
    hold = [f"{kept} of {of}" for kept, of in totals(comparisons).values()]
    yield _row(["bounds that hold", "", "", *hold])


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def totals(comparisons: list[Comparison]) -> dict[str, tuple[int, int]]:
    """Count for each policy how many bounds hold in the worst seed, and of how many."""
    counted: dict[str, tuple[int, int]] = {}
    for comparison in comparisons:
        for policy, checks in comparison.policies.items():
            kept, of = counted.get(policy, (0, 0))
            counted[policy] = kept + sum(check.holds for check in checks), of + len(checks)
    return counted
