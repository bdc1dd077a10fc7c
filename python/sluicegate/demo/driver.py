"""The process that drives one server: ``python -m sluicegate.demo.driver URL DESCRIPTOR``.

Each server has a driver of its own, so that what happens to one server delays nobody's load
on the other. It is told what to do, and tells what it sees, in lines of JSON on a socket.
When the socket closes, the demo's process is gone and the driver ends.
"""

import asyncio
import contextlib
import gc
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import asdict
from typing import Any

import aiohttp
from yarl import URL

from sluicegate.demo import CONNECTIONS, PROBE_PATH, WORK_PATH, DemoError
from sluicegate.demo.load import Load, Phase, measure_capacity, new_session
from sluicegate.demo.results import summarise

PROGRESS_SECONDS = 0.5
"""Between two reports of progress."""


class Driver:
    """Does what the lines on the socket say, one after the other."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._session = session
        self._url = url
        self._reader = reader
        self._writer = writer

    async def serve(self) -> None:
        """Serve until the socket closes."""
        while line := await self._reader.readline():
            order = json.loads(line)
            await self._until_closed(getattr(self, f"do_{order.pop('do')}")(**order))

    async def do_ready(self, within: float) -> None:
        """Wait until the server answers its probe."""
        deadline = time.monotonic() + within
        while await self._probe() is None:
            if time.monotonic() > deadline:
                raise DemoError(f"no answer from the server within {within:.0f} s")
            await asyncio.sleep(0.05)
        self._tell(ready=True)

    async def do_measure(self, seconds: float) -> None:
        """Measure the capacity of the server."""
        url = self._url / WORK_PATH[1:]
        try:
            capacity = await measure_capacity(
                self._session, url, clients=2 * CONNECTIONS, seconds=seconds
            )
        except ExceptionGroup as failures:
            reason = failures.exceptions[0]
            raise DemoError(f"the capacity could not be measured: {reason!r}") from failures
        self._tell(capacity=capacity)

    async def do_run(self, phases: list[dict[str, Any]], start: float, seed: int) -> None:
        """Play the phases, wait until nothing is in flight, and tell what was seen."""
        plan = [Phase(**phase) for phase in phases]
        load = Load(self._session, self._url / WORK_PATH[1:])
        load_ends = start + sum(phase.length for phase in plan)
        # A collection over the thousands of objects of waiting clients would delay the others;
        # the run is short and what it leaves uncollected is small.
        gc.collect()
        gc.disable()
        async with self._progress(load, start):
            await load.run(plan, start=start, seed=seed)
            backlog, in_flight, empty = await self._drain(load_ends, plan[0].rate)
        self._tell(progress={"elapsed": time.monotonic() - start, "in_flight": in_flight})
        self._tell(
            result={
                "phases": [asdict(phase) for phase in summarise(load.tally, plan, start)],
                "backlog": backlog,
                "in_flight": in_flight,
                "drain_seconds": empty,
            }
        )

    async def _drain(self, load_ends: float, rate: float) -> tuple[int, int, float | None]:
        """Wait until the server is empty, but not much longer than its backlog should take.

        Return what was in flight when the last client had gone, what is in flight now, and
        the seconds from the end of the arrivals until it was empty (None: it never was).
        """
        backlog = in_flight = await self._in_flight()
        deadline = time.monotonic() + 5 + 1.5 * backlog / rate
        while in_flight and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            in_flight = await self._in_flight()
        empty = None if in_flight else max(0.0, time.monotonic() - load_ends)
        return backlog, in_flight, empty

    async def _in_flight(self) -> int:
        probe = await self._probe()
        if probe is None:
            raise DemoError(f"the server no longer answers {PROBE_PATH}")
        return probe

    async def _probe(self) -> int | None:
        """Ask the server for what it has in flight: handlers that run, or permits if more."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=10)
            async with self._session.get(self._url / PROBE_PATH[1:], timeout=timeout) as response:
                if response.status == 200:
                    probe = json.loads(await response.read())
                    return max(int(probe["running"]), int(probe["in_flight"] or 0))
        return None

    @contextlib.asynccontextmanager
    async def _progress(self, load: Load, start: float) -> AsyncIterator[None]:
        """Tell twice a second what is going on, as long as the block runs."""

        async def tell() -> None:
            tally, seen, then = load.tally, (0, 0, 0), time.monotonic()
            while True:
                await asyncio.sleep(PROGRESS_SECONDS)
                in_flight = await self._probe()
                now = time.monotonic()
                counts = (len(tally.arrivals), len(tally.answers), len(tally.refusals))
                rates = [(new - old) / (now - then) for new, old in zip(counts, seen, strict=True)]
                seen, then = counts, now
                self._tell(
                    progress={
                        "elapsed": now - start,
                        "offered": rates[0],
                        "goodput": rates[1],
                        "refused": rates[2],
                        "in_flight": in_flight,
                    }
                )

        task = asyncio.create_task(tell())
        try:
            yield
        finally:
            task.cancel()

    async def _until_closed(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, but end it when the socket closes."""
        task = asyncio.ensure_future(work)
        closed = asyncio.ensure_future(self._closed())
        try:
            await asyncio.wait({task, closed}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        except DemoError as error:
            self._tell(error=str(error))
        finally:
            task.cancel()
            closed.cancel()

    async def _closed(self) -> None:
        while not self._reader.at_eof():  # noqa: ASYNC110 - a stream has no event for its end
            await asyncio.sleep(PROGRESS_SECONDS)

    def _tell(self, **line: Any) -> None:
        self._writer.write(json.dumps(line).encode() + b"\n")


async def drive(url: str, descriptor: int) -> None:
    """Drive the server at ``url`` on behalf of the other end of the socket."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    async with new_session() as session:
        await Driver(session, URL(url), reader, writer).serve()
    writer.close()


def main() -> None:
    """Run as a process."""
    url, descriptor = sys.argv[1:]
    with (
        contextlib.suppress(ConnectionError),
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(drive(url, int(descriptor)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Take the faster event loop if it is there."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
