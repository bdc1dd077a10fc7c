"""Whether an event loop has stood still just now."""

from __future__ import annotations

import asyncio
import contextvars
from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_INTERVAL: Final = 0.1
# Of a loop that is late by less than that, hardly a client has lost patience.
_LATE: Final = 0.25
# For how long after that requests may come to their turn that came while it stood still.
_AFTER: Final = 2.0
# After how many beats it asks whether anybody is interested, and after how many it stops.
_ASKS: Final = 20
_STOPS: Final = 600
_NEVER: Final = float("-inf")


class Heartbeat:
    """Beats on one loop, as long as somebody asks for it.

    It keeps no loop alive: the loop knows it by its timer, and it knows no loop.

    Attributes:
        is_well_until: Before this moment of the clock there is no need to ask `is_late()`.

    """

    __slots__ = ("_due", "_is_running", "_late_until", "_unasked", "is_well_until")

    def __init__(self) -> None:
        self.is_well_until = _NEVER
        self._is_running = False
        self._due = 0.0
        self._late_until = _NEVER
        self._unasked = 0

    def is_late(self, loop: AbstractEventLoop) -> bool:
        """Return whether the loop stands still, or has done so just now."""
        self._unasked = 0
        now = monotonic()
        if not self._is_running:
            # Nobody knows what was before.
            self._is_running = True
            self._go_on(now, loop)
            return False
        self._look(now)
        return self._note(now)

    def _beat(self) -> None:
        now = monotonic()
        self._look(now)
        self._unasked += 1
        if self._unasked < _STOPS:
            self._go_on(now, asyncio.get_running_loop())
        else:
            self._is_running = False
            self.is_well_until = _NEVER

    def _look(self, now: float) -> None:
        if now > self._due + _LATE:
            self._late_until = now + _AFTER

    def _go_on(self, now: float, loop: AbstractEventLoop) -> None:
        self._due = now + _INTERVAL
        self._note(now)
        # Without the context of whoever came first, which would live as long as this.
        loop.call_later(_INTERVAL, self._beat, context=contextvars.Context())

    def _note(self, now: float) -> bool:
        is_late = now < self._late_until
        is_asking = self._unasked >= _ASKS
        self.is_well_until = _NEVER if is_late or is_asking else self._due + _LATE
        return is_late


_heartbeats: WeakKeyDictionary[AbstractEventLoop, Heartbeat] = WeakKeyDictionary()


def heartbeat_of(loop: AbstractEventLoop) -> Heartbeat:
    """Return that of a loop."""
    heartbeat = _heartbeats.get(loop)
    if heartbeat is None:
        # No other thread can come between: it is the loop of this one.
        heartbeat = _heartbeats[loop] = Heartbeat()
    return heartbeat
