"""What the options promise: who is cancelled, until when a permit is held, what answers instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conformance.apps.report import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from conformance.client import Connection, Site

CANCEL = "x-gate: cancel"
DEGRADE = "x-gate: degrade"


@pytest.fixture(params=["close", "reset"])
def leave(request: pytest.FixtureRequest) -> str:
    """Say how a client leaves."""
    way: str = request.param
    return way


@pytest.fixture
def full(site: Site) -> Iterator[Site]:
    """Give a server on which as many work as may."""
    names = [site.hold()[1] for _ in range(LIMIT)]
    yield site
    site.release(*names)


def outcomes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Return how many permits have been given back meanwhile, by outcome."""
    counts: dict[str, int] = before["outcomes"]
    later: dict[str, int] = after["outcomes"]
    return {
        name: count - counts.get(name, 0)
        for name, count in later.items()
        if count > counts.get(name, 0)
    }


def begin(site: Site, path: str, *headers: str) -> tuple[Connection, str]:
    """Send a request, and wait until its handler works."""
    connection, name = site.connect(), site.name()
    connection.write(f"GET {path}?name={name}", *headers)
    site.until(name, started=True)
    return connection, name


# -- cancel_on_disconnect ---------------------------------------------------------------


@pytest.mark.case("cancelled")
def test_a_client_that_leaves_ends_its_handler(site: Site, leave: str) -> None:
    before = site.state()
    connection, name = site.hold(CANCEL)
    getattr(connection, leave)()
    state = site.until(name, is_over=True, running=0, in_flight=0)
    assert state["ended_by"] == "CancelledError"
    assert state["in_flight_at_end"] == 1
    assert "error" not in state
    assert outcomes(before, state) == {"IGNORED": 1}


@pytest.mark.case("cancelled")
def test_a_client_that_leaves_after_waiting_ends_its_handler(site: Site, leave: str) -> None:
    _, held = site.hold("x-gate: line")
    connection, name = site.connect(), site.name()
    connection.write(f"GET /hold?name={name}", CANCEL)
    site.until(waiting=1)
    site.release(held)
    site.until(name, started=True)
    getattr(connection, leave)()
    state = site.until(name, is_over=True, running=0, in_flight=0)
    assert state["ended_by"] == "CancelledError"
    assert state["in_flight_at_end"] == 1


@pytest.mark.case("leaving_line")
def test_a_client_that_leaves_while_waiting_is_never_started(site: Site, leave: str) -> None:
    _, held = site.hold(CANCEL)
    connection, name = site.connect(), site.name()
    connection.write(f"GET /hold?name={name}", CANCEL)
    site.until(waiting=1)
    getattr(connection, leave)()
    site.until(waiting=0)
    site.release(held)
    assert "started" not in site.until(name, is_over=True, in_flight=0)


@pytest.mark.case("cancelled")
@pytest.mark.parametrize("path", ["/stream", "/sse"])
def test_a_client_that_leaves_ends_its_stream(site: Site, leave: str, path: str) -> None:
    connection, name = begin(site, path, CANCEL)
    assert connection.read_head().status == 200
    assert next(connection.chunks()) == b"data: first\n\n"
    getattr(connection, leave)()
    state = site.until(name, is_over=True, running=0, in_flight=0)
    assert state["ended_by"] in {"CancelledError", "GeneratorExit"}


@pytest.mark.case("leaving_upload")
def test_a_client_that_leaves_in_the_middle_of_its_body(site: Site, leave: str) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"POST /echo?name={name}", CANCEL, "content-length: 1000", body=b"x" * 10)
    site.until(in_flight=1)
    getattr(connection, leave)()
    site.until(name, is_over=True, in_flight=0)


@pytest.mark.case("background")
def test_who_leaves_after_the_answer_cancels_nothing(site: Site, leave: str) -> None:
    connection, name = site.connect(), site.name()
    connection.write(f"GET /background?name={name}", CANCEL)
    assert connection.read().body == b"accepted"
    site.until(name, started=True, in_flight=1)
    getattr(connection, leave)()
    # Whoever comes later is served later, so the server has seen that it has left.
    assert site.connect().get("/echo").status == 200
    assert site.state(name)["running"] == 1
    site.release(name)
    state = site.until(name, is_over=True, in_flight=0)
    assert state["in_flight_at_end"] == 1
    assert "ended_by" not in state


