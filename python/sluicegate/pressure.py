"""What a gate sheds load by, beside its own limit: signals that say how loaded a process is.

A pressure is 1 at its target, less below, and more beyond. A gate takes the highest of its
pressures, and rejects the least critical work as long as that is above 1.

    gate = Gate(pressure=[queue_wait(), loop_lag(), cpu(target=0.8)])

Any function without arguments that returns such a number is one, too: its name is its `name`, if
it has one, else its `__name__`.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
from typing import TYPE_CHECKING, Protocol, final

from sluicegate import _core
from sluicegate._cpu import Cpu
from sluicegate._guard import is_coroutine_function
from sluicegate._loop_lag import LoopLag

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pressure", "QueueWait", "cpu", "loop_lag", "name_of", "queue_wait", "thread_pool"]


class Pressure(Protocol):
    """A signal that says how loaded a process is."""

    @property
    def name(self) -> str:
        """What it is called in snapshots and metrics."""
        ...

    def __call__(self) -> float:
        """Return the pressure now: 0 or more, and 1 at the target."""
        ...


def loop_lag(target: float = 0.05) -> Pressure:
    """Make the pressure of how late event loops are: of CPU-bound and blocking handlers.

    It is the 99th percentile, over the last 2 to 4 s, of how late timers are called. The one worst
    of them is left out, as a single pause is no load, and so is everything once half a second was
    on time. Of several loops that one was called on within 10 s, it is the highest; without any,
    also on other threads, it is 0.

    A loop is sampled every 0.1 s from the first call on it, and no more once nobody has called for
    2 s. All share the sampler of a loop, and it keeps no loop alive.

    Args:
        target: The lag, in seconds, that is a pressure of 1; above 0 and at most 60.

    Raises:
        ValueError: If `target` is out of its range.
        TypeError: If it is no number.
    """
    return LoopLag(target)


def thread_pool(target: float = 1.0) -> Pressure:
    """Make the pressure of AnyIO's worker threads: of sync handlers in FastAPI and Starlette.

    It is how many tasks wait for a thread, by how many threads there may be, of the default
    limiter of the running loop. Outside of a task, and as long as nothing has imported AnyIO, it
    is 0.

    Args:
        target: How many tasks wait for each thread at a pressure of 1; above 0 and at most 1000.

    Raises:
        ValueError: If `target` is out of its range.
        TypeError: If it is no number.
    """
    return _ThreadPool(target)


def cpu(target: float = 0.9) -> Pressure:
    """Make the pressure of the processors: of all that they do, also for other processes.

    It is their usage by the target, and where that leaves less, 1.5 if they are wholly in use.
    They are read at most every 0.2 s, and smoothed over half a second. The first call only begins.

    They are those that bound this process: its control group (version 2 or 1) if that has a
    quota, else the processors that it may run on. Where there is no `/proc`, as on macOS and
    Windows, only what this process uses of them counts.

    Args:
        target: The share in use that is a pressure of 1; above 0 and at most 1.

    Raises:
        ValueError: If `target` is out of its range.
        TypeError: If it is no number.
    """
    return Cpu(target)


def queue_wait() -> QueueWait:
    """Make the pressure of a gate's own line: how long one waits in it, by how long one may.

    It is a sign for the gate, which knows this. Called by itself it is 0.
    """
    return QueueWait()


@final
class QueueWait:
    """See `queue_wait()`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """What it is called in snapshots and metrics."""
        return "queue_wait"

    def __call__(self) -> float:
        """Return 0: a gate knows its own."""
        return 0.0

    def __repr__(self) -> str:
        return "queue_wait()"


class _ThreadPool:
    __slots__ = ("_target", "name")

    def __init__(self, target: float) -> None:
        self._target = _core.target(target, 1000)
        self.name = "thread_pool"

    def __call__(self) -> float:
        to_thread = sys.modules.get("anyio.to_thread")
        if to_thread is None:
            return 0.0
        try:
            limiter = to_thread.current_default_thread_limiter()
        except (RuntimeError, LookupError):
            return 0.0  # no loop is running here
        waiting: int = limiter.statistics().tasks_waiting
        threads: float = max(1.0, limiter.total_tokens)
        return waiting / threads / self._target

    def __repr__(self) -> str:
        return f"thread_pool(target={self._target:g})"


def name_of(source: Callable[[], float], /) -> str:
    """Return what a pressure is called: its `name`, else its `__name__`, else that of its class.

    Args:
        source: The pressure.

    Raises:
        TypeError: If it is not callable, is async, or if its `name` is no string.
    """
    if not callable(source) or inspect.isclass(source) or is_coroutine_function(source):
        msg = f"pressure must be callables that return a number, got {reprlib.repr(source)}"
        raise TypeError(msg)
    name = getattr(source, "name", None)
    if name is None:
        name = getattr(source, "__name__", None) or type(source).__name__
    if not isinstance(name, str):
        msg = f"name of a pressure must be a string, got {reprlib.repr(name)}"
        raise TypeError(msg)
    return name
