"""The ASGI middleware: what it admits, how it refuses, and when a permit ends."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from sluicegate import Gate, Limiter, SemaphoreLimiter
from sluicegate.asgi import LoadSheddingMiddleware, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate.asgi import Message, Receive, Scope, Send

OK_START = {"type": "http.response.start", "status": 200, "headers": []}
OK_BODY = {"type": "http.response.body", "body": b"ok"}


def request(path: str = "/work", **over: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"test")],
        "state": {},
        **over,
    }


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send(OK_START)
    await send(OK_BODY)


async def must_not_run(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the application ran")


async def must_not_receive() -> Message:
    raise AssertionError("receive was called")


def play(app: LoadSheddingMiddleware, scope: Scope) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, must_not_receive, send))
    return sent


@pytest.fixture(name="full")
def full_limiter() -> Iterator[SemaphoreLimiter]:
    limiter = SemaphoreLimiter(1)
    with limiter.try_acquire():
        yield limiter


class Refusing:
    """A limiter that refuses everything in one given way."""

    def __init__(self, retry_after: float | None, status: int = 503) -> None:
        self.retry_after = retry_after
        self.status = status

    def try_acquire(self, cost: int = 1, /) -> Any:
        return self

    def acquire(self, cost: int = 1, /) -> Any:
        raise AssertionError("a request must never wait")

    def __bool__(self) -> bool:
        return False


# -- admitted ---------------------------------------------------------------------------


def test_an_admitted_request_reaches_the_app_with_the_servers_own_callables() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend((scope, receive, send, middleware.limiter))
        seen.append(limiter.in_flight)
        await answer_ok(scope, receive, send)

    async def send(message: Message) -> None:
        sent.append(message)

    sent: list[Message] = []
    limiter = SemaphoreLimiter(1)
    middleware = LoadSheddingMiddleware(app, limit=limiter)
    scope = request()
    asyncio.run(middleware(scope, must_not_receive, send))

    assert seen[0] is scope
    assert seen[1] is must_not_receive
    assert seen[3] is limiter
    assert seen[4] == 1
    assert sent == [OK_START, OK_BODY]
    assert limiter.in_flight == 0


@pytest.mark.parametrize("limit", [3, 3.0])
def test_no_more_than_the_limit_run_at_once(limit: float) -> None:
    async def main() -> None:
        go, refused = asyncio.Event(), asyncio.Event()
        running = peak = 0

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await go.wait()
            running -= 1
            await answer_ok(scope, receive, send)

        statuses: list[int] = []

        async def send(message: Message) -> None:
            if "status" in message:
                statuses.append(message["status"])
                if len(statuses) == 7:
                    refused.set()

        middleware = LoadSheddingMiddleware(app, gate=Gate(limit, max_waiting=0))
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(middleware(request(), must_not_receive, send))
            await refused.wait()
            go.set()
        assert peak == 3
        assert sorted(statuses) == [200] * 3 + [503] * 7
        statuses.clear()
        await middleware(request(), must_not_receive, send)
        assert statuses == [200]

    asyncio.run(main())


def test_one_limiter_may_serve_several_applications(full: SemaphoreLimiter) -> None:
    for _ in range(2):
        middleware = LoadSheddingMiddleware(must_not_run, limit=full)
        assert play(middleware, request())[0]["status"] == 503


@pytest.mark.parametrize("refuse", [False, True])
def test_the_scope_is_left_as_it_was(refuse: bool, full: SemaphoreLimiter) -> None:
    scope = request(headers=[(b"expect", b"100-continue")], root_path="/api", path="/api/work")
    before = copy.deepcopy(scope)
    limit: Any = full if refuse else 1
    play(LoadSheddingMiddleware(answer_ok, limit=limit), scope)
    assert scope == before


# -- refused ----------------------------------------------------------------------------


def test_a_refusal_is_a_503_before_anything_is_read(full: SemaphoreLimiter) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=full)
    start, body = play(middleware, request(method="POST"))
    seconds = dict(start["headers"])[b"retry-after"]
    content = (
        b'{"error":"overloaded",'
        b'"detail":"The service is at capacity; retry later.",'
        b'"retry_after":%b}' % seconds
    )
    assert start == {
        "type": "http.response.start",
        "status": 503,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"retry-after", seconds),
            (b"cache-control", b"no-store"),
        ],
    }
    assert body == {"type": "http.response.body", "body": content}


def test_a_refused_rate_is_a_429() -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=Refusing(7.2, status=429))
    start, body = play(middleware, request())
    assert start["status"] == 429
    assert dict(start["headers"])[b"retry-after"] == b"8"
    assert json.loads(body["body"]) == {
        "error": "rate_limited",
        "detail": "Too many requests; retry later.",
        "retry_after": 8,
    }


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (0.0, 1),
        (0.2, 1),
        (1.0, 1),
        (1.001, 2),
        (59.5, 60),
        (-3.0, 1),
        (math.nan, 1),
        (math.inf, 2**31 - 1),
        (1e300, 2**31 - 1),
    ],
)
def test_retry_after_is_in_whole_seconds(retry_after: float | None, seconds: int) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=Refusing(retry_after))
    start, body = play(middleware, request())
    assert dict(start["headers"])[b"retry-after"] == b"%d" % seconds
    assert json.loads(body["body"])["retry_after"] == seconds


def test_who_cannot_be_told_when_is_spread(full: SemaphoreLimiter) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=full)
    told = [dict(play(middleware, request())[0]["headers"])[b"retry-after"] for _ in range(100)]
    assert told.count(b"1") == told.count(b"2") == 50


def test_a_refused_head_request_has_the_headers_of_a_get_and_no_body(
    full: SemaphoreLimiter,
) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=full)
    # Two apart, so that both are told the same number of seconds.
    get, _, head = (play(middleware, request(method=method)) for method in ("GET", "PUT", "HEAD"))
    assert head[0] == get[0]
    assert head[1] == {"type": "http.response.body", "body": b""}


def test_what_outer_middleware_adds_to_a_refusal_does_not_stay(full: SemaphoreLimiter) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=full)
    first = play(middleware, request())
    first[0]["headers"].append((b"set-cookie", b"session=of-another"))
    first[0]["status"] = 418
    first[1]["body"] += b"tail"
    second = play(middleware, request())
    assert second[0]["status"] == 503
    assert b"set-cookie" not in dict(second[0]["headers"])
    assert second[1]["body"].endswith(b"}")


@pytest.mark.parametrize(
    ("version", "headers", "closes"),
    [
        ("1.1", [(b"host", b"x"), (b"expect", b"100-continue")], True),
        ("1.0", [(b"expect", b"100-continue")], True),
        ("1.1", [(b"content-length", b"9")], False),
        ("2", [(b"expect", b"100-continue")], False),
        ("3", [(b"expect", b"100-continue")], False),
    ],
)
def test_a_connection_ends_only_where_a_body_may_be_withheld(
    version: str, headers: list[tuple[bytes, bytes]], closes: bool, full: SemaphoreLimiter
) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, limit=full)
    start, _ = play(middleware, request(method="POST", http_version=version, headers=headers))
    assert ((b"connection", b"close") in start["headers"]) is closes


# -- exempt and passed through ----------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "root_path", "exempt"),
    [
        ("/healthz", "", True),
        ("/metrics", "", True),
        ("/healthz/", "", True),
        ("/healthz/deep", "", False),
        ("/Healthz", "", False),
        ("/api/healthz", "/api", True),
        ("/healthz", "/api", True),
        ("/api/healthz", "", False),
        ("/apihealthz", "/api", False),
        ("/health", "/health", False),
        ("/health/health", "/health", True),
        ("/healthz", "/", True),
    ],
)
def test_health_probes_are_exempt(
    path: str, root_path: str, exempt: bool, full: SemaphoreLimiter
) -> None:
    middleware = LoadSheddingMiddleware(answer_ok, limit=full)
    start = play(middleware, request(path, root_path=root_path))[0]
    assert start["status"] == (200 if exempt else 503)


def test_an_exempt_request_takes_no_permit() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert limiter.in_flight == 0

    limiter = SemaphoreLimiter(1)
    play(LoadSheddingMiddleware(app, limit=limiter), request("/ping"))


def test_exempt_paths_can_be_chosen(full: SemaphoreLimiter) -> None:
    rules = [Rule("/up", exempt=True), Rule("/ping")]
    middleware = LoadSheddingMiddleware(answer_ok, limit=full, rules=rules)
    paths = ("/up", "/livez", "/ping")
    assert [play(middleware, request(path))[0]["status"] for path in paths] == [200, 200, 503]


def test_a_scope_without_root_path_will_do(full: SemaphoreLimiter) -> None:
    scope = request("/healthz")
    del scope["root_path"]
    middleware = LoadSheddingMiddleware(answer_ok, limit=full)
    assert play(middleware, scope)[0]["status"] == 200


@pytest.mark.parametrize("kind", ["lifespan", "of-tomorrow"])
def test_what_is_not_http_passes_untouched(kind: str, full: SemaphoreLimiter) -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend((scope, receive, send, full.in_flight))

    async def send(message: Message) -> None:
        raise AssertionError("sent")

    scope = {"type": kind}
    asyncio.run(LoadSheddingMiddleware(app, limit=full)(scope, must_not_receive, send))
    assert seen[0] is scope
    assert seen[1:] == [must_not_receive, send, 1]
    assert scope == {"type": kind}


# -- construction -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["64", True, False, [4], object(), SemaphoreLimiter, 4j])
def test_a_limit_of_the_wrong_type_is_named(limit: Any) -> None:
    with pytest.raises(TypeError, match="limit must be a number above 0 and at most 1e9") as info:
        LoadSheddingMiddleware(answer_ok, limit=limit)
    assert repr(limit) in str(info.value)


@pytest.mark.parametrize("limit", [0, -1, math.nan, math.inf, 1e10])
def test_a_limit_out_of_range_is_named(limit: float) -> None:
    with pytest.raises(ValueError, match="limit"):
        LoadSheddingMiddleware(answer_ok, limit=limit)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"exempt": ["/up"]}, TypeError, "unexpected option 'exempt'; known are gate, limit"),
        *(
            (
                {name: 1},
                TypeError,
                f"unexpected option '{name}' (it belongs to the gate: gate=Gate(..., {name}=...)); "
                "known are gate, limit",
            )
            for name in ("max_wait", "max_waiting", "reserve", "dry_run")
        ),
        ({"gate": 64}, TypeError, "gate must be a Gate, got 64"),
        ({"gate": Gate(1), "limit": 1}, TypeError, "gate and limit exclude each other"),
        ({"rules": "/a"}, TypeError, "rules must be a sequence of Rule"),
        ({"rules": Rule}, TypeError, "rules must be a sequence of Rule"),
        ({"key": "x"}, TypeError, "key must be a callable or None"),
        ({"headers": {}}, TypeError, "headers must be a Headers"),
        ({"headers": None}, TypeError, "headers must be a Headers"),
        ({"hold": "body"}, ValueError, "hold must be 'work', 'response' or 'headers', got 'body'"),
        ({"hold": []}, ValueError, "hold must be 'work'"),
        ({"cancel_on_disconnect": 1}, TypeError, "cancel_on_disconnect must be True or False"),
        (
            {"body_timeout": 0},
            ValueError,
            "body_timeout must be a number of seconds above 0",
        ),
        ({"body_timeout": math.inf}, ValueError, "body_timeout must be a number of seconds"),
        ({"body_timeout": "30"}, TypeError, "or None, got '30'"),
        ({"max_streams": 0}, ValueError, "max_streams must be an integer from 1 to 1e9, got 0"),
        ({"max_streams": 1.0}, TypeError, "max_streams must be an integer"),
        ({"exempt_limit": True}, TypeError, "exempt_limit must be an integer"),
        ({"degrade_limit": 10**10}, ValueError, "degrade_limit must be an integer"),
        ({"respond": 503}, TypeError, "respond must be a callable or None"),
        ({"degrade": 503}, TypeError, "degrade must be a callable or None"),
        ({"on_reject": 503}, TypeError, "on_reject must be a callable or None"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        LoadSheddingMiddleware(answer_ok, **options)


def test_without_a_gate_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(LoadSheddingMiddleware(answer_ok).limiter, Gate)
    monkeypatch.setenv("SLUICEGATE_LIMIT", "48")
    assert cast("Any", LoadSheddingMiddleware(answer_ok).limiter).limit == 48
    assert cast("Any", LoadSheddingMiddleware(answer_ok, limit=7).limiter).limit == 7
    monkeypatch.setenv("SLUICEGATE_LIMIT", "many")
    with pytest.raises(ValueError, match="SLUICEGATE_LIMIT must be a number"):
        LoadSheddingMiddleware(answer_ok)


def test_the_configuration_is_told_when_the_server_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    middleware = LoadSheddingMiddleware(answer_ok, gate=Gate(64, name="api"), max_streams=7)
    text = repr(middleware)
    assert text.startswith("<LoadSheddingMiddleware of <Gate 'api': limit 64, ")
    assert "in this process: hold='work', max_streams=7, exempt_limit=16>" in text
    with caplog.at_level("INFO", "sluicegate.asgi"):
        play(middleware, {"type": "lifespan"})
    assert caplog.messages == [text]


def test_that_all_are_admitted_is_told_when_the_server_starts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = LoadSheddingMiddleware(answer_ok, gate=Gate(64, name="api", dry_run=True))
    monkeypatch.setenv("SLUICEGATE_DISABLED", "1")
    disabled = LoadSheddingMiddleware(answer_ok, gate=Gate(64, name="api"))
    assert not caplog.messages
    for middleware in (dry, disabled):
        play(middleware, {"type": "lifespan"})
        play(middleware, request())
    assert [(each.levelname, each.name) for each in caplog.records] == [
        ("WARNING", "sluicegate.asgi")
    ] * 2
    assert caplog.messages == [
        "gate 'api' is in a dry run: all are admitted",
        "gate 'api' is disabled: all are admitted, since SLUICEGATE_DISABLED is set",
    ]


def test_any_limiter_will_do() -> None:
    limiter: Limiter = Refusing(None)
    middleware = LoadSheddingMiddleware(answer_ok, limit=limiter)
    assert middleware.limiter is limiter
    assert middleware.gate is None
    gate = Gate(4)
    assert LoadSheddingMiddleware(answer_ok, limit=gate).gate is gate


def test_importing_it_imports_no_framework() -> None:
    code = (
        "import sys, sluicegate.asgi; "
        "print(sorted({'fastapi', 'starlette', 'anyio', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("wrong", [None, 5, "app"])
def test_what_is_no_application_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="app must be an ASGI application, got"):
        LoadSheddingMiddleware(wrong)


def test_headers_that_are_iterated_once_are_there_for_the_application() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(scope["headers"])
        await answer_ok(scope, receive, send)

    pairs = [(b"host", b"test"), (b"x-criticality", b"SHEDDABLE")]
    play(LoadSheddingMiddleware(app, limit=2), request(headers=iter(pairs)))
    assert seen == pairs


@pytest.mark.parametrize("option", ["respond", "degrade"])
def test_what_answers_nothing_has_not_answered(option: str, full: SemaphoreLimiter) -> None:
    async def silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
        pass

    options: dict[str, Any] = {option: lambda _scope, _rejection: silent}
    sent = play(LoadSheddingMiddleware(must_not_run, limit=full, **options), request())
    assert [message.get("status") for message in sent] == [503, None]
