"""Who asks may leave: before his request is begun, and while it runs."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar, cast

from sluicegate._asgi_types import is_last
from sluicegate._enums import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any

    from sluicegate._asgi_types import ASGIApp, Message, Receive, Scope, Send
    from sluicegate._core import Acquire, Permit

T = TypeVar("T")


def is_asyncio() -> bool:
    """Return whether an event loop of asyncio runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class ClientWatch:
    """The `receive()` of a request, which also tells when its client has left.

    What comes while nobody asks for it is kept for the application. It listens on its own only
    while the body is complete: earlier the server would fetch an upload that nobody may want.

    Attributes:
        has_left: Whether the client has left, as far as is known.

    """

    __slots__ = (
        "_error",
        "_has_interrupted",
        "_is_complete",
        "_messages",
        "_reading",
        "_receive",
        "_watching",
        "has_left",
    )

    def __init__(self, receive: Receive, *, is_without_body: bool) -> None:
        self.has_left = False
        self._receive = receive
        self._is_complete = is_without_body
        self._messages: deque[Message] = deque()
        self._error: BaseException | None = None
        # A read that is under way; whoever asks next gets what comes of it.
        self._reading: asyncio.Future[Message] | None = None
        # Whom to interrupt when the client leaves, and whether that was done.
        self._watching: asyncio.Task[Any] | None = None
        self._has_interrupted = False

    async def wait_for(self, wish: Acquire) -> Permit | None:
        """Wait in line; `None` if the client has left.

        Raises:
            Rejected: If it is not admitted.
        """
        permit = await self._interruptibly(wish)
        if permit is None:
            return None
        try:
            if not self._is_complete:
                # What the application asks for first anyway. A server that knows that the client
                # has left says so at once: one turn for the read, and one for what comes of it.
                self._listen()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        except BaseException:
            permit.release(Outcome.IGNORED)
            raise
        if self.has_left:
            permit.release(Outcome.IGNORED)
            return None
        return permit

    async def run(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        """Run the application, and cancel it when the client leaves."""

        def sending(message: Message) -> Awaitable[None]:
            # After the answer servers say of each client that it has left.
            if is_last(message):
                self._watching = None
            return send(message)

        await self._interruptibly(app(scope, self.receive, sending))

    async def receive(self) -> Message:
        """Return the next message, as the server's own `receive()` does."""
        while not self._messages:
            if self.has_left:
                return {"type": "http.disconnect"}
            if self._error is not None:
                raise self._error
            # Whoever gives up does not end the read for the next one.
            await asyncio.wait((self._listen(),))
        return self._messages.popleft()

    def close(self) -> None:
        """Stop listening: the request is over."""
        self._watching = None
        if self._reading is not None:
            self._reading.remove_done_callback(self._came)
            self._reading.cancel()
            self._reading = None

    async def _interruptibly(self, awaitable: Awaitable[T]) -> T | None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        cancelling = task.cancelling()
        self._watching = task
        if self._is_complete and not self.has_left:
            self._listen()
        try:
            return await awaitable
        except asyncio.CancelledError:
            # As in `asyncio.timeout()`: unless somebody else has cancelled it as well.
            if self._has_interrupted and task.cancelling() == cancelling + 1:
                return None
            raise
        finally:
            self._watching = None
            if self._has_interrupted:
                task.uncancel()

    def _listen(self) -> asyncio.Future[Message]:
        if self._reading is None:
            # A task of our own, since what a server returns may be no whole future: of those of
            # granian only the last callback is called.
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._came)
        return self._reading

    async def _read(self) -> Message:
        return await self._receive()

    def _came(self, reading: asyncio.Future[Message]) -> None:
        self._reading = None
        if reading.cancelled():
            self._error = asyncio.CancelledError()
            return
        self._error = reading.exception()
        if self._error is not None:
            return
        message = reading.result()
        self._messages.append(message)
        if message["type"] == "http.disconnect":
            self.has_left = True
            if self._watching is not None and not self._has_interrupted:
                self._has_interrupted = True
                self._watching.cancel()
            return
        self._is_complete = not message.get("more_body", False)
        if self._is_complete and self._watching is not None:
            self._listen()
