"""The same over HTTP/2, where many requests share a connection and one ends without the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conformance.apps.report import LIMIT
from conformance.http2 import Http2Connection

if TYPE_CHECKING:
    from conformance.client import Answer, Site
    from conformance.http2 import Exchange

pytestmark = pytest.mark.case("http2")

LINE = ("x-gate", "line")
CANCEL = ("x-gate", "cancel")


WAYS = ("stream", "connection", "reset")
GOES = pytest.mark.case("http2_connection_goes")


@pytest.fixture(params=WAYS)
def leave(request: pytest.FixtureRequest) -> str:
    """Say how a client leaves."""
    way: str = request.param
    return way


@pytest.fixture(params=[WAYS[0], *(pytest.param(way, marks=GOES) for way in WAYS[1:])])
def leave_early(request: pytest.FixtureRequest) -> str:
    """Say how a client leaves to whom something is sent after that."""
    way: str = request.param
    return way


def connect(site: Site) -> Http2Connection:
    connection = Http2Connection(site.address)
    site.closes(connection)
    return connection


def depart(way: str, connection: Http2Connection, exchange: Exchange) -> None:
    if way == "stream":
        exchange.reset()
    elif way == "connection":
        connection.close()
    else:
        connection.reset()


def hold(
    site: Site, connection: Http2Connection, *headers: tuple[str, str], path: str = "/hold"
) -> tuple[Exchange, str]:
    """Begin a request which works until it is released."""
    name = site.name()
    exchange = connection.ask(f"GET {path}?name={name}", *headers)
    site.until(name, started=True)
    return exchange, name


def is_refused(answer: Answer) -> bool:
    assert answer.status == 503, answer
    assert int(answer.headers["retry-after"]) >= 1
    assert json.loads(answer.body)["error"] == "overloaded"
    # There it would be a malformed answer.
    assert "connection" not in answer.headers
    return True


def test_requests_of_one_connection_are_admitted_and_refused_one_by_one(site: Site) -> None:
    connection = connect(site)
    held = [hold(site, connection) for _ in range(LIMIT)]
    name = site.name()
    for _ in range(3):
        assert is_refused(connection.get(f"/echo?name={name}"))
    assert connection.get("/metrics").status == 200
    assert "started" not in site.until(name, is_over=True, in_flight=LIMIT)
    for exchange, one in held:
        site.release(one)
        assert exchange.read().body == b"held"
        assert site.until(one, is_over=True)["in_flight_at_end"] >= 1
    site.until(in_flight=0)
    assert connection.get("/echo").body == b"GET 0"


def test_an_upload(site: Site) -> None:
    connection = connect(site)
    exchange = connection.ask("POST /echo", is_all=False)
    exchange.send(b"12", is_all=False)
    site.until(in_flight=1)
    exchange.send(b"345")
    assert exchange.read().body == b"POST 5"


@pytest.mark.parametrize("expects", [False, True])
def test_a_refused_upload_leaves_the_connection_as_it_is(site: Site, expects: bool) -> None:
    connection = connect(site)
    held = [hold(site, connection)[1] for _ in range(LIMIT)]
    headers = [("content-length", "5"), *([("expect", "100-continue")] if expects else [])]
    exchange = connection.ask("POST /echo", *headers, is_all=False)
    assert is_refused(exchange.read())
    assert connection.get("/metrics").status == 200
    assert is_refused(connection.get("/echo"))
    site.release(*held)


def test_a_refused_head(site: Site) -> None:
    connection = connect(site)
    held = [hold(site, connection)[1] for _ in range(LIMIT)]
    answer = connection.ask("HEAD /echo").read()
    assert (answer.status, answer.body) == (503, b"")
    assert is_refused(connection.get("/echo"))
    site.release(*held)


def test_a_stream_holds_its_permit_until_its_end(site: Site) -> None:
    connection = connect(site)
    exchange, name = hold(site, connection, path="/stream")
    assert exchange.read_head().status == 200
    exchange.read_body(b"data: first\n\n")
    assert site.state()["in_flight"] == 1
    site.release(name)
    assert exchange.read().body == b"data: first\n\ndata: last\n\n"
    assert site.until(name, is_over=True, in_flight=0)["in_flight_at_end"] == 1


@pytest.mark.case("leaving_work")
def test_leaving_while_the_handler_runs_frees_nothing(site: Site, leave_early: str) -> None:
    connection = connect(site)
    exchange, name = hold(site, connection)
    depart(leave_early, connection, exchange)
    if site.app == "plain":
        site.until(name, saw_disconnect=True)
    assert site.connect().get("/echo").status == 200
    assert site.state() | {"in_flight": 1, "running": 1} == site.state()
    site.release(name)
    state = site.until(name, is_over=True, in_flight=0)
    assert state["in_flight_at_end"] == 1
    assert "ended_by" not in state


@pytest.mark.case("leaving_work")
def test_what_is_held_until_the_response_is_given_back_whoever_has_left(
    site: Site, leave: str
) -> None:
    connection = connect(site)
    exchange, name = hold(site, connection, ("x-gate", "response"))
    depart(leave, connection, exchange)
    site.release(name)
    # Also where a server never returns from the last send().
    assert site.until(name, in_flight=0, running=0)["in_flight_at_end"] == 1


def test_leaving_a_stream(site: Site, leave_early: str) -> None:
    connection = connect(site)
    exchange, name = hold(site, connection, path="/sse")
    exchange.read_body(b"data: first\n\n")
    depart(leave_early, connection, exchange)
    site.release(name)
    assert site.until(name, is_over=True, in_flight=0)["in_flight_at_end"] == 1


@pytest.mark.case("leaving_line")
def test_leaving_while_waiting_in_line(site: Site, leave: str) -> None:
    _, held = site.hold("x-gate: line")
    connection, name = connect(site), site.name()
    exchange = connection.ask(f"GET /hold?name={name}", LINE)
    site.until(waiting=1)
    depart(leave, connection, exchange)
    site.until(waiting=0)
    site.release(held)
    assert "started" not in site.until(name, is_over=True, in_flight=0)


def test_waiting_in_line_on_the_same_connection(site: Site) -> None:
    connection = connect(site)
    first, held = hold(site, connection, LINE)
    name = site.name()
    second = connection.ask(f"POST /echo?name={name}", LINE, is_all=False)
    second.send(b"12345")
    site.until(waiting=1)
    assert "started" not in site.state(name)
    site.release(held)
    assert first.read().body == b"held"
    assert second.read().body == b"POST 5"


@pytest.mark.case("cancelled")
def test_a_client_that_leaves_ends_its_handler(site: Site, leave: str) -> None:
    connection = connect(site)
    exchange, name = hold(site, connection, CANCEL)
    depart(leave, connection, exchange)
    state = site.until(name, is_over=True, running=0, in_flight=0)
    assert state["ended_by"] == "CancelledError"
    assert "error" not in state


@pytest.mark.case("cancelled")
def test_one_that_is_reset_ends_no_other(site: Site) -> None:
    connection = connect(site)
    stays, name = hold(site, connection)
    goes, gone = hold(site, connection, CANCEL)
    goes.reset()
    site.until(gone, is_over=True, in_flight=1, running=1)
    site.release(name)
    assert stays.read().body == b"held"


@pytest.mark.case("cancelled")
def test_a_stream_that_has_lived_its_time_is_ended(site: Site) -> None:
    connection = connect(site)
    exchange, name = hold(site, connection, ("x-gate", "streams"), path="/stream")
    assert exchange.read().body == b"data: first\n\n"
    assert "error" not in site.until(name, is_over=True, running=0)
    assert connection.get("/echo").status == 200
