"""The command line: ``sluicegate``."""

import math
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def main() -> None:
    """Run the command line; the entry point of the console script."""
    try:
        _require("click", "rich")
        _commands()(prog_name="sluicegate")
    except KeyboardInterrupt:
        sys.exit(130)


def _require(*modules: str, extra: str = "demo") -> None:
    """Exit with one line that names the extra if a module is not installed."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        sys.exit(
            f"sluicegate: {', '.join(missing)} not installed; "
            f"install with: pip install 'sluicegate[{extra}]'"
        )


def _commands() -> "click.Group":
    """Build the commands; click is an extra, so it is imported only once it is asked for."""
    import click

    from sluicegate._simulate_command import command as simulate
    from sluicegate.demo import DEFAULT_LIMIT

    def number(_: click.Context, parameter: click.Parameter, value: float) -> float:
        if math.isnan(value):  # compares false with both ends of a range
            raise click.BadParameter("not a number", param=parameter)
        return value

    @click.group()
    @click.version_option(version("sluicegate"))
    def commands() -> None:
        """Backpressure and load shedding for Python services."""

    @commands.command()
    @click.option(
        "--seconds",
        type=click.FloatRange(4, 30),
        default=8,
        show_default=True,
        callback=number,
        help="Counted length of each phase, in seconds.",
    )
    @click.option(
        "--limit",
        type=click.IntRange(1, 10_000),
        default=DEFAULT_LIMIT,
        show_default=True,
        help="Requests in flight in the protected server; the pool has 10 connections.",
    )
    @click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Seed of the arrivals.",
    )
    def demo(seconds: float, limit: int, seed: int) -> None:
        """Overload one app twice, with and without protection, and compare.

        Starts two servers on 127.0.0.1, offers both what they can do and then three times that,
        and stops them again. Takes about 75 s, most of which the unprotected server needs to work
        off what it has accepted. Exits 0 if the protected server
        kept at least 90 % of its capacity as goodput while the unprotected one lost more than
        70 %, refusals took less than 20 ms and nothing was left in flight; else 1.
        """
        _require("fastapi", "uvicorn", "aiohttp")
        from rich.console import Console

        from sluicegate.demo.run import Options, run

        sys.exit(run(Options(seconds, limit, seed), Console()))

    commands.add_command(simulate)
    return commands
