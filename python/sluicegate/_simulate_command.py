"""``sluicegate simulate``; imported only once it is asked for, since it needs click and rich."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sluicegate import _core
from sluicegate._comparison import Comparison, markdown, table, totals, worst
from sluicegate.simulation import Result, Series, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from sluicegate.plotting import Panel

OWN: Final = "own"
"""What stands for the policy of the file."""

_NO_SERIES: Final = Series(*((),) * len(fields(Series)))


@dataclass(frozen=True, slots=True)
class Played:
    """A scenario to play."""

    file: str
    variant: str
    seeds: int


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation; what it gives has the series only if they are drawn."""

    played: Played
    policy: str
    seed: int
    is_drawn: bool

    def __call__(self) -> Result:
        policy = None if self.policy == OWN else self.policy
        result = simulate(
            self.played.file, policy=policy, seed=self.seed, variant=self.played.variant
        )
        return result if self.is_drawn else replace(result, series=_NO_SERIES)


@click.command("simulate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--policy",
    "policies",
    metavar="POLICY",
    multiple=True,
    help='In front of the first stage, such as "codel+gradient2", "none", or "own" for that of '
    "the file, which it is by default. Several are compared.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    help="How many seeds to play, from 1 on.  [default: as many as the file says]",
)
@click.option("--variant", metavar="NAME", help="Only the variant of that name.")
@click.option(
    "--markdown",
    "is_markdown",
    is_flag=True,
    help="Print one table in Markdown: a row for each bound, a column for each policy.",
)
@click.option(
    "--plot",
    metavar="OUT",
    type=click.Path(dir_okay=False, writable=True),
    help="Draw seed 1 of the scenario to a .png or .svg file.",
)
@click.option(
    "--panel",
    "panels",
    type=click.Choice(["load", "latency", "limit", "waiting"]),
    multiple=True,
    help="What to draw of it, one below the other.  [default: all]",
)
def command(
    files: tuple[str, ...],
    policies: tuple[str, ...],
    seeds: int | None,
    variant: str | None,
    is_markdown: bool,
    plot: str | None,
    panels: tuple[Panel, ...],
) -> None:
    """Play load scenarios in virtual time, and compare policies.

    Prints for each scenario a row for each policy, and a column for each bound that has to hold,
    with the value of the worst seed; those that miss it are marked. Exits 0 if all bounds hold, or
    if several policies were compared; else 1.
    """
    from rich.console import Console

    policies = tuple(dict.fromkeys(policies)) or (OWN,)
    try:
        played = list(_chosen(files, variant, seeds))
        _check_plot(plot, played, policies)
        started = time.monotonic()
        results = _play(_runs(played, policies, is_drawn=plot is not None))
        comparisons = _compare(played, policies, results)
        if plot is not None:
            from sluicegate.plotting import PANELS
            from sluicegate.plotting import plot as draw

            draw(_drawn(results, policies), plot, panels=panels or PANELS)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    if is_markdown:
        click.echo("\n".join(markdown(comparisons)))
    else:
        seconds = time.monotonic() - started
        _print(Console(highlight=False), comparisons, list(results.values()), seconds)
    all_hold = all(kept == of for kept, of in totals(comparisons).values())
    sys.exit(0 if all_hold or len(policies) > 1 else 1)


def _chosen(files: tuple[str, ...], variant: str | None, seeds: int | None) -> Iterator[Played]:
    names = []
    found = False
    for file in dict.fromkeys(files):
        for name, of_file in _core.variants(file, None):
            names.append(name)
            if variant is None or name == variant:
                found = True
                yield Played(file, name, seeds or of_file)
    if not found:
        known = ", ".join(repr(name) for name in names)
        raise ValueError(f"variant must be one of {known}, got {variant!r}")


def _check_plot(plot: str | None, played: list[Played], policies: tuple[str, ...]) -> None:
    """Refuse, before anything is played, what cannot be drawn."""
    if plot is None:
        return
    if Path(plot).suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"plot must end in .png or .svg, got {plot!r}")
    if len(played) > 1:
        names = ", ".join(repr(each.variant) for each in played)
        raise ValueError(f"plot draws one scenario; choose one by --variant: {names}")
    from sluicegate.plotting import MOST_DRAWN

    if len(policies) > MOST_DRAWN:
        raise ValueError(f"plot draws at most {MOST_DRAWN} policies, got {len(policies)}")
    if find_spec("matplotlib") is None:
        sys.exit(
            "sluicegate: matplotlib not installed; install with: pip install 'sluicegate[plot]'"
        )


def _runs(played: list[Played], policies: tuple[str, ...], *, is_drawn: bool) -> list[Run]:
    return [
        Run(each, policy, seed, is_drawn=is_drawn and seed == 1)
        for each in played
        for policy in policies
        for seed in range(1, each.seeds + 1)
    ]


def _play(runs: list[Run]) -> dict[Run, Result]:
    """Play them all, on every core."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        futures = [pool.submit(run) for run in runs]
        shown = track(
            futures,
            description="simulating",
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        return {run: future.result() for run, future in zip(runs, shown, strict=True)}
    finally:
        pool.shutdown(cancel_futures=True)


def _compare(
    played: list[Played], policies: tuple[str, ...], results: dict[Run, Result]
) -> list[Comparison]:
    comparisons = []
    for each in played:
        of_policies = {}
        for policy in policies:
            of_seeds = [
                result
                for run, result in results.items()
                if run.played == each and run.policy == policy
            ]
            checks = zip(*(result.checks for result in of_seeds), strict=True)
            of_policies[_name(policy, of_seeds[0], policies)] = tuple(
                worst(same) for same in checks
            )
            scenario = of_seeds[0].scenario
        comparisons.append(Comparison(scenario, each.seeds, of_policies))
    return comparisons


def _name(policy: str, result: Result, policies: tuple[str, ...]) -> str:
    """Return what it is called beside the others: two files differ in what is their own."""
    return policy if len(policies) > 1 else result.policy


def _drawn(results: dict[Run, Result], policies: tuple[str, ...]) -> list[Result]:
    return [
        replace(result, policy=_name(run.policy, result, policies))
        for run, result in results.items()
        if run.is_drawn
    ]


def _print(
    console: Console, comparisons: list[Comparison], results: list[Result], seconds: float
) -> None:
    for comparison in comparisons:
        console.print(table(comparison))
    for policy, (kept, of) in totals(comparisons).items():
        console.print(f"{policy}: {kept} of {of} bounds hold", markup=False, soft_wrap=True)
    requests = sum(result.requests for result in results)
    console.print(
        f"{len(results)} simulations, {requests:,} requests, {seconds:.1f} s", soft_wrap=True
    )
