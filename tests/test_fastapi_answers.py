"""What a protected application says: to a `Rejected`, in OpenAPI, and to other protocols."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, WebSocket
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount, Route

from sluicegate import Rejected, SemaphoreLimiter, SluicegateError
from sluicegate.asgi import Rule
from sluicegate.fastapi import protect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def rejected(status: int = 503, kind: type[Rejected] = Rejected) -> Rejected:
    rejection: Any = SimpleNamespace(status=status, retry_after=2.5)
    return kind(rejection)


def ask(app: Any, path: str = "/", method: str = "GET") -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.request(method, path)

    return asyncio.run(main())


def messages(app: Any, method: str = "GET") -> list[Message]:
    sent: list[Message] = []

    received: list[Message] = [{"type": "http.request"}]

    async def receive() -> Message:
        if not received:
            await asyncio.Event().wait()
        return received.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": []}
    with suppress(Exception):
        asyncio.run(app(scope, receive, send))
    return sent


def refuse() -> None:
    raise rejected()


async def refuse_soon(*_: Any) -> None:
    raise rejected()


class RefusingMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise rejected()


def in_endpoint(app: FastAPI) -> None:
    app.get("/")(refuse)


def in_async_endpoint(app: FastAPI) -> None:
    @app.get("/")
    async def endpoint() -> None:
        await refuse_soon()


def in_dependency(app: FastAPI) -> None:
    app.get("/", dependencies=[Depends(refuse)])(lambda: "ran")


def in_middleware(app: FastAPI) -> None:
    app.add_middleware(RefusingMiddleware)


def in_base_http_middleware(app: FastAPI) -> None:
    app.add_middleware(BaseHTTPMiddleware, dispatch=refuse_soon)  # type: ignore[arg-type]


def in_mounted_fastapi(app: FastAPI) -> None:
    sub = FastAPI()
    in_endpoint(sub)
    app.mount("/", sub)


def in_mounted_starlette(app: FastAPI) -> None:
    sub = Starlette(routes=[Route("/", refuse_soon)])
    app.router.routes.append(Mount("", routes=[Mount("", app=GZipMiddleware(sub))]))


PLACES = [
    in_endpoint,
    in_async_endpoint,
    in_dependency,
    in_middleware,
    in_base_http_middleware,
    in_mounted_fastapi,
    in_mounted_starlette,
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("debug", [False, True])
def test_a_rejection_from_below_is_a_503(place: Callable[[FastAPI], None], debug: bool) -> None:
    limiter = SemaphoreLimiter(1)
    app = protect(FastAPI(debug=debug), limit=limiter)
    place(app)
    response = ask(app)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "3"
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["error"] == "overloaded"
    assert limiter.in_flight == 0


def test_a_rejected_rate_from_below_is_a_429() -> None:
    app = protect(FastAPI(), limit=1)

    @app.get("/")
    def endpoint() -> None:
        raise rejected(429)

    response = ask(app)
    assert response.status_code == 429
    assert response.json()["error"] == "rate_limited"
    assert response.headers["retry-after"] == "3"


def test_a_rejection_from_below_of_a_head_request_has_no_body() -> None:
    app = protect(FastAPI(), limit=1)
    app.get("/")(refuse)
    app.head("/")(refuse)
    get, head = messages(app), messages(app, method="HEAD")
    assert head[0] == get[0]
    assert head[0]["status"] == 503
    assert [message["body"] for message in head[1:]] == [b""]


class OurOwn(Rejected):
    pass


async def teapot(request: object, error: Exception) -> PlainTextResponse:
    return PlainTextResponse(type(error).__name__, 418)


def sync_teapot(request: object, error: Exception) -> PlainTextResponse:
    return PlainTextResponse(type(error).__name__, 418)


@pytest.mark.parametrize("place", [in_endpoint, in_middleware])
@pytest.mark.parametrize("handled", [Rejected, SluicegateError])
@pytest.mark.parametrize("handler", [teapot, sync_teapot])
@pytest.mark.parametrize("before", [True, False])
def test_a_handler_of_the_applications_own_is_honoured(
    place: Callable[[FastAPI], None],
    handled: type[Exception],
    handler: Callable[..., Any],
    before: bool,
) -> None:
    app = FastAPI()
    if before:
        app.add_exception_handler(handled, handler)
    protect(app, limit=1)
    if not before:
        app.add_exception_handler(handled, handler)
    place(app)
    response = ask(app)
    assert (response.status_code, response.text) == (418, "Rejected")


def test_a_handler_for_a_subclass_answers_only_that_subclass() -> None:
    app = protect(FastAPI(exception_handlers={OurOwn: teapot}), limit=1)

    @app.get("/own")
    def own() -> None:
        raise rejected(kind=OurOwn)

    app.get("/")(refuse)
    assert ask(app, "/own").text == "OurOwn"
    assert ask(app).status_code == 503


class RefusingLate:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)
        raise rejected()


@pytest.mark.parametrize("late", ["stream", "middleware"])
def test_a_rejection_after_the_start_starts_no_second_response(late: str) -> None:
    limiter = SemaphoreLimiter(1)
    app = protect(FastAPI(), limit=limiter)

    async def chunks() -> AsyncIterator[str]:
        yield "one"
        if late == "stream":
            raise rejected()

    app.get("/", response_model=None)(lambda: StreamingResponse(chunks()))
    if late == "middleware":
        app.add_middleware(RefusingLate)
    assert [message["status"] for message in messages(app) if "status" in message] == [200]
    assert limiter.in_flight == 0


# -- other protocols, and the client that FastAPI's own documentation uses -----------------


@pytest.mark.filterwarnings("ignore:Using .httpx. with")
def test_websockets_and_lifespan_pass_and_a_rejection_closes_with_try_again_later() -> None:
    from fastapi.testclient import TestClient
    from starlette.websockets import WebSocketDisconnect

    limiter = SemaphoreLimiter(1)
    app = protect(FastAPI(), limit=limiter)

    @app.websocket("/echo")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        raise rejected()

    @app.websocket("/left")
    async def left(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()
        raise rejected()

    app.get("/")(lambda: "home")
    with TestClient(app) as http, limiter.try_acquire():
        assert http.get("/").status_code == 503
        with http.websocket_connect("/echo") as socket:
            socket.send_text("hello")
            assert socket.receive_text() == "hello"
            with pytest.raises(WebSocketDisconnect) as info:
                socket.receive_text()
            assert info.value.code == 1013
        with http.websocket_connect("/left"):
            pass
    assert ask(app).json() == "home"


@pytest.mark.filterwarnings("ignore:Using .httpx. with")
def test_a_websocket_that_middleware_rejects_is_not_answered_as_http() -> None:
    from fastapi.testclient import TestClient

    app = protect(FastAPI(), limit=1)
    app.add_middleware(RefusingMiddleware)
    with pytest.raises(Rejected), TestClient(app).websocket_connect("/"):
        pass


# -- OpenAPI ----------------------------------------------------------------------------


def test_openapi_lists_both_refusals_for_what_is_not_exempt() -> None:
    app = protect(FastAPI(), limit=1, rules=[Rule("/up", exempt=True)])
    for path in ("/items", "/up", "/later"):
        app.get(path)(lambda: "x")
    app.post("/items")(lambda: "x")
    document = ask(app, "/openapi.json").json()
    for operation in (document["paths"]["/items"][method] for method in ("get", "post")):
        assert set(operation["responses"]) == {"200", "429", "503"}
        response = operation["responses"]["503"]
        assert response["headers"]["Retry-After"]["schema"]["type"] == "integer"
        schema = response["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/SluicegateRefusal"}
    assert set(document["paths"]["/up"]["get"]["responses"]) == {"200"}
    assert set(document["paths"]["/later"]["get"]["responses"]) == {"200", "429", "503"}

    schema = document["components"]["schemas"]["SluicegateRefusal"]
    body = ask(protect(FastAPI(routes=[Route("/", refuse_soon)]), limit=1)).json()
    assert set(schema["required"]) == set(schema["properties"]) == set(body)


def test_openapi_sees_routes_that_are_added_later() -> None:
    app = protect(FastAPI(), limit=1)
    app.get("/a")(lambda: "x")
    assert set(app.openapi()["paths"]) == {"/a"}
    app.get("/b")(lambda: "x")
    assert set(app.openapi()["paths"]) == {"/a", "/b"}


@pytest.mark.parametrize("declared", [503, "5XX"])
def test_openapi_keeps_what_an_operation_declares_itself(declared: int | str) -> None:
    app = protect(FastAPI(), limit=1)
    app.get("/", responses={declared: {"description": "Our own words"}})(lambda: "x")
    responses = app.openapi()["paths"]["/"]["get"]["responses"]
    assert responses[str(declared)] == {"description": "Our own words"}
    assert set(responses) == {"200", "429", str(declared)}


def test_openapi_that_was_replaced_before_is_kept_and_never_changed() -> None:
    own: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Ours"},
        "paths": {
            "/": {
                "summary": "no operation",
                "parameters": [{"name": "x"}],
                "get": {"operationId": "home", "responses": {503: {"description": "as int"}}},
                "put": {},
            },
            "/ref": {"$ref": "elsewhere.json"},
        },
        "components": {"schemas": {"Item": {}}, "x-more": {}},
    }
    before = copy.deepcopy(own)
    app = FastAPI()
    app.openapi = lambda: own  # type: ignore[method-assign]
    protect(app, limit=1)
    for _ in range(2):
        document = app.openapi()
        item = document["paths"]["/"]
        assert document["info"] == {"title": "Ours"}
        assert set(item["get"]["responses"]) == {503, "429"}
        assert set(item["put"]["responses"]) == {"503", "429"}
        assert item["parameters"] == [{"name": "x"}]
        assert document["paths"]["/ref"] == {"$ref": "elsewhere.json"}
        assert set(document["components"]["schemas"]) == {"Item", "SluicegateRefusal"}
        assert "x-more" in document["components"]
    assert own == before


def test_openapi_keeps_a_schema_of_the_same_name() -> None:
    own: dict[str, Any] = {
        "paths": {},
        "components": {"schemas": {"SluicegateRefusal": {"title": "Not ours"}}},
    }
    app = FastAPI()
    app.openapi = lambda: own  # type: ignore[method-assign]
    assert protect(app, limit=1).openapi() == own
