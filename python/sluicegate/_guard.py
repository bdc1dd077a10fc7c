"""Limiters as decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from sluicegate._core import Acquire, Permit

F = TypeVar("F", bound=Callable[..., Any])


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
    """Whether a call of it is awaited; also of an object with an async `__call__`."""
    call = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def refuse_generator_function(function: Callable[..., Any], instead: str) -> None:
    """Refuse what yields: between two items nobody knows whether the consumer comes back."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        msg = (
            f"guard() takes a function or a coroutine function, got the generator function "
            f"{function.__qualname__}; {instead}"
        )
        raise TypeError(msg)