def test_a_connection_goes_on_where_clients_are_watched(site: Site) -> None:
    connection, before = site.connect(), site.state()
    for _ in range(3):
        assert connection.get("/echo", CANCEL).body == b"GET 0"
        site.until(in_flight=0)
    connection.write("POST /echo", CANCEL, "content-length: 5", body=b"12")
    site.until(in_flight=1)
    connection.socket.sendall(b"345")
    assert connection.read().body == b"POST 5"
    assert outcomes(before, site.until(in_flight=0)) == {"SUCCESS": 4}


def test_pipelined_requests_where_clients_are_watched(site: Site) -> None:
    connection = site.connect()
    # No more than the one that runs and those that may wait.
    sizes = range(3)
    for size in sizes:
        connection.write("POST /echo", CANCEL, f"content-length: {size}", body=b"x" * size)
    assert [connection.read().body for _ in sizes] == [b"POST %d" % size for size in sizes]


@pytest.mark.case("exception")
def test_an_exception_arrives_where_clients_are_watched(site: Site) -> None:
    name = site.name()
    assert site.connect().get(f"/raise?name={name}", CANCEL).status == 500
    state = site.until(name, is_over=True, in_flight=0)
    assert state["error"] == "PlannedError"
    assert state["is_the_same_error"]


# -- hold -------------------------------------------------------------------------------


@pytest.mark.case("background")
@pytest.mark.parametrize("hold", ["response", "headers"])
def test_a_background_task_holds_no_permit_if_that_is_wanted(site: Site, hold: str) -> None:
    before = site.state()
    names = []
    # More of them than the limit: nothing bounds them.
    for _ in range(LIMIT + 1):
        connection, name = site.connect(), site.name()
        connection.write(f"GET /background?name={name}", f"x-gate: {hold}")
        assert connection.read().body == b"accepted"
        state = site.until(name, started=True, in_flight=0)
        names.append(name)
    assert state["running"] == LIMIT + 1
    site.release(*names)
    for name in names:
        state = site.until(name, is_over=True, in_flight=0)
        assert "ended_by" not in state
    assert outcomes(before, state) == {"SUCCESS": LIMIT + 1}


def test_a_stream_holds_its_permit_until_its_last_byte(site: Site) -> None:
    before = site.state()
    connection, name = begin(site, "/stream", "x-gate: response")
    assert connection.read_head().status == 200
    chunks = connection.chunks()
    assert next(chunks) == b"data: first\n\n"
    assert site.state()["in_flight"] == 1
    site.release(name)
    assert b"".join(chunks) == b"data: last\n\n"
    state = site.until(name, is_over=True, in_flight=0)
    assert state["in_flight_at_end"] == 1
    assert outcomes(before, state) == {"SUCCESS": 1}


def test_a_stream_holds_its_permit_until_its_headers(site: Site) -> None:
    before = site.state()
    streams = []
    for _ in range(LIMIT + 1):
        connection, name = begin(site, "/stream", "x-gate: headers")
        assert connection.read_head().status == 200
        site.until(in_flight=0)
        streams.append((connection, name))
    assert site.state()["running"] == LIMIT + 1
    site.release(*(name for _, name in streams))
    for connection, name in streams:
        assert b"".join(connection.chunks()).endswith(b"last\n\n")
        state = site.until(name, is_over=True, in_flight=0)
        assert state["in_flight_at_end"] == 0
    assert outcomes(before, state) == {"SUCCESS": LIMIT + 1}


@pytest.mark.parametrize("hold", ["response", "headers"])
def test_a_stream_whose_client_leaves_gives_its_permit_back(
    site: Site, hold: str, leave: str
) -> None:
    connection, name = begin(site, "/stream", f"x-gate: {hold}")
    assert connection.read_head().status == 200
    assert next(connection.chunks()) == b"data: first\n\n"
    getattr(connection, leave)()
    site.release(name)
    state = site.until(name, is_over=True, in_flight=0, running=0)
    assert state["in_flight_at_end"] == (1 if hold == "response" else 0)


@pytest.mark.case("leaving_work")
@pytest.mark.parametrize("hold", ["response", "headers"])
def test_a_handler_that_has_not_answered_holds_its_permit(
    site: Site, hold: str, leave: str
) -> None:
    connection, name = site.hold(f"x-gate: {hold}")
    getattr(connection, leave)()
    if site.app == "plain":
        site.until(name, saw_disconnect=True)
    assert site.connect().get("/echo").status == 200
    assert site.state() | {"in_flight": 1, "running": 1} == site.state()
    site.release(name)
    assert site.until(name, is_over=True, in_flight=0)["in_flight_at_end"] == 1


