"""Drawings of what came of a scenario; needs the extra `sluicegate[plot]`.

from sluicegate import simulate
from sluicegate.plotting import plot

policies = ["none", "codel"]
plot([simulate("overload.toml", policy=policy) for policy in policies], "overload.svg")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, get_args

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sluicegate.simulation import Result, Series

__all__ = ["PANELS", "Panel", "figure", "plot"]

Panel = Literal["load", "latency", "limit", "waiting"]
"""A part of a drawing."""
PANELS: Final[tuple[Panel, ...]] = get_args(Panel)
"""All of them."""

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Those of Okabe and Ito, which the colour-blind can tell apart."""
MOST_DRAWN: Final = len(_COLOURS)
"""How many policies one drawing compares at most."""
_GREY = "#777777"
_PALE = "#dddddd"
_STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": _GREY,
    "axes.grid": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
    "svg.hashsalt": "sluicegate",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}

_HEIGHTS: dict[Panel, float] = {"load": 2.6, "latency": 2.6, "limit": 2.1, "waiting": 1.6}
"""In inches."""
_MARKS = {
    "cut": ("cut: latency", "|", 5.0),
    "test": ("test: ", "v", 5.0),
    "overload": ("latency depends on the limit", "x", 5.5),
    "shift": ("at any limit", "o", 5.0),
}
"""Of each the words of `because` that it stands for, its sign, and the size of that."""

_Lines = list[tuple[str, "Sequence[float | None]", str, Literal["-", "--", ":", "-."]]]
"""Of each its name, its values, its colour and its style."""


def plot(
    results: Iterable[Result], path: str | os.PathLike[str], *, panels: Iterable[Panel] = PANELS
) -> None:
    """Draw one policy, or compare several, and write it to a file.

    The same results give the same file.

    Args:
        results: As of `figure`.
        path: Where to; its ending says what it becomes, such as `.png` or `.svg`.
        panels: As of `figure`.

    Raises:
        ValueError: As of `figure`, or if the ending is of no known format.
        ImportError: As of `figure`.
        OSError: If it cannot be written.
    """
    import os

    drawn = figure(results, panels=panels)
    from matplotlib import rc_context

    is_svg = os.fspath(path).lower().endswith((".svg", ".svgz"))
    with rc_context(_STYLE):
        drawn.savefig(path, dpi=150, metadata={"Date": None} if is_svg else None)


def figure(results: Iterable[Result], *, panels: Iterable[Panel] = PANELS) -> Figure:
    """Draw one policy, or compare several, over the time of the scenario.

    One below the other: requests per second, latencies, limit and what is in flight, and what
    waits. Several policies have a colour each. Of an adaptive limiter there is also its baseline,
    beside latency, and where it tested what latency depends on, and with what result; drawn alone,
    also where it cut.

    Args:
        results: Of one scenario, each with another policy; at most 7.
        panels: Which parts of the drawing, in this order.

    Raises:
        ValueError: If they are not of one scenario, or two of one policy, or none or too many; or
            if there is no panel, or no such panel.
        ImportError: If matplotlib is not installed; it comes with `sluicegate[plot]`.
    """
    results = _checked(list(results))
    chosen = _checked_panels(panels)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "matplotlib not installed; install with: pip install 'sluicegate[plot]'"
        ) from error
    with rc_context(_STYLE):
        heights = [_HEIGHTS[panel] for panel in chosen]
        drawn = Figure(figsize=(9, 0.8 + sum(heights)), layout="constrained")
        grid = drawn.subplots(len(chosen), 1, sharex=True, height_ratios=heights, squeeze=False)
        axes = grid[:, 0]
        for panel, each in zip(chosen, axes, strict=True):
            _draw_panel(panel)(each, results)
        axes[-1].set_xlabel("time, s")
        axes[-1].set_xlim(0, results[0].series.time[-1])
        drawn.align_ylabels(list(axes))
        _draw_title(drawn, results)
    return drawn


