"""What is admitted, what is refused, and what becomes of the connection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conformance.apps.report import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.client import Answer, Site

TEN_MB = 10_000_000
CHUNKED = b"5\r\n12345\r\n6\r\n678901\r\n0\r\n\r\n"


@pytest.fixture
def full(site: Site) -> Iterator[Site]:
    """Give a server on which as many work as may."""
    names = [site.hold()[1] for _ in range(LIMIT)]
    assert site.state()["in_flight"] == LIMIT
    yield site
    site.release(*names)


def is_refused(answer: Answer) -> bool:
    assert answer.status == 503, answer
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["error"] == "overloaded"
    return True


# -- admitted ---------------------------------------------------------------------------


def test_requests_on_one_connection(site: Site) -> None:
    connection, name = site.connect(), site.name()
    for _ in range(3):
        assert connection.get(f"/echo?name={name}").body == b"GET 0"
        site.until(in_flight=0)  # some frameworks still tidy up when the client has its answer
    connection.write(f"POST /echo?name={name}", "content-length: 5", body=b"12345")
    assert connection.read().body == b"POST 5"
    assert site.until(name, is_over=True)["outside"] == name


def test_a_large_upload(site: Site) -> None:
    connection = site.connect()
    connection.write("POST /echo", f"content-length: {TEN_MB}")
    connection.start_body(bytes(TEN_MB))
    assert connection.read().body == b"POST %d" % TEN_MB


def test_a_chunked_upload(site: Site) -> None:
    connection = site.connect()
    connection.write("POST /echo", "transfer-encoding: chunked", body=CHUNKED[:12])
    site.until(in_flight=1)
    connection.socket.sendall(CHUNKED[12:])
    assert connection.read().body == b"POST 11"
    assert connection.get("/echo").body == b"GET 0"


def test_head(site: Site) -> None:
    connection = site.connect()
    connection.write("HEAD /echo")
    assert connection.read(head_only=True).status == 200
    assert connection.get("/echo").body == b"GET 0"


def test_pipelined_requests(site: Site) -> None:
    connection = site.connect()
    # No more than the limit: the next one may begin while the one before still tidies up.
    sizes = range(LIMIT)
    for size in sizes:
        connection.write("POST /echo", f"content-length: {size}", body=b"x" * size)
    assert [connection.read().body for _ in sizes] == [b"POST %d" % size for size in sizes]


def test_who_expects_100_continue_gets_it(site: Site) -> None:
    connection = site.connect()
    connection.write("POST /echo", "content-length: 5", "expect: 100-continue")
    assert connection.read().status == 100
    connection.socket.sendall(b"12345")
    assert connection.read().body == b"POST 5"
    assert connection.get("/echo").status == 200


def test_idle_connections_take_no_place(site: Site) -> None:
    idle = [site.connect() for _ in range(50)]
    for connection in idle:
        answer = connection.get("/echo", "x-gate: gate")
        assert answer.status == 200
        assert answer.keeps_the_connection
        site.until(in_flight=0)
    held = [site.hold("x-gate: gate") for _ in range(LIMIT)]
    assert site.state()["in_flight"] == LIMIT
    for connection in idle[:LIMIT]:
        assert is_refused(connection.get("/echo", "x-gate: gate"))
    for connection, name in held:
        site.release(name)
        assert connection.read().body == b"held"
    site.until(in_flight=0)
    for connection in idle:
        assert connection.get("/metrics").status == 200


# -- refused ----------------------------------------------------------------------------


def test_a_refused_request_never_runs_and_its_connection_goes_on(full: Site) -> None:
    connection, name = full.connect(), full.name()
    for _ in range(3):
        assert is_refused(answer := connection.get(f"/echo?name={name}"))
        assert answer.keeps_the_connection
    assert connection.get("/metrics").status == 200
    state = full.until(name, is_over=True)
    assert "started" not in state
    assert "error" not in state


def test_a_place_that_gets_free_is_given_on(site: Site) -> None:
    held = [site.hold() for _ in range(LIMIT)]
    connection = site.connect()
    assert is_refused(connection.get("/echo"))
    site.release(held[0][1])
    assert held[0][0].read().body == b"held"
    site.until(in_flight=LIMIT - 1)
    assert connection.get("/echo").body == b"GET 0"
    site.until(in_flight=LIMIT - 1)
    site.release(held[1][1])
    assert held[1][0].read().body == b"held"


def test_a_refused_head_tells_the_length_of_the_body_that_it_has_not(full: Site) -> None:
    connection, name = full.connect(), full.name()
    length = connection.get("/echo").headers["content-length"]
    connection.write(f"HEAD /echo?name={name}")
    head = connection.read(head_only=True)
    assert head.status == 503
    # A server may hide from the client that there is one.
    assert full.until(name, is_over=True)["sent"] == 0
    assert head.headers["content-length"] == length
    assert is_refused(connection.get("/echo"))


def test_refused_pipelined_requests(full: Site) -> None:
    connection = full.connect()
    for _ in range(3):
        connection.write("GET /echo")
    connection.write("GET /metrics")
    for _ in range(3):
        assert is_refused(connection.read())
    assert connection.read().status == 200


@pytest.mark.case("refused_upload")
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_refused_upload_of_10_mb(full: Site, framing: str) -> None:
    connection, name = full.connect(), full.name()
    body, header = bytes(TEN_MB), f"content-length: {TEN_MB}"
    if framing == "chunked":
        body, header = b"%x\r\n%b\r\n0\r\n\r\n" % (TEN_MB, body), "transfer-encoding: chunked"
    connection.write(f"POST /echo?name={name}", header)
    sending = connection.start_body(body)
    answer = connection.read()
    assert is_refused(answer)
    sending.join(30)
    assert not sending.is_alive()
    try:
        assert connection.get("/metrics").status == 200
    except OSError:
        # A server may rather hang up than read on. Who comes anew is served.
        assert full.connect().get("/metrics").status == 200
    assert "started" not in full.until(name, is_over=True)


@pytest.mark.case("refused_body")
@pytest.mark.parametrize("framing", ["content-length: 26", "transfer-encoding: chunked"])
def test_a_refused_body_is_not_taken_for_the_next_request(full: Site, framing: str) -> None:
    smuggled = b"GET /metrics HTTP/1.1\r\n\r\n\r\n"[:26]
    wire = b"1a\r\n%b\r\n0\r\n\r\n" % smuggled if "chunked" in framing else smuggled
    connection = full.connect()
    connection.write("POST /echo", framing, body=wire)
    assert is_refused(connection.read())
    # Nothing of it before the answer.
    try:
        connection.write("POST /echo", framing)
        assert is_refused(connection.read())
        connection.socket.sendall(wire)
        assert is_refused(connection.get("/echo"))
    except OSError:
        assert is_refused(full.connect().get("/echo"))


@pytest.mark.case("refused_expect")
@pytest.mark.parametrize("sends_anyway", [False, True])
def test_who_expects_100_continue_and_is_refused(full: Site, sends_anyway: bool) -> None:
    connection = full.connect()
    body = b"12345" if sends_anyway else b""
    connection.write("POST /echo", "content-length: 5", "expect: 100-continue", body=body)
    answer = connection.read()
    if answer.status == 100:
        # Hypercorn asks for the body before it asks the application.
        assert full.kind == "hypercorn"
        answer = connection.read()
    assert is_refused(answer)
    assert not answer.keeps_the_connection
    assert connection.is_at_its_end()


def test_exempt_paths_are_told_apart_below_a_root_path(full: Site) -> None:
    connection = full.connect()
    assert connection.get("/outer/metrics").status == 200
    assert is_refused(connection.get("/outer/echo"))
    assert is_refused(connection.get("/sub/metrics"))


# -- elsewhere --------------------------------------------------------------------------


@pytest.mark.case("sub_app")
def test_a_mounted_sub_app_is_protected_with_the_whole(site: Site) -> None:
    name = site.name()
    assert site.connect().get(f"/sub/echo?name={name}").body == b"sub GET 0"
    assert site.until(name, is_over=True)["started"]
    held = [site.hold()[1] for _ in range(LIMIT)]
    assert is_refused(site.connect().get("/sub/echo"))
    site.release(*held)


@pytest.mark.case("root_path")
def test_the_whole_is_mounted_with_a_root_path(site: Site) -> None:
    assert site.connect().get("/outer/echo").body == b"GET 0"
