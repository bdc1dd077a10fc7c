"""Limiters as decorators."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from sluicegate._core import Acquire, Permit

F = TypeVar("F", bound=Callable[..., Any])

# One that is its own `__call__` has no end.
_MOST_LAYERS = 100


def guard_with(
    acquire: Callable[[], Acquire], acquire_sync: Callable[[], Permit]
) -> Callable[[F], F]:
    """Make a decorator that holds a permit while a function, sync or async, runs."""

    def decorate(function: F, /) -> F:
        refuse_generator_function(function, "hold a permit inside it instead")
        if is_coroutine_function(function):

            @functools.wraps(function)
            async def guarded_async(*args: Any, **kwargs: Any) -> Any:
                async with acquire():
                    return await function(*args, **kwargs)

            return cast("F", guarded_async)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with acquire_sync():
                return function(*args, **kwargs)

        return cast("F", guarded)

    return decorate


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it is awaited: of a function, and of what wraps or behaves like one."""
    return any(map(inspect.iscoroutinefunction, _layers(function)))


def refuse_generator_function(function: object, instead: str) -> None:
    """Refuse what yields: between two items nobody knows whether the consumer comes back.

    And what cannot be called at all, such as a `classmethod`, whose place is above the guard.
    """
    if not callable(function):
        msg = f"guard() takes a function or a coroutine function, got {reprlib.repr(function)}"
        raise TypeError(msg)
    for layer in _layers(function):
        if inspect.isasyncgenfunction(layer) or inspect.isgeneratorfunction(layer):
            name = getattr(function, "__qualname__", repr(function))
            msg = (
                f"guard() takes a function or a coroutine function, got the generator function "
                f"{name}; {instead}"
            )
            raise TypeError(msg)


def _layers(function: Any) -> Iterator[Any]:
    """Yield it, and what is called when it is: inside of partials and methods, of objects."""
    for _ in range(_MOST_LAYERS):
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, staticmethod) or inspect.ismethod(function):
            function = function.__func__
        elif inspect.isroutine(function) or isinstance(function, type):
            return
        else:
            function = type(function).__call__
