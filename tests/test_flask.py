"""`protect()` and Flask applications: what is refused, named, answered, and held."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask, Response, abort, g, request, stream_with_context
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix

from sluicegate import (
    Criticality,
    Gate,
    ManualClock,
    Outcome,
    QueueClosed,
    Reason,
    Rejected,
    Rejection,
    SluicegateError,
    TimedOut,
    context,
)
from sluicegate.flask import Rule, protect
from sluicegate.testing import assert_idle
from sluicegate.wsgi import PERMIT, LoadSheddingMiddleware

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(name="gate")
def a_gate() -> Iterator[Gate]:
    gate = Gate(1, max_waiting=0)
    yield gate
    assert_idle(gate)


def make(**options: Any) -> Flask:
    app = Flask("shop")
    app.get("/")(lambda: "home")
    return protect(app, **{"threads": 4, **options})


def test_protect_returns_the_application_itself() -> None:
    app = Flask("shop")
    assert protect(app, threads=4) is app
    shedding = app.extensions["sluicegate"]
    assert isinstance(shedding, LoadSheddingMiddleware)
    assert app.wsgi_app is shedding
    assert shedding.gate.limit == 3


def test_who_finds_no_room_is_refused(gate: Gate) -> None:
    client = make(gate=gate).test_client()
    assert client.get("/", buffered=True).text == "home"
    with gate.try_acquire():
        answer = client.get("/")
        assert answer.status_code == 503
        assert answer.json is not None
        assert answer.json["retry_after"] == int(answer.headers["retry-after"])
        assert client.head("/").status_code == 503
        assert client.get("/healthz").status_code == 404
    assert client.get("/").status_code == 200


def test_it_runs_before_anything_of_flask(gate: Gate) -> None:
    app = make(gate=gate)

    @app.before_request
    def before() -> None:
        raise AssertionError("it ran")

    with gate.try_acquire():
        assert app.test_client().get("/", buffered=True).status_code == 503


def test_middleware_that_is_added_later_is_outside(gate: Gate) -> None:
    app = make(gate=gate)
    app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]
    assert app.test_client().get("/", buffered=True).status_code == 200
    with gate.try_acquire():
        assert app.test_client().get("/", buffered=True).status_code == 503


# -- what is rejected below -------------------------------------------------------------


ERRORS = {
    "rate": (Rejected(Rejection("users", Reason.RATE, 7)), 429),
    "limit": (Rejected(Rejection("db", Reason.LIMIT)), 503),
    "timed out": (TimedOut(), 503),
    "closed": (QueueClosed(), 503),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("place", ["view", "blueprint", "before", "after"])
def test_what_is_rejected_below_is_answered(name: str, place: str, gate: Gate) -> None:
    def fail(*_: object) -> Any:
        raise error

    error, status = ERRORS[name]
    app = make(gate=gate)
    view = fail if place == "view" else lambda: "fine"
    app.get("/view", endpoint="view")(view)
    if place == "before":
        app.before_request(fail)
    if place == "after":
        app.after_request(fail)
    if place == "blueprint":
        blueprint = Blueprint("users", __name__, url_prefix="/users")
        blueprint.get("/view", endpoint="view")(fail)
        app.register_blueprint(blueprint)
    path = "/users/view" if place == "blueprint" else "/view"
    answer = app.test_client().get(path, buffered=True)
    assert answer.status_code == status
    assert "retry-after" in answer.headers
    assert gate.snapshot().outcomes[Outcome.IGNORED] == 1


@pytest.mark.parametrize("handled", [Rejected, SluicegateError])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_handler_of_its_own_is_kept(handled: type[Exception], is_first: bool) -> None:
    app = Flask("shop")
    if not is_first:
        protect(app, threads=4)
    app.register_error_handler(handled, lambda _: ("mine", 418))
    app.register_error_handler(Exception, lambda _: ("any", 500))
    if is_first:
        protect(app, threads=4)

    @app.get("/")
    def home() -> str:
        raise Rejected(Rejection("db", Reason.LIMIT))

    assert app.test_client().get("/", buffered=True).status_code == 418


def test_a_handler_for_any_exception_does_not_get_ours() -> None:
    app = Flask("shop")
    app.register_error_handler(Exception, lambda _: ("any", 500))
    protect(app, threads=4)

    @app.get("/")
    def home() -> str:
        raise TimedOut

    assert app.test_client().get("/", buffered=True).status_code == 503


# -- what is learnt ---------------------------------------------------------------------


def test_the_work_is_named_by_its_route() -> None:
    app = make(rules=[Rule("/named", operation="of the rule")])
    blueprint = Blueprint("users", __name__, url_prefix="/users")
    names: dict[str, str | None] = {}

    @app.after_request
    def note(response: Response) -> Response:
        names[request.path] = request.environ[PERMIT].operation
        return response

    @blueprint.get("/<int:user>")
    def show(user: int) -> str:
        return str(user)

    app.register_blueprint(blueprint)
    app.get("/named", endpoint="named")(lambda: "")
    for path in ("/users/7", "/named", "/nowhere", "/healthz"):
        app.test_client().get(path, buffered=True)
    assert names == {
        "/users/7": "/users/<int:user>",
        "/named": "of the rule",
        "/nowhere": None,
        "/healthz": None,
    }


def test_an_earlier_before_request_that_answers_hides_no_name() -> None:
    app = Flask("shop")
    seen: list[str | None] = []

    @app.before_request
    def answer() -> str:
        seen.append(request.environ[PERMIT].operation)
        return "early"

    app.get("/items/<name>")(lambda name: name)
    protect(app, threads=4)
    assert app.test_client().get("/items/a", buffered=True).text == "early"
    assert seen == ["/items/<name>"]


@pytest.mark.parametrize(
    ("path", "outcome"),
    [("/", "success"), ("/missing", "ignored"), ("/broken", "ignored"), ("/late", "overload")],
)
def test_the_outcome_is_that_of_the_answer(path: str, outcome: str, gate: Gate) -> None:
    app = make(gate=gate)

    @app.get("/broken")
    def broken() -> str:
        raise LookupError

    @app.get("/late")
    def late() -> str:
        abort(504)

    app.test_client().get(path, buffered=True)
    assert gate.snapshot().outcomes[Outcome(outcome)] == 1


def test_an_exception_that_is_propagated_ends_the_permit(gate: Gate) -> None:
    app = make(gate=gate)
    app.testing = True

    @app.get("/broken")
    def broken() -> str:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        app.test_client().get("/broken", buffered=True)
    assert gate.snapshot().outcomes[Outcome.OVERLOAD] == 1


# -- how long it is held, and the context -----------------------------------------------


def test_a_stream_holds_the_permit_with_its_context(gate: Gate) -> None:
    app = make(gate=gate)
    seen: list[Any] = []

    @app.get("/stream")
    def stream() -> Response:
        def parts() -> Iterator[bytes]:
            for name in "ab":
                left = context.remaining()
                seen.append((gate.in_flight, request.path, g.user, left is not None and left <= 9))
                yield name.encode()

        g.user = "me"
        return Response(stream_with_context(parts()))

    answer = app.test_client().get(
        "/stream", headers={"x-request-timeout-ms": "9000"}, buffered=True
    )
    assert answer.text == "ab"
    answer.close()
    assert seen == [(1, "/stream", "me", True)] * 2
    assert gate.snapshot().outcomes[Outcome.SUCCESS] == 1


def test_a_stream_that_is_left_is_closed(gate: Gate) -> None:
    app = make(gate=gate)
    ended: list[int] = []

    @app.get("/stream")
    def stream() -> Response:
        def parts() -> Iterator[bytes]:
            try:
                while True:
                    yield b"a"
            finally:
                ended.append(gate.in_flight)

        return Response(parts())

    answer = app.test_client().get("/stream")
    assert next(answer.iter_encoded()) == b"a"
    assert gate.in_flight == 1
    answer.close()
    assert ended == [1]
    assert gate.snapshot().outcomes[Outcome.IGNORED] == 1


def test_the_context_can_be_looked_at_after_a_test_request() -> None:
    app = make()
    with app.test_client() as client:
        client.get("/?a=1", buffered=True, headers={"x-criticality": "SHEDDABLE"})
        assert request.args["a"] == "1"
        assert context.current().criticality is None


def test_options_reach_the_middleware(gate: Gate) -> None:
    told: list[Reason] = []
    app = make(
        gate=gate,
        rules=[Rule("/", criticality=Criticality.SHEDDABLE)],
        respond=lambda *_: Response("busy", 503),
        on_reject=lambda _, rejection: told.append(rejection.reason),
    )
    with gate.try_acquire():
        assert app.test_client().get("/", buffered=True).text == "busy"
    assert told == [Reason.LIMIT]


def test_latency_is_learnt_of_what_was_admitted_only() -> None:
    clock = ManualClock()
    gate = Gate(2, clock=clock)
    app = make(gate=gate)

    @app.get("/slow")
    def slow() -> str:
        clock.advance(0.25)
        return ""

    app.test_client().get("/slow", buffered=True)
    assert gate.snapshot().service_mean == 0.25


# -- errors at construction -------------------------------------------------------------


def test_protecting_twice_says_so() -> None:
    app = make()
    with pytest.raises(RuntimeError, match="protected already"):
        protect(app, threads=4)


@pytest.mark.parametrize("app", [None, Flask, Flask("shop").wsgi_app, Blueprint("a", "b")])
def test_what_is_no_application_says_so(app: Any) -> None:
    with pytest.raises(TypeError, match=r"app must be a Flask application.*sluicegate\.wsgi"):
        protect(app, threads=4)


def test_a_bad_option_leaves_the_application_as_it_was() -> None:
    app = Flask("shop")
    wsgi_app = app.wsgi_app
    with pytest.raises(ValueError, match="limit must be below threads = 4, got 4"):
        protect(app, threads=4, limit=4)
    with pytest.raises(TypeError, match="threads"):
        protect(app)  # type: ignore[call-arg]
    assert app.wsgi_app == wsgi_app
    assert app.error_handler_spec == {}
    assert "sluicegate" not in app.extensions
    protect(app, threads=4)


def test_without_flask_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['flask'] = None\n"
        "try:\n    import sluicegate.flask\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 'pip install "sluicegate[flask]"' in done.stdout


def test_other_errors_are_as_before() -> None:
    app = make()
    app.register_error_handler(HTTPException, lambda error: ("handled", error.code))
    assert app.test_client().get("/nowhere", buffered=True).text == "handled"