def _checked(results: list[Result]) -> list[Result]:
    if not 1 <= len(results) <= MOST_DRAWN:
        raise ValueError(f"results must be 1 to {MOST_DRAWN}, got {len(results)}")
    played = {(result.scenario, result.seed) for result in results}
    if len(played) > 1:
        names = ", ".join(f"{scenario!r} with seed {seed}" for scenario, seed in sorted(played))
        raise ValueError(f"results must be of one scenario and seed, got {names}")
    policies = [result.policy for result in results]
    if len(set(policies)) < len(policies):
        raise ValueError(f"results must be of different policies, got {', '.join(policies)}")
    return results


def _checked_panels(panels: Iterable[Panel]) -> list[Panel]:
    chosen = list(dict.fromkeys(panels))
    unknown = next((panel for panel in chosen if panel not in PANELS), None)
    if unknown is not None or not chosen:
        got = "none" if unknown is None else repr(unknown)
        raise ValueError(f"panels must be some of {', '.join(PANELS)}, got {got}")
    return chosen


def _draw_panel(panel: Panel) -> Callable[[Axes, list[Result]], None]:
    match panel:
        case "load":
            return _draw_load
        case "latency":
            return _draw_latency
        case "limit":
            return _draw_limit
        case "waiting":
            return _draw_waiting


def _draw_title(drawn: Figure, results: list[Result]) -> None:
    from matplotlib.lines import Line2D

    first = results[0]
    subject = f"{first.scenario} (seed {first.seed})"
    if len(results) == 1:
        subject = f"{subject}: {first.policy}"
    # As it stands: a dollar begins no formula.
    drawn.suptitle(subject, x=0.01, ha="left", fontsize=12, parse_math=False)
    if len(results) == 1:
        return
    lines = [
        Line2D([], [], color=colour, linewidth=2.5, label=result.policy)
        for result, colour in zip(results, _COLOURS, strict=False)
    ]
    drawn.legend(handles=lines, loc="outside lower left", ncols=4, fontsize=10)


def _draw_load(axes: Axes, results: list[Result]) -> None:
    axes.set_title("load")
    axes.set_ylabel("requests per second")
    first_series = results[0].series
    # The same for each policy.
    area = axes.fill_between(
        first_series.time, first_series.offered, color=_PALE, linewidth=0, label="offered"
    )
    lines: _Lines = []
    for result, (first, second, _) in _coloured(results):
        lines.append(("goodput", result.series.goodput, first, "-"))
        lines.append(("rejected", result.series.rejected, second, ":"))
    _draw(axes, results, lines, area)
    axes.set_ylim(bottom=0)
    _separate_thousands(axes)


def _draw_latency(axes: Axes, results: list[Result]) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axes.set_title("latency of answers")
    axes.set_ylabel("log scale")
    axes.set_yscale("log")
    lines: _Lines = []
    for result, (first, second, third) in _coloured(results):
        series = result.series
        lines.append(("p99", _above_zero(series.p99), first, "-"))
        lines.append(("p95", _above_zero(series.p95), second, "--"))
        lines.append(("p50", _above_zero(series.p50), third, ":"))
        if any(baseline is not None for baseline in series.baseline):
            own = _COLOURS[6] if len(results) == 1 else first
            lines.append(("baseline", series.baseline, own, "-."))
    if len(results) > 1:  # of which nobody could tell all lines apart
        lines = [line for line in lines if line[0] != "p95"]
    _draw(axes, results, lines)
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    low, high = axes.get_ylim()
    is_narrow = high / low < 100
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5) if is_narrow else "auto"))
    axes.yaxis.set_minor_formatter(EngFormatter(unit="s") if is_narrow else NullFormatter())


def _draw_limit(axes: Axes, results: list[Result]) -> None:
    limits: _Lines = []
    in_flight: _Lines = []
    for result, (first, second, _) in _coloured(results):
        if any(limit is not None for limit in result.series.limit):
            limits.append(("limit", result.series.limit, first, "-"))
        in_flight.append(("in flight", result.series.in_flight, second, ":"))
    axes.set_title("limit and in flight" if limits else "in flight")
    _draw(axes, results, limits + in_flight, *_mark(axes, results))
    _scale(axes, [max(result.series.in_flight) for result in results])


