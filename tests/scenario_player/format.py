"""The format of a scenario."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from scenario_player.buckets import Bucket, KeyedBucket
from scenario_player.budgets import Budget, TokenBudget
from scenario_player.checks import ScenarioError, naming_step
from scenario_player.classic import ALGORITHMS, Classic
from scenario_player.codel import Controller
from scenario_player.gate import Gate
from scenario_player.gradient import Gradient
from scenario_player.kinds import (
    Keys,
    are_tables,
    is_answer,
    is_number,
    is_table,
    is_text,
    is_true,
)
from scenario_player.limiter import Semaphore
from scenario_player.queue import Queue
from scenario_player.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.subject import Step, Subject

Scenario = dict[str, Any]

# By the table that says what is played.
SUBJECTS: dict[str, type[Subject]] = {
    "limiter": Semaphore,
    "throttle": Throttle,
    "budget": Budget,
    "token_budget": TokenBudget,
    "bucket": Bucket,
    "keyed_bucket": KeyedBucket,
    "gate": Gate,
    "queue": Queue,
    "codel": Controller,
}
# What can be done whatever the subject.
COMMON_ACTIONS: list[Keys] = [{"at": is_number}, {"fork": is_true}]


def load(text: str) -> Scenario:
    """Read a scenario.

    Raises:
        ScenarioError: If it is not of the format.
    """
    try:
        scenario = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(str(error)) from error
    table, subject = subject_of(scenario)
    check_keys(scenario, {"about": is_text, table: is_table, "step": are_tables})
    if not scenario["about"].strip():
        raise ScenarioError("it says nothing about itself")
    check_keys(scenario[table], subject.CONFIG, subject.OPTIONS)
    for number, step in enumerate(scenario["step"], 1):
        with naming_step(number):
            check_step(step, subject)
    return scenario


def subject_of(scenario: Scenario) -> tuple[str, type[Subject]]:
    """Return the table that says what is played, and who plays it."""
    match [table for table in SUBJECTS if table in scenario]:
        case ["limiter"] if is_classic(scenario["limiter"]):
            return "limiter", Classic
        case ["limiter"] if is_of_kind("latency", scenario["limiter"]):
            return "limiter", Gradient
        case [table]:
            return table, SUBJECTS[table]
        case tables:
            raise ScenarioError(f"one table has to say what is played: {tables}")


def is_of_kind(kind: str, limiter: object) -> bool:
    return isinstance(limiter, dict) and limiter.get("kind") == kind


def is_classic(limiter: object) -> bool:
    return isinstance(limiter, dict) and limiter.get("kind") in ALGORITHMS


def check_step(step: Step, subject: type[Subject]) -> None:
    if not is_answer(step.get("expect", "")):
        raise ScenarioError("expect is a string or a number")
    then = step.get("then", {})
    if not is_table(then):
        raise ScenarioError("then is a table")
    check_keys(then, {}, subject.THEN)
    given = step.keys() - {"expect", "then"}
    actions = COMMON_ACTIONS + subject.ACTIONS
    fitting = [keys for keys in actions if next(iter(keys)) in given and given <= keys.keys()]
    if given and not fitting:
        raise ScenarioError(f"no action has just these keys: {sorted(given)}")
    if given:
        check_keys({key: step[key] for key in given}, {}, fitting[0])


def check_keys(table: Mapping[str, object], needed: Keys, others: Keys | None = None) -> None:
    keys = needed | (others or {})
    for key, value in table.items():
        if key not in keys:
            raise ScenarioError(f"unknown key: {key}")
        if not keys[key](value):
            raise ScenarioError(f"{key} cannot be {value!r}")
    if missing := sorted(needed.keys() - table.keys()):
        raise ScenarioError(f"missing keys: {missing}")
