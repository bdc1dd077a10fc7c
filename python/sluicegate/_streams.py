"""Answers that stay open: server-sent events, long polls, websockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sluicegate._asgi_types import is_last
from sluicegate._client_watch import is_asyncio

if TYPE_CHECKING:
    from sluicegate._asgi_types import ASGIApp, Message, Receive, Scope, Send
    from sluicegate._refusal import Refusal

_TRY_AGAIN_LATER: Final = 1013
_GOING_AWAY: Final = 1001
# For how many seconds an answer may wait for its end to be taken.
_LAST: Final = 1.0
_DENIAL: Final = "websocket.http.response"


async def has_answered_in(
    seconds: float | None, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> bool:
    """Run an application, and end what it has begun to answer after so many seconds.

    The answer is ended as a whole one, and a websocket is closed with the code 1001, so that the
    client comes again. Where more was announced than is sent it is left incomplete, of which a
    server makes the end of the connection: of a whole one that is shorter it makes a traceback.

    Returns:
        Whether it has begun to answer by then, or is over; if not, nothing was answered.
    """
    if seconds is None or not is_asyncio():
        await app(scope, receive, send)
        return True
    state, missing = "new", 0

    async def observed(message: Message) -> None:
        nonlocal state, missing
        state = _STATES.get(message["type"], state)
        await send(message)
        # Not before: what is ended while it waits to be sent was not sent.
        if state == "open":
            missing += _announced(message, scope) - len(message.get("body", b""))
        if is_last(message):
            state = "over"

    async def heard() -> Message:
        nonlocal state
        message = await receive()
        state = _STATES.get(message["type"], state)
        return message

    receiving = heard if scope["type"] == "websocket" else receive
    try:
        async with asyncio.timeout(seconds) as bound:
            await app(scope, receiving, observed)
    except TimeoutError:
        if not bound.expired():
            raise
        if state == "new":
            return False
        if scope["type"] == "websocket":
            if state != "over":
                await _send_last(send, {"type": "websocket.close", "code": _GOING_AWAY})
        elif state == "open" and missing <= 0:
            await _send_last(send, {"type": "http.response.body", "body": b"", "more_body": False})
    return True


async def _send_last(send: Send, message: Message) -> None:
    """End an answer, for a client that may not read it; then its connection is closed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST):
            await send(message)


def _announced(message: Message, scope: Scope) -> int:
    """Return how much a message says that there will be."""
    if message["type"] != "http.response.start" or scope["method"] == "HEAD":
        return 0
    headers = message.get("headers", ())
    if not isinstance(headers, (list, tuple)):
        return 0  # what is iterated once is for the server
    lengths = (value for name, value in headers if name.lower() == b"content-length")
    length = next(lengths, b"")
    return int(length) if length.isdigit() else 0


_STATES: Final = {
    "http.response.start": "open",
    "websocket.accept": "open",
    "websocket.close": "over",
    # Nobody is there who could be told.
    "websocket.disconnect": "over",
    "websocket.http.response.start": "over",
}


async def connected() -> Message:
    """Return what a websocket begins with: for who refuses one that has begun."""
    return {"type": "websocket.connect"}


async def refuse_websocket(answer: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a websocket before it is accepted: by an answer where the server can give one.

    Else it is closed with the code 1013, which a client sees as the status 403.
    """
    await receive()
    if _DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
        return
    status, headers, body = answer
    await send({"type": _DENIAL + ".start", "status": status, "headers": [*headers]})
    await send({"type": _DENIAL + ".body", "body": body})
