"""How what came is compared with what must come."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class ScenarioError(Exception):
    """Something is wrong with the scenario, or did not come as it expects."""


@contextmanager
def naming_step(number: int) -> Iterator[None]:
    try:
        yield
    except ScenarioError as error:
        raise ScenarioError(f"step {number}: {error}") from error


def check_answer(expected: object, got: object) -> None:
    if not is_as(expected, got):
        raise ScenarioError(f"expected {expected!r}, got {got!r}")


def check(what: str, expected: object, got: object) -> None:
    if not is_as(expected, got):
        raise ScenarioError(f"{what}: expected {expected!r}, got {got!r}")


def check_least(what: str, expected: float, got: float | None) -> None:
    if got is None or got < expected:
        raise ScenarioError(f"{what}: expected {expected!r}, got {got!r}")


def check_most(what: str, expected: float, got: float | None) -> None:
    if got is None or got > expected:
        raise ScenarioError(f"{what}: expected {expected!r}, got {got!r}")


def is_as(expected: object, got: object) -> bool:
    """Compare; decimal fractions of a file are not those of a sum."""
    match expected, got:
        case list(), set():
            return sorted(expected) == sorted(got)
        case bool(), bool():
            return expected is got
        case ((int() | float()), (int() | float())):
            return math.isclose(expected, got, rel_tol=1e-12, abs_tol=1e-12)
    return expected == got
