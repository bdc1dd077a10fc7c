"""Every file of `scenarios/` is played, and everything it expects is looked at."""

from __future__ import annotations

import copy
import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from scenario_player import ScenarioError, load, play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scenario_player import Scenario

ROOT = Path(__file__).parent / "scenarios"
# Those of load are played elsewhere.
LOAD = ROOT / "load"
FILES = sorted(path for path in ROOT.rglob("*.toml") if LOAD not in path.parents)
# A turn of uvloop also runs what becomes ready in it: there is no single tick to play.
WITHOUT_TICKS = [path for path in FILES if "\ntick = " not in path.read_text("utf-8")]


def each(files: list[Path]) -> pytest.MarkDecorator:
    ids = [path.relative_to(ROOT).as_posix() for path in files]
    return pytest.mark.parametrize("path", files, ids=ids)


@each(FILES)
def test_scenario(path: Path) -> None:
    play(load(path.read_text("utf-8")))


@each(WITHOUT_TICKS)
def test_scenario_on_uvloop(path: Path) -> None:
    play(load(path.read_text("utf-8")), uvloop.new_event_loop)


def test_nothing_lies_there_that_is_not_played() -> None:
    files = {path for path in ROOT.rglob("*") if not path.is_dir() and LOAD not in path.parents}
    assert files - set(FILES) == {ROOT / "README.md"}
    assert FILES


@each(FILES)
def test_every_expectation_can_fail(path: Path) -> None:
    scenario = load(path.read_text("utf-8"))
    for number, key, changed in spoilt(scenario):
        with pytest.raises(ScenarioError, match=rf"^step {number}: (expected|{key})"):
            play(changed)


def spoilt(scenario: Scenario) -> Iterator[tuple[int, str, Scenario]]:
    """Yield the scenario with one expectation changed, for all its expectations."""
    for index, step in enumerate(scenario["step"]):
        for key in ["expect", *step.get("then", {})]:
            changed = copy.deepcopy(scenario)
            values = changed["step"][index]
            values = values if key == "expect" else values["then"]
            if key in values:
                values[key] = another(key, values[key])
                yield index + 1, key, changed


def another(key: str, value: Any) -> Any:
    match value:
        case bool():
            return not value
        case str():
            return value + "?"
        case list():
            return [*value, "nobody"]
        case dict():
            return value | {"nobody": "nothing" if key in {"got", "refused"} else 1}
        case int() if key.endswith("_at_least"):
            return value + 1_000_000
        case int() if key.endswith("_at_most"):
            return value - 1_000_000
        case _:
            return 1.0 if value == math.inf else value + 1


FAULTS = tomllib.loads((ROOT.parent / "scenario_faults.toml").read_text("utf-8"))["scenario"]


@pytest.mark.parametrize("faulty", FAULTS)
def test_a_sound_scenario_is_played(faulty: Scenario) -> None:
    play(load(faulty["sound"]))


@pytest.mark.parametrize(
    ("sound", "part", "replacement"),
    [(faulty["sound"], *fault) for faulty in FAULTS for fault in faulty["faults"]],
)
def test_what_is_not_of_the_format_is_refused(sound: str, part: str, replacement: str) -> None:
    broken = sound.replace(part, replacement, 1)
    assert broken != sound
    with pytest.raises(ScenarioError):
        play(load(broken))
