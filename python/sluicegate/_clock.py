"""Clocks. Everything here that keeps time can be told where time comes from."""

from __future__ import annotations

import asyncio
from typing import Protocol

from sluicegate import _core

_MOST_TURNS = 1000


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Return seconds since any fixed moment: finite, 0 or more, never less than before."""
        ...


class ManualClock(_core.ManualClock):
    """A clock that stands still until it is told to move, for deterministic tests.

    Args:
        start: The first reading, in seconds; finite, 0 or more.

    Raises:
        ValueError: If `start` is out of its range.
    """

    __slots__ = ()

    async def settle(self, seconds: float = 0.0, /) -> None:
        """Advance, and let the tasks of this loop run that are woken on the way, each in its time.

        What waits for a limiter, a bucket or a queue on this clock is woken. `asyncio.sleep()` and
        `asyncio.timeout()` keep real time, and do not hear of it.

        Args:
            seconds: As in `advance()`.
        """
        target = self._target(seconds)
        self._step(self._target(0))  # what is due already
        await self._let_run()
        while not self._step(target):
            await self._let_run()
        await self._let_run()

    async def _let_run(self) -> None:
        # A wake-up takes one turn of the loop to reach its task and one to run it. Those who
        # were answered on other loops and threads run on their own, so that there is an end.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(_MOST_TURNS):
            if not self._has_unclaimed():
                break
            await asyncio.sleep(0)
