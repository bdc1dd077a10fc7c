"""The controller of folly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.kinds import is_number
from scenario_player.subject import Subject
from sluicegate.classic import Codel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock


class Controller(Subject):
    CONFIG: ClassVar[Keys] = {}
    OPTIONS: ClassVar[Keys] = {"target": is_number, "interval": is_number}
    ACTIONS: ClassVar[list[Keys]] = [{"dequeue": is_number}]
    THEN: ClassVar[Keys] = {"load": is_number}

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.codel = Codel(clock=clock, **config)

    def act(self, step: Step) -> str:
        try:
            return "rejected" if self.codel.overloaded(step["dequeue"]) else "passed"
        except ValueError:
            return "error"

    def state(self) -> object:
        return self.codel.load

    def got(self) -> Mapping[str, object]:
        return {"load": self.codel.load}