def _mark(axes: Axes, results: list[Result]) -> list[Artist]:
    """Mark what an adaptive limiter did, where the limit came by it."""
    from matplotlib.lines import Line2D

    shown: list[Artist] = []
    for name, (phrase, marker, size) in _MARKS.items():
        is_of_one = phrase.startswith("cut")
        found = False
        for result, (first, *_) in _coloured(results):
            points = [] if is_of_one and len(results) > 1 else _changes(result.series, phrase)
            times, limits = [at for at, _ in points], [limit for _, limit in points]
            colour = _COLOURS[1] if len(results) == 1 else first
            if points:
                axes.plot(times, limits, marker, color=colour, markersize=size, zorder=3)
                found = True
        if found:
            colour = _COLOURS[1] if len(results) == 1 else _GREY
            line = Line2D(
                [], [], color=colour, linestyle="", marker=marker, markersize=size, label=name
            )
            shown.append(line)
    return shown


def _changes(series: Series, phrase: str) -> list[tuple[float, float]]:
    """Return when the limit began to be for that reason, and what it was then."""
    is_so = [because is not None and phrase in because for because in series.because]
    steps = zip(series.time, series.limit, series.because, is_so, strict=True)
    points: list[tuple[float, float]] = []
    last: str | None = None
    was_so = False
    for at, limit, because, is_now in steps:
        began = is_now and (not was_so or (phrase.startswith("cut") and because != last))
        if began and limit is not None:
            points.append((at, limit))
        last, was_so = because, is_now
    return points


def _draw_waiting(axes: Axes, results: list[Result]) -> None:
    axes.set_title("waiting, the most in each step")
    lines: _Lines = [
        ("waiting", result.series.waiting, first, "-") for result, (first, *_) in _coloured(results)
    ]
    _draw(axes, results, lines)
    _scale(axes, [max(result.series.waiting) for result in results])


def _scale(axes: Axes, peaks: list[int]) -> None:
    """Let what stays small be seen beside what grows without bound."""
    least = max(min(peaks), 10)
    if max(peaks) > 20 * least:
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylabel("requests, log scale")
        axes.set_ylim(0, 2 * max(peaks))
    else:
        axes.set_ylabel("requests")
        axes.set_ylim(bottom=0)
    _separate_thousands(axes)


def _separate_thousands(axes: Axes) -> None:
    from matplotlib.ticker import StrMethodFormatter

    low, high = axes.get_ylim()
    if high - low >= 10:  # else there may be ticks at fractions
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _coloured(results: list[Result]) -> list[tuple[Result, tuple[str, str, str]]]:
    """Give each policy a colour, or each line of the only one."""
    if len(results) == 1:
        return [(results[0], (_COLOURS[0], _COLOURS[1], _COLOURS[2]))]
    return [(result, (colour,) * 3) for result, colour in zip(results, _COLOURS, strict=False)]


def _draw(axes: Axes, results: list[Result], lines: _Lines, *areas: Artist) -> None:
    """Draw the lines, and beside them a legend, which says once what a style stands for."""
    from matplotlib.lines import Line2D

    named: dict[str, Artist] = {str(area.get_label()): area for area in areas}
    for name, values, colour, style in lines:
        numbers = [float("nan") if value is None else value for value in values]
        axes.plot(results[0].series.time, numbers, color=colour, linestyle=style)
        shown = colour if len(results) == 1 else _GREY
        named.setdefault(name, Line2D([], [], color=shown, linestyle=style, label=name))
    if len(named) > 1:
        axes.legend(handles=list(named.values()), loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _above_zero(values: Iterable[float]) -> list[float | None]:
    """Leave out where nothing was answered."""
    return [value if value > 0 else None for value in values]
