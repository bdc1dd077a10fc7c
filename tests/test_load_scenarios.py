"""What Python gets of the simulator is what Rust gets, to the digit.

`tests/load.rs` writes what comes of each load scenario with seed 1; here it is played through the
extension. All its seeds are played there.
"""

from __future__ import annotations

import functools
import json
import operator
import struct
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sluicegate.simulation import Check, Result, Series, scenarios, simulate

FOLDER = Path(__file__).parent / "scenarios" / "load"
FILES = sorted(FOLDER.glob("*.toml"))
# What is in the results; the rest says why the limit is what it is.
MEASURED = [field.name for field in fields(Series) if field.name not in ("baseline", "because")]
VARIANTS = [(path, variant) for path in FILES for variant in scenarios(path)]


def written(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((FOLDER / "results" / f"{name}.json").read_text("utf-8"))
    return results


def in_short(result: Result) -> dict[str, Any]:
    """As `tests/load_results/` does it."""
    return {
        "policy": result.policy,
        "requests": result.requests,
        "good": result.good,
        "attempts": result.attempts,
        "checks": [line(check) for check in result.checks],
        "series": {name: digest(getattr(result.series, name)) for name in MEASURED},
    }


def line(check: Check) -> list[Any]:
    window = [check.start, check.end]
    return [check.measure, check.of, *window, check.min, check.max, check.value]


def digest(values: tuple[float | None, ...]) -> list[Any]:
    numbers = [-1.0 if value is None else float(value) for value in values]
    # One after the other, which `sum` does not do from Python 3.12 on.
    mean = functools.reduce(operator.add, numbers, 0.0) / max(len(numbers), 1)
    return [mean, f"{fnv1a(struct.pack(f'<{len(numbers)}d', *numbers)):016x}"]


def fnv1a(text: bytes) -> int:
    found = 0xCBF29CE484222325
    for byte in text:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


@pytest.mark.parametrize(
    ("path", "variant"), VARIANTS, ids=lambda part: getattr(part, "stem", part)
)
def test_python_gets_what_rust_gets(path: Path, variant: str) -> None:
    result = simulate(path, variant=variant)
    assert in_short(result) == written(path.stem)[result.scenario]
    assert result.holds, result
    assert result.seed == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mapping_gives_what_its_file_gives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)  # where the files are that it names
    content = tomllib.loads(path.read_text("utf-8"))
    variant = scenarios(content)[0] if "variants" in content else None
    result = simulate(content, variant=variant)
    expected = written(path.stem)
    name = (
        f"{path.stem}, {variant}"
        if variant is not None
        else result.scenario.replace("scenario", path.stem)
    )
    assert in_short(result) == expected[name]


def test_there_is_a_result_of_each_scenario_and_of_nothing_else() -> None:
    assert FILES
    results = {path.stem: set(written(path.stem)) for path in (FOLDER / "results").glob("*")}
    assert sorted(results) == sorted(path.stem for path in FILES)
    for path in FILES:
        assert len(results[path.stem]) == len(scenarios(path))
