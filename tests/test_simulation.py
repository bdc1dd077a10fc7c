"""The simulator from Python: what it gives, and what it does not take.

That it is to the digit what Rust gets is for `test_load_scenarios.py`.
"""

from __future__ import annotations

import copy
import math
import os
import re
import threading
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import sluicegate
from sluicegate.simulation import Check, Result, Series, scenarios, simulate
from subprocesses import run

SCENARIO: dict[str, Any] = {
    "seconds": 20,
    "step": 0.5,
    "arrivals": [{"rate": 200}],
    "client": {"timeout": 1.0, "deadline": 1.0},
    "stage": [{"policy": "codel", "workers": 10, "service": {"exponential": 0.1}}],
    "expect": [{"from": 5, "goodput": {"min": 90}, "good_p99": {"max": 0.7}}],
}
TOML = """
seconds = 20
step = 0.5
arrivals = [{ rate = 200 }]
client = { timeout = 1.0, deadline = 1.0 }
expect = [{ from = 5, goodput = { min = 90 }, good_p99 = { max = 0.7 } }]

[[stage]]
policy = "codel"
workers = 10
service = { exponential = 0.1 }
"""
VARIANTS = (
    TOML + '[[variants]]\nname = "calm"\narrivals = [{ rate = 50 }]\n[[variants]]\nname = "busy"\n'
)


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the scenario with one thing changed, such as that at `"stage.0.workers"`."""
    scenario = copy.deepcopy(SCENARIO)
    *way, last = path.split(".")
    place: Any = scenario
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    place[last] = value
    return scenario


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "overload.toml"
    path.write_text(TOML, "utf-8")
    return path


@pytest.fixture
def file_of_two(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(VARIANTS, "utf-8")
    return path


def test_the_result_is_typed_and_complete(file: Path) -> None:
    result = sluicegate.simulate(file)
    assert isinstance(result, sluicegate.Result)
    assert (result.scenario, result.policy, result.seed) == ("overload", "codel", 1)
    assert result.attempts == result.requests > result.good > 0
    goodput, latency = result.checks
    assert isinstance(goodput, Check)
    assert (goodput.measure, goodput.start, goodput.end) == ("goodput", 5.0, 20.0)
    assert (goodput.min, goodput.max, goodput.of) == (90.0, None, None)
    assert goodput.value is not None
    assert goodput.value >= 90
    assert latency.measure == "good_p99"
    assert result.holds
    for field in fields(Series):
        values = getattr(result.series, field.name)
        assert isinstance(values, tuple)
        assert len(values) == 40
    assert result.series.time[:2] == (0.5, 1.0)
    assert set(result.series.limit) == {None}
    assert all(isinstance(count, int) for count in result.series.in_flight)


def test_an_adaptive_limiter_says_why() -> None:
    none = simulate(SCENARIO).series
    assert set(none.because) == {None}
    assert set(none.baseline) == {None}
    series = simulate(changed("arrivals", [{"rate": 50}]), policy="codel+adaptive").series
    assert series.baseline[-1] == pytest.approx(0.1, rel=0.3)
    assert series.because[-1] == "held: less than half in flight"


def test_what_a_series_sums_to_is_what_came(file: Path) -> None:
    result = simulate(file)
    assert math.isclose(sum(result.series.offered) * 0.5, result.requests)
    assert math.isclose(sum(result.series.attempts) * 0.5, result.attempts)


def test_results_are_frozen_and_without_dicts(file: Path) -> None:
    result = simulate(file)
    with pytest.raises(FrozenInstanceError):
        result.seed = 2  # type: ignore[misc]
    for each in (result, result.series, *result.checks):
        assert not hasattr(each, "__dict__")


def test_the_text_is_one_line_and_says_what_was_missed() -> None:
    result = simulate(changed("expect", [{"from": 5, "to": 9, "goodput": {"min": 500}}]))
    assert not result.holds
    text = str(result)
    assert "\n" not in text
    assert text.startswith("scenario, codel, seed 1: ")
    assert "0 of 1 bounds hold; missed: goodput ≥ 500 from 5 to 9 s: " in text
    held = str(simulate(SCENARIO))
    assert "2 of 2 bounds hold" in held
    assert "missed" not in held


def test_the_same_seed_gives_the_same_and_another_one_does_not(file: Path) -> None:
    first = simulate(file, seed=7)
    assert simulate(file, seed=7) == first
    assert simulate(file, seed=8).series != first.series


def test_policies_get_the_same_requests() -> None:
    results = [simulate(SCENARIO, policy=policy) for policy in ("none", "codel", "codel+gradient2")]
    assert [result.policy for result in results] == ["none", "codel", "codel+gradient2"]
    assert len({result.series.offered for result in results}) == 1
    assert not results[0].holds
    assert results[1] == simulate(SCENARIO)
    assert {limit is None for limit in results[2].series.limit} == {False}


def test_a_mapping_is_what_its_file_is(file: Path) -> None:
    of_file, of_mapping = simulate(file), simulate(SCENARIO)
    assert of_mapping.scenario == "scenario"
    assert of_mapping.checks == of_file.checks
    assert of_mapping.series == of_file.series


def test_numbers_are_read_to_the_last_digit(tmp_path: Path) -> None:
    # Of which a parser that rounds twice makes another one.
    for number in (0.08000000000000002, 1.2345678901234567e-05, 0.1 + 0.2):
        path = tmp_path / "digits.toml"
        path.write_text(TOML.replace("max = 0.7", f"max = {number!r}"), "utf-8")
        of_file = simulate(path).checks[1].max
        of_mapping = simulate(changed("expect", [{"good_p99": {"max": number}}])).checks[0].max
        assert of_file == of_mapping == number


def test_what_a_mapping_may_hold(tmp_path: Path) -> None:
    class Whole:
        def __index__(self) -> int:
            return 10

        def __float__(self) -> float:
            return 10.0

    expected = simulate(SCENARIO)
    assert simulate(changed("stage.0.workers", Whole())) == expected
    assert simulate(changed("arrivals", ({"rate": 200},))) == expected
    assert simulate(changed("about", "overload")) == expected
    trace = tmp_path / "trace.csv"
    trace.write_text("second\n0.5\n1.5\n", "utf-8")
    played = simulate(changed("arrivals", [{"trace": {"file": trace, "time": "second"}}]))
    assert played.requests == 2


def test_a_path_may_be_text(file: Path) -> None:
    assert simulate(str(file)) == simulate(file)
    assert simulate(os.fspath(file)) == simulate(file)


def test_files_that_a_file_names_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("at\n1\n2\n3\n", "utf-8")
    path = tmp_path / "traced.toml"
    path.write_text(
        TOML.replace("{ rate = 200 }", '{ trace = { file = "trace.csv", time = "at" } }'), "utf-8"
    )
    assert simulate(path).requests == 3
    (tmp_path / "trace.csv").unlink()
    with pytest.raises(ValueError, match=r"trace\.csv"):
        simulate(path)


def test_variants(file: Path, file_of_two: Path) -> None:
    assert scenarios(file_of_two) == ["calm", "busy"]
    assert scenarios(file) == ["overload"]
    assert scenarios(SCENARIO) == ["scenario"]
    assert simulate(file, variant="overload") == simulate(file)
    calm = simulate(file_of_two, variant="calm")
    assert calm.scenario == "two, calm"
    assert calm.requests < simulate(file_of_two, variant="busy").requests
    expected = 'variant must be one of "calm", "busy", got '
    with pytest.raises(ValueError, match=expected + "None"):
        simulate(file_of_two)
    with pytest.raises(ValueError, match=expected + '"clam"'):
        simulate(file_of_two, variant="clam")
    with pytest.raises(ValueError, match='variant must be one of "overload", got "calm"'):
        simulate(file, variant="calm")


def test_variants_of_the_same_name_are_refused() -> None:
    twins = {**SCENARIO, "variants": [{"name": "a"}, {"name": "a"}]}
    with pytest.raises(ValueError, match="a name of its own"):
        scenarios(twins)


def test_what_cannot_be_read_is_an_os_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(FileNotFoundError) as caught:
        simulate(missing)
    assert caught.value.filename == str(missing)
    with pytest.raises(FileNotFoundError):
        scenarios(missing)
    with pytest.raises(OSError, match="directory"):
        simulate(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seconds =", "line 1"),
        ("seconds = 20\nseconds = 20", "duplicate"),
        (TOML + "colour = 1", "colour"),
        (TOML.replace("step = 0.5", "step = nan"), "step must be a finite number, got NaN"),
        (TOML.replace("timeout = 1.0", "timeout = -inf"), "client.timeout must be a finite number"),
        (TOML.replace("rate = 200", "rate = -1"), "rate must be a number per second from 0 to"),
        (TOML.replace("exponential = 0.1", "exponential = -1"), "service must be a number of"),
        (TOML.replace("goodput", "badput"), "badput"),
        (TOML.replace('"codel"', '"coddle"'), "policy must be none or links"),
    ],
)
def test_a_bad_file_is_a_value_error_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"bad\.toml") as caught:
        simulate(path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("seconds", 0, "seconds must be a number from 0.001 to 1000000, got 0"),
        ("seconds", 1e300, "seconds must be a number"),
        ("step", 1e-5, "step must be a number of seconds"),
        ("seeds", -1, "seeds: invalid value: integer `-1`"),
        ("arrivals.0.rate", 2e7, "rate must be a number per second from 0 to 10000000"),
        ("arrivals.0.rate", "200", 'arrivals[0].rate: invalid type: string "200"'),
        ("arrivals.0.rate", [[0, 1], [1, "2"]], "arrivals[0].rate"),
        ("expect.0.goodput", {"mim": 1}, "expect[0]: goodput: unknown field `mim`"),
        ("client.timeout", 0, "timeout must be a number of seconds"),
        ("client.attempts", 0, "attempts must be an integer from 1 to 1000, got 0"),
        ("client.attempts", 2**70, "client.attempts: invalid type: number"),
        ("stage.0.policy", "codel+", "policy must be none or links"),
        ("stage.0.wokers", 3, "stage[0].wokers: unknown field `wokers`"),
        ("expect.0.to", 1, "expect.to must be later than from"),
        ("expect.0.class", "reads", "expect.class must be one of requests"),
        ("arrivals", [], "arrivals must be"),
    ],
)
def test_what_is_out_of_its_range_is_named(path: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        simulate(changed(path, value))


@pytest.mark.parametrize("path", ["seconds", "arrivals.0.rate", "client.timeout"])
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, -(10**5000)], ids=range(5)
)
def test_what_is_no_finite_number_is_named(path: str, value: float) -> None:
    named = path.replace(".0", "[0]")
    with pytest.raises(ValueError, match="must be a finite number, got ") as caught:
        simulate(changed(path, value))
    assert str(caught.value).startswith(named)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("name", "\ud800", r"name must be text without surrogates, got '\ud800'"),
        ("arrivals.0.class", "a\udfff", r"arrivals[0].class must be text without surrogates"),
        ("client", {"\ud800": 1}, r"client must have keys without surrogates, got '\ud800'"),
    ],
)
def test_what_is_no_unicode_is_named(path: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        simulate(changed(path, value))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no file without an end")
def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(OSError, match="/dev/zero: larger than 64 MiB"):
        simulate("/dev/zero")
    with pytest.raises(ValueError, match="/dev/zero: larger than 512 MiB"):
        simulate(changed("arrivals", [{"trace": {"file": "/dev/zero", "time": "t"}}]))


@pytest.mark.parametrize("value", [object(), b"2", {1, 2}, 1j])
def test_what_json_cannot_say_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=r"arrivals\[0\]\.rate must be a number, text, a list"):
        simulate(changed("arrivals.0.rate", value))
    with pytest.raises(TypeError, match=r"client must have strings as keys, got 1"):
        simulate(changed("client", {1: 2}))


def test_what_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["client"] = endless
    with pytest.raises(ValueError, match="levels deep"):
        simulate(endless)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"seed": -1}, ValueError, "seed must be an integer from 0 to"),
        ({"seed": 2**64}, ValueError, "seed must be an integer from 0 to"),
        ({"seed": True}, TypeError, "seed must be an integer"),
        ({"seed": 1.0}, TypeError, "seed must be an integer"),
        ({"seed": "1"}, TypeError, "seed must be an integer"),
        ({"policy": ""}, ValueError, "policy must be none or links"),
        ({"policy": "fifo/windowed"}, ValueError, "policy must be none or links"),
        ({"policy": 1}, TypeError, "policy must be a string or None, got 1"),
        ({"policy": "\ud800"}, ValueError, "surrogates"),
        ({"variant": 1}, TypeError, "variant must be a string or None, got 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        simulate(SCENARIO, **arguments)


@pytest.mark.parametrize("scenario", [b"overload.toml", 3, None, ["overload.toml"]])
def test_a_scenario_is_a_path_or_a_mapping(scenario: Any) -> None:
    with pytest.raises(TypeError):
        simulate(scenario)


def test_the_largest_seed() -> None:
    assert simulate(SCENARIO, seed=2**64 - 1).seed == 2**64 - 1


def test_a_latency_of_nothing_is_within_no_bound() -> None:
    scenario = changed("expect", [{"from": 5, "good_p99": {"max": 0.7}}])
    (check,) = simulate(scenario, policy="none").checks
    assert check.value is None
    assert not check.holds
    assert str(check).endswith(": nothing")


@pytest.mark.parametrize(
    "arrivals",
    [
        {"rate": 1e7},
        {"rate": [[0, 1], [3000, 1e6]]},
        {"ramp": [[0, 0], [1000, 30_000], [4000, 0]]},
    ],
)
def test_what_would_fill_the_memory_is_refused_at_once(arrivals: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at most 20000000 requests can be played"):
        simulate({**SCENARIO, "seconds": 3600, "arrivals": [arrivals]})


@pytest.mark.skipif("SLUICEGATE_TEST_FULL" not in os.environ, reason="takes 2 GB")
def test_what_comes_to_fill_the_memory_is_refused_then() -> None:
    """Retries, which nobody can know of beforehand."""
    client = {"attempts": 1000, "retry": {"factor": 1}}
    stage = [{"policy": {"fixed": {"limit": 1}}, "workers": 0}]
    with pytest.raises(ValueError, match=r"more than 20000000 attempts within .* of 20 s"):
        simulate({"seconds": 20, "arrivals": [{"rate": 5000}], "client": client, "stage": stage})


def test_other_threads_run_meanwhile() -> None:
    """That this thread goes on before the other one has ended its simulation."""
    long = {**SCENARIO, "seconds": 2000}
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(simulate(long)))
    thread.start()
    ticks = 0
    while thread.is_alive():
        ticks += 1
        thread.join(0.001)
    assert ticks > 1
    assert results == [simulate(long)]


def test_it_is_imported_once_it_is_asked_for() -> None:
    snippet = """
    import sys
    import sluicegate
    assert "sluicegate.simulation" not in sys.modules
    from sluicegate import Result, simulate
    assert simulate is sluicegate.simulation.simulate
    assert sluicegate.Result is Result
    assert {"Result", "simulate"} <= set(dir(sluicegate))
    try:
        sluicegate.simulat
    except AttributeError as error:
        print(error)
    """
    assert run(snippet).strip() == "module 'sluicegate' has no attribute 'simulat'"