@pytest.mark.parametrize("hold", ["response", "headers"])
def test_an_exception_gives_the_permit_back_once(site: Site, hold: str) -> None:
    before = site.state()
    for _ in range(LIMIT + 1):
        answer = site.connect().get(f"/raise?name={site.name()}", f"x-gate: {hold}")
        assert answer.status == 500
        state = site.until(in_flight=0)
    assert outcomes(before, state) == {"IGNORED": LIMIT + 1}


# -- degrade ----------------------------------------------------------------------------


def test_what_is_cheaper_answers_instead_of_a_refusal(full: Site) -> None:
    connection, name = full.connect(), full.name()
    for _ in range(3):
        answer = connection.get(f"/echo?name={name}", DEGRADE)
        assert (answer.status, answer.body) == (200, b"cheaper")
        assert answer.keeps_the_connection
    connection.write("HEAD /echo", DEGRADE)
    assert connection.read(head_only=True).status == 200
    assert connection.get("/metrics").status == 200
    state = full.until(name, is_over=True, in_flight=LIMIT)
    assert "started" not in state
    assert "error" not in state


def test_who_is_admitted_gets_no_cheaper_answer(site: Site) -> None:
    assert site.connect().get("/echo", DEGRADE).body == b"GET 0"


def test_what_is_cheaper_is_bounded_and_holds_no_permit(full: Site) -> None:
    connection, name = begin(full, "/hold", DEGRADE)
    assert full.state()["in_flight"] == LIMIT
    refused = full.connect().get("/echo", DEGRADE)
    assert refused.status == 503
    assert json.loads(refused.body)["error"] == "overloaded"
    full.release(name)
    assert connection.read().body == b"cheaper"
    full.until(name, is_over=True)
    assert full.connect().get("/echo", DEGRADE).body == b"cheaper"


def test_who_leaves_before_a_cheaper_answer_frees_its_place_at_its_end(
    full: Site, leave: str
) -> None:
    connection, name = begin(full, "/hold", DEGRADE)
    getattr(connection, leave)()
    assert full.connect().get("/echo", DEGRADE).status == 503
    full.release(name)
    assert "ended_by" not in full.until(name, is_over=True, in_flight=LIMIT)
    assert full.connect().get("/echo", DEGRADE).body == b"cheaper"


def test_what_is_cheaper_and_fails_is_a_refusal(full: Site) -> None:
    name = full.name()
    for _ in range(2):
        refused = full.connect().get(f"/raise?name={name}", DEGRADE)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
    assert "error" not in full.until(name, is_over=True)


@pytest.mark.case("refused_body")
@pytest.mark.parametrize("framing", ["content-length: 26", "transfer-encoding: chunked"])
def test_a_body_that_nobody_reads_is_not_taken_for_the_next_request(
    full: Site, framing: str
) -> None:
    smuggled = b"GET /metrics HTTP/1.1\r\n\r\n\r\n"[:26]
    wire = b"1a\r\n%b\r\n0\r\n\r\n" % smuggled if "chunked" in framing else smuggled
    connection = full.connect()
    connection.write("POST /echo", DEGRADE, framing, body=wire)
    assert connection.read().body == b"cheaper"
    # Nothing of it before the answer.
    try:
        connection.write("POST /echo", DEGRADE, framing)
        assert connection.read().body == b"cheaper"
        connection.socket.sendall(wire)
        assert connection.get("/echo", DEGRADE).body == b"cheaper"
    except OSError:
        assert full.connect().get("/echo", DEGRADE).body == b"cheaper"


@pytest.mark.case("refused_expect")
@pytest.mark.parametrize("sends_anyway", [False, True])
def test_who_expects_100_continue_and_gets_what_is_cheaper(full: Site, sends_anyway: bool) -> None:
    connection = full.connect()
    body = b"12345" if sends_anyway else b""
    connection.write("POST /echo", DEGRADE, "content-length: 5", "expect: 100-continue", body=body)
    answer = connection.read()
    if answer.status == 100:
        # Hypercorn asks for the body before it asks the application.
        assert full.kind == "hypercorn"
        answer = connection.read()
    assert answer.body == b"cheaper"
    assert not answer.keeps_the_connection
    assert connection.is_at_its_end()
