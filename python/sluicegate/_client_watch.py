"""Who asks may leave: before his request is begun, and while it runs."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar, cast

from sluicegate._asgi_types import is_last
from sluicegate._enums import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from sluicegate._asgi_types import ASGIApp, Message, Receive, Scope, Send
    from sluicegate._core import Acquire, Permit

T = TypeVar("T")

# Of a server it takes two, and through four of Starlette's BaseHTTPMiddleware twelve.
_TURNS_OF_A_READ: Final = 12


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

    async def wait_for(self, wish: Acquire, is_late: Callable[[], bool]) -> Permit | None:
        """Wait in line; `None` if the client has left.

        Args:
            wish: What waits.
            is_late: Whether the event loop has stood still just now.

        Raises:
            Rejected: If it is not admitted.
        """
        is_known = self._is_complete
        permit = await self._interruptibly(wish)
        if permit is None:
            return None
        try:
            # Of whom all has come the watch would know; unless what it has to tell waits too.
            if is_known and not is_late():
                return permit
            if await self.is_there():
                return permit
        except BaseException:
            permit.release(Outcome.IGNORED)
            raise
        permit.release(Outcome.IGNORED)
        return None

    async def is_there(self) -> bool:
        """Return whether the client is still there, as far as the server knows by now."""
        # A server reads in one turn of the loop what was sent, in the next one that nothing
        # follows, and in the third one it closes the connection.
        await _turns(3)
        # One message is what the application asks for first anyway. Who has left is told at once
        # by some servers, and by others after the message that completes the body.
        turns = _TURNS_OF_A_READ
        for _ in range(2):
            reading, taken = self._listen(), 0
            while self._reading is reading and taken < turns:
                await _turns(1)
                taken += 1
            if self.has_left:
                return False
            if not self._is_complete or self._reading is not None or self._error is not None:
                break
            turns = taken + 1
        return True

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and cancel it when the client leaves."""

        def sending(message: Message) -> Awaitable[None]:
            # After the answer servers say of each client that it has left.
            if is_last(message):
                self._watching = None
            return send(message)

        await self._interruptibly(app(scope, receive, sending))

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


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
