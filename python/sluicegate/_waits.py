"""The same steps for tasks and for threads: how each of them waits."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from sluicegate._gate import Gate
from sluicegate._limiter import BaseLimiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sluicegate._bucket import TokenBucket
    from sluicegate._core import Permit
    from sluicegate._limiter import Limiter

T = TypeVar("T")

_GRACE: Final = 0.005


class Waits(Protocol):
    """How a caller waits: the steps are coroutines, of which those of a thread never suspend."""

    async def take(self, bucket: TokenBucket, n: float, left: float | None) -> None:
        """Take tokens, or raise `TimedOut`."""

    async def permit(self, limiter: Limiter, operation: str | None, left: float | None) -> Permit:
        """Get a permit, or raise `TimedOut` or `Rejected`."""
        ...

    async def run(self, function: Callable[[], Any], left: float | None) -> Any:
        """Do the work; who can be cancelled is after so many seconds."""


class _TaskWaits:
    __slots__ = ()

    async def take(self, bucket: TokenBucket, n: float, left: float | None) -> None:
        if not bucket.try_take(n):
            await bucket.take(n, timeout=left)

    async def permit(self, limiter: Limiter, operation: str | None, left: float | None) -> Permit:
        if isinstance(limiter, Gate):
            return await limiter.acquire(operation=operation)
        if isinstance(limiter, BaseLimiter):
            return await limiter.acquire(operation=operation, timeout=left)
        return await limiter.acquire()

    async def run(self, function: Callable[[], Awaitable[T]], left: float | None) -> T:
        if left is None:
            return await function()
        # A little later than the deadline of the context: what waits within for something of ours
        # is told so by that, which is known to say nothing of the backend.
        async with asyncio.timeout(left + _GRACE):
            return await function()


class _ThreadWaits:
    __slots__ = ()

    async def take(self, bucket: TokenBucket, n: float, left: float | None) -> None:
        if not bucket.try_take(n):
            bucket.take_sync(n, timeout=left)

    async def permit(self, limiter: Limiter, operation: str | None, left: float | None) -> Permit:
        if isinstance(limiter, Gate):
            return limiter.acquire_sync(operation=operation)
        if isinstance(limiter, BaseLimiter):
            return limiter.acquire_sync(operation=operation, timeout=left)
        return limiter.acquire().__enter__()

    async def run(self, function: Callable[[], T], left: float | None) -> T:  # noqa: ARG002
        result = function()
        if isinstance(result, CoroutineType):
            result.close()
            msg = f"a plain call has returned a coroutine: await call({function!r:.100}) instead"
            raise TypeError(msg)
        return result


TASK: Waits = _TaskWaits()
THREAD: Waits = _ThreadWaits()


def run_in_thread(steps: Coroutine[Any, Any, T]) -> T:
    """Run what waits as a thread does to its end."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
    # A thread's waits block, and never suspend.
    msg = "a thread cannot wait for what only an event loop brings"
    raise RuntimeError(msg)
