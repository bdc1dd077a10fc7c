"""The WSGI middleware: what it admits, how it refuses, and what it tells the application."""

from __future__ import annotations

import json
import subprocess
import sys
import wsgiref.validate
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from sluicegate import (
    Criticality,
    Gate,
    Outcome,
    QueueClosed,
    Reason,
    Rejected,
    Rejection,
    TimedOut,
    TokenBucket,
    context,
)
from sluicegate.testing import assert_idle
from sluicegate.wsgi import DEFAULT_EXEMPT, PERMIT, LoadSheddingMiddleware, Rule
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sluicegate.wsgi import Environ, StartResponse, WSGIApp

CRITICAL_PLUS = Criticality.CRITICAL_PLUS
SHEDDABLE = Criticality.SHEDDABLE


def ok(environ: Environ, start_response: StartResponse) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def must_not_run(environ: Environ, start_response: StartResponse) -> list[bytes]:
    raise AssertionError("the application ran")


def cheaper(environ: Environ, start_response: StartResponse) -> list[bytes]:
    start_response("203 Cheaper", [])
    return [b"cheaper"]


class Noting:
    """An application that notes what its context is."""

    def __init__(self) -> None:
        self.seen: list[context.Current] = []

    def __call__(self, environ: Environ, start_response: StartResponse) -> list[bytes]:
        self.seen.append(context.current())
        return ok(environ, start_response)


@pytest.fixture(name="full")
def full_gate() -> Iterator[Gate]:
    gate = Gate(1, max_waiting=0)
    with gate.try_acquire():
        yield gate


# -- admitted and refused ---------------------------------------------------------------


def test_an_admitted_request_is_answered_by_the_application() -> None:
    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        assert gate.in_flight == 1
        assert environ[PERMIT].operation is None
        return ok(environ, start_response)

    gate = Gate(2)
    middleware = LoadSheddingMiddleware(app, threads=4, gate=gate)
    assert call(middleware) == (200, {"Content-Length": "2"}, b"ok")
    assert middleware.gate is gate
    assert middleware.app is app
    assert_idle(gate)
    assert gate.snapshot().outcomes[Outcome.SUCCESS] == 1


def test_a_refusal_is_a_503_before_anything_is_read(full: Gate) -> None:
    class Unread:
        def read(self, size: int = -1) -> bytes:
            raise AssertionError("read")

    request = environ(method="POST")
    request["wsgi.input"] = Unread()
    answer = call(LoadSheddingMiddleware(must_not_run, threads=4, gate=full), request)
    assert answer.status == 503
    seconds = answer.headers["retry-after"]
    assert json.loads(answer.body) == {
        "error": "overloaded",
        "detail": "The service is at capacity; retry later.",
        "retry_after": int(seconds),
    }
    assert answer.headers == {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "retry-after": seconds,
        "cache-control": "no-store",
    }


def test_a_rate_is_refused_with_429() -> None:
    gate = Gate(2, rate=TokenBucket(0.1, burst=1))
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=gate)
    assert [call(middleware).status for _ in range(2)] == [200, 429]


def test_a_refused_head_request_has_no_body(full: Gate) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, threads=4, gate=full)
    head = call(middleware, environ(method="HEAD"))
    assert head.status == 503
    assert head.body == b""
    assert int(head.headers["content-length"]) > 50


def test_what_outer_middleware_adds_to_a_refusal_does_not_stay(full: Gate) -> None:
    middleware = LoadSheddingMiddleware(must_not_run, threads=4, gate=full)
    kept: list[list[Any]] = []
    for _ in range(3):
        middleware(environ(), lambda _, fields, *rest: kept.append(fields))
        kept[-1].append(("set-cookie", "of-another"))
    assert [len(fields) for fields in kept] == [5] * 3


