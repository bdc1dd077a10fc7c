"""What rules, headers and options say of a request."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, answer_ok, scope_of
from gate_use import turns
from sluicegate import (
    Criticality,
    Gate,
    GradientLimiter,
    ManualClock,
    Permit,
    Reason,
    Rejection,
    SemaphoreLimiter,
    context,
)
from sluicegate.asgi import Headers, LoadSheddingMiddleware, Rule, problem_details
from sluicegate.testing import assert_idle, rejecting

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send

pytestmark = pytest.mark.timeout(20)
C = Criticality


def ask(app: ASGIApp, scope: Scope) -> tuple[int | None, dict[bytes, bytes], bytes]:
    async def main() -> list[Message]:
        client = Client(app, scope)
        await client.task
        return client.sent

    sent = asyncio.run(main())
    start = sent[0] if sent else {}
    body = b"".join(message.get("body", b"") for message in sent)
    return start.get("status"), dict(start.get("headers", ())), body


def terms(
    said: dict[str, str] | None = None, /, path: str = "/", **options: Any
) -> context.Current:
    """Return what a handler finds in its context."""
    seen: list[context.Current] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(context.current())
        await answer_ok(scope, receive, send)

    gate = Gate()
    ask(LoadSheddingMiddleware(app, gate=gate, **options), scope_of(path, headers=said))
    assert_idle(gate)
    assert context.current() == (None,) * 5
    return seen[0]


# -- terms ------------------------------------------------------------------------------


def test_who_says_nothing_has_no_terms() -> None:
    assert terms({"host": "x", "accept": "*/*"}) == (None,) * 5


def test_a_deadline_travels_in_and_has_a_ceiling() -> None:
    found = terms({"x-request-timeout-ms": "250"}).deadline
    assert found is not None
    assert 0.2 < found.remaining() <= 0.25
    found = terms({"x-envoy-expected-rq-timeout-ms": "999999999"}).deadline
    assert found is not None
    assert 59 < found.remaining() <= 60
    found = terms({"deadline": "1000"}, headers=Headers(deadline_in=("Deadline",))).deadline
    assert found is not None


@pytest.mark.parametrize(
    ("said", "of_rule", "trusted", "expected"),
    [
        ("SHEDDABLE", None, False, C.SHEDDABLE),
        ("CRITICAL_PLUS", None, False, C.CRITICAL),
        ("CRITICAL_PLUS", None, True, C.CRITICAL_PLUS),
        (None, C.SHEDDABLE, False, C.SHEDDABLE),
        (None, C.CRITICAL_PLUS, False, C.CRITICAL_PLUS),
        ("CRITICAL", C.SHEDDABLE, False, C.SHEDDABLE),
        ("CRITICAL_PLUS", C.SHEDDABLE, False, C.SHEDDABLE),
        ("CRITICAL_PLUS", C.SHEDDABLE, True, C.CRITICAL_PLUS),
        ("SHEDDABLE", C.CRITICAL_PLUS, False, C.SHEDDABLE),
        ("CRITICAL", C.CRITICAL_PLUS, False, C.CRITICAL),
        ("nonsense", C.SHEDDABLE, False, C.SHEDDABLE),
        ("nonsense", None, False, None),
    ],
)
def test_strangers_may_lower_and_never_raise(
    said: str | None, of_rule: C | None, trusted: bool, expected: C | None
) -> None:
    rules = [Rule("/", criticality=of_rule)] if of_rule is not None else []
    headers = {} if said is None else {"x-criticality": said}
    assert terms(headers, rules=rules, headers=Headers(trusted=trusted)).criticality is expected


def test_what_is_malformed_is_passed_over_and_counted() -> None:
    gate = Gate()
    app = LoadSheddingMiddleware(answer_ok, gate=gate)
    for value in ("soon", "-1", "1e3", "9" * 100, "", "1,x"):
        assert ask(app, scope_of(headers={"x-request-timeout-ms": value}))[0] == 200
    assert ask(app, scope_of(headers={"x-criticality": "very"}))[0] == 200
    assert app.malformed_headers == 7


def test_a_key_travels_and_one_that_fails_does_not_fail_the_request() -> None:
    assert terms(key=lambda scope: scope["path"], path="/me").key == "/me"
    assert terms(key=lambda _scope: None).key is None
    for wrong in (lambda _scope: 1 / 0, lambda _scope: 7):
        with pytest.warns(pytest.PytestUnraisableExceptionWarning):
            assert unraisable(partial(terms, key=wrong)).key is None


def unraisable(action: Callable[[], Any]) -> Any:
    """Do it, with what is reported meanwhile as a warning."""

    def hook(report: Any) -> None:
        warnings.warn(pytest.PytestUnraisableExceptionWarning(str(report.exc_value)), stacklevel=2)

    before, sys.unraisablehook = sys.unraisablehook, hook
    try:
        return action()
    finally:
        sys.unraisablehook = before


def test_rules_may_be_a_callable() -> None:
    rule = Rule("*", criticality=C.SHEDDABLE)
    assert terms(rules=lambda _scope: rule).criticality is C.SHEDDABLE
    assert terms(rules=lambda _scope: None).criticality is None
    for wrong in (lambda _scope: 1 / 0, lambda _scope: "rule"):
        with pytest.warns(pytest.PytestUnraisableExceptionWarning):
            assert unraisable(partial(terms, rules=wrong)).criticality is None


@pytest.mark.parametrize(
    ("header", "value", "is_retry"),
    [
        ("x-envoy-attempt-count", "1", False),
        ("x-envoy-attempt-count", "2", True),
        ("x-envoy-attempt-count", "0", False),
        ("x-envoy-attempt-count", "two", False),
        ("x-envoy-attempt-count", "9" * 5000, False),
        ("grpc-previous-rpc-attempts", "0", False),
        ("grpc-previous-rpc-attempts", "1", True),
        ("grpc-previous-rpc-attempts", "", False),
    ],
)
def test_retries_wait_in_half_of_the_line(header: str, value: str, is_retry: bool) -> None:
    async def main() -> None:
        gate = Gate(1, max_waiting=2)
        app = LoadSheddingMiddleware(answer_ok, gate=gate)
        permit: Any = gate.try_acquire()
        first = Client(app, scope_of())
        await turns()
        second = Client(app, scope_of(headers={header: value}))
        await turns()
        assert gate.waiting == (1 if is_retry else 2)
        permit.release()
        assert await first.answer() == 200
        assert await second.answer() == (503 if is_retry else 200)
        assert_idle(gate)

    asyncio.run(main())


# -- the sample -------------------------------------------------------------------------


class Route:
    path = "/items/{id}"


def services(app: ASGIApp, clock: ManualClock, **options: Any) -> Gate:
    gate = Gate(10, clock=clock)
    middleware = LoadSheddingMiddleware(app, gate=gate, **options)
    for _ in range(30):
        ask(middleware, scope_of("/items/1"))
        clock.advance(1)
    assert_idle(gate)
    return gate


def test_work_after_the_answer_holds_the_permit_and_is_not_timed() -> None:
    clock = ManualClock()
    held: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        clock.advance(0.1)
        await answer_ok(scope, receive, send)
        clock.advance(5)
        held.append(gates[0].in_flight)

    gates = [Gate(10, clock=clock)]
    middleware = LoadSheddingMiddleware(app, gate=gates[0])
    for _ in range(30):
        ask(middleware, scope_of())
    assert set(held) == {1}
    assert gates[0].snapshot().service_mean == pytest.approx(0.1)
    assert_idle(gates[0])


@pytest.mark.parametrize(
    ("content_type", "mean"),
    [(b"text/event-stream; charset=utf-8", 0.1), (b"Text/Event-Stream", 0.1), (b"text/html", 2.1)],
)
def test_of_server_sent_events_the_first_byte_is_timed(content_type: bytes, mean: float) -> None:
    clock = ManualClock()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        clock.advance(0.1)
        headers = [(b"Content-Type", content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for more in (True, False):
            clock.advance(1)
            await send({"type": "http.response.body", "body": b"x", "more_body": more})
        clock.advance(1)

    assert services(app, clock).snapshot().service_mean == pytest.approx(mean)


@pytest.mark.parametrize(
    ("hold", "expected"), [("work", [1, 1, 1]), ("response", [1, 1, 0]), ("headers", [1, 0, 0])]
)
def test_a_permit_is_held_until(hold: Any, expected: list[int]) -> None:
    held: list[int] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        held.append(gate.in_flight)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        held.append(gate.in_flight)
        await send({"type": "http.response.body", "body": b"x"})
        held.append(gate.in_flight)

    gate = Gate(10)
    assert ask(LoadSheddingMiddleware(app, gate=gate, hold=hold), scope_of())[0] == 200
    assert held == expected
    snapshot = gate.snapshot()
    assert (snapshot.outcomes["success"], snapshot.stray_releases) == (1, 0)  # type: ignore[index]
    assert_idle(gate)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "success"), (304, "success"), (404, "ignored"), (500, "ignored"), (504, "overload")],
)
def test_the_status_is_the_outcome(status: int, outcome: str) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    gate = Gate(10)
    ask(LoadSheddingMiddleware(app, gate=gate), scope_of())
    outcomes = {str(name): count for name, count in gate.snapshot().outcomes.items() if count}
    assert outcomes == {outcome: 1}


def test_an_application_that_answers_nothing_is_no_success() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        pass

    gate = Gate(10)
    ask(LoadSheddingMiddleware(app, gate=gate), scope_of())
    assert str(next(name for name, count in gate.snapshot().outcomes.items() if count)) == "ignored"


@pytest.mark.parametrize("where", ["route", "path_template", "nowhere", "rule"])
def test_the_sample_has_the_name_of_the_route(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if where == "route":
            scope["route"] = Route()
        elif where == "path_template":
            scope["path_template"] = "/items/{id}"
        await answer_ok(scope, receive, send)

    names: list[str | None] = []

    class Named(Gate):
        def _begin(self, *arguments: Any, **ask: Any) -> Any:
            permits.append(super()._begin(*arguments, **ask))
            return permits[-1]

    permits: list[Any] = []
    rules = [Rule("/items/*", operation="items")] if where == "rule" else []
    # Whoever has a key is asked for by `_begin()`.
    middleware = LoadSheddingMiddleware(app, gate=Named(10), rules=rules, key=lambda _scope: "me")
    ask(middleware, scope_of("/items/1"))
    names = [permit.operation for permit in permits]
    expected = {"nowhere": None, "rule": "items"}.get(where, "GET /items/{id}")
    assert names == [expected]


# -- refusals ---------------------------------------------------------------------------


async def cheap(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 203, "headers": []})
    await send({"type": "http.response.body", "body": b"cheap"})


async def cheap_soon(_scope: Scope, _rejection: Rejection) -> ASGIApp | None:
    return cheap


def test_a_refusal_can_be_answered_otherwise() -> None:
    gate = Gate(name="api")
    with rejecting(gate, Reason.FULL, retry_after=7):
        for respond in (lambda _scope, _rejection: cheap, cheap_soon):
            app = LoadSheddingMiddleware(answer_ok, gate=gate, respond=respond)
            assert ask(app, scope_of())[::2] == (203, b"cheap")
        app = LoadSheddingMiddleware(answer_ok, gate=gate, respond=lambda *_: None)
        assert ask(app, scope_of())[0] == 503
        app = LoadSheddingMiddleware(answer_ok, gate=gate, respond=problem_details)
        status, headers, body = ask(app, scope_of())
        assert (status, headers[b"content-type"]) == (503, b"application/problem+json")
        assert headers[b"retry-after"] == b"7"
        assert int(headers[b"content-length"]) == len(body)
        assert json.loads(body) == {
            "type": "about:blank",
            "title": "Service Unavailable",
            "status": 503,
            "detail": "The service is at capacity; retry later.",
            "retry_after": 7,
        }
        assert ask(app, scope_of(method="HEAD"))[2] == b""


def test_an_answer_that_fails_is_the_usual_refusal() -> None:
    gate = Gate()

    def fails(_scope: Scope, _rejection: Rejection) -> ASGIApp | None:
        raise ZeroDivisionError

    with rejecting(gate):
        for option in ("respond", "degrade", "on_reject"):
            options: Any = {option: fails}
            app = LoadSheddingMiddleware(answer_ok, gate=gate, **options)
            with pytest.warns(pytest.PytestUnraisableExceptionWarning):
                assert unraisable(partial(ask, app, scope_of()))[0] == 503


def test_a_cheaper_answer_is_tried_before_a_refusal_and_has_a_limit() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            await go.wait()
            await cheap(scope, receive, send)

        gate = Gate()
        app = LoadSheddingMiddleware(answer_ok, gate=gate, degrade=lambda *_: slow, degrade_limit=2)
        with rejecting(gate):
            clients = [Client(app, scope_of()) for _ in range(3)]
            await turns()
            assert [client.status for client in clients] == [None, None, 503]
            go.set()
            assert [await client.answer() for client in clients[:2]] == [203, 203]
            assert await Client(app, scope_of()).answer() == 203
            rule = Rule("/", degrade=lambda *_: None)
            app = LoadSheddingMiddleware(answer_ok, gate=gate, rules=[rule], degrade=cheap_soon)
            assert await Client(app, scope_of()).answer() == 503
            assert await Client(app, scope_of("/other")).answer() == 203

    asyncio.run(main())


def test_who_wants_to_know_is_told_of_each_refusal() -> None:
    told: list[tuple[str, Reason]] = []
    gate = Gate()
    app = LoadSheddingMiddleware(
        answer_ok,
        gate=gate,
        on_reject=lambda scope, rejection: told.append((scope["path"], rejection.reason)),
    )
    ask(app, scope_of("/fine"))
    with rejecting(gate, Reason.PRIORITY):
        ask(app, scope_of("/refused"))
    assert told == [("/refused", Reason.PRIORITY)]


def test_who_is_answered_by_a_cheaper_answer_is_not_rejected() -> None:
    order: list[str] = []

    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        order.append("degrade fails")
        raise ZeroDivisionError

    def respond(_scope: Scope, _rejection: Rejection) -> None:
        order.append("respond")

    def degrade(scope: Scope, _rejection: Rejection) -> ASGIApp:
        return cheap if scope["path"] == "/cheap" else fails

    gate = Gate()
    app = LoadSheddingMiddleware(
        answer_ok,
        gate=gate,
        degrade=degrade,
        respond=respond,
        on_reject=lambda *_: order.append("on_reject"),
    )
    with rejecting(gate):
        assert ask(app, scope_of("/cheap"))[0] == 203
        assert order == []
        with pytest.warns(pytest.PytestUnraisableExceptionWarning):
            assert unraisable(partial(ask, app, scope_of("/fails")))[0] == 503
    assert order == ["degrade fails", "on_reject", "respond"]


def test_exempt_requests_have_a_cap_of_their_own() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await go.wait()
            await answer_ok(scope, receive, send)

        gate = Gate(1)
        middleware = LoadSheddingMiddleware(app, gate=gate, exempt_limit=2)
        probes = [Client(middleware, scope_of("/healthz")) for _ in range(3)]
        await turns()
        assert [client.status for client in probes] == [None, None, 503]
        assert gate.in_flight == 0
        go.set()
        assert [await client.answer() for client in probes[:2]] == [200, 200]
        assert await Client(middleware, scope_of("/healthz")).answer() == 200
        assert math.isclose(gate.snapshot().admitted, 0)

    asyncio.run(main())


def test_an_answer_whose_application_fails_is_the_usual_refusal() -> None:
    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ZeroDivisionError

    async def fails_late(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 203, "headers": []})
        raise ZeroDivisionError

    gate = Gate()
    with rejecting(gate):
        for option in ("respond", "degrade"):
            options: Any = {option: lambda *_: fails}
            app = LoadSheddingMiddleware(answer_ok, gate=gate, **options)
            with pytest.warns(pytest.PytestUnraisableExceptionWarning):
                assert unraisable(partial(ask, app, scope_of()))[0] == 503
            options = {option: lambda *_: fails_late}
            app = LoadSheddingMiddleware(answer_ok, gate=gate, **options)
            with pytest.raises(ZeroDivisionError):
                ask(app, scope_of())


async def never(_scope: Scope) -> None:
    raise AssertionError


@pytest.mark.parametrize("name", ["rules", "key", "on_reject"])
def test_what_is_called_at_once_is_not_async(name: str) -> None:
    options: Any = {name: never}
    with pytest.raises(TypeError, match=f"{name} must be a callable that is not async"):
        LoadSheddingMiddleware(answer_ok, **options)


def test_a_gate_of_a_rule_that_could_not_be_asked_is_refused() -> None:
    gate = Gate()
    rules = [Rule("/", gate=gate)]
    with pytest.raises(ValueError, match="must be another one than the main one"):
        LoadSheddingMiddleware(answer_ok, gate=gate, rules=rules)
    with pytest.raises(TypeError, match="needs a main gate"):
        LoadSheddingMiddleware(answer_ok, limit=SemaphoreLimiter(1), rules=rules)


def test_so_is_one_that_a_function_finds() -> None:
    gate = Gate()
    for limit in (gate, SemaphoreLimiter(1)):
        app = LoadSheddingMiddleware(
            answer_ok, limit=limit, rules=lambda _: Rule("/", gate=gate, criticality=C.SHEDDABLE)
        )
        with pytest.warns(pytest.PytestUnraisableExceptionWarning, match="the gate of the rule"):
            assert unraisable(partial(ask, app, scope_of()))[0] == 200


def test_the_operation_of_a_rule_is_told_to_any_limiter() -> None:
    class Kept:
        def __init__(self) -> None:
            self.limiter = GradientLimiter()
            self.permits: list[Permit] = []

        def try_acquire(self, cost: int = 1, /) -> Permit | Rejection:
            permit = self.limiter.try_acquire(cost)
            assert isinstance(permit, Permit)
            self.permits.append(permit)
            return permit

        def acquire(self, cost: int = 1, /) -> Any: ...

    kept = Kept()
    rules = [Rule("/report", operation="report")]
    app = LoadSheddingMiddleware(answer_ok, limit=kept, rules=rules)
    ask(app, scope_of("/report"))
    ask(app, scope_of("/other"))
    assert [permit.operation for permit in kept.permits] == ["report", None]


@pytest.mark.parametrize("path", ["/a", "/a/", "//a", "/a\n", "/a//"])
def test_no_way_of_writing_a_path_is_a_way_around_its_rule(path: str) -> None:
    small = Gate(1, max_waiting=0)
    app = LoadSheddingMiddleware(answer_ok, gate=Gate(), rules=[Rule("/a", gate=small)])
    with small.acquire():
        assert ask(app, scope_of(path))[0] == 503
        assert ask(app, scope_of("/b"))[0] == 200
    assert_idle(small)


def test_headers_that_can_be_read_once_are_left_to_the_server() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        pairs = iter([(b"content-type", b"text/plain")])
        await send({"type": "http.response.start", "status": 200, "headers": pairs})
        await send({"type": "http.response.body", "body": b""})

    assert ask(LoadSheddingMiddleware(app, gate=Gate()), scope_of())[1] == {
        b"content-type": b"text/plain"
    }
