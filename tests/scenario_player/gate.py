"""The gate, and the permits that it gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.checks import ScenarioError
from scenario_player.kinds import (
    are_counts,
    are_names,
    are_numbers,
    are_words,
    is_integer,
    is_number,
    is_table_of,
    is_text,
    is_true,
    is_truth,
)
from scenario_player.limiter import Limiter
from scenario_player.loops import OnLoops, timeout_of
from scenario_player.words import CRITICALITIES, EXCEPTIONS, OUTCOMES, numbered, same_answer
from sluicegate import Gate as Played
from sluicegate import GradientLimiter, Rejected, Rejection, TokenBucket
from sluicegate.pressure import queue_wait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock

RANGE: Keys = {
    "initial": is_number,
    "min_limit": is_number,
    "max_limit": is_number,
    "latency_target": is_number,
}


def are_shares(value: object) -> bool:
    return are_numbers(value) and isinstance(value, dict) and value.keys() <= CRITICALITIES.keys()


ASK: Keys = {
    "cost": is_integer,
    "criticality": CRITICALITIES.__contains__,
    "deadline": is_number,
    "tokens": is_number,
    "operation": is_text,
    "retry": is_truth,
}


class Gate(Limiter):
    CONFIG: ClassVar[Keys] = {}
    OPTIONS: ClassVar[Keys] = {
        **RANGE,
        "limit": is_number,
        "max_waiting": is_integer,
        "max_wait": is_number,
        "reserve": are_shares,
        "rate": is_number,
        "burst": is_number,
        "pressure": is_truth,
        "queue_wait": is_truth,
        "dry_run": is_truth,
    }
    ACTIONS: ClassVar[list[Keys]] = [
        {"try_acquire": is_text, "times": is_integer, "loop": is_text, **ASK},
        {"try_within": is_text, **ASK},
        {
            "acquire": is_text,
            "times": is_integer,
            "cancelled": is_truth,
            "loop": is_text,
            **ASK,
        },
        {
            "work": is_number,
            "criticality": CRITICALITIES.__contains__,
            "operation": is_text,
            "times": is_integer,
            "outcome": OUTCOMES.__contains__,
        },
        {
            "release": is_text,
            "outcome": OUTCOMES.__contains__,
            "operation": is_text,
            "times": is_integer,
            "loop": is_text,
        },
        {"release": is_text, "raises": EXCEPTIONS.__contains__, "loop": is_text},
        {"forget": is_text},
        {"drain": is_text, "timeout": is_number, "cancelled": is_truth, "loop": is_text},
        {"close": is_true},
        {"pressure": is_number},
        {
            "update": is_table_of(
                {
                    "limit": is_number,
                    "max_waiting": is_integer,
                    "max_wait": is_number,
                    "dry_run": is_truth,
                }
            )
        },
        *OnLoops.LOOP_ACTIONS,
    ]
    THEN: ClassVar[Keys] = {
        "in_flight": is_integer,
        "waiting": is_integer,
        "limit": is_number,
        "saturation": is_number,
        "oldest_wait": is_number,
        "next_expiry": is_number,
        "max_waiting": is_integer,
        "wait_bound": is_number,
        "service_mean": is_number,
        "threshold": is_text,
        "permits": is_integer,
        "tokens": is_number,
        "admitted": are_names,
        "refused": are_words,
        "drained": are_names,
        "timed_out": are_names,
        "waited": are_numbers,
        "outcomes": are_counts,
        "rejected": are_counts,
        "revoked": is_integer,
        "stray_releases": is_integer,
        "retry_after": is_number,
        "retry_after_at_least": is_number,
        "retry_after_at_most": is_number,
    }

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        # Who was refused and why, during this step and after a wait.
        self.refused: dict[str, str] = {}
        # The last rejection that was told during this step.
        self.told: Rejection | None = None

    def make(self, config: dict[str, Any]) -> Any:
        self.pressure = 0.0
        self.has_pressure: bool = config.get("pressure", False)
        self.bucket = self.bucket_of(config)
        self.gate = self.gate_of(config)
        return self.gate

    def bucket_of(self, config: dict[str, Any]) -> TokenBucket | None:
        if "rate" in config:
            return TokenBucket(config["rate"], burst=config.get("burst"), clock=self.clock)
        if "burst" in config:
            raise ValueError("a burst is of a rate")
        return None

    def gate_of(self, config: dict[str, Any]) -> Played:
        limit: float | GradientLimiter
        follows = {key: config[key] for key in RANGE if key in config}
        if "limit" not in config:
            limit = GradientLimiter(**follows, clock=self.clock)
        elif follows:
            raise ValueError("the limit is fixed, or it follows latency")
        else:
            limit = config["limit"]
        reserve = config.get("reserve", {})
        pressure: list[Any] = [self.read_pressure] if self.has_pressure else []
        if config.get("queue_wait", False):
            pressure.append(queue_wait())
        return Played(
            limit,
            max_waiting=config.get("max_waiting"),
            max_wait=config.get("max_wait"),
            reserve={CRITICALITIES[name]: share for name, share in reserve.items()},
            rate=self.bucket,
            pressure=pressure,
            dry_run=config.get("dry_run", False),
            clock=self.clock,
        )

    def read_pressure(self) -> float:
        return self.pressure

    def update(self, update: dict[str, Any]) -> None:
        self.gate.update(**update)

    def begin_step(self) -> None:
        super().begin_step()
        self.refused.clear()
        self.told = None

    def act(self, step: Step) -> str:
        match step:
            case {"try_acquire": name}:
                return same_answer([self.try_acquire(one, step) for one in numbered(name, step)])
            case {"try_within": _}:
                return self.try_within(step)
            case {"acquire": name}:
                return same_answer([self.acquire(one, step) for one in numbered(name, step)])
            case {"work": seconds}:
                if not 0 <= seconds < math.inf:
                    raise ScenarioError(f"no such span: {seconds}")
                times = range(step.get("times", 1))
                return same_answer([self.work(seconds, step) for _ in times])
            case {"release": name}:
                return same_answer([self.release(one, step) for one in numbered(name, step)])
            case {"drain": name}:
                return self.drain(name, step)
            case {"close": True}:
                self.gate.close()
            case {"pressure": pressure}:
                if not self.has_pressure:
                    raise ScenarioError("the gate has no source of pressure")
                self.pressure = float(pressure)
            case _:
                return super().act(step)
        return "done"

    def state(self) -> object:
        return self.gate._snapshot(), self.tokens()

    def tokens(self) -> float:
        return math.inf if self.bucket is None else self.bucket.tokens

    def got(self) -> Mapping[str, object]:
        values = self.gate._snapshot()
        next_expiry = values["next_expiry"]
        retry_after = None
        if self.told is not None:
            retry_after = math.inf if self.told.retry_after is None else self.told.retry_after
        return {
            **values,
            "next_expiry": math.inf if next_expiry is None else next_expiry,
            "threshold": values["threshold"].name.lower(),
            "permits": values["admitted"],
            "tokens": self.tokens(),
            "admitted": self.answered("admitted"),
            "refused": self.refused,
            "drained": self.answered("drained"),
            "timed_out": self.answered("timed_out"),
            "outcomes": {str(outcome): count for outcome, count in values["outcomes"].items()},
            "rejected": {str(reason): count for reason, count in values["rejected"].items()},
            "retry_after": retry_after,
            "retry_after_at_least": retry_after,
            "retry_after_at_most": retry_after,
        }

    def tell(self, rejection: Rejection) -> str:
        self.told = rejection
        return str(rejection.reason)

    def try_acquire(self, name: str, step: Step) -> str:
        self.check_free(name)
        with self.inside(step.get("loop")):
            try:
                answer = self.gate.try_acquire(step.get("cost", 1), **ask_of(step))
            except ValueError:
                return "error"
        if isinstance(answer, Rejection):
            return self.tell(answer)
        return self.hold(name, answer)

    def try_within(self, step: Step) -> str:
        """Ask as the inner one of a gate that is closed."""
        outer = Played(1000, name="outer", clock=self.clock)
        outer.close()
        try:
            answer = outer.try_acquire(step.get("cost", 1), inner=self.gate, **ask_of(step))
        except ValueError:
            return "error"
        if not isinstance(answer, Rejection):
            raise ScenarioError("a gate that is closed admitted somebody")
        return str(answer.reason) if answer.gate == "outer" else self.tell(answer)

    def acquire(self, name: str, step: Step) -> str:
        has_waited = False

        async def work() -> str:
            try:
                wish = self.gate.acquire(step.get("cost", 1), **ask_of(step))
                self.wishes[name] = wish
                permit = await wish
            except ValueError:
                return "error"
            except Rejected as rejected:
                reason = self.tell(rejected.rejection)
                if not has_waited:
                    return reason
                self.refused[name] = reason
                return "refused"
            del self.wishes[name]
            return self.hold(name, permit)

        answer = self.start(name, step, work)
        has_waited = answer == "waiting"
        return answer

    def work(self, seconds: float, step: Step) -> str:
        answer = self.gate.try_acquire(
            criticality=CRITICALITIES[step.get("criticality", "critical")],
            operation=step.get("operation"),
        )
        if isinstance(answer, Rejection):
            return self.tell(answer)
        self.clock.advance(seconds)
        answer.release(OUTCOMES[step.get("outcome", "success")])
        return "done"

    def release(self, name: str, step: Step) -> str:
        if "operation" in step and name in self.held:
            self.permits[name].operation = step["operation"]
        return super().release(name, step)

    def drain(self, name: str, step: Step) -> str:
        timeout = timeout_of(step)

        async def work() -> str:
            return "drained" if await self.gate.drain(timeout) else "timed_out"

        return self.start(name, step, work)

    def give_back(self) -> None:
        for name in sorted(self.held):
            self.permits[name].release()
        self.held.clear()
        self.gate.update(dry_run=False)
        super().give_back()


def ask_of(step: Step) -> dict[str, Any]:
    ask: dict[str, Any] = {
        key: step[key] for key in ("deadline", "tokens", "operation", "retry") if key in step
    }
    if "criticality" in step:
        ask["criticality"] = CRITICALITIES[step["criticality"]]
    return ask
