"""How a refusal is answered over ASGI."""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sluicegate import _core
from sluicegate._asgi_body import CONNECTION_CLOSE, BoundedBody, is_before_2, is_without_body
from sluicegate._checks import check_callable
from sluicegate._refusal import problem, refusal
from sluicegate._streams import refuse_websocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sluicegate._asgi_types import ASGIApp, Message, Receive, Scope, Send
    from sluicegate._core import Rejection
    from sluicegate._limiter import Limiter
    from sluicegate._refusal import Refusal
    from sluicegate._rules import Rule

Respond: TypeAlias = "Callable[[Scope, Rejection], ASGIApp | Awaitable[ASGIApp | None] | None]"
Through: TypeAlias = "Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]"
"""Calls what answers, with what is around it."""
Pair: TypeAlias = tuple[bytes, bytes]

_NAME: Final = itemgetter(0)
# As nginx writes it into its log.
_CLIENT_LEFT: Final = 499


class Refuser:
    """Answers who is refused, as the options of the middleware have it.

    Attributes:
        around: Finds for a scope what an answer over HTTP has to go through, if anything.

    """

    def __init__(
        self,
        respond: Respond | None,
        degrade: Respond | None,
        degraded: Limiter,
        on_reject: Callable[[Scope, Rejection], object] | None,
        body_timeout: float | None,
    ) -> None:
        self._body_timeout = body_timeout
        self.around: Callable[[Scope], Through | None] | None = None
        self._respond = respond
        self._degrade = degrade
        self._degraded = degraded
        self._on_reject = on_reject
        self._has_options = (respond, degrade, on_reject) != (None, None, None)

    def is_plain(self, scope: Scope) -> bool:
        """Return whether it is answered as usual over HTTP, and nobody is told."""
        return not self._has_options and (self.around is None or self.around(scope) is None)

    async def refuse(
        self,
        rejection: Rejection,
        scope: Scope,
        receive: Receive,
        send: Send,
        rule: Rule | None,
    ) -> None:
        """Answer by what is cheaper, or refuse."""
        if scope["type"] == "websocket":
            tell(self._on_reject, scope, rejection)
            await refuse_websocket(refusal(rejection), scope, receive, send)
            return
        through = None if self.around is None else self.around(scope)
        if through is None:
            await self._answer(rejection, scope, receive, send, rule)
        else:
            await through(partial(self._answer, rejection, rule=rule), scope, receive, send)

    async def _answer(
        self,
        rejection: Rejection,
        scope: Scope,
        receive: Receive,
        send: Send,
        rule: Rule | None,
    ) -> None:
        pairs = ending(scope)
        sending = adding(pairs, send) if pairs else send
        degrade = self._degrade if rule is None or rule.degrade is None else rule.degrade
        if degrade is not None and (permit := self._degraded.try_acquire()):
            with permit:
                app = await answer_of(degrade, scope, rejection)
                if app is not None and await self._has_answered(app, scope, receive, sending):
                    return
        tell(self._on_reject, scope, rejection)
        if self._respond is not None:
            app = await answer_of(self._respond, scope, rejection)
            if app is not None and await self._has_answered(app, scope, receive, sending):
                return
        await send_refusal(refusal(rejection), scope, send)

    async def _has_answered(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> bool:
        return await has_answered(app, scope, receive, send, body_timeout=self._body_timeout)


def problem_details(_scope: Scope, rejection: Rejection) -> ASGIApp:
    """Answer a refusal by problem details, as RFC 9457 describes: for `respond=`."""
    answer = problem(rejection)

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        await send_refusal(answer, scope, send)

    return app


async def send_refusal(
    answer: Refusal, scope: Scope, send: Send, more: tuple[Pair, ...] = ()
) -> None:
    """Send a refusal, and `more` headers than it has itself."""
    status, headers, body = answer
    # Fresh containers: middleware outside of this one may add to the headers.
    pairs = [*headers, *more, *ending(scope)]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def answer_nobody(scope: Scope, send: Send) -> None:
    """End the request of a client that has left, before it was begun."""
    # Over HTTP/2 Hypercorn would have it wait for ever to be sent.
    if not is_before_2(scope):
        return
    # Servers drop it. It is for middleware outside of this one that cannot do without an answer,
    # such as those made with Starlette's BaseHTTPMiddleware.
    pairs = [(b"content-length", b"0")]
    with suppress(OSError):
        await send({"type": "http.response.start", "status": _CLIENT_LEFT, "headers": pairs})
        await send({"type": "http.response.body", "body": b""})


def ending(scope: Scope) -> tuple[Pair, ...]:
    """Return the header that ends the connection, where a refusal has to."""
    # A client that has announced a body and waits for "100 Continue" may or may
    # not send that body after a 503. What comes next on the connection could
    # then be taken for the body, so it is not used again. HTTP/2 has no such
    # ambiguity, and no such header.
    if b"expect" in map(_NAME, scope["headers"]):
        return (CONNECTION_CLOSE,) if is_before_2(scope) else ()
    return ()


def adding(pairs: tuple[Pair, ...], send: Send) -> Send:
    """Return a `send()` that adds headers to an answer."""

    # No coroutine function: that would be one more coroutine for each message.
    def add(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *pairs]}
        return send(message)

    return add


def tell(
    on_reject: Callable[[Scope, Rejection], object] | None, scope: Scope, rejection: Rejection
) -> None:
    """Tell of a refusal whoever wants to know; one that fails is reported."""
    if on_reject is not None:
        try:
            on_reject(scope, rejection)
        except Exception as error:
            _core.report(error, on_reject)


async def answer_of(respond: Respond, scope: Scope, rejection: Rejection) -> ASGIApp | None:
    """Return what answers instead, if anything does; one that fails is reported."""
    # It is no reason for a 500: the client is refused as usual.
    try:
        answer: Any = respond(scope, rejection)
        if inspect.isawaitable(answer):
            answer = await answer
        check_callable("what respond and degrade return", answer)
    except Exception as error:
        _core.report(error, respond)
        return None
    app: ASGIApp | None = answer
    return app


async def has_answered(
    app: ASGIApp,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    body_timeout: float | None = None,
) -> bool:
    """Run what answers instead of a refusal; one that fails before it has begun is reported.

    Returns:
        Whether it has begun to answer.
    """
    has_begun = False

    async def observed(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    sending: Send = observed
    if body_timeout is not None and not is_without_body(scope):
        body = BoundedBody(body_timeout, scope, receive, observed)
        receive, sending = body.receive, body.send
    try:
        await app(scope, receive, sending)
    except Exception as error:
        if has_begun:
            raise
        _core.report(error, app)
    return has_begun
