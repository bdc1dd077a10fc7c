"""How late event loops run what is due."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sluicegate import _core

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_INTERVAL = 0.1
# After as many samples that nobody has read it stops: 2 s of a loop that is not blocked.
_UNREAD = 20
# For how many seconds a loop counts that it was read on.
_LATELY = 10.0


class _Sampler:
    """Measures one loop, for all who read it.

    It keeps no loop alive: the loop knows it by its timer, and it knows the loop only while that
    calls it.
    """

    __slots__ = ("_is_running", "_unread", "_window")

    def __init__(self) -> None:
        self._is_running = False
        self._unread = 0
        self._window = _core.LagWindow()

    def pressure(self, target: float) -> float:
        self._unread = 0
        return self._window.pressure(target)

    def ensure_running(self, loop: AbstractEventLoop) -> None:
        if not self._is_running:
            # A new one, for which the pause is no lag.
            self._window = _core.LagWindow()
            self._unread = 0
            self._is_running = True
            self._sample(loop)

    def _sample(self, loop: AbstractEventLoop) -> None:
        self._window.sample(_INTERVAL)
        # Without the context of whoever came first, which would live as long as this.
        loop.call_later(_INTERVAL, self._tick, context=contextvars.Context())

    def _tick(self) -> None:
        self._unread += 1
        if self._unread < _UNREAD:
            self._sample(asyncio.get_running_loop())
        else:
            self._is_running = False


_samplers: WeakKeyDictionary[AbstractEventLoop, _Sampler] = WeakKeyDictionary()


def _sampler_of_this_loop() -> _Sampler | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    sampler = _samplers.get(loop)
    if sampler is None:
        # No other thread can come between: it is the loop of this one.
        sampler = _samplers[loop] = _Sampler()
    sampler.ensure_running(loop)
    return sampler


class LoopLag:
    """See `sluicegate.pressure.loop_lag`."""

    __slots__ = ("_read", "_target", "name")

    def __init__(self, target: float) -> None:
        self._target = _core.target(target, 60)
        self.name = "loop_lag"
        # When it was last called on the loop of each.
        self._read: dict[_Sampler, float] = {}

    def __call__(self) -> float:
        now = time.monotonic()
        if sampler := _sampler_of_this_loop():
            self._read[sampler] = now
        worst = 0.0
        for sampler, read_at in list(self._read.items()):
            if now - read_at < _LATELY:
                worst = max(worst, sampler.pressure(self._target))
            else:
                self._read.pop(sampler, None)
        return worst

    def __repr__(self) -> str:
        return f"loop_lag(target={self._target:g})"
