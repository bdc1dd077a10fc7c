"""For the tests of services that use sluicegate."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluicegate import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate._clock import Clock

__all__ = ["use_clock"]


@contextmanager
def use_clock(clock: Clock, /) -> Iterator[None]:
    """Let a clock stand in for the system's, for every object that was made without one.

    Also for those that were made before, such as the limiters of a module, and in all threads.
    Their time goes on from where it is, whatever the clock says first, and from there when the
    block ends and the clock before is back. Who waits then goes on waiting for what is left:

        with use_clock(clock := ManualClock()):
            ...
            clock.advance(1.0)

    Args:
        clock: Where time comes from: an object with `now()` in seconds, such as a `ManualClock`.

    Raises:
        TypeError: If it is none.
    """
    given: object = clock
    if given is None:
        msg = "clock must be an object with a method now() that returns seconds, got None"
        raise TypeError(msg)
    previous = _core.default_clock()
    try:
        _core.set_default_clock(clock)
        yield
    finally:
        _core.set_default_clock(previous)
