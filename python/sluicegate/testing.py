"""For the tests of services that use sluicegate."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluicegate import _core
from sluicegate._enums import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate._clock import Clock
    from sluicegate._gate import Gate
    from sluicegate._limiter import BaseLimiter

__all__ = ["assert_idle", "rejecting", "use_clock"]


@contextmanager
def rejecting(
    gate: Gate, /, reason: Reason = Reason.FULL, *, retry_after: float = 1.0
) -> Iterator[None]:
    """Let a gate reject whoever comes, to see what a service makes of it.

    Who is in flight or in line already is not concerned. Of nested blocks the innermost counts,
    and at its end the one around it does again.

        with rejecting(gate, Reason.RATE, retry_after=30):
            assert client.get("/").status_code == 429

    Args:
        gate: The gate.
        reason: Why.
        retry_after: After how many seconds it is worth coming back, from 0 to 3600.

    Raises:
        ValueError: If `retry_after` is out of its range.
        TypeError: If `reason` is no `Reason`.
    """
    given: object = reason
    if not isinstance(given, Reason):
        msg = f"reason must be a Reason, got {given!r:.100}"
        raise TypeError(msg)
    previous = gate._reject(reason, retry_after)  # noqa: SLF001
    try:
        yield
    finally:
        gate._reject(*previous)  # noqa: SLF001


def assert_idle(*gates: Gate | BaseLimiter) -> None:
    """Assert that nothing is in flight and nobody waits: that no permit was lost.

    Args:
        gates: The gates; limiters are welcome, too.

    Raises:
        AssertionError: If something is, with the state of the gate.
    """
    for gate in gates:
        snapshot = gate.snapshot()
        if snapshot.in_flight or snapshot.waiting:
            raise AssertionError(str(snapshot))


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
