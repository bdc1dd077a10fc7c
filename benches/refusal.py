"""What it costs to be refused."""

# What is timed is a bare `try`, not `contextlib.suppress`.
# ruff: noqa: SIM105

from __future__ import annotations

import asyncio
import logging
from itertools import repeat

import anyio
from interleaved import Bench, Target

from sluicegate import Gate, Rejected, SemaphoreLimiter

# Each gate that is made would say that it began to reject.
logging.getLogger("sluicegate.gate").disabled = True

bench = Bench("A refusal: all permits are taken")

refusal = bench.group("for each refusal")


class Empty:
    def method(self) -> None:
        pass


class RefusedError(Exception):
    pass


class Failing:
    def method(self) -> None:
        raise RefusedError


@refusal.case("(an empty method of a Python class)")
async def _(times: int) -> None:
    empty = Empty()
    for _ in repeat(None, times):
        empty.method()


@refusal.case("(a built-in method that does nothing)")
async def _(times: int) -> None:
    number = 0
    for _ in repeat(None, times):
        number.conjugate()


@refusal.case("asyncio.Semaphore: if locked():")
async def _(times: int) -> None:
    semaphore = asyncio.Semaphore(1)
    await semaphore.acquire()
    for _ in repeat(None, times):
        if semaphore.locked():
            pass


@refusal.case("SemaphoreLimiter: try_acquire()", Target(ns_over=60))
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(1)
    with limiter.try_acquire():
        for _ in repeat(None, times):
            limiter.try_acquire()


@refusal.case("SemaphoreLimiter: if not try_acquire():")
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(1)
    with limiter.try_acquire():
        for _ in repeat(None, times):
            if not limiter.try_acquire():
                pass


@refusal.case("Gate: try_acquire()", Target(ns_over=60))
async def _(times: int) -> None:
    gate = Gate(1)
    with gate.try_acquire():
        for _ in repeat(None, times):
            gate.try_acquire()


@refusal.case("(a Python method that raises a Python exception)")
async def _(times: int) -> None:
    failing = Failing()
    for _ in repeat(None, times):
        try:
            failing.method()
        except RefusedError:
            pass


@refusal.case("anyio.Semaphore: acquire_nowait() raises WouldBlock")
async def _(times: int) -> None:
    semaphore = anyio.Semaphore(0)
    for _ in repeat(None, times):
        try:
            semaphore.acquire_nowait()
        except anyio.WouldBlock:
            pass


@refusal.case("SemaphoreLimiter: with try_acquire(): raises Rejected", Target(ns_over=300))
async def _(times: int) -> None:
    limiter = SemaphoreLimiter(1)
    with limiter.try_acquire():
        for _ in repeat(None, times):
            try:
                with limiter.try_acquire():
                    pass
            except Rejected:
                pass


if __name__ == "__main__":
    bench.main()
