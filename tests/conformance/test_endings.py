"""When a permit ends: never before the work, whatever becomes of the client."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from conformance.apps.report import LIMIT

if TYPE_CHECKING:
    from conformance.client import Site


STREAMS = [("/stream", "text/plain"), ("/sse", "text/event-stream")]


@pytest.fixture(params=["close", "reset"])
def leave(request: pytest.FixtureRequest) -> str:
    """Say how a client leaves."""
    way: str = request.param
    return way


# -- who leaves -------------------------------------------------------------------------


def test_leaving_before_the_headers_are_complete(site: Site, leave: str) -> None:
    connection, name = site.connect(), site.name()
    connection.socket.sendall(f"GET /hold?name={name} HTTP/1.1\r\nhost: x\r\n".encode())
    getattr(connection, leave)()
    # Whoever comes later is served later.
    assert site.connect().get("/echo").status == 200
    assert "arrived" not in site.state(name)


@pytest.mark.case("leaving_upload")
def test_leaving_in_the_middle_of_a_body(site: Site, leave: str) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"POST /echo?name={name}", "content-length: 1000", body=b"x" * 10)
    site.until(in_flight=1)
    getattr(connection, leave)()
    site.until(name, in_flight=0, is_over=True)


@pytest.mark.case("leaving_work")
def test_leaving_while_the_handler_runs_frees_nothing(site: Site, leave: str) -> None:
    names = []
    for _ in range(LIMIT):
        connection, name = site.hold()
        getattr(connection, leave)()
        names.append(name)
    if site.app == "plain":
        for name in names:
            site.until(name, saw_disconnect=True)
    assert site.connect().get("/echo").status == 503
    assert site.state() | {"in_flight": LIMIT, "running": LIMIT} == site.state()
    site.release(*names)
    for name in names:
        assert site.until(name, is_over=True)["in_flight_at_end"] >= 1


def test_leaving_while_the_handler_runs_ends_with_the_work(site: Site, leave: str) -> None:
    connection, name = site.hold()
    getattr(connection, leave)()
    site.release(name)
    assert site.until(name, in_flight=0, is_over=True)["in_flight_at_end"] == 1


@pytest.mark.parametrize("path", ["/stream", "/sse"])
def test_leaving_a_stream(site: Site, leave: str, path: str) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"GET {path}?name={name}")
    assert connection.read_head().status == 200
    assert next(connection.chunks()) == b"data: first\n\n"
    getattr(connection, leave)()
    site.release(name)
    assert site.until(name, in_flight=0, is_over=True)["in_flight_at_end"] == 1


@pytest.mark.case("leaving_line")
def test_leaving_while_waiting_in_line(site: Site, leave: str) -> None:
    _, held = site.hold("x-gate: line")
    connection, name = site.connect(), site.name()
    connection.write(f"GET /hold?name={name}", "x-gate: line")
    site.until(waiting=1)
    getattr(connection, leave)()
    site.until(waiting=0)
    site.release(held)
    site.until(in_flight=0)
    assert "started" not in site.until(name, is_over=True)


def test_waiting_in_line(site: Site) -> None:
    first, held = site.hold("x-gate: line")
    connection, name = site.connect(), site.name()
    connection.write(f"GET /echo?name={name}", "x-gate: line")
    site.until(waiting=1)
    assert "started" not in site.state(name)
    site.release(held)
    assert first.read().body == b"held"
    assert connection.read().body == b"GET 0"


@pytest.mark.case("line_upload")
def test_waiting_in_line_with_an_upload(site: Site) -> None:
    first, held = site.hold("x-gate: line")
    connection, name = site.connect(), site.name()
    connection.write(f"POST /echo?name={name}", "x-gate: line", "content-length: 5", body=b"12345")
    site.until(waiting=1)
    assert "started" not in site.state(name)
    site.release(held)
    assert first.read().body == b"held"
    connection.socket.settimeout(5)  # rather less, while it is known to fail somewhere
    try:
        assert connection.read().body == b"POST 5"
    finally:
        site.cancel(name)


# -- what fails -------------------------------------------------------------------------


@pytest.mark.case("exception")
def test_an_exception_arrives_outside_as_it_was_raised(site: Site) -> None:
    name = site.name()
    assert site.connect().get(f"/raise?name={name}").status == 500
    state = site.until(name, is_over=True)
    assert state["error"] == "PlannedError"
    assert state["is_the_same_error"]


def test_an_exception_frees_the_permit(site: Site) -> None:
    for _ in range(LIMIT + 1):
        assert site.connect().get(f"/raise?name={site.name()}").status == 500
        site.until(in_flight=0)


def test_an_exception_in_a_stream_frees_the_permit(site: Site) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"GET /break?name={name}")
    assert connection.read_head().status == 200
    site.release(name)
    with pytest.raises((ValueError, OSError, AssertionError)):
        assert b"last" in b"".join(connection.chunks())
    assert site.until(name, in_flight=0, is_over=True)["in_flight_at_end"] == 1


@pytest.mark.case("cancelled")
def test_a_task_that_is_cancelled_frees_the_permit(site: Site) -> None:
    connection, name = site.hold()
    site.cancel(name)
    state = site.until(name, in_flight=0, is_over=True)
    assert state["in_flight_at_end"] == 1
    assert state["error"] == "CancelledError"
    with suppress(OSError):  # a server may rather hang up
        assert connection.read().status == 500


# -- what goes on after the answer has begun --------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"), [("/stream", "text/plain"), ("/sse", "text/event-stream")]
)
def test_a_stream_holds_its_permit_until_its_end(site: Site, path: str, kind: str) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"GET {path}?name={name}")
    head = connection.read_head()
    assert head.status == 200
    assert head.headers["content-type"].startswith(kind)
    chunks = connection.chunks()
    # Comes at once, and not with the rest.
    assert next(chunks) == b"data: first\n\n"
    assert site.state()["in_flight"] == 1
    site.release(name)
    assert b"".join(chunks) == b"data: last\n\n"
    assert site.until(name, is_over=True)["in_flight_at_end"] == 1
    assert connection.get("/echo").status == 200


@pytest.mark.case("background")
def test_a_background_task_holds_the_permit(site: Site) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"GET /background?name={name}")
    assert connection.read().body == b"accepted"
    site.until(name, started=True, in_flight=1, inside=name)
    site.release(name)
    assert site.until(name, is_over=True)["in_flight_at_end"] == 1


# -- what is seen -----------------------------------------------------------------------


@pytest.mark.case("context_outside")
def test_a_variable_that_the_handler_sets_is_seen_outside(site: Site) -> None:
    name = site.name()
    assert site.connect().get(f"/context?name={name}").body == b"set"
    assert site.until(name, is_over=True)["inside_seen_outside"] == name


def test_a_variable_that_is_set_outside_is_seen_by_the_handler(site: Site) -> None:
    name = site.name()
    assert site.connect().get(f"/context?name={name}").body == b"set"
    assert site.until(name, is_over=True)["outside"] == name
