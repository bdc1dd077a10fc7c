"""Quotas as ASGI middleware: who is limited, how it is told, and what nobody can get around."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from quota_support import (
    BODY,
    START,
    Answer,
    answer_ok,
    ask,
    bucket,
    limited,
    must_not_receive,
    must_not_run,
    play,
    request,
    user,
    websocket,
)
from sluicegate import ManualClock, Reason, Rejection
from sluicegate.asgi import DEFAULT_EXEMPT, RateLimitMiddleware, client_ip

if TYPE_CHECKING:
    from starlette.requests import Request

    from sluicegate.asgi import Message, Receive, Scope, Send

pytestmark = pytest.mark.timeout(30)

# -- who is limited ---------------------------------------------------------------------


def test_each_key_has_its_quota() -> None:
    clock = ManualClock()
    app = limited(bucket(clock=clock))
    assert [ask(app).status for _ in range(3)] == [200, 200, 429]
    assert [ask(app, request(user="bob")).status for _ in range(3)] == [200, 200, 429]
    clock.advance(1)
    assert [ask(app).status for _ in range(2)] == [200, 429]
    assert app.bucket.snapshot().admitted == 5


def test_who_has_no_key_is_not_limited_and_touched() -> None:
    app = limited()
    for _ in range(5):
        assert play(app, request(user=None)) == [START, BODY]
    assert app.bucket.keys == 0


@pytest.mark.parametrize("kind", ["lifespan", "something.else"])
def test_what_is_no_request_passes_untouched(kind: str) -> None:
    seen: list[Any] = []

    async def app(*arguments: Any) -> None:
        seen.extend(arguments)

    async def send(message: Message) -> None: ...

    scope = {"type": kind}
    asyncio.run(limited(app=app, key=must_not_be_asked)(scope, must_not_receive, send))
    assert seen == [scope, must_not_receive, send]
    assert seen[0] is scope


def must_not_be_asked(scope: Scope) -> str:
    raise AssertionError("key was called")


@pytest.mark.parametrize("path", [*DEFAULT_EXEMPT, "/status", "/static/a.css"])
@pytest.mark.parametrize("root", ["", "/root"])
def test_probes_and_what_is_told_are_never_limited(path: str, root: str) -> None:
    app = limited(key=must_not_be_asked, exempt=["/status", "/static/*", "POST /hook"])
    scope = request(root + path, root_path=root)
    assert [play(app, copy.deepcopy(scope)) for _ in range(3)] == [[START, BODY]] * 3
    with pytest.raises(AssertionError, match="key was called"):
        ask(app, request("/hook"))
    assert play(app, request("/hook", method="POST")) == [START, BODY]


def test_what_only_looks_like_a_probe_is_limited() -> None:
    app = limited()
    paths = ["/healthy", "/HEALTHZ", "/healthz/x", "/x/healthz", "/healthz;x"]
    statuses = [ask(app, request(path)).status for path in paths]
    assert statuses == [200, 200, 429, 429, 429]
    assert ask(app, request("/rootless/healthz", root_path="/root")).status == 429


def test_a_request_may_take_more_than_one_token() -> None:
    def price(scope: Scope) -> float:
        return 1.5 if scope["path"] == "/export" else 0.25

    app = limited(tokens=price)
    assert ask(app, request("/export")).status == 200
    assert ask(app, request("/export")).status == 429
    assert [ask(app).status for _ in range(3)] == [200, 200, 429]


# -- the body ---------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "closes"), [("1.1", True), ("1.0", True), ("2", False)])
def test_who_expects_100_continue_gets_the_end(version: str, closes: bool) -> None:
    app = limited()
    assert app.bucket.try_take("ann", 2)
    scope = request(method="POST", http_version=version)
    scope["headers"].append((b"expect", b"100-continue"))
    assert (ask(app, scope).headers.get(b"connection") == b"close") is closes
    assert b"connection" not in ask(app).headers


# -- websockets -------------------------------------------------------------------------


def test_a_websocket_is_limited_before_it_is_accepted() -> None:
    senders: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        senders.append(send.__qualname__)
        await send({"type": "websocket.accept"})

    limit = limited(app=app)
    assert play(limit, websocket()) == [{"type": "websocket.accept"}]
    assert play(limit, websocket()) == [{"type": "websocket.accept"}]
    assert play(limit, websocket()) == [{"type": "websocket.close", "code": 1013}]
    scope = websocket()
    del scope["extensions"]
    assert play(limit, scope)[0]["type"] == "websocket.close"
    # By its path, if it is never limited.
    spared = limited(limit.bucket, app=limit.app, exempt=[f"WEBSOCKET {scope['path']}"])
    assert play(spared, websocket()) == [{"type": "websocket.accept"}]
    assert play(limit, {**scope, "extensions": None})[0]["type"] == "websocket.close"
    # What is sent over an open one goes to the server directly.
    assert senders == ["play.<locals>.send"] * 3


def test_a_websocket_is_denied_where_the_server_can() -> None:
    app = limited(app=must_not_run)
    assert app.bucket.try_take("ann", 2)
    messages = play(app, websocket("websocket.http.response"))
    assert [message["type"] for message in messages] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    answer = Answer(messages)
    assert answer.status == 429
    assert answer.headers[b"retry-after"] in {b"1", b"2"}
    assert answer.headers[b"ratelimit"] == b'"users";r=0;t=1'
    assert json.loads(answer.body)["error"] == "rate_limited"


# -- answers of one's own ---------------------------------------------------------------


async def respond_later(scope: Scope, rejection: Rejection) -> Any:
    return PlainTextResponse(f"not now, {scope['path']}", 429)


@pytest.mark.parametrize(
    "respond",
    [lambda scope, rejection: PlainTextResponse("not now, /work", 429), respond_later],
    ids=["sync", "async"],
)
def test_an_answer_of_ones_own(respond: Any) -> None:
    app = limited(respond=respond)
    assert app.bucket.try_take("ann", 2)
    answer = ask(app)
    assert (answer.status, answer.body) == (429, b"not now, /work")
    assert answer.headers[b"retry-after"] in {b"1", b"2"}
    assert answer.headers[b"ratelimit"] == b'"users";r=0;t=1'
    scope = request()
    scope["headers"].append((b"expect", b"100-continue"))
    assert ask(app, scope).headers[b"connection"] == b"close"
    denied = Answer(play(app, websocket("websocket.http.response")))
    assert json.loads(denied.body)["error"] == "rate_limited"


def test_its_own_retry_after_stays() -> None:
    def respond(scope: Scope, rejection: Rejection) -> Any:
        return PlainTextResponse("no", 429, {"Retry-After": "77"})

    app = limited(respond=respond)
    assert app.bucket.try_take("ann", 2)
    answer = ask(app)
    assert answer.names.count(b"retry-after") == 1
    assert answer.headers[b"retry-after"] == b"77"


def test_no_answer_of_ones_own_is_the_usual_one() -> None:
    app = limited(respond=lambda scope, rejection: None)
    assert app.bucket.try_take("ann", 2)
    assert json.loads(ask(app).body)["error"] == "rate_limited"


@pytest.mark.parametrize("respond", [lambda scope, rejection: 1 / 0, lambda scope, rejection: 5])
def test_an_answer_that_fails_is_the_usual_one_and_is_reported(
    respond: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    app = limited(respond=respond)
    assert app.bucket.try_take("ann", 2)
    assert json.loads(ask(app).body)["error"] == "rate_limited"
    assert len(reported) == 1
    assert reported[0].object is respond


@pytest.mark.parametrize("begins", [False, True])
def test_so_is_one_whose_application_fails_before_it_has_begun(
    begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_scope: Scope, _receive: Receive, send: Send) -> None:
        if begins:
            await send({"type": "http.response.start", "status": 429, "headers": []})
        raise ZeroDivisionError

    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    app = limited(respond=lambda scope, rejection: fails)
    assert app.bucket.try_take("ann", 2)
    if begins:
        with pytest.raises(ZeroDivisionError):
            ask(app)
        assert reported == []
        return
    answer = ask(app)
    assert json.loads(answer.body)["error"] == "rate_limited"
    assert answer.headers[b"ratelimit"] == b'"users";r=0;t=1'
    assert [report.object for report in reported] == [fails]


def test_refusals_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Scope, Rejection]] = []
    app = limited(on_reject=lambda scope, rejection: seen.append((scope, rejection)))
    scopes = [request(), request(), request(), websocket()]
    for scope in scopes:
        play(app, scope)
    assert [scope for scope, _ in seen] == scopes[2:]
    assert seen[0][0] is scopes[2]
    rejection = seen[0][1]
    assert (rejection.gate, rejection.kind, rejection.reason) == ("users", "bucket", Reason.RATE)
    assert rejection.status == 429
    assert rejection.retry_after is not None
    assert 1 <= rejection.retry_after < 3
    assert "bucket 'users'" in str(rejection)

    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    app = limited(app.bucket, on_reject=lambda scope, rejection: 1 / 0)
    assert ask(app).status == 429
    assert isinstance(reported[0].exc_value, ZeroDivisionError)


# -- in a framework --------------------------------------------------------------------


def test_frameworks_add_it_by_its_class() -> None:
    async def home(request: Request) -> PlainTextResponse:
        return PlainTextResponse("home")

    options: dict[str, Any] = {"bucket": bucket(), "key": user}
    named = Starlette(
        routes=[Route("/work", home)], middleware=[Middleware(RateLimitMiddleware, **options)]
    )
    added = Starlette(routes=[Route("/work", home)])
    added.add_middleware(RateLimitMiddleware, **options)
    answers = [ask(app) for app in (named, added, added)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[1].headers[b"ratelimit"] == b'"users";r=0;t=1'


# -- what goes wrong --------------------------------------------------------------------


def test_who_makes_the_key_fail_is_not_let_in() -> None:
    app = limited(app=must_not_run)
    scope = request()
    scope["headers"] = [(b"x-user", b"\xff")]
    with pytest.raises(UnicodeDecodeError):
        play(app, scope)
    with pytest.raises(TypeError, match="key must be a string, got b'ann'"):
        play(limited(app=must_not_run, key=lambda scope: b"ann"), request())
    with pytest.raises(ZeroDivisionError):
        play(limited(app=must_not_run, tokens=lambda scope: 1 / 0), request())
    with pytest.raises(ValueError, match="with a burst of 2"):
        play(limited(app=must_not_run, tokens=lambda scope: 3), request())
    assert app.bucket.keys == 0


def test_an_exception_of_the_application_goes_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise OSError("mine")

    limit = limited(app=app)
    with pytest.raises(OSError, match="mine"):
        play(limit, request())
    # What was taken stays taken.
    assert limit.bucket.tokens("ann") == 1


def test_made_up_keys_get_nobody_more_and_take_no_memory() -> None:
    clock = ManualClock()
    app = limited(bucket(max_keys=100, clock=clock))
    sent: list[int] = []

    async def send(message: Message) -> None:
        if "status" in message:
            sent.append(message["status"])

    async def main() -> None:
        for number in range(100_000):
            await app(request(user=f"made up {number}"), must_not_receive, send)

    asyncio.run(main())
    # One each for 100 keys, and two for all others together.
    assert sent.count(200) == 102
    assert app.bucket.keys == 100
    assert app.bucket.snapshot().overflowed == 100_000 - 100
    # Who was there before has what he had.
    assert ask(app, request(user="made up 5")).status == 200
    assert ask(app, request(user="made up 5")).status == 429


def test_a_long_header_is_a_key_like_others() -> None:
    app = limited()
    long = "x" * 1_000_000
    assert [ask(app, request(user=long)).status for _ in range(3)] == [200, 200, 429]
    assert ask(app, request(user=long + "y")).status == 200


def test_spoofed_addresses_share_the_quota_of_who_sends_them() -> None:
    app = limited(bucket(), key=client_ip(trusted_hops=1))
    statuses = []
    for number in range(20):
        scope = request()
        scope["headers"].append((b"x-forwarded-for", b"6.6.6.%d, 192.0.2.1" % number))
        statuses.append(ask(app, scope).status)
    assert statuses == [200, 200] + [429] * 18
    assert app.bucket.keys == 1


# -- configuration ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "error", "text"),
    [
        ({"bucket": 5}, TypeError, "bucket must be a KeyedTokenBucket, got 5"),
        ({"key": "ip"}, TypeError, "key must be a callable, such as client_ip\\(\\), got 'ip'"),
        ({"key": None}, TypeError, "key must be a callable"),
        ({"key": respond_later}, TypeError, "key must be a callable that is not async"),
        ({"tokens": 5}, TypeError, "tokens must be a callable or None, got 5"),
        ({"tokens": respond_later}, TypeError, "tokens must be a callable that is not async"),
        ({"respond": 429}, TypeError, "respond must be a callable or None, got 429"),
        ({"on_reject": "log"}, TypeError, "on_reject must be a callable or None"),
        ({"on_reject": respond_later}, TypeError, "on_reject must be a callable that is not"),
        ({"headers": 1}, TypeError, "headers must be True or False, got 1"),
        ({"exempt": "/a"}, TypeError, "exempt must be a collection of paths, got '/a'"),
        ({"exempt": 5}, TypeError, "exempt must be a collection of paths, got 5"),
        ({"exempt": ["a"]}, ValueError, "match must be a path such as .*, got 'a'"),
        ({"exempt": [5]}, TypeError, "match must be"),
    ],
)
def test_what_cannot_be(over: dict[str, Any], error: type[Exception], text: str) -> None:
    options = {"bucket": bucket(), "key": user, **over}
    with pytest.raises(error, match=text):
        RateLimitMiddleware(answer_ok, **options)


@pytest.mark.parametrize("name", ["ä", "a\nb", "\x7f", "🦀"])
def test_a_name_that_cannot_be_told(name: str) -> None:
    with pytest.raises(ValueError, match="bucket must have a name of printable ASCII"):
        limited(bucket(name=name))


def test_what_it_says() -> None:
    app = limited(bucket(10, per=60))
    assert repr(app) == f"RateLimitMiddleware(bucket={app.bucket!r}, key={user!r})"
