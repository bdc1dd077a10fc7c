"""What limits, queues and throttles do to a service under load, in virtual time.

    from sluicegate.simulation import simulate

    result = simulate("tests/scenarios/load/r1-sweep.toml", variant="500 a second")
    assert result.holds, result

A scenario says who sends what, through which policy, to which servers, and what has to come of
it; `tests/scenarios/load/README.md` describes its format. It drives the very code that ships. The
same seed gives the same result, to the digit, on every machine; and the same requests, whatever the
policy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluicegate import _core

if TYPE_CHECKING:
    from typing import TypeAlias

    Scenario: TypeAlias = str | os.PathLike[str] | Mapping[str, object]

__all__ = ["Check", "Result", "Series", "scenarios", "simulate"]


@dataclass(frozen=True, slots=True)
class Check:
    """A bound of a scenario, and what was measured.

    Attributes:
        measure: What is bounded, such as `"goodput"`: rates are per second, spans in seconds,
            shares from 0 to 1.
        start: From when on, in seconds; `from` in the scenario.
        end: Until when, in seconds; `to` in the scenario.
        of: Of which class of requests; `None` is of all.
        min: The least that it may be, or `None`.
        max: The most that it may be, or `None`.
        value: What it was; `None` if there was nothing to measure, which is within no bound.
        holds: Whether it is within its bound.
    """

    measure: str
    start: float
    end: float
    of: str | None
    min: float | None
    max: float | None
    value: float | None
    holds: bool

    @property
    def bound(self) -> str:
        """What it has to be, as text: `"≥ 95"`, `"≤ 0.6"` or `"1 … 2"`."""
        if self.min is not None and self.max is not None:
            return f"{self.min:g} … {self.max:g}"
        if self.min is not None:
            return f"≥ {self.min:g}"
        return "any" if self.max is None else f"≤ {self.max:g}"

    def __str__(self) -> str:
        of = "" if self.of is None else f" of {self.of}"
        value = "nothing" if self.value is None else f"{self.value:.4g}"
        window = f"from {self.start:g} to {self.end:g} s"
        return f"{self.measure}{of} {self.bound} {window}: {value}"


@dataclass(frozen=True, slots=True)
class Series:
    """What happened while requests came, step by step: all of the same length.

    The last step is shorter if the others do not fill the time.

    Attributes:
        time: The end of each step, in seconds.
        offered: Requests that came, per second.
        attempts: Attempts that were sent, per second; more than that if clients try again.
        goodput: Answers in time, per second.
        throughput: Answers, in time or not, per second.
        rejected: Attempts that were rejected, per second.
        throttled: Attempts that the clients themselves did not send, per second.
        p50: The median latency of what was answered, in seconds; 0 if nothing was.
        p95: Its 95 % quantile.
        p99: Its 99 % quantile.
        limit: The limit at the end of the step; `None` where nothing limits.
        in_flight: What the first stage had in flight at the end of the step.
        waiting: The most that waited within the step.
        baseline: The mean latency without overload, in seconds, as the first adaptive limiter knew
            it at the end of the step; `None` where it did not yet, or is none.
        because: Why its limit was what it was, as `limit_because` in a snapshot.
    """

    time: tuple[float, ...]
    offered: tuple[float, ...]
    attempts: tuple[float, ...]
    goodput: tuple[float, ...]
    throughput: tuple[float, ...]
    rejected: tuple[float, ...]
    throttled: tuple[float, ...]
    p50: tuple[float, ...]
    p95: tuple[float, ...]
    p99: tuple[float, ...]
    limit: tuple[float | None, ...]
    in_flight: tuple[int, ...]
    waiting: tuple[int, ...]
    baseline: tuple[float | None, ...]
    because: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a scenario.

    Attributes:
        scenario: What was played: the name of the file, and of the variant.
        policy: What stood before the first stage, such as `"codel+gradient2"`.
        seed: Of all that is drawn at random.
        requests: How many requests came.
        good: How many of them were answered in time.
        attempts: How often they were sent.
        checks: Each bound of the scenario, in its order.
        series: What happened, step by step.
    """

    scenario: str
    policy: str
    seed: int
    requests: int
    good: int
    attempts: int
    checks: tuple[Check, ...]
    series: Series

    @property
    def holds(self) -> bool:
        """Whether all bounds hold; so they do where there are none."""
        return all(check.holds for check in self.checks)

    def __str__(self) -> str:
        kept = sum(check.holds for check in self.checks)
        share = f" ({self.good / self.requests:.1%})" if self.requests else ""
        missed = "; ".join(f"missed: {check}" for check in self.checks if not check.holds)
        return (
            f"{self.scenario}, {self.policy}, seed {self.seed}: {self.good} of {self.requests} "
            f"requests answered in time{share} in {self.attempts} attempts; {kept} of "
            f"{len(self.checks)} bounds hold" + (f"; {missed}" if missed else "")
        )