@pytest.mark.filterwarnings("ignore:Unknown REQUEST_METHOD")
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("is_full", [False, True])
def test_it_is_valid_wsgi_on_both_sides(method: str, is_full: bool) -> None:
    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b""]

    gate = Gate(1)
    checked = cast("WSGIApp", wsgiref.validate.validator(app))
    middleware = LoadSheddingMiddleware(checked, threads=4, gate=gate)
    outer = cast("WSGIApp", wsgiref.validate.validator(cast("Any", middleware)))
    held = gate.try_acquire() if is_full else None
    assert call(outer, environ(method=method)).status == (503 if is_full else 200)
    if held:
        held.release()
    assert_idle(gate)


# -- rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DEFAULT_EXEMPT)
def test_probes_are_exempt(path: str, full: Gate) -> None:
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full)
    assert call(middleware, environ(path)).status == 200
    assert middleware.exempt.snapshot().admitted == 1
    assert full.snapshot().admitted == 1  # that of the fixture
    assert call(middleware, environ(path + "x")).status == 503


def test_exempt_requests_have_a_cap_of_their_own() -> None:
    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        depth.append(1)
        if len(depth) < 5:
            inner.append(call(middleware, environ).status)
        return ok(environ, start_response)

    depth: list[int] = []
    inner: list[int] = []
    middleware = LoadSheddingMiddleware(app, threads=2, exempt_limit=2)
    assert call(middleware, environ("/ping")).status == 200
    assert inner == [503, 200]
    assert middleware.exempt.in_flight == 0
    assert middleware.exempt.snapshot().rejected == {Reason.LIMIT: 1}
    assert middleware.gate.snapshot().admitted == 0


def test_a_rule_says_what_holds_for_a_path(full: Gate) -> None:
    rules = [
        Rule("/status", exempt=True),
        Rule("POST /äpfel/{id}", exempt=True),
        Rule("/healthz", criticality=SHEDDABLE),
    ]
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full, rules=rules)
    apples = "/äpfel/1".encode().decode("latin-1")
    for path, method, status in [
        ("/status", "GET", 200),
        (apples, "POST", 200),
        (apples, "GET", 503),
        ("/healthz", "GET", 503),
        ("", "GET", 503),
    ]:
        assert call(middleware, environ(path, method)).status == status, path


def test_the_gate_of_a_rule_is_decided_with_the_main_one() -> None:
    slow, main = Gate(1, max_waiting=0), Gate(8)
    rules = [Rule("/slow", gate=slow, operation="slow")]

    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        assert environ[PERMIT].operation == "slow"
        assert (main.in_flight, slow.in_flight) == (1, 1)
        assert call(middleware, environ).status == 503
        return ok(environ, start_response)

    middleware = LoadSheddingMiddleware(app, threads=9, gate=main, rules=rules)
    assert call(middleware, environ("/slow")).status == 200
    assert_idle(main, slow)


def test_streams_have_threads_of_their_own() -> None:
    told: list[Rejection] = []
    middleware = LoadSheddingMiddleware(
        ok,
        threads=8,
        rules=[Rule("/events", stream=True, operation="events")],
        on_reject=lambda _, rejection: told.append(rejection),
    )
    assert middleware.streams is not None
    assert middleware.streams.limit == 2
    assert middleware.gate.limit == 5
    first, second = (middleware(environ("/events"), lambda *_: None) for _ in range(2))
    assert middleware.gate.in_flight == 0
    assert call(middleware, environ("/events", x_criticality="SHEDDABLE")).status == 503
    text, _, _ = str(told[0]).partition(";")
    assert text == "gate 'wsgi streams' rejected SHEDDABLE 'events': streams (2 of 2 streams)"
    assert middleware.streams.snapshot().rejected == {Reason.LIMIT: 1}
    assert call(middleware).status == 200
    for response in (first, second):
        cast("Any", response).close()
    assert middleware.streams.in_flight == 0


