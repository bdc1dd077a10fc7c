"""The processes of the demonstration: two servers, two drivers, none of them left behind.

Every process is a session of its own, so that Ctrl-C in the terminal reaches only the demo's
process, which then ends the others. If that process is killed outright, the servers see the
end of a pipe and the drivers the end of a socket, and they end by themselves.
"""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from sluicegate.demo import LIFELINE_VARIABLE, LIMIT_VARIABLE, DemoError

HOST: Final = "127.0.0.1"
DESCRIPTORS: Final = 8_192
"""Open files that are asked for: offered load times patience, about 2 500, with room to spare."""
DESCRIPTORS_NEEDED: Final = 4_096
"""With fewer than this the clients would fail before the server does."""


@dataclass(frozen=True)
class Child:
    """A running process; ``output`` is what it wrote, kept for the case that it dies."""

    name: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def last_words(self) -> str:
        """Return the last line that the process wrote, or nothing."""
        self.output.seek(0)
        lines = self.output.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Processes:
    """Starts processes and, on leaving the ``with`` block, ends all of them."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._lifeline: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        raise_descriptor_limit()
        self._lifeline = os.pipe()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc: object) -> None:
        self.stop(grace=0.0 if exc_type else 3.0)

    def serve(self, factory: str, *, limit: int) -> tuple[Child, str]:
        """Start a server process with the app that ``factory`` makes; return it and its URL."""
        assert self._lifeline is not None  # noqa: S101 - only inside the with block
        lifeline = self._lifeline[0]
        with socket.create_server((HOST, 0), backlog=2048) as listener:
            # uvicorn takes the descriptor for one of a Unix socket, and asyncio then leaves
            # Nagle's algorithm on. Accepted connections inherit the option from here.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            url = f"http://{HOST}:{listener.getsockname()[1]}"
            child = self._start(
                f"{factory} server",
                [
                    *("uvicorn", f"sluicegate.demo.app:{factory}", "--factory"),
                    *("--fd", str(listener.fileno()), "--workers", "1"),
                    *("--no-access-log", "--log-level", "warning"),
                    # The package that is running now, not one that lies in the working directory.
                    *("--app-dir", str(Path(__file__).parents[2])),
                ],
                (listener.fileno(), lifeline),
                {LIMIT_VARIABLE: str(limit), LIFELINE_VARIABLE: str(lifeline)},
            )
        return child, url

    def drive(self, factory: str, url: str) -> socket.socket:
        """Start the driver of a server; return the socket on which it takes its orders."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._start(
                f"driver of the {factory} server",
                ["sluicegate.demo.driver", url, str(theirs.fileno())],
                (theirs.fileno(),),
                {},
            )
        return ours

    def _start(
        self, name: str, module: list[str], descriptors: tuple[int, ...], env: dict[str, str]
    ) -> Child:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
            # -P: nothing is imported from the working directory.
            [sys.executable, "-P", "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            start_new_session=True,
            # What uvicorn would take from the environment is not part of the demonstration.
            env={k: v for k, v in os.environ.items() if not k.startswith("UVICORN_")} | env,
        )
        child = Child(name, process, output)
        self._children.append(child)
        return child

    async def watch(self) -> None:
        """Return never; raise `DemoError` as soon as one of the processes has ended."""
        while True:
            for child in self._children:
                code = child.process.poll()
                if code is not None:
                    raise DemoError(obituary(child, code))
            await asyncio.sleep(0.1)

    def stop(self, grace: float) -> None:
        """End every process: politely, then after ``grace`` seconds for certain.

        Nothing in here waits on an event loop: no cancellation can get between.
        """
        deadline = time.monotonic() + grace
        for child in self._children:
            child.process.terminate() if grace else child.process.kill()
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()) if grace else None)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.output.close()
        self._children.clear()
        if self._lifeline is not None:
            for descriptor in self._lifeline:
                os.close(descriptor)
            self._lifeline = None


def raise_descriptor_limit() -> None:
    """Let this process and its children open as many connections as the load needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < DESCRIPTORS_NEEDED:
        raise DemoError(
            f"the load needs {DESCRIPTORS_NEEDED} open files, this system allows {hard} "
            "(ulimit -Hn)"
        )
    wanted = DESCRIPTORS if hard == unlimited else min(DESCRIPTORS, hard)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def obituary(child: Child, code: int) -> str:
    """Say in one line which process ended, how, and what it said last."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    words = child.last_words()
    return f"the {child.name} (pid {child.process.pid}) {how}" + (f": {words}" if words else "")
