"""The token buckets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.checks import ScenarioError
from scenario_player.kinds import (
    are_counts,
    are_names,
    is_integer,
    is_number,
    is_table_of,
    is_text,
    is_truth,
)
from scenario_player.loops import OnLoops, timeout_of
from scenario_player.subject import Subject
from sluicegate import KeyedTokenBucket, TokenBucket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock

RATE: Keys = {"rate": is_number, "burst": is_number}


class Bucket(OnLoops):
    CONFIG: ClassVar[Keys] = {"rate": is_number}
    OPTIONS: ClassVar[Keys] = {"per": is_number, "burst": is_number}
    ACTIONS: ClassVar[list[Keys]] = [
        {"try_take": is_number, "loop": is_text},
        {
            "take": is_text,
            "n": is_number,
            "loop": is_text,
            "timeout": is_number,
            "cancelled": is_truth,
        },
        {"adjust": is_number},
        {"pause": is_number},
        {"retry_after": is_number},
        {"update": is_table_of(RATE)},
        *OnLoops.LOOP_ACTIONS,
    ]
    THEN: ClassVar[Keys] = {
        **RATE,
        "tokens": is_number,
        "waiting": is_integer,
        "oldest_wait": is_number,
        "next_expiry": is_number,
        "admitted": is_integer,
        "rejected": are_counts,
        "revoked": is_integer,
        "taken": are_names,
        "timed_out": are_names,
    }

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.bucket = TokenBucket(clock=clock, **config)

    def act(self, step: Step) -> object:
        try:
            return self.act_or_raise(step)
        except ValueError:
            return "error"

    def act_or_raise(self, step: Step) -> object:
        match step:
            case {"try_take": n}:
                with self.inside(step.get("loop")):
                    return "taken" if self.bucket.try_take(n) else "refused"
            case {"take": name}:
                return self.take(name, step)
            case {"adjust": n}:
                self.bucket.adjust(n)
            case {"pause": seconds}:
                self.bucket.pause(seconds)
            case {"retry_after": n}:
                return self.bucket.retry_after(n)
            case {"update": update}:
                self.bucket.update(**update)
            case _:
                return self.act_on_loops(step)
        return "done"

    def take(self, name: str, step: Step) -> str:
        timeout = timeout_of(step)

        async def work() -> str:
            try:
                await self.bucket.take(step.get("n", 1), timeout=timeout)
            except ValueError:
                return "error"
            except TimeoutError:
                return "timed_out"
            return "taken"

        return self.start(name, step, work)

    def state(self) -> object:
        return self.bucket._snapshot()

    def got(self) -> Mapping[str, object]:
        values = self.bucket._snapshot()
        next_expiry = values["next_expiry"]
        return {
            **values,
            "next_expiry": math.inf if next_expiry is None else next_expiry,
            "rejected": {str(reason): count for reason, count in values["rejected"].items()},
            "taken": self.answered("taken"),
            "timed_out": self.answered("timed_out"),
        }

    def give_back(self) -> None:
        if waiting := self.bucket._snapshot()["waiting"]:
            raise ScenarioError(f"after the last step: waiting are {waiting}")


class KeyedBucket(Subject):
    CONFIG: ClassVar[Keys] = {"rate": is_number}
    OPTIONS: ClassVar[Keys] = {"per": is_number, "burst": is_number, "max_keys": is_integer}
    ACTIONS: ClassVar[list[Keys]] = [
        {"try_take": is_text, "n": is_number},
        {"retry_after": is_text, "n": is_number},
        {"update": is_table_of(RATE)},
    ]
    THEN: ClassVar[Keys] = {
        **RATE,
        "keys": is_integer,
        "admitted": is_integer,
        "rejected": is_integer,
    }

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.bucket = KeyedTokenBucket(clock=clock, **config)

    def act(self, step: Step) -> object:
        n = step.get("n", 1)
        try:
            match step:
                case {"try_take": key}:
                    return "taken" if self.bucket.try_take(key, n) else "refused"
                case {"retry_after": key}:
                    return self.bucket.retry_after(key, n)
                case {"update": update}:
                    self.bucket.update(**update)
        except ValueError:
            return "error"
        return "done"

    def state(self) -> object:
        return self.bucket._snapshot()

    def got(self) -> Mapping[str, object]:
        return self.bucket._snapshot()
