"""The routes in Quart."""

from __future__ import annotations

from typing import Any

from quart import Quart, Response, request, websocket

from conformance.apps.report import fail_if_told, inside, report
from conformance.apps.watch import watched

app = Quart("conformance")
app.config["MAX_CONTENT_LENGTH"] = None
app.config["RESPONSE_TIMEOUT"] = None
app.config["BODY_TIMEOUT"] = None


def name() -> str:
    return request.args.get("name", "")


@app.before_serving
async def start() -> None:
    fail_if_told()


@app.get("/metrics")
async def metrics() -> dict[str, Any]:
    return report(name())


@app.get("/ping")
async def order() -> str:
    return report.order(request.query_string)


@app.route("/echo", methods=["GET", "POST"])
async def echo() -> str:
    report.started(name())
    return f"{request.method} {len(await request.get_data())}"


@app.get("/hold")
async def hold() -> str:
    return await report.hold(name())


@app.get("/stream")
async def stream() -> Response:
    return Response(report.chunks(name()), mimetype="text/plain")


@app.get("/sse")
async def events() -> Response:
    return Response(report.chunks(name()), mimetype="text/event-stream")


@app.get("/break")
async def breaking() -> Response:
    return Response(report.chunks(name(), fails=True))


@app.get("/raise")
async def failing() -> str:
    raise report.failure(name())


@app.get("/context")
async def context() -> str:
    inside.set(name())
    report.started(name())
    return "set"


@app.websocket("/ws")
async def echo_messages() -> None:
    report.started(websocket.args["name"])
    report.websockets += 1
    try:
        while (text := await websocket.receive()) != "close":
            await websocket.send(text)
        await websocket.close(4000)
    finally:
        report.websockets -= 1


served = watched(app)  # type: ignore[arg-type]
