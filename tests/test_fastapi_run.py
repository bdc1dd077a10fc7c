"""`fastapi run` finds the application by itself; what it serves must be protected."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from subprocesses import end

SERVED = Path(__file__).parent / "servers.py"
PATIENCE = 30.0


def test_fastapi_run_serves_it_protected(tmp_path: Path) -> None:
    # It takes no socket that listens already, only a port.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [
                *[sys.executable, "-m", "fastapi", "run", str(SERVED), "--app", "protected"],
                *["--host", "127.0.0.1", "--port", str(port)],
            ],
            stdout=output,
            stderr=output,
            env={**os.environ, "SLUICEGATE_LIMIT": "1", "SLUICEGATE_MAX_WAITING": "0"},
        )
    try:
        # While it is answered it asks for a second permit, of one.
        assert ask(port, server, log) == {"second": 503}
    finally:
        end(server, PATIENCE)


def ask(port: int, server: subprocess.Popen[bytes], log: Path) -> object:
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.05)
    pytest.fail(log.read_text())
