"""The command line: what it says, what it needs, what it does not accept."""

import subprocess
import sys

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

MAIN = "from sluicegate.cli import main; main()"


def sluicegate(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{before}{MAIN}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version() -> None:
    from importlib.metadata import version

    result = sluicegate("--version")
    assert result.returncode == 0
    assert version("sluicegate") in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["demo", "Backpressure"]),
        (["demo", "--help"], ["--seconds", "--limit", "--seed", "127.0.0.1"]),
    ],
)
def test_help(arguments: list[str], words: list[str]) -> None:
    result = sluicegate(*arguments)
    assert result.returncode == 0
    assert all(word in result.stdout for word in words)


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--seconds", "0"],
        ["demo", "--seconds", "-1"],
        ["demo", "--seconds", "nan"],
        ["demo", "--seconds", "inf"],
        ["demo", "--seconds", "3600"],
        ["demo", "--seconds", "soon"],
        ["demo", "--limit", "0"],
        ["demo", "--limit", "2.5"],
        ["demo", "--seed", "-1"],
        ["demo", "--speed", "9"],
        ["dmeo"],
    ],
)
def test_bad_arguments_are_usage_errors(arguments: list[str]) -> None:
    result = sluicegate(*arguments)
    assert result.returncode == 2
    assert "Usage:" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("module", ["click", "rich", "fastapi", "uvicorn", "aiohttp"])
def test_a_missing_extra_is_named_in_one_line(module: str) -> None:
    result = sluicegate("demo", before=f"import sys; sys.modules[{module!r}] = None; ")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"sluicegate: {module} not installed; install with: pip install 'sluicegate[demo]'"
    ]


def test_help_needs_no_server() -> None:
    hide = "import sys; sys.modules['uvicorn'] = sys.modules['aiohttp'] = None; "
    assert sluicegate("demo", "--help", before=hide).returncode == 0
