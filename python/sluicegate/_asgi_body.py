"""Bodies of requests: whether there is one, and for how long it may not go on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from sluicegate._asgi_types import is_last
from sluicegate._client_watch import is_asyncio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

    from sluicegate._asgi_types import Message, Receive, Scope, Send

_REQUEST_TIMEOUT: Final = 408
_EMPTY: Final = (b"content-length", b"0")
CONNECTION_CLOSE: Final = (b"connection", b"close")
# Who looks so late looks again, for as long: in seconds.
_GRACE: Final = 0.05


def is_before_2(scope: Scope) -> bool:
    """Return whether it is HTTP/1, where each body is announced, and a connection is closed."""
    version: str = scope.get("http_version", "1.1")
    return version.startswith("1")


def is_without_body(scope: Scope) -> bool:
    """Return whether the client has nothing more to send, as far as its headers tell."""
    if not is_before_2(scope):
        # There the end of the headers may be the end of the request, and no header says so.
        return scope["method"] in {"GET", "HEAD", "DELETE", "OPTIONS"} and not any(
            name == b"content-length" and value != b"0" for name, value in scope["headers"]
        )
    return not any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


class BoundedBody:
    """The `receive()` and `send()` of a request whose body may not stop on the way.

    If the application waits for the next part of it for too long, the client counts as gone: it is
    answered 408 if it has not been answered yet, and whatever comes later is dropped.

    Attributes:
        has_stopped: Whether that was so.

    """

    __slots__ = (
        "_has_begun",
        "_is_complete",
        "_receive",
        "_scope",
        "_seconds",
        "_send",
        "_waiting_since",
        "has_stopped",
    )

    def __init__(self, seconds: float, scope: Scope, receive: Receive, send: Send) -> None:
        self.has_stopped = False
        self._seconds = seconds
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_complete = False
        self._has_begun = False
        # Since when the application waits for a part, however often it has given up meanwhile.
        self._waiting_since: float | None = None

    async def receive(self) -> Message:
        """Return the next message, or say that the client has left."""
        if self.has_stopped:
            return {"type": "http.disconnect"}
        if self._is_complete:
            return await self._receive()
        # Nearly always it is there: only if not, a timer is set.
        steps = _next(self._receive)
        try:
            step = steps.send(None)
        except StopIteration as end:
            message: Message = end.value
        else:
            come = await self._in_time(step, steps)
            if come is None:
                await self._stop()
                return {"type": "http.disconnect"}
            message = come
        self._waiting_since = None
        self._is_complete = not message.get("more_body", False)
        return message

    async def _in_time(self, step: Any, steps: Coroutine[Any, Any, Message]) -> Message | None:
        if not is_asyncio():
            return await _rest(step, steps)
        loop = asyncio.get_running_loop()
        if self._waiting_since is None:
            self._waiting_since = loop.time()
        end = self._waiting_since + self._seconds
        try:
            async with asyncio.timeout_at(end) as bound:
                return await _rest(step, steps)
        except TimeoutError:
            if not bound.expired():
                raise
        if loop.time() < end + _GRACE:
            return None
        # The loop has stood still, and the time is over in the very turn in which a part comes.
        try:
            async with asyncio.timeout(_GRACE) as bound:
                return await self._receive()
        except TimeoutError:
            if not bound.expired():
                raise
        return None

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message, unless nobody is there any more."""
        if self.has_stopped:
            return _nothing()
        self._has_begun = self._has_begun or message["type"] == "http.response.start"
        # After the answer servers say of each client that it has left.
        self._is_complete = self._is_complete or is_last(message)
        return self._send(message)

    async def _stop(self) -> None:
        self.has_stopped = True
        if self._has_begun:
            # The server closes the connection when the application returns.
            return
        headers = [_EMPTY, CONNECTION_CLOSE] if is_before_2(self._scope) else [_EMPTY]
        with suppress(OSError):
            await self._send(
                {"type": "http.response.start", "status": _REQUEST_TIMEOUT, "headers": headers}
            )
            await self._send({"type": "http.response.body", "body": b""})


async def _next(receive: Receive) -> Message:
    # A coroutine, since what a server returns may be a mere iterator.
    return await receive()


@coroutine
def _rest(step: Any, steps: Coroutine[Any, Any, Message]) -> Generator[Any, Any, Message]:
    """Go on with what has been begun already, and waits."""
    while True:
        try:
            try:
                sent = yield step
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(sent)
        except StopIteration as end:
            message: Message = end.value
            return message


async def _nothing() -> None:
    pass
