"""``sluicegate simulate``: what it prints, what it takes, what it exits with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluicegate.simulation import Check, scenarios, simulate

pytest.importorskip("click")
pytest.importorskip("rich")

from sluicegate._comparison import Comparison, bound, markdown, number, totals, window, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

MAIN = "from sluicegate.cli import main; main()"
TOML = """
seconds = 20
seeds = 3
arrivals = [{ rate = 200 }]
client = { timeout = 1.0, deadline = 1.0 }
expect = [{ from = 5, to = 20, goodput = { min = 90 }, good_p99 = { max = 0.7 } }]
stage = [{ policy = "codel", workers = 10, service = { exponential = 0.1 } }]
"""
VARIANTS = TOML + "variants = [{ name = 'calm', arrivals = [{ rate = 50 }] }, { name = 'busy' }]\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path, "overload", TOML)


def write(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.toml"
    path.write_text(text, "utf-8")
    return str(path)


def run(*arguments: str, before: str = "", code: int = 0) -> str:
    """Return what it prints, or what it complains of."""
    done = subprocess.run(
        [sys.executable, "-c", f"{before}{MAIN}", "simulate", *arguments],
        capture_output=True,
        encoding="utf-8",
        env={"COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout + done.stderr


def cells(line: str) -> list[str]:
    """Take the row of a table apart."""
    return [cell.strip() for cell in line.replace("┃", "│").strip()[1:-1].split("│")]


def row_of(policy: str, output: str) -> list[str]:
    return next(row for line in output.splitlines() if (row := cells(line))[0] == policy)


def check(
    value: float | None, low: float | None = None, high: float | None = None, measure: str = "good"
) -> Check:
    holds = value is not None and (low is None or value >= low) and (high is None or value <= high)
    return Check(measure, 0.0, 10.0, None, low, high, value, holds)


def test_the_policy_of_the_file(file: str) -> None:
    output = run(file)
    results = [simulate(file, seed=seed) for seed in (1, 2, 3)]
    worst_goodput = min(result.checks[0].value or 0 for result in results)
    worst_latency = max(result.checks[1].value or 0 for result in results)
    assert "overload (worst of 3 seeds)" in output
    assert row_of("codel", output) == [
        "codel",
        f"{worst_goodput:.4g}/s",
        f"{worst_latency * 1e3:.4g} ms",
    ]
    header = [cells(line) for line in output.splitlines() if "┃" in line]
    assert header[0] == ["", "goodput ≥ 90/s", "good_p99 ≤ 700 ms"]
    assert header[1] == ["policy", "5-20 s", "5-20 s"]
    assert "codel: 2 of 2 bounds hold" in output
    requests = sum(result.requests for result in results)
    assert f"3 simulations, {requests:,} requests" in output


def test_the_exit_code_is_of_the_bounds(file: str) -> None:
    output = run(file, "--policy", "none", code=1)
    assert row_of("none", output) == ["none", "0/s ✗", "- ✗"]
    assert "none: 0 of 2 bounds hold" in output
    # A comparison: that one of them misses a bound is what it is for.
    output = run(file, "--policy", "none", "--policy", "own", "--policy", "none")
    assert row_of("none", output)[1] == "0/s ✗"
    assert "✗" not in row_of("own", output)
    assert "6 simulations" in output


def test_seeds_and_variants(tmp_path: Path) -> None:
    file = write(tmp_path, "two", VARIANTS)
    assert scenarios(file) == ["calm", "busy"]
    output = run(file, "--seeds", "1", code=1)  # 50 requests a second are no 90 answers
    assert "two, calm (seed 1)" in output
    assert "two, busy (seed 1)" in output
    assert "2 simulations" in output
    output = run(file, "--variant", "busy", "--seeds", "2")
    assert "two, busy (worst of 2 seeds)" in output
    assert "calm" not in output


def test_several_files_are_one_table_in_markdown(tmp_path: Path, file: str) -> None:
    other = write(tmp_path, "a|b", TOML)
    output = run(file, other, "--markdown", "--policy", "own", "--policy", "none", "--seeds", "1")
    lines = output.splitlines()
    assert lines[0] == "| scenario | bound | window | own | none |"
    assert lines[1] == "|---|---|---|---:|---:|"
    assert lines[2].startswith("| overload | goodput ≥ 90/s | 5-20 s | ")
    assert lines[3].startswith("|  | good_p99 ≤ 700 ms | 5-20 s | ")
    assert lines[4].startswith("| a\\|b | ")
    assert lines[6] == "| bounds that hold |  |  | 4 of 4 | 0 of 4 |"
    assert len(lines) == 7


def test_a_plot(tmp_path: Path, file: str) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "out.svg"
    run(file, "--policy", "own", "--policy", "codel", "--plot", str(picture), "--seeds", "2")
    text = picture.read_text("utf-8")
    assert all(f">{word}</text>" in text for word in ["own", "codel", "overload (seed 1)"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "FILE"),
        (["{file}", "--policy", "coddle"], "policy must be none or links"),
        (["{file}", "--variant", "calm"], "variant must be one of 'overload', got 'calm'"),
        (["{file}", "--seeds", "0"], "--seeds"),
        (["{file}", "--plot", "out.gif"], "plot must end in .png or .svg, got 'out.gif'"),
        (
            ["{file}", "--plot", "out.svg", *(f"--policy=bucket({rate})" for rate in range(1, 9))],
            "plot draws at most 7 policies, got 8",
        ),
        (["{file}", "--plot", "no/such/folder/out.svg"], "no/such/folder"),
        (["{file}", "{two}", "--plot", "out.svg"], "choose one by --variant: 'overload', 'calm'"),
        (["missing.toml"], "No such file or directory: 'missing.toml'"),
        (["{bad}"], "stage[0].wokers: unknown field `wokers`"),
    ],
)
def test_bad_arguments_are_usage_errors(
    tmp_path: Path, file: str, arguments: Sequence[str], words: str
) -> None:
    two = write(tmp_path, "two", VARIANTS)
    bad = write(tmp_path, "bad", TOML.replace("workers", "wokers"))
    given = [argument.format(file=file, two=two, bad=bad) for argument in arguments]
    assert words in run(*given, code=2)
    assert not Path("out.svg").exists()


def test_a_missing_extra_is_named_in_one_line(tmp_path: Path, file: str) -> None:
    picture = str(tmp_path / "out.png")
    hide = "import sys; sys.modules['matplotlib'] = None; "
    assert run(file, "--plot", picture, before=hide, code=1).splitlines() == [
        "sluicegate: matplotlib not installed; install with: pip install 'sluicegate[plot]'"
    ]
    assert "2 of 2" in run(file, before=hide)


def test_the_worst_is_furthest_beyond_its_bound_or_nearest_to_it() -> None:
    high, low, nothing = check(0.9, low=0.5), check(0.6, low=0.5), check(None, low=0.5)
    assert worst([high, low]) is low
    assert worst([high, check(0.4, low=0.5), low]).value == 0.4
    assert worst([low, nothing, check(0.1, low=0.5)]) is nothing
    assert worst([check(1.0, high=2.0), check(3.0, high=2.0)]).value == 3.0
    between = [check(value, low=1.0, high=10.0) for value in (5.0, 9.5, 2.0)]
    assert worst(between).value == 9.5


@pytest.mark.parametrize(
    ("measure", "value", "text"),
    [
        ("p99", 0.0123456, "12.35 ms"),
        ("slowest", 12.3456, "12.35 s"),
        ("rejected", 0.00123, "0.12 %"),
        ("good", 1.0, "100 %"),
        ("goodput", 970.25, "970.2/s"),
        ("offered", 15000.4, "15,000/s"),
        ("limit_max", 20.0, "20"),
        ("limit_growth", 1.3, "1.3"),
        ("attempts_per_request", 1.11, "1.11"),
        ("waiting_max", 120000.0, "120,000"),
    ],
)
def test_numbers_have_units(measure: str, value: float, text: str) -> None:
    assert number(measure, value) == text


def test_bounds_and_windows_as_text() -> None:
    assert bound(check(0.5, low=0.1, high=0.9)) == "good 10 % … 90 %"
    assert bound(check(0.5)) == "good"
    assert window(Check("good", 2.5, 10.0, "reads", None, 1.0, 0.5, True)) == "2.5-10 s, reads"


def test_files_whose_own_policies_differ_have_a_column_each() -> None:
    comparisons = [
        Comparison("a", 1, {"codel": (check(0.9, low=0.5),)}),
        Comparison("b", 1, {"aimd": (check(0.4, low=0.5),)}),
    ]
    assert totals(comparisons) == {"codel": (1, 1), "aimd": (0, 1)}
    assert list(markdown(comparisons))[2:] == [
        "| a | good ≥ 50 % | 0-10 s | 90 % |  |",
        "| b | good ≥ 50 % | 0-10 s |  | 40 % ✗ |",
        "| bounds that hold |  |  | 1 of 1 | 0 of 1 |",
    ]
