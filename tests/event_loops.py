"""The event loops to test on, and how to run a test on one without hanging."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
KINDS = list(FACTORIES)


def run_on(kind: str, main: Coroutine[Any, Any, T], seconds: float = 10.0) -> T:
    """Run a coroutine on a new loop of a kind, and cancel what does not end.

    A loop that waits in C is not interrupted by the alarm of pytest-timeout.
    """

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await main

    with asyncio.Runner(loop_factory=FACTORIES[kind]) as runner:
        return runner.run(bounded())
