"""Clients of real uvicorn that leave before they are begun, or stop sending."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from test_asgi_server import KINDS, PATIENCE, Connection, report_when, uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

kinds = pytest.mark.parametrize(("http", "loop"), KINDS, ids=map("-".join, KINDS))
WORK = "/work?clients=1"


@contextmanager
def served(app: str, tmp_path: Path, http: str, loop: str) -> Iterator[tuple[str, int]]:
    log = tmp_path / "log"
    with uvicorn(app, log, http, loop) as address:
        yield address
    assert "Traceback" not in log.read_text()
    assert "ERROR" not in log.read_text()


@kinds
@pytest.mark.parametrize("has_body", [False, True])
def test_who_has_left_while_the_loop_stood_still_is_not_begun(
    http: str, loop: str, has_body: bool, tmp_path: Path
) -> None:
    with (
        served("stalling", tmp_path, http, loop) as address,
        socket.create_server(("127.0.0.1", 0)) as door,
        Connection(address) as staller,
        Connection(address) as early,
    ):
        assert early.get(WORK).status == 200
        staller.write(f"GET /stall?port={door.getsockname()[1]}")
        door.settimeout(PATIENCE)
        stalled, _ = door.accept()
        # It stands still now; one of them has been connected before that.
        leaving = [early, *(Connection(address) for _ in range(20))]
        for connection in leaving:
            if has_body:
                connection.write(f"POST {WORK}", "content-length: 6", body=b"abcdef")
            else:
                connection.write(f"GET {WORK}")
            connection.__exit__()
        with Connection(address) as patient:
            patient.write(f"POST {WORK}", "content-length: 6", body=b"abcdef")
            stalled.sendall(b"!")
            stalled.close()
            assert staller.read().status == 200
            assert patient.read().status == 200
        report = report_when(address, "over", len(leaving) + 2)
        assert report["begun"] == 2


@kinds
@pytest.mark.parametrize("has_body", [False, True])
def test_who_leaves_the_line_behind_middleware_of_starlette_leaves_no_traceback(
    http: str, loop: str, has_body: bool, tmp_path: Path
) -> None:
    with served("logged", tmp_path, http, loop) as address, Connection(address) as first:
        # It runs until all have come.
        first.write("GET /work?clients=6")
        report_when(address, "begun", 1)
        leaving = [Connection(address) for _ in range(4)]
        for connection in leaving:
            if has_body:
                connection.write("POST /work?clients=6", "content-length: 6", body=b"abc")
            else:
                connection.write("GET /work?clients=6")
        report_when(address, "waiting", 4)
        for connection in leaving:
            connection.__exit__()
        if not has_body:
            # Whether a client is there that has a body to send is seen when it is its turn.
            report_when(address, "waiting", 0)
        with Connection(address) as last:
            assert last.get("/work?clients=6").status == 200
        assert first.read().status == 200
        assert report_when(address, "over", 6)["begun"] == 2


@kinds
def test_who_stops_in_the_middle_of_a_body_is_given_up(
    http: str, loop: str, tmp_path: Path
) -> None:
    with served("bounded", tmp_path, http, loop) as address:
        for framing, wire in (
            ("content-length: 6", b""),
            ("content-length: 6", b"abc"),
            ("transfer-encoding: chunked", b""),
            ("transfer-encoding: chunked", b"3\r\nabc\r\n"),
            ("transfer-encoding: chunked", b"3\r\nab"),
        ):
            with Connection(address) as connection:
                connection.write("POST /", framing, body=wire)
                answer = connection.read()
                assert answer.status == 408
                assert answer.headers["connection"] == "close"
                assert connection.is_at_its_end()
            with Connection(address) as connection:
                assert connection.get("/").status == 200
