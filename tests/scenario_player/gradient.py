"""The limiter whose limit follows latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.kinds import is_number, is_table_of
from scenario_player.limiter import Limiter
from sluicegate import GradientLimiter

if TYPE_CHECKING:
    from scenario_player.kinds import Keys


class Gradient(Limiter):
    RANGE: ClassVar[Keys] = {
        "min_limit": is_number,
        "max_limit": is_number,
        "latency_target": is_number,
    }
    CONFIG: ClassVar[Keys] = {"kind": {"latency"}.__contains__}
    OPTIONS: ClassVar[Keys] = {"initial": is_number, **RANGE}
    ACTIONS: ClassVar[list[Keys]] = [{"update": is_table_of(RANGE)}, *Limiter.ACTIONS]
    limiter: GradientLimiter

    def make(self, config: dict[str, Any]) -> GradientLimiter:
        parameters = {key: value for key, value in config.items() if key != "kind"}
        return GradientLimiter(**parameters, clock=self.clock)

    def update(self, update: dict[str, float]) -> None:
        self.limiter.update(**update)
