"""Under gevent and trio what waits says what works there, and what does not wait works."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from sluicegate import CoDelQueue, Gate, Permit, SemaphoreLimiter, TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["gevent", "trio"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stand in for a library that runs in this thread, as far as one can ask it."""
    name: str = request.param
    path = {"gevent": "gevent._hub_local", "trio": "trio.lowlevel"}[name]
    module = ModuleType(path)
    module.get_hub_if_exists = object  # type: ignore[attr-defined]
    module.in_trio_run = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, path, module)
    return name


BLOCKING: dict[str, Callable[[], object]] = {
    "Gate.acquire_sync": lambda: Gate(1).acquire_sync(),
    "Gate.acquire": lambda: Gate(1).acquire().__enter__(),
    "Gate.drain_sync": lambda: Gate(1).drain_sync(),
    "SemaphoreLimiter.acquire_sync": lambda: SemaphoreLimiter(1).acquire_sync(),
    "CoDelQueue.get_sync": lambda: CoDelQueue[int](1).get_sync(),
    "TokenBucket.take_sync": lambda: TokenBucket(1).take_sync(),
}


@pytest.mark.parametrize("call", BLOCKING.values(), ids=BLOCKING)
def test_what_blocks_the_thread_says_what_works(library: str, call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=f"would block {library}, .* such as try_acquire"):
        call()


@pytest.mark.usefixtures("library")
def test_what_does_not_wait_works() -> None:
    permit = Gate(1).try_acquire()
    assert isinstance(permit, Permit)
    permit.release()


def test_a_library_that_runs_elsewhere_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("gevent._hub_local", "trio.lowlevel"):
        module = ModuleType(path)
        module.get_hub_if_exists = lambda: None  # type: ignore[attr-defined]
        module.in_trio_run = lambda: False  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, path, module)
    Gate(1).acquire_sync().release()
