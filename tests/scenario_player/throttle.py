"""The client-side throttle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.checks import ScenarioError
from scenario_player.kinds import are_counts, is_integer, is_number, is_table_of
from scenario_player.subject import Subject
from scenario_player.words import CRITICALITIES, OUTCOMES, same_answer
from sluicegate import AdaptiveThrottle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import Criticality, ManualClock

# Draws that are spread evenly, however many of them are looked at.
GOLDEN_RATIO = 0.6180339887498949


class Throttle(Subject):
    CONFIG: ClassVar[Keys] = {}
    OPTIONS: ClassVar[Keys] = {
        "k": is_number,
        "window": is_number,
        "max_rejection": is_number,
        "min_requests": is_integer,
    }
    ACTIONS: ClassVar[list[Keys]] = [
        {"allow": CRITICALITIES.__contains__, "draw": is_number, "times": is_integer},
        {"record": OUTCOMES.__contains__, "times": is_integer},
        {"withdraw": is_integer},
        {
            "send": CRITICALITIES.__contains__,
            "every": is_number,
            "until": is_number,
            "outcome": OUTCOMES.__contains__,
        },
        {
            "update": is_table_of(
                {"k": is_number, "max_rejection": is_number, "min_requests": is_integer}
            )
        },
    ]
    THEN: ClassVar[Keys] = {
        "requests": is_integer,
        "accepts": is_integer,
        "rejection_probability": is_number,
        "admitted": is_integer,
        "rejected": is_integer,
        "outcomes": are_counts,
        "passed_at_least": is_number,
        "refused_at_least": is_number,
    }

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.throttle = AdaptiveThrottle(clock=clock, **config)
        # Which share of those that this step sent passed.
        self.passed: float | None = None

    def begin_step(self) -> None:
        self.passed = None

    def act(self, step: Step) -> str:
        times = step.get("times", 1)
        match step:
            case {"allow": criticality, "draw": draw}:
                asked = (self.allow(CRITICALITIES[criticality], draw) for _ in range(times))
                return same_answer(asked)
            case {"record": outcome}:
                for _ in range(times):
                    self.throttle.record(OUTCOMES[outcome])
            case {"withdraw": times}:
                for _ in range(times):
                    self.throttle.withdraw()
            case {"send": _, "every": every, "until": until, "outcome": _}:
                if not (every > 0 and self.clock.now() < until):
                    raise ScenarioError(f"nothing is sent every {every} s until {until}")
                self.send(step)
            case {"update": update}:
                try:
                    self.throttle.update(**update)
                except ValueError:
                    return "error"
            case _:
                raise ScenarioError("allow needs a draw; send needs every, until and outcome")
        return "done"

    def allow(self, criticality: Criticality, draw: float) -> str:
        return "allowed" if self.throttle._allow(criticality, draw) else "refused"

    def send(self, step: Step) -> None:
        """Send a request every so often; each that passes is answered at once."""
        criticality, outcome = CRITICALITIES[step["send"]], OUTCOMES[step["outcome"]]
        start, until, every = self.clock.now(), step["until"], step["every"]
        sent = passed = 0
        while (at := start + sent * every) < until:
            self.clock.advance(max(0.0, at - self.clock.now()))
            if self.throttle._allow(criticality, sent * GOLDEN_RATIO % 1.0):
                self.throttle.record(outcome)
                passed += 1
            sent += 1
        self.clock.advance(until - self.clock.now())
        self.passed = passed / sent

    def state(self) -> object:
        return self.throttle._snapshot()

    def got(self) -> Mapping[str, object]:
        snapshot = self.throttle.snapshot()
        return {
            "requests": snapshot.requests,
            "accepts": snapshot.accepts,
            "rejection_probability": self.throttle.rejection_probability,
            "admitted": snapshot.admitted,
            "rejected": sum(snapshot.rejected.values()),
            "outcomes": {str(outcome): count for outcome, count in snapshot.outcomes.items()},
            "passed_at_least": self.passed,
            "refused_at_least": None if self.passed is None else 1 - self.passed,
        }
