"""What a scenario is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from scenario_player.checks import check, check_least, check_most

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from scenario_player.kinds import Keys
    from sluicegate import ManualClock

    NewLoop = Callable[[], asyncio.AbstractEventLoop]

Step = dict[str, Any]


class Subject:
    """A primitive that is played, and what there is of its scenario beside it.

    The constructor takes the table that makes the primitive.

    Raises:
        ValueError: If that is bad configuration.
    """

    # What the table has to have, and what else it may have.
    CONFIG: ClassVar[Keys]
    OPTIONS: ClassVar[Keys] = {}
    # What a step can do is told by its keys: the first of each is needed, the others are not.
    ACTIONS: ClassVar[list[Keys]]
    THEN: ClassVar[Keys]

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        self.clock = clock
        self.new_loop = new_loop
        # What came up outside of any step.
        self.errors: list[str] = []

    def act(self, step: Step) -> object:
        """Do what a step says, and return the answer."""
        raise NotImplementedError

    def state(self) -> object:
        """Return all that can be seen of the primitive, to be compared."""
        raise NotImplementedError

    def got(self) -> Mapping[str, object]:
        """Return what `then` can ask for."""
        raise NotImplementedError

    def look(self, then: Mapping[str, Any]) -> None:
        got = self.got()
        for what, expected in then.items():
            if what.endswith("_at_least"):
                check_least(what, expected, cast("float | None", got[what]))
            elif what.endswith("_at_most"):
                check_most(what, expected, cast("float | None", got[what]))
            else:
                check(what, expected, got[what])

    def begin_step(self) -> None:
        """Forget what came of the last step."""

    def finish_step(self) -> None:
        """See that nothing came up."""

    def become_child(self) -> None:
        """Be in the child of a fork."""

    def end(self) -> None:
        """See that nothing is left when all is cancelled and given back."""

    def close(self) -> None:
        """End what a failure left."""