def test_a_function_may_be_the_rules(full: Gate) -> None:
    def rules(environ: Environ) -> Rule | None:
        return Rule("*", exempt=True) if environ["PATH_INFO"].endswith(".css") else None

    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full, rules=rules)
    for path, status in [("/a.css", 200), ("/ping", 200), ("/a", 503)]:
        assert call(middleware, environ(path)).status == status


# -- who asks, and how much it matters --------------------------------------------------


@pytest.mark.parametrize(
    ("said", "ruled", "trusted", "expected"),
    [
        ("SHEDDABLE", None, False, SHEDDABLE),
        ("CRITICAL_PLUS", None, False, Criticality.CRITICAL),
        ("CRITICAL_PLUS", None, True, CRITICAL_PLUS),
        ("CRITICAL_PLUS", SHEDDABLE, True, CRITICAL_PLUS),
        ("CRITICAL", SHEDDABLE, False, SHEDDABLE),
        ("SHEDDABLE", CRITICAL_PLUS, False, SHEDDABLE),
        (None, CRITICAL_PLUS, False, CRITICAL_PLUS),
        (None, None, True, None),
        ("important", None, True, None),
    ],
)
def test_a_stranger_may_only_lower(
    said: str | None, ruled: Criticality | None, trusted: bool, expected: Criticality | None
) -> None:
    app = Noting()
    middleware = LoadSheddingMiddleware(
        app,
        threads=2,
        rules=[Rule("/work", criticality=ruled)],
        headers=context.Headers(trusted=lambda environ: environ["SERVER_NAME"] == "test")
        if trusted
        else context.Headers(),
    )
    headers = {} if said is None else {"x_criticality": said}
    call(middleware, environ(**headers))
    assert app.seen[0].criticality is expected
    assert context.current().criticality is None
    assert middleware.malformed_headers == (said == "important")


def test_the_deadline_is_that_of_the_handler() -> None:
    app = Noting()
    middleware = LoadSheddingMiddleware(app, threads=2)
    call(middleware, x_request_timeout_ms="250")
    call(middleware, x_request_timeout_ms="9000000")
    call(middleware, x_request_timeout_ms="soon")
    call(middleware)
    short, longest, *none = [each.deadline for each in app.seen]
    assert short is not None
    assert short.remaining() <= 0.25
    assert longest is not None
    assert 50 < longest.remaining() <= 60
    assert none == [None, None]
    assert middleware.malformed_headers == 1
    assert context.remaining() is None


def test_who_is_too_late_is_refused() -> None:
    middleware = LoadSheddingMiddleware(must_not_run, threads=2)
    assert call(middleware, x_request_timeout_ms="0").status == 503
    assert middleware.gate.snapshot().rejected[Reason.DEADLINE] == 1


def test_the_context_holds_while_parts_are_made() -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        seen.append(context.remaining())
        yield b"a"
        seen.append(context.remaining())
        yield b"b"

    seen: list[float | None] = []
    middleware = LoadSheddingMiddleware(app, threads=2)
    response = iter(
        middleware(environ(x_request_timeout_ms="5000"), lambda *_: None),
    )
    for part in (b"a", b"b"):
        assert next(response) == part
        assert context.remaining() is None
    assert all(left is not None and 0 < left <= 5 for left in seen)
    cast("Any", response).close()


def test_a_key_says_who_is_shed() -> None:
    gate = Asked(3)
    app = Noting()
    middleware = LoadSheddingMiddleware(
        app, threads=4, gate=gate, key=lambda environ: environ["PATH_INFO"]
    )
    call(middleware)
    assert gate.ask["key"] == "/work"
    assert app.seen[0].key == "/work"


