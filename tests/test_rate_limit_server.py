"""A quota behind real uvicorn, seen from the socket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from test_asgi_server import KINDS, Connection, uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

kinds = pytest.mark.parametrize("limited", KINDS, indirect=True, ids="-".join)


@pytest.fixture(scope="module", name="limited")
def a_server_with_a_quota(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    log = tmp_path_factory.mktemp("uvicorn") / "log"
    with uvicorn("limited", log, *request.param) as address:
        yield address
    assert "Traceback" not in log.read_text()


@kinds
@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_refusal_with_an_unread_body_keeps_the_connection(
    limited: tuple[str, int], size: int, chunked: bool
) -> None:
    body = b"GET /smuggled HTTP/1.1\r\n\r\n".ljust(size, b"x")[:size]
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    wire = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if chunked else body
    who = f"x-user: ann-{size}-{chunked}"
    with Connection(limited) as connection:
        connection.write("POST /work", framing, who, body=wire)
        answer = connection.read()
        assert (answer.status, answer.body) == (200, b"POST /work %d" % size)
        assert answer.headers["ratelimit-policy"] == '"users";q=1;w=900'
        assert answer.headers["ratelimit"] == '"users";r=0;t=900'
        # All of the body at once, with the next request right behind it.
        connection.write("POST /work", framing, who, body=wire)
        connection.write("GET /free")
        answer = connection.read()
        assert answer.status == 429
        assert "connection" not in answer.headers
        assert 890 <= int(answer.headers["retry-after"]) <= 900 * 1.25 + 1
        assert answer.headers["ratelimit-policy"] == '"users";q=1;w=900'
        assert answer.headers["ratelimit"].startswith('"users";r=0;t=')
        assert json.loads(answer.body)["error"] == "rate_limited"
        assert connection.read().body == b"GET /free 0"
        # Nothing of it before the answer, then the rest.
        connection.write("POST /work", framing, who)
        assert connection.read().status == 429
        connection.socket.sendall(wire)
        assert connection.get("/free").body == b"GET /free 0"


@kinds
def test_who_expects_100_continue_gets_the_429_and_the_end(limited: tuple[str, int]) -> None:
    with Connection(limited) as connection:
        connection.write("GET /work", "x-user: bob")
        assert connection.read().status == 200
        connection.write("POST /work", "x-user: bob", "content-length: 5", "expect: 100-continue")
        answer = connection.read()
        assert (answer.status, answer.headers["connection"]) == (429, "close")
        assert connection.is_at_its_end()


@kinds
def test_a_websocket_over_its_quota_is_answered_429(limited: tuple[str, int]) -> None:
    upgrade = (
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "x-user: eve",
    )
    with Connection(limited) as connection:
        connection.write("GET /work", "x-user: eve")
        assert connection.read().status == 200
    with Connection(limited) as connection:
        connection.write("GET /work", *upgrade)
        answer = connection.read()
        assert answer.status == 429
        assert answer.headers["ratelimit-policy"] == '"users";q=1;w=900'
        assert json.loads(answer.body)["error"] == "rate_limited"
