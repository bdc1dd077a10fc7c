"""The demonstration from start to end."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from sluicegate.demo import (
    CONNECTIONS,
    NOMINAL_CAPACITY,
    OVERLOAD_FACTOR,
    PATIENCE_SECONDS,
    QUERY_SECONDS,
    DemoError,
    report,
)
from sluicegate.demo.load import Phase
from sluicegate.demo.processes import Processes
from sluicegate.demo.progress import Progress
from sluicegate.demo.results import LAG_SECONDS, ServerFigures, missed, worst_lag

UNPROTECTED: Final = "unprotected"
PROTECTED: Final = "protected"
SERVERS: Final = (UNPROTECTED, PROTECTED)

START_SECONDS: Final = 20.0
"""A server that does not answer within this time will not start any more."""

SETTLE_SECONDS: Final = PATIENCE_SECONDS
"""Seconds of each phase that are not counted: the line in front of the unprotected server needs
about one patience to become as long as it will be for the rest of the phase."""

MEASURE_SECONDS: Final = 2.0
"""How long the capacity is measured."""

PLAIN: Final[dict[str, Any]] = {"highlight": False, "soft_wrap": True}
"""For lines that are left as they are, whatever the width of the terminal."""


@dataclass(frozen=True)
class Options:
    """What the user may choose."""

    seconds: float
    """Counted seconds of each phase."""
    limit: int
    """Requests in flight in the protected server."""
    seed: int
    """Of the arrivals."""


def run(options: Options, console: Console) -> int:
    """Run the demonstration and return the exit code.

    0: it showed what it promises; 1: it did not, or could not go on; 128 + n: signal n ended it.
    """
    return asyncio.run(_interruptible(options, console))


async def _interruptible(options: Options, console: Console) -> int:
    """Turn the first signal that asks to end into a cancellation, and ignore later ones."""
    loop = asyncio.get_running_loop()
    demonstration = asyncio.ensure_future(_demonstrate(options, console))
    received: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            demonstration.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # under nohup it is ignored
        loop.add_signal_handler(signal.SIGHUP, interrupt, signal.SIGHUP)
    try:
        return await demonstration
    except asyncio.CancelledError:
        if not received:  # the reader of our output has gone
            raise
        console.print(f"stopped by {received[0].name}; no server is left running")
        return 128 + received[0]
    except DemoError as error:
        console.print(f"[bold red]stopped:[/] {escape(str(error))}", **PLAIN)
        return 1


async def _demonstrate(options: Options, console: Console) -> int:
    with Processes() as processes:
        work = asyncio.ensure_future(_work(options, console, processes))
        watch = asyncio.ensure_future(processes.watch())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done() or work.exception() is not None:
                # A death explains whatever else went wrong at the same time: look for one first.
                await asyncio.wait({watch}, timeout=1.0)
                if watch.done():
                    watch.result()
            unprotected, protected, capacity = work.result()
        except ConnectionError as error:
            raise DemoError(f"lost the driver of a server: {error}") from error
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
    return _conclude(unprotected, protected, capacity, console)


async def _work(
    options: Options, console: Console, processes: Processes
) -> tuple[ServerFigures, ServerFigures, float]:
    drivers: dict[str, Link] = {}
    for name in SERVERS:
        child, url = processes.serve(name, limit=options.limit)
        console.print(f"{name:<11} {url} (pid {child.process.pid})", **PLAIN)
        drivers[name] = await Link.open(processes.drive(name, url))
    await asyncio.gather(*(link.ask("ready", within=START_SECONDS) for link in drivers.values()))

    answer = await drivers[UNPROTECTED].ask("measure", seconds=MEASURE_SECONDS)
    capacity = float(answer["capacity"])
    console.print(
        f"capacity    {capacity:.0f} rps, measured on the unprotected server with its pool always "
        f"busy ({CONNECTIONS} connections, {QUERY_SECONDS * 1e3:.0f} ms a query: "
        f"{NOMINAL_CAPACITY:.0f} rps on paper)",
        **PLAIN,
    )
    phases = [
        Phase(f"{factor:g}x load", factor * capacity, SETTLE_SECONDS, options.seconds)
        for factor in (1.0, OVERLOAD_FACTOR)
    ]
    start = time.monotonic() + 0.5
    with Progress(console, list(SERVERS)) as progress:

        def show(name: str) -> Callable[[dict[str, Any]], None]:
            return lambda news: progress.update(name, _stage(phases, news["elapsed"]), news)

        orders = {
            "phases": [asdict(phase) for phase in phases],
            "start": start,
            "seed": options.seed,
        }
        answers = await asyncio.gather(
            *(link.ask("run", show(name), **orders) for name, link in drivers.items())
        )
    unprotected, protected = (ServerFigures.from_json(answer["result"]) for answer in answers)
    return unprotected, protected, capacity


def _stage(phases: list[Phase], elapsed: float) -> str:
    """Name what is going on ``elapsed`` seconds after the start."""
    since = 0.0
    for phase in phases:
        if elapsed < since + phase.length:
            return f"{phase.name}, second {elapsed - since:.0f} of {phase.length:.0f}"
        since += phase.length
    return f"load ended {elapsed - since:.0f} s ago, waiting for what is in flight"


def _conclude(
    unprotected: ServerFigures, protected: ServerFigures, capacity: float, console: Console
) -> int:
    servers = {UNPROTECTED: unprotected, PROTECTED: protected}
    console.print()
    console.print(report.table(servers, capacity, SETTLE_SECONDS))
    console.print("\ngoodput in each second of the overload, from its first one:")
    for line in report.by_second(servers):
        console.print(line, **PLAIN)
    lag = worst_lag(servers.values())
    console.print(f"requests were sent at most {report.seconds(lag)} late (p99)", **PLAIN)
    if lag > LAG_SECONDS:
        console.print(
            "[yellow]warning:[/] that is too late: this machine is too busy for the figures to "
            "be trusted",
            **PLAIN,
        )
    console.print(f"\n[bold]{report.sentence(unprotected, protected, capacity)}[/]", **PLAIN)
    lines = missed(unprotected, protected, capacity)
    for line in lines:
        console.print(f"[bold red]missed:[/] {line}", **PLAIN)
    return 1 if lines else 0


class Link:
    """Our end of the socket to a driver."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> "Link":
        """Take the socket over."""
        return cls(*await asyncio.open_connection(sock=sock))

    async def ask(
        self, order: str, show: Callable[[dict[str, Any]], None] | None = None, **details: Any
    ) -> dict[str, Any]:
        """Send an order and return its answer; news of its progress goes to ``show``."""
        self._writer.write(json.dumps({"do": order, **details}).encode() + b"\n")
        while line := await self._reader.readline():
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                raise DemoError(answer["error"])
            if "progress" not in answer:
                return answer
            if show is not None:
                show(answer["progress"])
        raise ConnectionResetError("it closed the connection")
