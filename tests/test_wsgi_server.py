"""The WSGI middleware behind a real gunicorn with threads, seen from the socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PATIENCE = 60.0
MEGABYTES_10 = 10 * 2**20

ONE_THREAD = "threads=4, but the server has one thread: nothing is refused"

Address = tuple[str, int]


@contextmanager
def gunicorn(app: str, log: Path, kind: str = "gthread") -> Iterator[Address]:
    """Serve tests/wsgi_servers.py on a socket that listens already, and end the processes."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        command = [sys.executable, "-m", "gunicorn", f"wsgi_servers:{app}"]
        threads = "4" if kind == "gthread" else "1"
        options = ["--worker-class", kind, "--threads", threads, "--workers", "1"]
        others = ["--keep-alive", "30", "--graceful-timeout", "1", "--no-control-socket"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *options, *others, "--bind", f"fd://{listener.fileno()}"],
                cwd=HERE,
                pass_fds=[listener.fileno()],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        address: Address = listener.getsockname()
    try:
        yield address
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """A client that writes bytes as the test says and reads one answer at a time."""

    def __init__(self, address: Address) -> None:
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
        if head_only or status == 100:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") != "chunked":
            return Answer(status, headers, self.file.read(int(headers["content-length"])))
        body = b""
        while part := self.read_part():
            body += part
        return Answer(status, headers, body)

    def read_part(self) -> bytes:
        part = self.file.read(int(self.file.readline(), 16))
        self.file.readline()
        return part

    def get(self, path: str, *headers: str) -> Answer:
        self.write(f"GET {path}", *headers)
        return self.read()


