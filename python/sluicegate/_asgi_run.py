"""How the application is run for a request that is admitted, where more is to be done than that."""

from __future__ import annotations

import asyncio
import weakref
from time import monotonic
from typing import TYPE_CHECKING

from sluicegate._asgi_body import BoundedBody, is_without_body
from sluicegate._asgi_refusal import answer_nobody
from sluicegate._client_watch import ClientWatch, is_asyncio
from sluicegate._heartbeat import Heartbeat, heartbeat_of

if TYPE_CHECKING:
    from sluicegate._asgi_types import ASGIApp, Receive, Scope, Send
    from sluicegate._core import Answer


class Runner:
    """Runs an application for a client that may be gone, leave, or stop sending.

    Attributes:
        heartbeat: Of the loop, if there is only one, as nearly always; else one that is never well.

    """

    __slots__ = ("_body_timeout", "_cancels", "_has_loops", "_loop", "heartbeat")

    def __init__(self, body_timeout: float | None, *, cancels: bool) -> None:
        self._body_timeout = body_timeout
        self._cancels = cancels
        self._has_loops = False
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self.heartbeat = Heartbeat()

    def is_late(self) -> bool:
        """Return whether the event loop has stood still just now."""
        if monotonic() <= self.heartbeat.is_well_until:
            return False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        heartbeat = heartbeat_of(loop)
        if heartbeat is not self.heartbeat and not self._has_loops:
            before = None if self._loop is None else self._loop()
            # That one is well says nothing about another.
            self._has_loops = before is not None and not before.is_closed()
            self.heartbeat = Heartbeat() if self._has_loops else heartbeat
            self._loop = weakref.ref(loop)
        return heartbeat.is_late(loop)

    async def run_aside(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for a request that holds no permit: only its body is bounded."""
        if self._body_timeout is not None and not is_without_body(scope):
            body = BoundedBody(self._body_timeout, scope, receive, send)
            receive, send = body.receive, body.send
        await app(scope, receive, send)

    async def run(
        self,
        app: ASGIApp,
        answer: Answer | None,
        scope: Scope,
        receive: Receive,
        send: Send,
        watch: ClientWatch | None = None,
        *,
        has_body: bool,
    ) -> None:
        """Run an application, whose permit `answer` holds.

        Args:
            app: The application.
            answer: What holds the permit; given back when this returns. `None` if the caller does.
            scope: The scope of the request.
            receive: That of the server, or of `watch`.
            send: That of the server.
            watch: What has watched the client while it waited, if it has.
            has_body: Whether the client may still have to send a body.
        """
        own: ClientWatch | None = None
        body: BoundedBody | None = None
        try:
            # Who has waited was looked at already.
            is_late = watch is None and self.is_late()
            if is_late or (watch is None and self._cancels and is_asyncio()):
                watch = own = ClientWatch(receive, is_without_body=not has_body)
                receive = own.receive
            if own is not None and is_late and not await own.is_there():
                if answer is not None:
                    answer.ignore(scope)
                await answer_nobody(scope, send)
                return
            sending: Send = send if answer is None else answer.send
            if has_body and self._body_timeout is not None:
                body = BoundedBody(self._body_timeout, scope, receive, sending)
                receive, sending = body.receive, body.send
            if self._cancels and watch is not None:
                await watch.run(app, scope, receive, sending)
            else:
                await app(scope, receive, sending)
        except BaseException as error:
            if answer is not None:
                if body is not None and body.has_stopped:
                    answer.ignore(scope)
                # The first one counts.
                answer.fail(error, scope)
            raise
        finally:
            if own is not None:
                own.close()
        if answer is not None:
            if body is not None and body.has_stopped:
                answer.ignore(scope)
            answer.end(scope)
