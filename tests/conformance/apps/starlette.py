"""The routes in Starlette."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from conformance.apps.report import fail_if_told, inside, report
from conformance.apps.watch import watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket


def name_of(request: Request | WebSocket) -> str:
    return request.query_params.get("name", "")


async def metrics(request: Request) -> Response:
    return JSONResponse(report(name_of(request)))


async def order(request: Request) -> Response:
    return PlainTextResponse(report.order(request.url.query))


async def echo(request: Request) -> Response:
    report.started(name_of(request))
    return PlainTextResponse(f"{request.method} {len(await request.body())}")


async def echo_below(request: Request) -> Response:
    report.started(name_of(request))
    return PlainTextResponse(f"sub {request.method} {len(await request.body())}")


async def hold(request: Request) -> Response:
    return PlainTextResponse(await report.hold(name_of(request)))


async def stream(request: Request) -> Response:
    return StreamingResponse(report.chunks(name_of(request)), media_type="text/plain")


async def events(request: Request) -> Response:
    return StreamingResponse(report.chunks(name_of(request)), media_type="text/event-stream")


async def breaking(request: Request) -> Response:
    return StreamingResponse(report.chunks(name_of(request), fails=True))


async def background(request: Request) -> Response:
    name = name_of(request)
    inside.set(name)
    return PlainTextResponse("accepted", background=BackgroundTask(report.after, name))


async def failing(request: Request) -> Response:
    raise report.failure(name_of(request))


async def context(request: Request) -> Response:
    name = name_of(request)
    inside.set(name)
    report.started(name)
    return PlainTextResponse("set")


async def lifespan_state(request: Request) -> Response:
    return PlainTextResponse(request.state.token)


async def echo_messages(websocket: WebSocket) -> None:
    report.started(name_of(websocket))
    await websocket.accept()
    report.websockets += 1
    try:
        while (text := await websocket.receive_text()) != "close":
            await websocket.send_text(text)
        await websocket.close(4000)
    except WebSocketDisconnect:
        pass
    finally:
        report.websockets -= 1


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
    fail_if_told()
    yield {"token": "from the lifespan"}


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/metrics", metrics),
        Route("/ping", order),
        Route("/echo", echo, methods=["GET", "POST"]),
        Route("/hold", hold),
        Route("/stream", stream),
        Route("/sse", events),
        Route("/break", breaking),
        Route("/background", background),
        Route("/raise", failing),
        Route("/context", context),
        Route("/lifespan", lifespan_state),
        WebSocketRoute("/ws", echo_messages),
        Mount("/sub", Starlette(routes=[Route("/echo", echo_below)])),
    ],
)
served = watched(app)
