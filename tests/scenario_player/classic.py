"""The limiters that follow a published algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.kinds import is_integer, is_table_of, is_truth
from scenario_player.limiter import Limiter
from sluicegate.classic import (
    Aimd,
    Algorithm,
    ClassicLimiter,
    Fixed,
    Gradient,
    Gradient2,
    Vegas,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scenario_player.kinds import Keys

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fixed": Fixed,
    "aimd": Aimd,
    "vegas": Vegas,
    "gradient": Gradient,
    "gradient2": Gradient2,
}
PROBES = {"vegas": "probe_multiplier", "gradient": "probe_interval"}


class Classic(Limiter):
    CONFIG: ClassVar[Keys] = {"kind": ALGORITHMS.__contains__}
    OPTIONS: ClassVar[Keys] = {
        "limit": is_integer,
        "initial": is_integer,
        "min_limit": is_integer,
        "max_limit": is_integer,
        "probes": is_truth,
        "window": is_truth,
    }
    ACTIONS: ClassVar[list[Keys]] = [
        {"update": is_table_of({"min_limit": is_integer, "max_limit": is_integer})},
        *Limiter.ACTIONS,
    ]
    limiter: ClassicLimiter

    def make(self, config: dict[str, Any]) -> ClassicLimiter:
        match config:
            case {"kind": kind, **parameters}:
                window = Window() if parameters.pop("window", False) else None
                if not parameters.pop("probes", True):
                    parameters[PROBES[kind]] = None
                algorithm = ALGORITHMS[kind](**parameters)
                return ClassicLimiter(algorithm, window=window, clock=self.clock)
        raise ValueError(config)

    def update(self, update: dict[str, int]) -> None:
        self.limiter.update(**update)