class Asked(Gate):
    """A gate that keeps what it was asked last."""

    ask: dict[str, Any]

    def try_acquire(self, cost: int = 1, /, **ask: Any) -> Any:
        self.ask = ask
        return super().try_acquire(cost, **ask)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x_envoy_attempt_count": "1"}, False),
        ({"x_envoy_attempt_count": "2"}, True),
        ({"x_envoy_attempt_count": "17"}, True),
        ({"x_envoy_attempt_count": "x"}, False),
        ({"x_envoy_attempt_count": ""}, False),
        ({"x_envoy_attempt_count": "9" * 5000}, False),
        ({"grpc_previous_rpc_attempts": "0"}, False),
        ({"grpc_previous_rpc_attempts": "1"}, True),
        ({"x_envoy_attempt_count": "1", "grpc_previous_rpc_attempts": "1"}, True),
        ({}, False),
    ],
)
def test_the_gate_is_told_of_a_retry(headers: dict[str, str], expected: bool) -> None:
    gate = Asked(3)
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=gate)
    assert call(middleware, environ(**headers)).status == 200
    assert gate.ask["retry"] is expected


# -- what answers -----------------------------------------------------------------------


def test_respond_answers_who_is_refused(full: Gate) -> None:
    told: list[Rejection] = []

    def respond(environ: Environ, rejection: Rejection) -> WSGIApp | None:
        return None if environ["PATH_INFO"] == "/plain" else cheaper

    middleware = LoadSheddingMiddleware(
        ok,
        threads=4,
        gate=full,
        respond=respond,
        on_reject=lambda _, rejection: told.append(rejection),
    )
    assert call(middleware).status == 203
    assert call(middleware, environ("/plain")).status == 503
    assert [rejection.reason for rejection in told] == [Reason.LIMIT] * 2


def test_degrade_answers_more_cheaply_up_to_its_limit(full: Gate) -> None:
    told: list[Rejection] = []
    middleware = LoadSheddingMiddleware(
        must_not_run,
        threads=4,
        gate=full,
        rules=[Rule("/none", degrade=lambda *_: None)],
        degrade=lambda *_: cheaper,
        degrade_limit=1,
        on_reject=lambda _, rejection: told.append(rejection),
    )
    assert call(middleware) == (203, {}, b"cheaper")
    assert told == []
    held = middleware(environ(), lambda *_: None)
    assert middleware.degraded.in_flight == 1
    assert call(middleware).status == 503
    cast("Any", held).close()
    assert call(middleware).status == 203
    assert call(middleware, environ("/none")).status == 503
    assert middleware.degraded.in_flight == 0
    assert len(told) == 2


def test_what_functions_of_the_user_raise_is_reported(
    full: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise LookupError

    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append(it.exc_type))
    middleware = LoadSheddingMiddleware(
        ok,
        threads=4,
        gate=full,
        rules=broken,
        key=broken,
        respond=broken,
        degrade=broken,
        on_reject=broken,
    )
    assert call(middleware).status == 503
    assert reported == [LookupError] * 5
    assert call(middleware, environ("/ping")).status == 200
    assert middleware.degraded.in_flight == 0


def fails(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    raise LookupError


NO_PARTS: dict[str, bytes] = {}


def fails_late(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
    yield NO_PARTS["first"]


def fails_after_the_start(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [])
    raise LookupError


@pytest.mark.parametrize("respond", [fails, fails_late])
@pytest.mark.parametrize("broken", [fails, fails_late])
def test_an_answer_instead_that_fails_is_no_reason_for_a_500(
    full: Gate, broken: WSGIApp, respond: WSGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Reason] = []
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append(it.exc_type.__mro__))
    middleware = LoadSheddingMiddleware(
        ok,
        threads=4,
        gate=full,
        degrade=lambda *_: broken,
        respond=lambda *_: respond,
        on_reject=lambda _, rejection: told.append(rejection.reason),
    )
    assert call(middleware).status == 503
    assert [LookupError in mro for mro in reported] == [True] * 2
    assert told == [Reason.LIMIT]
    assert middleware.degraded.in_flight == 0


@pytest.mark.parametrize("option", ["degrade", "respond"])
def test_one_that_fails_later_is_the_servers(full: Gate, option: str) -> None:
    options: dict[str, Any] = {option: lambda *_: fails_after_the_start}
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full, **options)
    with pytest.raises(LookupError):
        call(middleware)
    assert middleware.degraded.in_flight == 0


