"""An event loop whose time goes on only when there is nothing to do, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

from sluicegate import testing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where it would sleep, its clock jumps to the next timer."""

    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__(_Selector(self._sleep))
        self.slow_callback_duration = float("inf")

    def time(self) -> float:
        return self.seconds

    def now(self) -> float:
        """What makes it a clock of this package."""
        return self.seconds

    def _sleep(self, seconds: float | None) -> None:
        if seconds is None:
            msg = "nothing is left to do, and no timer is set"
            raise AssertionError(msg)
        self.seconds += max(0.0, seconds)


class _Selector(selectors.DefaultSelector):
    def __init__(self, sleep: Callable[[float | None], None]) -> None:
        super().__init__()
        self._sleep = sleep

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout != 0:
            self._sleep(timeout)
        return ready


def run_in_virtual_time(main: Callable[[VirtualLoop], Coroutine[Any, Any, Any]]) -> None:
    """Run it, where no time passes, with the loop as the clock of all that has no other."""
    event_loop = VirtualLoop()
    with testing.use_clock(event_loop):
        try:
            event_loop.run_until_complete(main(event_loop))
        finally:
            event_loop.close()