def simulate(
    scenario: Scenario,
    *,
    policy: str | None = None,
    seed: int = 1,
    variant: str | None = None,
) -> Result:
    """Play a scenario in virtual time.

    A million attempts take a few seconds and about 100 MB; more than 2e7 are refused. Other threads
    run meanwhile, but a signal such as Ctrl-C is answered only afterwards.

    Args:
        scenario: The path of a TOML file, or its content as a mapping. Files that a mapping names
            are looked for in the current directory; those that a file names, beside it.
        policy: What stands before its first stage, instead of its own: links joined by `"+"`, such
            as `"codel+gradient2"`, or `"none"`.
        seed: Of all that is drawn at random, from 0 to 2**64 - 1.
        variant: Which one, if the scenario has several; see `scenarios`.

    Raises:
        OSError: If the file cannot be read, such as a `FileNotFoundError`.
        ValueError: If it does not say what it has to, or something of it is out of its range. The
            message names the parameter, the value and the range.
        TypeError: If a mapping holds what TOML and JSON have no word for.
    """
    import json  # which costs more than the rest of the import

    report = _core.simulate(*_source(scenario), variant, policy, seed)
    return _result(json.loads(report))


def scenarios(scenario: Scenario) -> list[str]:
    """Return what the variants of a scenario are called, as `simulate(variant=…)` takes it.

    One that has no variants is one by the name of its file.

    Args:
        scenario: As of `simulate`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it does not say what it has to.
        TypeError: As of `simulate`.
    """
    return [name for name, _ in _core.variants(*_source(scenario))]


def _source(scenario: Scenario) -> tuple[str, str | None]:
    """Return a path; and JSON, if that is not the path of the scenario but of its folder."""
    if not isinstance(scenario, Mapping):
        path = os.fspath(scenario)
        if not isinstance(path, str):
            raise TypeError(f"scenario must be a path or a mapping, got {path!r}")
        return path, None
    import json

    return os.curdir, json.dumps(_plain("scenario", scenario, depth=0))


def _plain(parameter: str, value: object, depth: int) -> object:
    """Return what JSON can say, with whatever is wrong said by its name."""
    if depth > 60:
        raise ValueError(f"{parameter} must be at most 60 levels deep")
    if isinstance(value, str):
        if not _is_unicode(value):
            raise ValueError(f"{parameter} must be text without surrogates, got {_short(value)}")
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{parameter} must have strings as keys, got {key!r}")
            if not _is_unicode(key):
                raise ValueError(f"{parameter} must have keys without surrogates, got {key!a}")
        names = {key: key if depth == 0 else f"{parameter}.{key}" for key in value}
        return {key: _plain(names[key], each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        each_of = enumerate(value)
        return [_plain(f"{parameter}[{place}]", each, depth + 1) for place, each in each_of]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _number(parameter, value)


def _number(parameter: str, value: Any) -> int | float:
    whole = hasattr(value, "__index__")  # as those of NumPy have
    if not whole and not hasattr(value, "__float__"):
        raise TypeError(f"{parameter} must be a number, text, a list or a mapping, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not math.isfinite(number):
        raise ValueError(f"{parameter} must be a finite number, got {_short(value)}")
    return int(value) if whole else number


def _is_unicode(text: str) -> bool:
    try:
        str.encode(text)
    except UnicodeEncodeError:
        return False
    return True


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python writes
        return "a huge number"
    return text if len(text) <= 100 else text[:97] + "..."


def _result(report: dict[str, Any]) -> Result:
    series = {name: tuple(values) for name, values in report.pop("series").items()}
    checks = tuple(_check(check) for check in report.pop("checks"))
    return Result(**report, checks=checks, series=Series(**series))


def _check(check: dict[str, Any]) -> Check:
    start, end, of = check.pop("from"), check.pop("to"), check.pop("class")
    return Check(start=start, end=end, of=of, **check.pop("bound"), **check)
