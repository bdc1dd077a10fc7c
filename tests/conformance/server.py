"""Starts a server in a process of its own, tells where it listens, and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parent.parent
PATIENCE: Final = 30.0

_UVICORN: Final = [
    "uvicorn",
    "--no-access-log",
    "--timeout-keep-alive=60",
    "--timeout-graceful-shutdown=1",
    "--fd={fd}",
]
_COMMANDS: Final[Mapping[str, list[str]]] = {
    "uvicorn-h11-asyncio": [*_UVICORN, "--http=h11", "--loop=asyncio"],
    "uvicorn-h11-uvloop": [*_UVICORN, "--http=h11", "--loop=uvloop"],
    "uvicorn-httptools-asyncio": [*_UVICORN, "--http=httptools", "--loop=asyncio"],
    "uvicorn-httptools-uvloop": [*_UVICORN, "--http=httptools", "--loop=uvloop"],
    "gunicorn": [
        "gunicorn",
        "--worker-class=uvicorn_worker.UvicornWorker",
        "--keep-alive=60",
        "--graceful-timeout=1",
        "--no-control-socket",
        "--bind=fd://{fd}",
    ],
    "granian": [
        "granian",
        "--interface=asgi",
        "--workers-kill-timeout=1",
        "--host=127.0.0.1",
        "--port={port}",
    ],
    "hypercorn": [
        "hypercorn",
        "--workers=0",
        "--graceful-timeout=1",
        "--keep-alive=60",
        "--bind=fd://{fd}",
    ],
}
SERVERS: Final = tuple(_COMMANDS)
_ENVIRONMENT: Final = {
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
    # So that a permit that only the garbage collector has given back is told.
    "PYTHONWARNINGS": "always::ResourceWarning",
}
# What is wrong wherever it stands in a log.
_FAULTS: Final = ("was never released", "was never awaited", "was never retrieved")


class Server:
    """A process that serves, and its log."""

    def __init__(
        self, process: subprocess.Popen[bytes], address: tuple[str, int], log: Path
    ) -> None:
        self.process = process
        self.address = address
        self._log = log
        self._lines_seen = 0

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def faults(self) -> list[str]:
        """Give the new lines of the log that tell of a fault in what was served."""
        lines = self.log().splitlines()[self._lines_seen :]
        self._lines_seen += len(lines)
        return [line for line in lines if any(map(line.__contains__, _FAULTS))]

    def wait_until_it_listens(self) -> None:
        """Return as soon as a connection is accepted, which one on a socket of ours is at once."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(self.address, timeout=PATIENCE).close()
            except ConnectionRefusedError:
                assert self.process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.02)
            else:
                return


@contextmanager
def serving(kind: str, app: str, log: Path, **environment: str) -> Iterator[Server]:
    """Serve an application of `conformance.apps` until the end of the block."""
    command = _COMMANDS[kind]
    listens_itself = not any("{fd}" in part for part in command)
    with socket.socket() as listener:
        # A server that cannot be handed a socket finds its port reserved for it: one that is bound
        # but does not listen keeps it from everybody who does not ask to share it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, listens_itself)
        listener.bind(("127.0.0.1", 0))
        if not listens_itself:
            # Who is handed a socket may take it for no TCP, and would wait 40 ms for the ACK of a
            # head before its body; what it accepts inherits this.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.listen(128)
        host, port = listener.getsockname()
        filled = [part.format(fd=listener.fileno(), port=port) for part in command]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *filled, f"conformance.apps.{app}:served"],
                pass_fds=[] if listens_itself else [listener.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **_ENVIRONMENT, **environment},
                start_new_session=True,
            )
        try:
            if not listens_itself:
                listener.close()  # or a client of a server that has died would wait for ever
            yield Server(process, (host, port), log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    # The group is the server's own: it has a session of its own.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