@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Rejected(Rejection("users", Reason.RATE, 7)), 429),
        (Rejected(Rejection("db", Reason.LIMIT)), 503),
        (TimedOut(), 503),
        (QueueClosed(), 503),
    ],
)
def test_what_is_rejected_below_is_answered(
    error: Exception, status: int, has_started: bool
) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if has_started:
            start_response("200 OK", [])
        raise error

    def start_response(status: str, fields: Any, exc_info: Any = None) -> None:
        started.append((status[:3], exc_info))

    started: list[Any] = []
    middleware = LoadSheddingMiddleware(app, threads=2)
    body = middleware(environ(), start_response)
    assert b"retry_after" in b"".join(body)
    *_, (last, exc_info) = started
    assert last == str(status)
    assert (exc_info is not None and exc_info[1] is error) is has_started
    assert middleware.gate.snapshot().outcomes[Outcome.IGNORED] == 1
    assert_idle(middleware.gate)


@pytest.mark.parametrize("said", ["nothing", "a status", "an empty part"])
@pytest.mark.parametrize(
    ("error", "status"),
    [(Rejected(Rejection("users", Reason.RATE, 7)), 429), (TimedOut(), 503), (QueueClosed(), 503)],
)
def test_so_is_what_a_generator_begins_with(error: Exception, status: int, said: str) -> None:
    closed: list[str] = []

    def app(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        try:
            if said != "nothing":
                start_response("200 OK", [("content-type", "text/html")])
            if said == "an empty part":
                yield b""
            raise error
        finally:
            closed.append("app")

    middleware = LoadSheddingMiddleware(app, threads=2)
    answer = call(middleware)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert b"retry_after" in answer.body
    assert call(middleware, environ(method="HEAD")).body == b""
    assert closed == ["app"] * 2
    assert middleware.gate.snapshot().outcomes[Outcome.IGNORED] == 2
    assert_idle(middleware.gate)


def test_what_a_generator_begins_with_is_answered_by_respond() -> None:
    closed: list[str] = []

    class Answer(list[bytes]):
        def close(self) -> None:
            closed.append("answer")

    class Parts:
        def __iter__(self) -> Self:
            return self

        def __next__(self) -> bytes:
            raise Rejected(Rejection("db", Reason.LIMIT))

        def close(self) -> None:
            closed.append("app")

    def other(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("503 Later", [])
        return Answer([b"la", b"ter"])

    middleware = LoadSheddingMiddleware(lambda *_: Parts(), threads=2, respond=lambda *_: other)
    assert call(middleware) == (503, {}, b"later")
    assert closed == ["app", "answer"]
    assert_idle(middleware.gate)


def test_what_is_sent_in_part_cannot_be_refused() -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"part"
        raise error

    error = Rejected(Rejection("db", Reason.LIMIT))
    middleware = LoadSheddingMiddleware(app, threads=2)
    with pytest.raises(Rejected) as raised:
        call(middleware)
    assert raised.value is error
    assert_idle(middleware.gate)


def test_another_exception_of_a_generator_is_its_own() -> None:
    with pytest.raises(LookupError):
        call(LoadSheddingMiddleware(fails_late, threads=2))


# -- as a whole -------------------------------------------------------------------------


def test_a_dry_run_admits() -> None:
    gate = Gate(1, dry_run=True)
    with gate.try_acquire():
        assert call(LoadSheddingMiddleware(ok, threads=4, gate=gate)).status == 200


def test_importing_it_imports_no_framework() -> None:
    code = (
        "import sys, sluicegate.wsgi; "
        "print(sorted({'flask', 'werkzeug', 'django', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "flask" not in done.stdout
    assert "werkzeug" not in done.stdout
    assert "django" not in done.stdout
