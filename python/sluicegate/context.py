"""What is asked for all the work of a request, wherever in the process it is done.

A deadline, a criticality, a key, an operation and a price in tokens are told once, where the
request comes in, and count for whatever the task does in the block, for the tasks that it makes,
and for threads that are started by `asyncio.to_thread()` or by `carry()`:

    with context.deadline(0.5), context.criticality(Criticality.SHEDDABLE):
        await call_others()

A task that outlives the block is not bound any more by what was told there, even in blocks of its
own that it entered meanwhile. What is made on purpose to outlive it belongs into `detached()`.

Do not `yield` inside such a block in a generator: what is told there would count for its consumer.
A fixture, or a generator that is made a context manager, may.
"""

from __future__ import annotations

import contextvars
import functools
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar, cast

from sluicegate import _core
from sluicegate._core import remaining
from sluicegate._guard import is_coroutine_function
from sluicegate._headers import Headers, Received

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sluicegate._core import Deadline
    from sluicegate._enums import Criticality

__all__ = [
    "Current",
    "Headers",
    "Received",
    "carry",
    "criticality",
    "current",
    "deadline",
    "detached",
    "key",
    "operation",
    "received",
    "remaining",
    "tokens",
]

P = ParamSpec("P")
R = TypeVar("R")


class Current(NamedTuple):
    """What is asked here and now; `None` where nobody says.

    Attributes:
        deadline: The earliest of all that were told.
        criticality: How much the work matters.
        key: Who calls: a user, a session, a tenant.
        operation: What kind of work it is.
        tokens: What it costs where a rate is kept.
    """

    deadline: Deadline | None
    criticality: Criticality | None
    key: str | None
    operation: str | None
    tokens: float | None


def deadline(seconds: float | Deadline, /) -> AbstractContextManager[Deadline]:
    """Say when nobody wants the answer any more. It cancels nothing.

    It only ever shortens: what counts is the earliest that was told, and the block gets that one.

    Args:
        seconds: In how many seconds from this call, at most 3600, or a `Deadline`. One that has
            passed is over at once.

    Raises:
        ValueError: If it is out of its range.
        TypeError: If it is of a wrong type.
    """
    _refuse_none("deadline", "a number of seconds from now, at most 3600, or a Deadline", seconds)
    return cast("AbstractContextManager[Deadline]", _core.Scope(deadline=seconds))


def criticality(level: Criticality, /) -> AbstractContextManager[None]:
    """Say how much the work matters. The innermost block counts.

    Args:
        level: A `Criticality`.

    Raises:
        TypeError: If it is none.
    """
    _refuse_none("criticality", "a Criticality", level)
    return cast("AbstractContextManager[None]", _core.Scope(criticality=level))


def key(key: str, /) -> AbstractContextManager[None]:
    """Say who calls: whoever is shed, is shed for all of a request or a session alike.

    Args:
        key: A user, a session, a tenant.

    Raises:
        TypeError: If it is no string.
    """
    _refuse_none("key", "a string", key)
    return cast("AbstractContextManager[None]", _core.Scope(key=key))


def operation(name: str, /) -> AbstractContextManager[None]:
    """Say what kind of work it is, as in `acquire(operation=…)`. The innermost block counts.

    Args:
        name: One of few, such as a route: not what differs with each request.

    Raises:
        TypeError: If it is no string.
    """
    _refuse_none("operation", "a string", name)
    return cast("AbstractContextManager[None]", _core.Scope(operation=name))


def tokens(n: float, /) -> AbstractContextManager[None]:
    """Say what the work costs where a rate is kept. The innermost block counts.

    Args:
        n: How many tokens, from 1e-9 to 1e9.

    Raises:
        ValueError: If it is out of its range.
        TypeError: If it is no number.
    """
    _refuse_none("tokens", "a number of tokens from 1e-9 to 1e9", n)
    return cast("AbstractContextManager[None]", _core.Scope(tokens=n))


def received(said: Received, /) -> AbstractContextManager[None]:
    """Say what the headers of a request said: its deadline and its criticality, if any.

        with context.received(headers.read(scope["headers"], trusted=headers.trusts(scope))):
            await app(scope, receive, send)

    Args:
        said: What `Headers.read()` returned.
    """
    scope = _core.Scope(deadline=said.deadline, criticality=said.criticality)
    return cast("AbstractContextManager[None]", scope)


def current() -> Current:
    """Return what is asked here and now."""
    return Current(*_core.current())


def detached() -> AbstractContextManager[None]:
    """Make a block in which nothing is told, for what is made on purpose to outlive the request.

    with context.detached():
        refresher = asyncio.create_task(refresh_for_ever())
    """
    return _core.Detached()


def carry(function: Callable[P, R], /) -> Callable[P, R]:
    """Make a function that runs in the context of this moment, in whichever thread it is called.

    For what starts threads without handing the context on: `executor.submit(carry(work), job)`.
    `asyncio.to_thread()` does so itself. It may be called often, and at the same time.

    Args:
        function: What is to run; not async, since a coroutine runs in the context of its task.

    Raises:
        TypeError: If it cannot be called, or is async.
    """
    if not callable(function) or is_coroutine_function(function):
        msg = f"carry() takes what is callable and not async, got {function!r:.100}"
        raise TypeError(msg)
    context = contextvars.copy_context()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered by one at a time.
        return context.copy().run(function, *args, **kwargs)

    return carried


def _refuse_none(parameter: str, kinds: str, value: object) -> None:
    if value is None:
        msg = f"{parameter} must be {kinds}, got None (NoneType)"
        raise TypeError(msg)
