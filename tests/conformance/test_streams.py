"""What a rule calls a stream: a cap of its own, and an end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from conformance.apps.report import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.client import Connection, Site

STREAMS = "x-gate: streams"
FIRST = b"data: first\n\n"
CANCELLED = {"CancelledError", "GeneratorExit"}


@pytest.fixture(params=["close", "reset"])
def leave(request: pytest.FixtureRequest) -> str:
    """Say how a client leaves."""
    way: str = request.param
    return way


def open_stream(site: Site) -> tuple[Connection, Iterator[bytes], str]:
    connection, name = site.connect(), site.name()
    connection.write(f"GET /sse?name={name}", STREAMS)
    assert connection.read_head().status == 200
    chunks = connection.chunks()
    assert next(chunks) == FIRST
    return connection, chunks, name


def test_a_stream_takes_no_permit(site: Site) -> None:
    held = [site.hold()[1] for _ in range(LIMIT)]
    _, chunks, name = open_stream(site)
    assert site.state()["in_flight"] == LIMIT
    assert site.connect().get("/echo", STREAMS).status == 503
    site.release(name)
    assert b"".join(chunks) == b"data: last\n\n"
    state = site.until(name, is_over=True)
    assert "ended_by" not in state
    site.release(*held)


def test_streams_have_a_cap_of_their_own(site: Site, leave: str) -> None:
    streams = [open_stream(site) for _ in range(LIMIT)]
    extra = site.name()
    connection = site.connect()
    answer = connection.get(f"/sse?name={extra}", STREAMS)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert json.loads(answer.body)["error"] == "overloaded"
    assert "started" not in site.until(extra, is_over=True)
    assert connection.get("/echo", STREAMS).status == 200
    first, _, name = streams[0]
    getattr(first, leave)()
    site.release(name)
    site.until(name, is_over=True, running=LIMIT - 1)
    _, _, again = open_stream(site)
    for name in (again, streams[1][2]):
        site.release(name)
        site.until(name, is_over=True)


@pytest.mark.case("cancelled")
def test_a_stream_that_has_lived_its_time_is_ended(site: Site) -> None:
    for _ in range(LIMIT + 1):
        connection, name = site.connect(), site.name()
        connection.write(f"GET /stream?name={name}", STREAMS)
        assert connection.read_head().status == 200
        # As a whole one.
        assert b"".join(connection.chunks()) == FIRST
        state = site.until(name, is_over=True, running=0)
        assert state["ended_by"] in CANCELLED
        assert "error" not in state
    assert connection.get("/echo", STREAMS).body == b"GET 0"


@pytest.mark.case("cancelled")
def test_an_answer_that_has_not_begun_in_its_time_is_refused(site: Site) -> None:
    connection, name = site.connect(), site.name()
    answer = connection.get(f"/hold?name={name}", STREAMS)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    state = site.until(name, is_over=True, running=0)
    assert state["ended_by"] == "CancelledError"
    assert "error" not in state
    assert connection.get("/echo", STREAMS).body == b"GET 0"


def test_who_leaves_a_stream_before_its_time(site: Site, leave: str) -> None:
    for _ in range(LIMIT + 1):
        connection, name = site.connect(), site.name()
        connection.write(f"GET /stream?name={name}", STREAMS)
        assert connection.read_head().status == 200
        getattr(connection, leave)()
        state = site.until(name, is_over=True, running=0)
        assert state["ended_by"] in CANCELLED
        assert "error" not in state


@pytest.mark.case("websocket")
def test_a_websocket_that_has_lived_its_time_is_closed(site: Site) -> None:
    host, port = site.address
    name = site.name()
    url = f"ws://{host}:{port}/ws?name={name}"
    headers = {"x-gate": "streams"}
    with connect(url, proxy=None, compression=None, additional_headers=headers) as websocket:
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
    assert "error" not in site.until(name, websockets=0, is_over=True)
