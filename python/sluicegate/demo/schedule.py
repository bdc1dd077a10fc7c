"""Wakes whoever is due, in the order in which they are due."""

import asyncio
import heapq
import itertools
import time


class Schedule:
    """One timer for everybody who waits for an instant of `time.monotonic`.

    The timers of an event loop tick by the millisecond. At a thousand requests per second many
    fall into the same tick, and with a timer each, those whose timers happen to be served first,
    retries for instance, would be ahead of the others in every one.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    async def until(self, due: float) -> None:
        """Wait until ``due``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (due, next(self._number), future))
        if self._waiting[0][2] is future:
            self._arm()
        await future

    def _arm(self) -> None:
        """Set the timer to the next one who is due."""
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, self._waiting[0][0] - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._waiting:
            self._arm()
