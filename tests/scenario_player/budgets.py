"""The retry budgets, and the permits of the retries."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.checks import ScenarioError
from scenario_player.kinds import is_integer, is_number, is_table_of, is_text
from scenario_player.subject import Subject
from scenario_player.words import numbered, same_answer
from sluicegate import Rejection, RetryBudget, RetryPermit, TokenRetryBudget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock


class Retries(Subject):
    """Any retry budget; those who know which one make it."""

    RETRY_ACTIONS: ClassVar[list[Keys]] = [
        {"try_retry": is_text, "times": is_integer},
        {"release": is_text, "times": is_integer},
        {"forget": is_text},
    ]

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.budget = self.make(config)
        self.permits: dict[str, RetryPermit] = {}
        self.held: set[str] = set()

    def make(self, config: dict[str, Any]) -> RetryBudget | TokenRetryBudget:
        raise NotImplementedError

    def act(self, step: Step) -> str:
        match step:
            case {"try_retry": name}:
                return same_answer([self.try_retry(one) for one in numbered(name, step)])
            case {"release": name}:
                return same_answer([self.release(one) for one in numbered(name, step)])
            case {"forget": name}:
                self.forget(name)
            case {"update": update}:
                try:
                    self.budget.update(**update)
                except ValueError:
                    return "error"
        return "done"

    def state(self) -> object:
        return self.budget._snapshot()

    def got(self) -> Mapping[str, object]:
        return self.budget._snapshot()

    def try_retry(self, name: str) -> str:
        if name in self.held:
            raise ScenarioError(f"{name} is taken")
        answer = self.budget.try_retry()
        if isinstance(answer, Rejection):
            return str(answer.reason)
        self.permits[name] = answer
        self.held.add(name)
        return "admitted"

    def release(self, name: str) -> str:
        if name not in self.permits:
            raise ScenarioError(f"{name} holds no retry")
        before = self.budget.snapshot().stray_releases
        self.permits[name].release()
        self.held.discard(name)
        return "done" if self.budget.snapshot().stray_releases == before else "ignored"

    def forget(self, name: str) -> None:
        if name not in self.held:
            raise ScenarioError(f"{name} holds no retry")
        self.held.remove(name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del self.permits[name]
        if [warning.category for warning in caught] != [ResourceWarning]:
            raise ScenarioError(f"expected one ResourceWarning, got {caught}")

    def end(self) -> None:
        self.close()
        if held := self.budget.snapshot().held:
            raise ScenarioError(f"after the last step: held are {held}")

    def close(self) -> None:
        for name in self.held:
            self.permits[name].release()
        self.held.clear()


class Budget(Retries):
    CONFIG: ClassVar[Keys] = {}
    OPTIONS: ClassVar[Keys] = {"ratio": is_number, "floor": is_number, "window": is_number}
    ACTIONS: ClassVar[list[Keys]] = [
        {"record_request": is_integer},
        {"update": is_table_of({"ratio": is_number, "floor": is_number})},
        *Retries.RETRY_ACTIONS,
    ]
    THEN: ClassVar[Keys] = {
        "requests": is_integer,
        "retries": is_integer,
        "held": is_integer,
        "allowance": is_number,
        "admitted": is_integer,
        "rejected": is_integer,
        "stray_releases": is_integer,
    }
    budget: RetryBudget

    def make(self, config: dict[str, Any]) -> RetryBudget:
        return RetryBudget(clock=self.clock, **config)

    def act(self, step: Step) -> str:
        for _ in range(step.get("record_request", 0)):
            self.budget.record_request()
        return super().act(step)


class TokenBudget(Retries):
    CONFIG: ClassVar[Keys] = {}
    OPTIONS: ClassVar[Keys] = {"max_tokens": is_number, "token_ratio": is_number}
    ACTIONS: ClassVar[list[Keys]] = [
        {"record_success": is_integer},
        {"record_failure": is_integer},
        {"update": is_table_of(OPTIONS)},
        *Retries.RETRY_ACTIONS,
    ]
    THEN: ClassVar[Keys] = {
        "tokens": is_number,
        "held": is_integer,
        "admitted": is_integer,
        "rejected": is_integer,
        "stray_releases": is_integer,
    }
    budget: TokenRetryBudget

    def make(self, config: dict[str, Any]) -> TokenRetryBudget:
        return TokenRetryBudget(**config)

    def act(self, step: Step) -> str:
        for _ in range(step.get("record_success", 0)):
            self.budget.record_success()
        for _ in range(step.get("record_failure", 0)):
            self.budget.record_failure()
        return super().act(step)
