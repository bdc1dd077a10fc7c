"""The routes in FastAPI, which wears the middleware."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import BackgroundTasks, FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from conformance.apps.report import fail_if_told, inside, report
from conformance.apps.watch import watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    fail_if_told()
    yield {"token": "from the lifespan"}


def build() -> FastAPI:
    """Make the application anew, since it can be protected but once."""
    app = FastAPI(lifespan=lifespan, default_response_class=PlainTextResponse)
    below = FastAPI(default_response_class=PlainTextResponse)

    @app.get("/metrics", response_class=JSONResponse)
    async def metrics(name: str = "") -> dict[str, Any]:
        return report(name)

    @app.get("/ping")
    async def order(request: Request) -> str:
        return report.order(request.url.query)

    @app.api_route("/echo", methods=["GET", "HEAD", "POST"])
    async def echo(request: Request, name: str = "") -> str:
        report.started(name)
        return f"{request.method} {len(await request.body())}"

    @below.get("/echo")
    async def echo_below(request: Request, name: str = "") -> str:
        report.started(name)
        return f"sub {request.method} {len(await request.body())}"

    @app.get("/hold")
    async def hold(name: str) -> str:
        return await report.hold(name)

    @app.get("/stream")
    async def stream(name: str) -> StreamingResponse:
        return StreamingResponse(report.chunks(name), media_type="text/plain")

    @app.get("/sse")
    async def events(name: str) -> StreamingResponse:
        return StreamingResponse(report.chunks(name), media_type="text/event-stream")

    @app.get("/break")
    async def breaking(name: str) -> StreamingResponse:
        return StreamingResponse(report.chunks(name, fails=True))

    @app.get("/background")
    async def background(name: str, tasks: BackgroundTasks) -> str:
        inside.set(name)
        tasks.add_task(report.after, name)
        return "accepted"

    @app.get("/raise")
    async def failing(name: str) -> str:
        raise report.failure(name)

    @app.get("/context")
    async def context(name: str) -> str:
        inside.set(name)
        report.started(name)
        return "set"

    @app.get("/lifespan")
    async def lifespan_state(request: Request) -> str:
        token: str = request.state.token
        return token

    @app.websocket("/ws")
    async def echo_messages(websocket: WebSocket, name: str) -> None:
        report.started(name)
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

    app.mount("/sub", below)
    return app


served = watched(build())
