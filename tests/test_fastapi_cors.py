"""Scripts of other origins see refusals where they see answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from sluicegate import Gate, Reason, Rejected, Rejection
from sluicegate.asgi import Rule
from sluicegate.fastapi import protect
from sluicegate.testing import rejecting

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

pytestmark = pytest.mark.timeout(20)

SHOP = "https://shop.example"
ALLOWING: dict[str, Any] = {"allow_origins": [SHOP], "allow_credentials": True}


def shop(gate: Gate, /, **options: Any) -> FastAPI:
    app = protect(FastAPI(), gate=gate, **options)

    @app.get("/")
    async def home() -> str:
        return "hello"

    return app


def ask(app: Any, method: str = "GET", path: str = "/", /, **headers: str) -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            return await http.request(method, path, headers=names)

    return asyncio.run(main())


def of_cors(response: httpx.Response) -> dict[str, str]:
    return {
        name: value
        for name, value in response.headers.items()
        if name.startswith("access-control-") or name == "vary"
    }


@pytest.fixture(name="gate")
def a_gate() -> Gate:
    return Gate(name="shop")


@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize("origin", [SHOP, "https://other.example", None])
@pytest.mark.parametrize(
    "allowing",
    [ALLOWING, {"allow_origins": ["*"], "expose_headers": ["Retry-After"]}, {}],
    ids=["one", "all", "none"],
)
def test_a_refusal_has_the_headers_of_an_answer(
    gate: Gate, origin: str | None, allowing: dict[str, Any], has_started: bool
) -> None:
    app = shop(gate)
    app.add_middleware(CORSMiddleware, **allowing)
    headers = {} if origin is None else {"origin": origin}
    if has_started:
        ask(app)
    with rejecting(gate):
        refused = ask(app, **headers)
    answered = ask(app, **headers)
    assert (refused.status_code, answered.status_code) == (503, 200)
    assert refused.json()["error"] == "overloaded"
    # Of what nobody may store it is the same who has asked.
    assert refused.headers["cache-control"] == "no-store"
    assert of_cors(refused) == ({} if origin is None else of_cors(answered))
    assert ("access-control-allow-origin" in refused.headers) == (
        origin is not None and (allowing.get("allow_origins") in ([origin], ["*"]))
    )


def test_one_that_is_added_after_a_refusal_is_found(gate: Gate) -> None:
    app = shop(gate)
    with rejecting(gate):
        assert of_cors(ask(app, origin=SHOP)) == {}
        app.add_middleware(CORSMiddleware, **ALLOWING)
        assert of_cors(ask(app, origin=SHOP))["access-control-allow-origin"] == SHOP
    assert ask(app, origin=SHOP).status_code == 200
    with rejecting(gate):
        assert of_cors(ask(app, origin=SHOP))["access-control-allow-origin"] == SHOP


def test_a_preflight_is_answered_where_it_would_be_refused(gate: Gate) -> None:
    told: list[Rejection] = []
    app = shop(gate, on_reject=lambda _, rejection: told.append(rejection))
    app.add_middleware(CORSMiddleware, **ALLOWING)
    asked = {"origin": SHOP, "access_control_request_method": "GET"}
    with rejecting(gate):
        refused = ask(app, "OPTIONS", **asked)
    answered = ask(app, "OPTIONS", **asked)
    assert (refused.status_code, refused.text) == (answered.status_code, answered.text)
    assert refused.status_code == 200
    assert of_cors(refused) == of_cors(answered)
    assert told == []


async def teapot(scope: Scope, receive: Receive, send: Send) -> None:
    assert "sluicegate.answer" not in scope
    response = PlainTextResponse("teapot", 418, {"access-control-allow-origin": "http://wrong"})
    await response(scope, receive, send)


@pytest.mark.parametrize("option", ["respond", "degrade"])
def test_so_has_what_answers_instead(gate: Gate, option: str) -> None:
    app = shop(gate, **{option: lambda *_: teapot})
    app.add_middleware(CORSMiddleware, **ALLOWING)
    with rejecting(gate):
        answer = ask(app, origin=SHOP)
    assert (answer.status_code, answer.text) == (418, "teapot")
    assert answer.headers.get_list("access-control-allow-origin") == [SHOP]


def test_so_has_what_a_rule_refuses(gate: Gate) -> None:
    part = Gate(1, name="part", max_waiting=0)
    app = shop(gate, rules=[Rule("/", gate=part)])
    app.add_middleware(CORSMiddleware, **ALLOWING)
    with part.try_acquire():
        answer = ask(app, origin=SHOP)
    assert answer.status_code == 503
    assert of_cors(answer)["access-control-allow-origin"] == SHOP


class Rejecting:
    """Middleware that rejects by itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise Rejected(Rejection("db", Reason.LIMIT))


@pytest.mark.parametrize("is_outside", [False, True])
def test_so_has_what_other_middleware_rejects(gate: Gate, is_outside: bool) -> None:
    app = shop(gate)
    stack = [Middleware(CORSMiddleware, **ALLOWING), Middleware(Rejecting)]
    app.user_middleware.extend(reversed(stack) if is_outside else stack)
    answer = ask(app, origin=SHOP)
    assert answer.status_code == 503
    assert of_cors(answer)["access-control-allow-origin"] == SHOP


class Other(CORSMiddleware):
    """One of the user's own, which may do anything."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def test_other_middleware_is_left_alone(gate: Gate) -> None:
    app = shop(gate)
    app.add_middleware(Other, **ALLOWING)
    with rejecting(gate):
        assert of_cors(ask(app, origin=SHOP)) == {}


def test_one_around_it_as_well_says_nothing_twice(gate: Gate) -> None:
    app = shop(gate)
    app.add_middleware(CORSMiddleware, **ALLOWING)
    site = CORSMiddleware(app, **ALLOWING)
    with rejecting(gate):
        answer = ask(site, origin=SHOP)
    assert answer.headers.get_list("access-control-allow-origin") == [SHOP]
