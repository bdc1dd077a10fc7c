"""The application that test_overload_server.py overloads, served in a process of its own.

Its backend is a pool: ten at once, 100 ms each, so that it can do 100 requests a second and the
processor is not what limits it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from sluicegate import Gate
from sluicegate.asgi import Rule
from sluicegate.fastapi import protect

if TYPE_CHECKING:
    from sluicegate import Rejection
    from sluicegate.asgi import Scope

CONNECTIONS = 10
SECONDS = 0.1

gate = Gate(name="http")
pool = asyncio.Semaphore(CONNECTIONS)
begun: dict[int, float] = {}
rejected: Counter[str] = Counter()


def count(_: Scope, rejection: Rejection) -> None:
    """Counts who was refused, and why."""
    rejected[f"{rejection.criticality.name} {rejection.reason}"] += 1


app = protect(FastAPI(), gate=gate, on_reject=count, rules=[Rule("/stall", exempt=True)])


@app.get("/work")
async def work(number: int) -> int:
    """Works for as long as a query takes, once a connection is free."""
    begun[number] = time.monotonic()
    async with pool:
        await asyncio.sleep(SECONDS)
    return number


@app.get("/stall")
async def stall(seconds: float) -> None:
    """Blocks the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 (that is the fault to be survived)


@app.get("/healthz")
async def healthz() -> str:
    """Answers a probe."""
    return "ok"


@app.get("/metrics")
async def metrics() -> dict[str, Any]:
    """Tells when the work of which request began, and who was refused."""
    return {
        "begun": begun,
        "rejected": rejected,
        "gate": str(gate.snapshot()),
        "pid": os.getpid(),
        "processor": time.process_time(),
    }
