"""Clocks. Everything here that keeps time can be told where time comes from."""

from __future__ import annotations

import asyncio
from typing import Protocol

from sluicegate import _core

_MOST_TURNS = 200_000
_TURNS_FOR_OTHERS = 1000
# A wake-up takes one turn of the loop to reach its task and one to run it, and what runs may yield
# once before it makes room for the next.
_QUIET_TURNS = 3


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

        What waits for a limiter, a bucket or a queue on this clock is woken, and so is whoever
        that makes room for, until nobody is left who was answered and has not run.
        `asyncio.sleep()` and `asyncio.timeout()` keep real time, and do not hear of it.

        Args:
            seconds: As in `advance()`.

        Raises:
            RuntimeError: If there is no end of it: after 200,000 turns of the loop in which no time
                passes, such as where tasks take the same permit in turn for ever.
        """
        target = self._target(seconds)
        self._step(self._target(0))  # what is due already
        await self._let_run()
        while not self._step(target):
            await self._let_run()
        await self._let_run()

    async def _let_run(self) -> None:
        quiet = 0
        for turn in range(_MOST_TURNS):
            await asyncio.sleep(0)
            # Those who were answered on other loops and threads run on their own, and may be
            # blocked there: they are not waited for without bound.
            is_busy = self._has_unclaimed(here=turn >= _TURNS_FOR_OTHERS)
            quiet = 0 if is_busy else quiet + 1
            if quiet == _QUIET_TURNS:
                return
        msg = (
            f"settle() finds no end: after {_MOST_TURNS} turns of the event loop, in which no time "
            f"passed, somebody is still to be answered; at {self.now()} s"
        )
        raise RuntimeError(msg)
