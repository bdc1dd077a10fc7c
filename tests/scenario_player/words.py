"""The words of the files for what the package has types for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sluicegate import Criticality, Outcome, Rejected, Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scenario_player.subject import Step

OUTCOMES = {str(outcome): outcome for outcome in Outcome}
CRITICALITIES = {criticality.name.lower(): criticality for criticality in Criticality}
EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "Rejected": lambda: Rejected(Rejection("downstream", "limit")),
    "TimeoutError": TimeoutError,
    "ValueError": ValueError,
}


def same_answer(answers: Iterable[str]) -> str:
    """Return the answer to something that was asked several times."""
    match sorted(set(answers)):
        case [answer]:
            return answer
        case []:
            return "done"
    return "mixed"


def numbered(name: str, step: Step) -> list[str]:
    """Return the name of each of several things that one step is about."""
    if "times" not in step:
        return [name]
    return [f"{name}-{number}" for number in range(1, step["times"] + 1)]
