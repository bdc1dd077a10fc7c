"""The routes in plain ASGI."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from conformance.apps.report import fail_if_told, inside, report
from conformance.apps.watch import watched

if TYPE_CHECKING:
    from sluicegate.asgi import Message, Receive, Scope, Send


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve all routes."""
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
        return
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    name = parse_qs(scope["query_string"].decode()).get("name", [""])[0]
    if scope["type"] == "websocket":
        await echo_messages(name, receive, send)
        return
    match path:
        case "/metrics":
            await answer(send, json.dumps(report(name)))
        case "/ping":
            await answer(send, report.order(scope["query_string"]))
        case "/echo" | "/sub/echo":
            report.started(name)
            size, more = 0, True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
            prefix = "sub " if path == "/sub/echo" else ""
            await answer(send, f"{prefix}{scope['method']} {size}", head=scope["method"] == "HEAD")
        case "/hold":
            gone = asyncio.create_task(watch_the_client(name, receive))
            try:
                text = await report.hold(name)
            finally:
                gone.cancel()
            await answer(send, text)
        case "/stream" | "/sse" | "/break":
            kind = b"text/event-stream" if path == "/sse" else b"text/plain"
            await send(start([(b"content-type", kind)]))
            async for chunk in report.chunks(name, fails=path == "/break"):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        case "/background":
            inside.set(name)
            await answer(send, "accepted")
            await report.after(name)
        case "/raise":
            raise report.failure(name)
        case "/context":
            inside.set(name)
            report.started(name)
            await answer(send, "set")
        case "/lifespan":
            await answer(send, scope["state"]["token"])
        case _:
            await answer(send, "", status=404)


async def watch_the_client(name: str, receive: Receive) -> None:
    """Note that the client has gone, and let the handler go on."""
    while (await receive())["type"] != "http.disconnect":
        pass
    report.facts[name]["saw_disconnect"] = True


def start(headers: list[tuple[bytes, bytes]], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


async def answer(send: Send, text: str, *, status: int = 200, head: bool = False) -> None:
    body = text.encode()
    await send(start([(b"content-length", b"%d" % len(body))], status))
    await send({"type": "http.response.body", "body": b"" if head else body})


async def echo_messages(name: str, receive: Receive, send: Send) -> None:
    report.started(name)
    await receive()
    await send({"type": "websocket.accept"})
    report.websockets += 1
    try:
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") == "close":
                await send({"type": "websocket.close", "code": 4000})
                return
            await send({"type": "websocket.send", "text": message["text"]})
    finally:
        report.websockets -= 1


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    try:
        fail_if_told()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": repr(error)})
        raise
    if "state" in scope:
        scope["state"]["token"] = "from the lifespan"
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


served = watched(app)
