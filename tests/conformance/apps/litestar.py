"""The routes in Litestar."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 (read at run time)
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, WebSocket, asgi, get, head, post, websocket
from litestar.background_tasks import BackgroundTask
from litestar.enums import MediaType
from litestar.exceptions import WebSocketDisconnect
from litestar.response import Stream
from litestar.types import Receive, Scope, Send  # noqa: TC002

from conformance.apps import plain
from conformance.apps.report import fail_if_told, inside, report
from conformance.apps.watch import watched

TEXT = MediaType.TEXT


@get("/metrics")
async def metrics(name: str = "") -> dict[str, Any]:
    return report(name)


@get("/ping", media_type=TEXT)
async def order(request: Request[Any, Any, Any]) -> str:
    return report.order(request.scope["query_string"])


@get("/echo", media_type=TEXT)
async def echo(name: str = "") -> str:
    report.started(name)
    return "GET 0"


@head("/echo", media_type=TEXT)
async def echo_head(name: str = "") -> None:
    report.started(name)


@post("/echo", media_type=TEXT, status_code=200, request_max_body_size=None)
async def echo_body(request: Request[Any, Any, Any], name: str = "") -> str:
    report.started(name)
    return f"POST {len(await request.body())}"


@get("/hold", media_type=TEXT)
async def hold(name: str) -> str:
    return await report.hold(name)


@get("/stream")
async def stream(name: str) -> Stream:
    return Stream(report.chunks(name), media_type=TEXT)


@get("/sse")
async def events(name: str) -> Stream:
    return Stream(report.chunks(name), media_type="text/event-stream")


@get("/break")
async def breaking(name: str) -> Stream:
    return Stream(report.chunks(name, fails=True), media_type=TEXT)


@get("/background")
async def background(name: str) -> Response[str]:
    inside.set(name)
    later = BackgroundTask(report.after, name)
    return Response("accepted", media_type=TEXT, background=later)


@get("/raise")
async def failing(name: str) -> None:
    raise report.failure(name)


@get("/context", media_type=TEXT)
async def context(name: str) -> str:
    inside.set(name)
    report.started(name)
    return "set"


@websocket("/ws")
async def echo_messages(socket: WebSocket[Any, Any, Any], name: str) -> None:
    report.started(name)
    await socket.accept()
    report.websockets += 1
    try:
        while (text := await socket.receive_text()) != "close":
            await socket.send_text(text)
        await socket.close(4000)
    except WebSocketDisconnect:
        pass
    finally:
        report.websockets -= 1


@asgi("/sub", is_mount=True)
async def below(scope: Scope, receive: Receive, send: Send) -> None:
    whole: Any = {**scope, "path": "/sub/echo", "root_path": ""}
    await plain.app(whole, receive, send)  # type: ignore[arg-type]


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    fail_if_told()
    yield


app = Litestar(
    lifespan=[lifespan],
    openapi_config=None,
    route_handlers=[
        metrics,
        order,
        echo,
        echo_head,
        echo_body,
        hold,
        stream,
        events,
        breaking,
        background,
        failing,
        context,
        echo_messages,
        below,
    ],
)
served = watched(app)  # type: ignore[arg-type]