class Server:
    """What runs, and what its report says."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def connect(self) -> Connection:
        return Connection(self.address)

    def get(self, path: str, *headers: str) -> Answer:
        with self.connect() as connection:
            return connection.get(path, *headers)

    def ask(self, path: str, *headers: str) -> Answer:
        """Get it when the one before is closed, which comes after its last byte."""
        self.report_when(0)
        return self.get(path, *headers)

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.get("/control/report").body)
        return report

    def report_when(self, in_flight: int) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while (report := self.report())["in_flight"] != in_flight:
            assert time.monotonic() < deadline, report
            time.sleep(0.005)  # it tells nobody
        return report

    @contextmanager
    def full(self) -> Iterator[None]:
        """Have one request in flight, which is as many as may be."""
        with self.connect() as connection:
            connection.write("GET /hold")
            self.report_when(1)
            try:
                yield
            finally:
                assert self.get("/control/release").status == 200
            assert connection.read().body == b"done"


@pytest.fixture(scope="module", params=["flask_app", "django_app"], name="running")
def a_running_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("gunicorn") / "log"
    with gunicorn(request.param, log) as address:
        yield Server(address)
    # What a view raises is logged by its framework, under this one name.
    assert log.read_text().count("Traceback") == log.read_text().count("\nLookupError\n")
    assert ONE_THREAD not in log.read_text()


@pytest.fixture(name="server")
def one_with_nothing_in_flight(running: Server) -> Iterator[Server]:
    running.report_when(0)
    yield running
    running.report_when(0)


def outcomes(server: Server) -> dict[str, int]:
    found: dict[str, int] = server.report_when(0)["outcomes"]
    return found


def since(server: Server, before: dict[str, int]) -> dict[str, int]:
    after = outcomes(server)
    changed = {name: after[name] - before.get(name, 0) for name in after}
    return {name: count for name, count in changed.items() if count}


def test_that_a_sync_worker_has_one_thread_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with gunicorn("flask_app", log, "sync") as address:
        for _ in range(2):
            assert Server(address).get("/work", "connection: close").body == b"fine"
    assert log.read_text().count(ONE_THREAD) == 1


# -- the permit -------------------------------------------------------------------------


def test_what_is_admitted_is_answered(server: Server) -> None:
    before = outcomes(server)
    with server.connect() as connection:
        for _ in range(3):
            assert connection.get("/work").body == b"fine"
        connection.write("HEAD /work")
        assert connection.read(head_only=True).status == 200
        connection.write("POST /echo", "content-length: 5", body=b"12345")
        assert connection.read().body == b"5"
        assert connection.get("/nowhere").status == 404
    assert since(server, before) == {"success": 5, "ignored": 1}


def test_an_exception_ends_the_permit(server: Server) -> None:
    before = outcomes(server)
    assert server.ask("/broken").status == 500
    assert since(server, before) == {"ignored": 1}


def test_what_is_rejected_below_is_answered(server: Server) -> None:
    answer = server.ask("/rejected")
    assert answer.status == 429
    assert answer.headers["retry-after"] == "7"


def test_a_stream_holds_its_permit_to_its_end(server: Server) -> None:
    before = outcomes(server)
    with server.connect() as connection:
        connection.write("GET /stream/400")
        # More than fits between the two, and nothing of it is read until somebody has seen it.
        assert connection.file.readline().startswith(b"HTTP/1.1 200")
        assert server.report()["in_flight"] == 1
        assert server.get("/work").status == 503
        while connection.file.readline().strip():
            continue
        size = 0
        while part := connection.read_part():
            size += len(part)
        assert size == 5 + 399 * 65536
    assert since(server, before) == {"success": 1}


def test_a_client_that_leaves_in_a_stream_ends_it(server: Server) -> None:
    before = outcomes(server)
    streams = len(server.report()["closed"])
    with server.connect() as connection:
        connection.write("GET /stream/0")
        assert connection.file.readline().startswith(b"HTTP/1.1 200")
        assert server.report()["in_flight"] == 1
    report = server.report_when(0)
    assert len(report["closed"]) == streams + 1
    assert since(server, before) == {"ignored": 1}


def test_a_client_that_leaves_does_not_end_the_work(server: Server) -> None:
    before = outcomes(server)
    with server.connect() as connection:
        connection.write("GET /hold")
        server.report_when(1)
    assert server.report()["in_flight"] == 1
    assert server.get("/work").status == 503
    assert server.get("/control/release").status == 200
    assert sum(since(server, before).values()) == 1


def test_the_deadline_and_the_time_in_the_queue_reach_the_view(server: Server) -> None:
    stamp = f"x-request-start: t={time.time() - 2:.3f}"
    left = json.loads(server.ask("/remaining", "x-request-timeout-ms: 5000", stamp).body)
    assert 0 < left <= 3
    assert json.loads(server.ask("/remaining").body) is None
    assert server.ask("/remaining", "x-request-timeout-ms: 1500", stamp).status == 503
    assert server.ask("/remaining", stamp).status == 503


# -- the connection after a refusal -----------------------------------------------------


def test_a_refusal_keeps_the_connection(server: Server) -> None:
    with server.full(), server.connect() as connection:
        for _ in range(3):
            answer = connection.get("/work")
            assert answer.status == 503
            assert 1 <= int(answer.headers["retry-after"]) <= 120
            assert json.loads(answer.body)["error"] == "overloaded"
            connection.write("HEAD /work")
            head = connection.read(head_only=True)
            assert head.status == 503
            assert head.headers["content-length"] == answer.headers["content-length"]
            connection.write("POST /free", "content-length: 3", body=b"abc")
            assert connection.read().body == b"3"


def test_what_comes_right_behind_a_refused_request_is_answered(server: Server) -> None:
    with server.full(), server.connect() as connection:
        get = b"GET %b HTTP/1.1\r\nhost: test\r\n\r\n"
        connection.socket.sendall(b"".join(get % path for path in (b"/work", b"/control/report")))
        assert connection.read().status == 503
        assert json.loads(connection.read().body)["in_flight"] == 1


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [10, 30_000])
def test_an_unread_body_is_not_taken_for_the_next_request(
    server: Server, size: int, chunked: bool
) -> None:
    body = b"GET /smuggled HTTP/1.1\r\n\r\n".ljust(size, b"x")[:size]
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    wire = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if chunked else body
    with server.full(), server.connect() as connection:
        # All of the body at once, with the next request right behind it.
        connection.write("POST /work", framing, body=wire)
        connection.write("GET /control/report")
        assert connection.read().status == 503
        assert connection.read().status == 200
        # Nothing of it before the answer, then half, then the rest.
        connection.write("POST /work", framing)
        assert connection.read().status == 503
        connection.socket.sendall(wire[: size // 2])
        connection.socket.sendall(wire[size // 2 :])
        # And what is admitted still gets its own body.
        connection.write("POST /free", "content-length: 7", body=b"1234567")
        assert connection.read().body == b"7"


def test_exempt_answers_that_nobody_reads_leave_a_thread_to_refuse(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for status in [200, 200, 200, 503, 503]:
            connection = stack.enter_context(server.connect())
            connection.write("GET /control/long")
            assert connection.read(head_only=True).status == status
        assert server.get("/work").status == 503
        # A probe is no route here.
        assert server.get("/healthz").status == 404
    deadline = time.monotonic() + PATIENCE
    while server.get("/control/report").status == 503:
        assert time.monotonic() < deadline
        time.sleep(0.005)  # it tells nobody


def test_a_download_that_is_not_done_in_its_lifetime_ends_the_connection(server: Server) -> None:
    with server.connect() as connection:
        connection.write("GET /download")
        connection.write("GET /work")
        # What comes next would be taken for the rest of it.
        answer = connection.read()
        assert (answer.status, answer.body) == (200, b"beginmore")


def test_who_expects_100_continue_is_told_to_by_the_server(server: Server) -> None:
    head = ("content-length: 5", "expect: 100-continue")
    with server.full(), server.connect() as connection:
        connection.write("POST /work", *head)
        assert connection.read().status == 100
        connection.socket.sendall(b"12345")
        assert connection.read().status == 503
        connection.write("POST /free", *head)
        assert connection.read().status == 100
        connection.socket.sendall(b"12345")
        assert connection.read().body == b"5"


def test_a_refused_upload_of_10_mb_is_answered_and_corrupts_nothing(server: Server) -> None:
    with server.full(), server.connect() as connection:

        def send() -> None:
            # It fails once the server has closed the connection.
            with contextlib.suppress(OSError):
                connection.socket.sendall(bytes(MEGABYTES_10))

        connection.write("POST /work", f"content-length: {MEGABYTES_10}")
        sending = threading.Thread(target=send)
        sending.start()
        assert connection.read().status == 503
        sending.join(PATIENCE)
        assert not sending.is_alive()
        # gunicorn reads 64 kB of it, and closes the connection: nothing more comes on it.
        with contextlib.suppress(OSError):
            connection.write("GET /control/report")
            assert connection.file.read() == b""
        assert server.get("/control/report").status == 200
    assert server.ask("/work").status == 200
