"""The middleware behind real uvicorn, seen from the socket: both parsers, both loops."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

from subprocesses import end

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
KINDS = [("h11", "asyncio"), ("h11", "uvloop"), ("httptools", "asyncio"), ("httptools", "uvloop")]
PATIENCE = 60.0


@contextmanager
def uvicorn(app: str, log: Path, http: str, loop: str) -> Iterator[tuple[str, int]]:
    """Serve tests/servers.py on a socket that listens already, and end the process."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        command = [sys.executable, "-m", "uvicorn", f"servers:{app}", "--app-dir", str(HERE)]
        options = ["--http", http, "--loop", loop, "--no-access-log"]
        ending = ["--timeout-keep-alive", "30", "--timeout-graceful-shutdown", "1"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *options, *ending, "--fd", str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdout=output,
                stderr=output,
                env={**os.environ, "SLUICEGATE_LIMIT": "1", "SLUICEGATE_MAX_WAITING": "0"},
            )
        address: tuple[str, int] = listener.getsockname()
    try:
        yield address
        assert process.poll() is None, log.read_text()
    finally:
        end(process)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """A client that writes bytes as the test says and reads one answer at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.file.close()
        self.socket.close()

    def write(self, *lines: str, body: bytes = b"") -> None:
        head = "\r\n".join([f"{lines[0]} HTTP/1.1", "host: test", *lines[1:], "", ""])
        self.socket.sendall(head.encode() + body)

    def read(self, *, head_only: bool = False) -> Answer:
        status = int(self.file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        size = 0 if head_only else int(headers.get("content-length", 0))
        return Answer(status, headers, self.file.read(size))

    def get(self, path: str) -> Answer:
        self.write(f"GET {path}")
        return self.read()

    def is_at_its_end(self) -> bool:
        return self.file.read(1) == b""


def kinds(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, KINDS, indirect=True, ids="-".join)


@pytest.fixture(scope="module", name="full")
def a_server_that_is_full(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    log = tmp_path_factory.mktemp("uvicorn") / "log"
    with uvicorn("full", log, *request.param) as address:
        yield address
    assert "Traceback" not in log.read_text()


@pytest.fixture(name="working")
def a_server_that_works(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, int]]:
    with uvicorn("app", tmp_path / "log", *request.param) as address:
        yield address
    assert "Traceback" not in (tmp_path / "log").read_text()


def report_when(address: tuple[str, int], key: str, value: object = None) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    with Connection(address) as connection:
        while True:
            report: dict[str, Any] = json.loads(connection.get("/metrics").body)
            if (report[key] is not None) if value is None else report[key] == value:
                return report
            assert time.monotonic() < deadline, report
            time.sleep(0.005)


# -- the permit -------------------------------------------------------------------------


@kinds("working")
def test_a_stream_whose_client_has_gone_frees_its_permit(working: tuple[str, int]) -> None:
    connection = Connection(working)
    connection.write("GET /stream")
    assert connection.read().status == 200
    assert connection.file.readline() == b"5\r\n"
    assert report_when(working, "in_flight")["in_flight"] == 1
    connection.__exit__()
    report = report_when(working, "freed_after")
    assert report["in_flight"] == 0
    assert report["freed_after"] < 0.05


@kinds("working")
def test_clients_that_leave_at_once_let_no_more_than_the_limit_run(
    working: tuple[str, int],
) -> None:
    report_when(working, "in_flight", 0)  # a server that still starts would see all of them at once
    for _ in range(40):
        with Connection(working) as connection:
            connection.write("GET /work?clients=40")
    report_when(working, "arrived", 40)
    report = report_when(working, "in_flight", 0)
    assert report["peak"] == 4
    assert report["running"] == 0
    with Connection(working) as connection:
        assert connection.get("/work?clients=40").status == 200


# -- the connection after a refusal -----------------------------------------------------


@kinds("full")
def test_a_refusal_keeps_the_connection(full: tuple[str, int]) -> None:
    with Connection(full) as connection:
        for _ in range(3):
            answer = connection.get("/work")
            assert answer.status == 503
            assert answer.headers["retry-after"] in {"1", "2"}
            assert "connection" not in answer.headers
            assert json.loads(answer.body)["error"] == "overloaded"
            connection.write("HEAD /work")
            head = connection.read(head_only=True)
            assert head.status == 503
            assert head.headers["content-length"] == answer.headers["content-length"]
            assert connection.get("/free").body == b"GET /free 0"


@kinds("full")
@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_an_unread_body_is_not_taken_for_the_next_request(
    full: tuple[str, int], size: int, chunked: bool
) -> None:
    body = b"GET /smuggled HTTP/1.1\r\n\r\n".ljust(size, b"x")[:size]
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    wire = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if chunked else body
    with Connection(full) as connection:
        # All of the body at once, with the next request right behind it.
        connection.write("POST /work", framing, body=wire)
        connection.write("GET /free")
        assert connection.read().status == 503
        assert connection.read().body == b"GET /free 0"
        # Nothing of it before the answer, then half, then the rest.
        connection.write("POST /work", framing)
        assert connection.read().status == 503
        connection.socket.sendall(wire[: size // 2])
        connection.socket.sendall(wire[size // 2 :])
        assert connection.get("/free").body == b"GET /free 0"
        # And what is admitted still gets its own body.
        connection.write("POST /free", framing, body=wire)
        assert connection.read().body == b"POST /free %d" % size


@kinds("full")
@pytest.mark.parametrize("sends_anyway", [False, True])
def test_who_expects_100_continue_gets_the_503_and_the_end(
    full: tuple[str, int], sends_anyway: bool
) -> None:
    with Connection(full) as connection:
        connection.write(
            "POST /work",
            "content-length: 5",
            "expect: 100-continue",
            body=b"12345" if sends_anyway else b"",
        )
        answer = connection.read()
        assert answer.status == 503
        assert answer.headers["connection"] == "close"
        assert json.loads(answer.body)["retry_after"] in {1, 2}
        assert connection.is_at_its_end()


@kinds("full")
def test_who_expects_100_continue_and_is_admitted_gets_it(full: tuple[str, int]) -> None:
    with Connection(full) as connection:
        connection.write("POST /free", "content-length: 5", "expect: 100-continue")
        assert connection.read().status == 100
        connection.socket.sendall(b"12345")
        assert connection.read().body == b"POST /free 5"
        assert connection.get("/free").status == 200


@pytest.mark.parametrize(("http", "loop"), KINDS[::3])
def test_a_download_that_is_not_done_in_its_lifetime_ends_the_connection(
    http: str, loop: str, tmp_path: Path
) -> None:
    with (
        uvicorn("downloads", tmp_path / "log", http, loop) as address,
        Connection(address) as connection,
    ):
        answer = connection.get("/download")
        assert (answer.status, answer.body) == (200, b"begin")
        assert connection.is_at_its_end()
    assert "Traceback" not in (tmp_path / "log").read_text()


# -- as people serve it -----------------------------------------------------------------


@pytest.mark.parametrize(("http", "loop"), KINDS[::3])
def test_a_protected_module_is_served_protected(http: str, loop: str, tmp_path: Path) -> None:
    server = uvicorn("protected", tmp_path / "log", http, loop)
    with server as address, Connection(address) as connection:
        answer = connection.get("/")
        assert answer.status == 200
        assert json.loads(answer.body) == {"second": 503}
        assert connection.get("/healthz").status == 404
        paths = json.loads(connection.get("/openapi.json").body)["paths"]
        assert "503" in paths["/"]["get"]["responses"]
