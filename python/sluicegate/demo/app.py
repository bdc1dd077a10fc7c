"""The app that is demonstrated: a FastAPI service on top of a small database pool."""

import asyncio
import os
import threading

from fastapi import FastAPI

from sluicegate import Gate
from sluicegate.demo import (
    CONNECTIONS,
    DEFAULT_LIMIT,
    LIFELINE_VARIABLE,
    LIMIT_VARIABLE,
    PROBE_PATH,
    QUERY_SECONDS,
    WORK_PATH,
)
from sluicegate.fastapi import protect


class Pool:
    """A pool of database connections; a query holds one of them and waits for one if need be."""

    def __init__(self, connections: int = CONNECTIONS, seconds: float = QUERY_SECONDS) -> None:
        self._free = asyncio.Semaphore(connections)
        self._seconds = seconds

    async def query(self) -> None:
        """Run one query."""
        async with self._free:
            await asyncio.sleep(self._seconds)


class Running:
    """Counts the handlers that have started and not yet ended."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *exc: object) -> None:
        self.count -= 1


def build(gate: Gate | None = None) -> FastAPI:
    """Make the app; ``gate`` is only reported by the probe, it is not applied here."""
    app = FastAPI()
    pool = Pool()
    running = Running()

    @app.get(WORK_PATH)
    async def orders() -> dict[str, str]:
        with running:
            await pool.query()
        return {"order": "shipped"}

    @app.get(PROBE_PATH)
    async def healthz() -> dict[str, int | None]:
        return {
            "running": running.count,
            "in_flight": None if gate is None else gate.in_flight,
        }

    return app


def unprotected() -> FastAPI:
    """Make the app as most services run it: whatever comes is accepted."""
    _end_with_the_demo()
    return build()


def protected() -> FastAPI:
    """Make the same app, protected by one line."""
    _end_with_the_demo()
    # Nobody waits in line, so that it is seen how soon a refusal comes.
    limit = int(os.environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT))
    gate = Gate(limit, max_waiting=0, name="demo")
    return protect(build(gate), gate=gate)


def _end_with_the_demo() -> None:
    """End this process when the demo's process is gone, however it went.

    Only that process holds the other end of the pipe, so a read returns once it has died,
    even if it was killed and could not clean up.
    """
    descriptor = os.environ.get(LIFELINE_VARIABLE)
    if descriptor is None:
        return

    def wait() -> None:
        os.read(int(descriptor), 1)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
