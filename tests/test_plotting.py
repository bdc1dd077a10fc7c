"""Drawings of results: what they say, what is refused. How they look is for eyes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("matplotlib")

from sluicegate.plotting import figure, plot
from sluicegate.simulation import Result, simulate
from subprocesses import run

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.lines import Line2D

SCENARIO: dict[str, Any] = {
    "seconds": 20,
    "arrivals": [{"rate": 200}],
    "client": {"timeout": 1.0, "deadline": 1.0},
    "stage": [{"policy": "codel", "workers": 10, "service": {"exponential": 0.1}}],
}


def results(*policies: str) -> list[Result]:
    return [simulate(SCENARIO, policy=policy) for policy in policies]


def drawn_of(line: Line2D) -> tuple[float, ...]:
    values: Any = line.get_ydata()
    return tuple(values)


def texts(path: Path) -> set[str]:
    """Return what is written in the picture."""
    parts = path.read_text("utf-8").split("</text>")
    return {part.rsplit(">", 1)[1] for part in parts if "<text" in part}


def test_a_drawing_of_one_policy_names_what_it_shows(tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    plot(results("codel+gradient2"), path)
    assert texts(path) >= {
        "scenario (seed 1): codel+gradient2",
        "load",
        "offered",
        "goodput",
        "rejected",
        "requests per second",
        "latency of answers",
        "p50",
        "p95",
        "p99",
        "log scale",
        "limit and in flight",
        "limit",
        "in flight",
        "waiting, the most in each step",
        "time, s",
    }


def test_a_comparison_names_the_policies(tmp_path: Path) -> None:
    path = tmp_path / "two.svg"
    plot(results("none", "codel"), path)
    shown = texts(path)
    assert shown >= {"scenario (seed 1)", "none", "codel", "p99", "in flight"}
    assert "limit" not in shown  # there is none
    assert "requests, log scale" in shown  # or else the line without bound would hide the other


def test_the_same_results_give_the_same_file(tmp_path: Path) -> None:
    for ending in ("svg", "png"):
        first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
        plot(results("none", "codel"), first)
        plot(results("none", "codel"), second)
        assert first.read_bytes() == second.read_bytes()


def test_what_is_drawn_is_what_there_is() -> None:
    (result,) = results("gradient2")
    load, latency, limit, waiting = figure([result]).axes
    goodput, rejected = (drawn_of(line) for line in load.lines)
    assert goodput == result.series.goodput
    assert rejected == result.series.rejected
    assert drawn_of(latency.lines[0]) == result.series.p99
    assert [drawn_of(line) for line in limit.lines] == [
        result.series.limit,
        result.series.in_flight,
    ]
    assert drawn_of(waiting.lines[0]) == result.series.waiting
    assert latency.get_yscale() == "log"
    assert load.get_shared_x_axes().joined(load, waiting)


def test_each_policy_has_a_colour_of_its_own() -> None:
    policies = ["none", "fifo", "codel", "aimd", "vegas", "gradient", "gradient2"]
    drawn = figure(results(*policies))
    waiting = drawn.axes[3].lines
    assert len({line.get_color() for line in waiting}) == len(policies)


# At first a step; then ten times slower at any limit.
SLOWER: dict[str, Any] = {
    "seconds": 20,
    "step": 0.1,
    "arrivals": [{"rate": 200}],
    "stage": [{"policy": "adaptive", "delay": [[0, {"constant": 0.02}], [10, {"constant": 0.2}]]}],
}


def test_what_an_adaptive_limiter_did_is_marked(tmp_path: Path) -> None:
    result = simulate(SLOWER)
    path = tmp_path / "marked.svg"
    plot([result], path)
    assert texts(path) >= {"baseline", "cut", "test", "shift"}
    assert "overload" not in texts(path)
    _, latency, limit, _ = figure([result]).axes
    assert drawn_of(latency.lines[3])[-1] == result.series.baseline[-1] == pytest.approx(0.2)
    shifts = next(line for line in limit.lines if line.get_marker() == "o")
    began = next(
        at
        for at, because in zip(result.series.time, result.series.because, strict=True)
        if because is not None and "at any limit" in because
    )
    times: Any = shifts.get_xdata()
    assert list(times) == [began]
    # Who cuts all the time is not marked beside others.
    plot([result, simulate(SLOWER, policy="vegas")], path)
    assert texts(path) >= {"baseline", "test", "shift"}
    assert "cut" not in texts(path)


def test_some_panels(tmp_path: Path) -> None:
    (result,) = results("gradient2")
    drawn = figure([result], panels=["limit", "load"])
    assert [axes.get_title("left") for axes in drawn.axes] == ["limit and in flight", "load"]
    path = tmp_path / "one.svg"
    plot([result], path, panels=["latency"])
    assert "load" not in texts(path)
    wrong: Any = ["limits"]
    with pytest.raises(ValueError, match=r"panels must be some of load, .*, got 'limits'"):
        figure([result], panels=wrong)
    with pytest.raises(ValueError, match="got none"):
        figure([result], panels=[])


def test_nothing_answered_and_nothing_that_came() -> None:
    figure([simulate({**SCENARIO, "stage": [{"workers": 0}]})])
    figure([simulate({**SCENARIO, "arrivals": [{"rate": 0}]})])
    figure([simulate({**SCENARIO, "seconds": 0.01, "step": 0.01})])
    figure([simulate({**SCENARIO, "seconds": 1, "step": 60})])


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "name.svg"
    plot([simulate({**SCENARIO, "name": r"a$\frac{$b", "seconds": 1})], path)
    assert r"scenario, a$\frac{$b (seed 1): codel" in texts(path)


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    (result,) = results("codel")
    with pytest.raises(ValueError, match="results must be 1 to 7, got 0"):
        figure([])
    with pytest.raises(ValueError, match="results must be 1 to 7, got 8"):
        figure([result] * 8)
    with pytest.raises(ValueError, match="different policies, got codel, codel"):
        figure([result, result])
    with pytest.raises(ValueError, match="one scenario and seed, got 'other' with seed 1, 'scen"):
        figure([result, replace(result, scenario="other")])
    with pytest.raises(ValueError, match="bmpx"):
        plot([result], tmp_path / "out.bmpx")
    with pytest.raises(FileNotFoundError):
        plot([result], tmp_path / "no" / "out.svg")


def test_without_matplotlib_the_extra_is_named() -> None:
    snippet = """
    import sys
    sys.modules["matplotlib"] = None
    from sluicegate import simulate
    from sluicegate.plotting import figure
    try:
        figure([simulate({"seconds": 5, "arrivals": [{"rate": 10}], "stage": [{}]})])
    except ImportError as error:
        print(error)
    """
    expected = "matplotlib not installed; install with: pip install 'sluicegate[plot]'\n"
    assert run(snippet) == expected
