"""Load shedding for any ASGI application, without a framework."""

from __future__ import annotations

import copy
import logging
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from sluicegate import _attempts, _core
from sluicegate._asgi_body import is_without_body
from sluicegate._asgi_refusal import Refuser, answer_nobody, problem_details
from sluicegate._asgi_run import Runner
from sluicegate._asgi_types import ASGIApp, Message, Receive, Scope, Send
from sluicegate._caps import Cap
from sluicegate._client_ip import client_ip
from sluicegate._client_watch import ClientWatch, is_asyncio
from sluicegate._core import Acquire, Answer, Entrance, Permit, Rejection
from sluicegate._enums import Reason
from sluicegate._errors import Rejected
from sluicegate._gate import Gate
from sluicegate._headers import Headers, criticality_of, deadline_of
from sluicegate._options import (
    Hold,
    Options,
    check_options,
    find_rule,
    key_of,
    limiter_of,
    warn_if_all_are_admitted,
)
from sluicegate._rate_limit import RateLimitMiddleware
from sluicegate._refusal import refusal
from sluicegate._rules import DEFAULT_EXEMPT, Rule, whole_paths
from sluicegate._semaphore import SemaphoreLimiter
from sluicegate._streams import connected, has_answered_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Self, Unpack

    from sluicegate._asgi_refusal import Through
    from sluicegate._limiter import Limiter

__all__ = [
    "DEFAULT_EXEMPT",
    "ASGIApp",
    "Headers",
    "LoadSheddingMiddleware",
    "Message",
    "Options",
    "RateLimitMiddleware",
    "Receive",
    "Rule",
    "Scope",
    "Send",
    "client_ip",
    "problem_details",
]

_log = logging.getLogger("sluicegate.asgi")

_START: Final = "http.response.start"
_BODY: Final = "http.response.body"
# As that of nginx.
_BODY_TIMEOUT: Final = 60.0
_NO_TERMS: Final = nullcontext()


class LoadSheddingMiddleware:
    """Answer 503 early when more requests arrive than can be done in time.

    A request is decided before its body is read: it runs, waits in line for as long as that is of
    use, or is refused with `Retry-After` and a small JSON body, and the connection stays open. Use
    `app.add_middleware(LoadSheddingMiddleware)`, or wrap: `app = LoadSheddingMiddleware(app)`. The
    cheapest place is outermost.

    - The deadline and the criticality that the headers of a request tell are its terms, and those
      of whatever its handler does: see `sluicegate.context`. A handler whose deadline has passed,
      or whose client has left, before it starts is never started.
    - While a request waits its client is watched, if its body is complete: who leaves, leaves the
      line. After the event loop has stood still, whoever is admitted at once is looked at too.
      Middleware outside of this one sees a 499 for who has left. A running handler is cancelled
      only with `cancel_on_disconnect`.
    - A permit is held until `app` has returned or failed, background tasks included. Timed is the
      work until the last byte of the answer, under the name of the route where the framework tells
      it (FastAPI, Litestar). A status below 400 counts as SUCCESS, 504 and `TimeoutError` as
      OVERLOAD, all else as IGNORED, and so is OVERLOAD for want of time that a stranger gave.
    - Retries that say so (`x-envoy-attempt-count`, `grpc-previous-rpc-attempts`) are shed before
      first attempts of the same criticality.
    - Websockets, and what a rule calls a stream, have a cap of their own, and so have exempt
      requests. Who is refused by it is counted in `streams.snapshot()` and `exempt.snapshot()`,
      and is in the log, as for a gate. Lifespan events and
      whatever else comes pass untouched.
    - Where no asyncio event loop runs nobody waits: who finds no room is refused. Nor is anybody
      cancelled there, or a stream ended.
    - A permit is held while a handler waits for a body, but not for longer than `body_timeout` for
      each part of it. Where clients may send as slowly as they like, put a proxy in front that
      buffers requests.

    Args:
        app: The ASGI application to protect.
        gate: What decides; default: `Gate.from_env()`, which tunes itself.
        limit: How many requests may be in flight at once in this process: `64` stands for
            `Gate(64)`. Or a limiter, which may be shared: at one that is no `Gate` nobody waits.
        rules: What holds for which requests: a sequence of `Rule`, of which the first match
            counts, or a callable that finds the rule for a scope, or `None`. The paths in
            `DEFAULT_EXEMPT` are exempt unless a rule names them, or `rules` is a callable.
        key: Who calls, from the scope, or `None`: where some are shed, it is the same callers for
            a while; default: by chance.
        headers: By which headers deadlines and criticalities travel, and whom to trust. Values
            that say nothing are passed over, and counted in `malformed_headers`.
        hold: Until when a permit is held: `"work"`, `"response"` (the last byte is handed to the
            server) or `"headers"`. With the last two, the limit does not bound the work any more.
        cancel_on_disconnect: Whether a handler is cancelled when its client leaves before the
            answer is complete. A thread cannot be cancelled: of a handler that is no coroutine
            function the permit is given back while its thread goes on, so leave it off for those;
            and for Quart and Django, whose handlers are tasks that go on as well unless their
            framework cancels them, which it does when a client leaves.
        body_timeout: For how many seconds a handler waits for the next part of a body. Then the
            client counts as gone: the handler is told `http.disconnect`, what it sends is dropped,
            the client is answered 408 if it has not been answered yet, and the connection is
            closed; the outcome is IGNORED. `None`: for ever. The default is that of nginx, between
            two reads, where uvicorn has none. Streams and websockets are not bounded by it, and
            nothing bounds how long a client takes to read its answer: that is for the proxy.
        max_streams: How many websockets and streams may be open at once, from 1 to 1e9.
        exempt_limit: How many exempt requests may run at once, from 1 to 1e9.
        respond: What answers a refusal, from the scope and the rejection: an ASGI application such
            as a Starlette `Response`, or `None` for the default, or an awaitable of either;
            `problem_details` answers as RFC 9457 says.
        degrade: What answers instead of a refusal, such as a cheaper or an older answer; as
            `respond`. It holds no permit; default: nothing.
        degrade_limit: How many of these may run at once, from 1 to 1e9.
        on_reject: What is called with the scope and the rejection of each refusal, before it is
            answered, and not of who is answered by `degrade`. It must be quick.

    Raises:
        TypeError: If an option is of a wrong type, or `gate` and `limit` are both given.
        ValueError: If an option, or what the environment says of the gate, is out of its range.

    """

    app: ASGIApp
    #: What is asked for permits.
    limiter: Limiter
    #: What exempt requests, and websockets and streams, are asked for: `snapshot()` counts who was
    #: refused, as the log tells. And what degraded answers run under.
    exempt: Gate
    streams: Gate
    degraded: SemaphoreLimiter
    #: How many values in headers said nothing that can be.
    malformed_headers: int

    def __init__(self, app: ASGIApp, **options: Unpack[Options]) -> None:
        check_options(options)
        given: object = app
        if not callable(given):
            msg = f"app must be an ASGI application, got {given!r:.100}"
            raise TypeError(msg)
        self.app = app
        self.limiter = limiter_of(options.get("gate"), options.get("limit"))
        self.malformed_headers = 0
        self._gate = self.limiter if isinstance(self.limiter, Gate) else None
        rules = options.get("rules", ())
        self._find_rule = find_rule(rules, self.limiter)
        # A callable may look at what only a request has.
        self._is_rule_hidden = callable(rules)
        self._key = key_of(options.get("key"))
        self._headers = options.get("headers") or Headers()
        self._telling = self._headers.names() | _attempts.FIRST.keys()
        self._hold: Hold = options.get("hold", "work")
        cancels = options.get("cancel_on_disconnect", False)
        body_timeout = options.get("body_timeout", _BODY_TIMEOUT)
        self._runner = Runner(body_timeout, cancels=cancels)
        self._streams = Cap(
            options.get("max_streams", 1000), "streams", self.limiter, Reason.STREAMS
        )
        self._exempt = Cap(options.get("exempt_limit", 16), "exempt", self.limiter)
        self.streams, self.exempt = self._streams.gate, self._exempt.gate
        name = getattr(self.limiter, "name", "")
        self.degraded = SemaphoreLimiter(options.get("degrade_limit", 16), name=f"{name} degraded")
        self._refuser = Refuser(
            options.get("respond"),
            options.get("degrade"),
            self.degraded,
            options.get("on_reject"),
            body_timeout,
        )
        self._refuse = self._refuser.refuse
        by_path = None if callable(rules) else whole_paths(rules)
        self._entrance: Entrance | None = None
        if self._gate is not None and by_path is not None and not (self._key or cancels):
            telling = [*self._telling, b"expect"]
            self._entrance = Entrance(self._gate, by_path, telling, self._hold)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.limiter!r}, in this process: hold={self._hold!r}, "
            f"max_streams={self.streams.limit:g}, exempt_limit={self.exempt.limit:g}>"
        )

    @property
    def gate(self) -> Gate | None:
        """The gate that decides; `None` if it is a limiter of another kind."""
        return self._gate

    def for_app(self, app: ASGIApp) -> Self:
        """Return one for another application, with the same limits."""
        other = copy.copy(self)
        other.app = app
        return other

    def look_below(self, root_path: str) -> None:
        """Take off a root path that the application adds itself, before its rules are looked up."""
        find = self._find_rule
        self._entrance = None
        self._find_rule = lambda scope: find({**scope, "root_path": root_path})

    def refuse_through(self, around: Callable[[Scope], Through | None]) -> None:
        """Answer refusals over HTTP through what that finds for the scope of each, if anything."""
        self._refuser.around = around

    def is_exempt(self, method: str, path: str) -> bool:
        """Return whether such requests take no permit."""
        if self._is_rule_hidden:
            return False
        rule = self._find_rule({"type": "http", "method": method, "path": path})
        return rule is not None and rule.exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, or refuse the request."""
        # This way most requests go, and each frame and each look-up counts.
        begun = None if self._entrance is None else self._entrance.begin(scope, send)
        if begun is not None:
            if type(begun) is Answer:
                has_body = begun.has_body
                if has_body or monotonic() > self._runner.heartbeat.is_well_until:
                    await self._runner.run(self.app, begun, scope, receive, send, has_body=has_body)
                    return
                try:
                    await self.app(scope, receive, begun.send)
                except BaseException as error:
                    begun.fail(error, scope)
                    raise
                begun.end(scope)
            elif type(begun) is Rejection and self._refuser.is_plain(scope):
                status, headers, body = refusal(begun)
                body = b"" if scope["method"] == "HEAD" else body
                # A fresh list: middleware outside of this one may add to the headers.
                await send({"type": _START, "status": status, "headers": [*headers]})
                await send({"type": _BODY, "body": body})
            else:
                await self._go_on(begun, scope, receive, send, None)
            return
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            if kind == "lifespan":
                _log.info("%r", self)
                warn_if_all_are_admitted(_log, self.limiter)
            await self.app(scope, receive, send)
            return
        rule = self._find_rule(scope)
        if rule is not None and rule.exempt and kind == "http":
            await self._run_exempt(scope, receive, send)
            return
        if not isinstance(scope["headers"], (list, tuple)):
            # What is iterated once is not gone then for the application.
            scope["headers"] = [*scope["headers"]]
        said = [pair for pair in scope["headers"] if pair[0] in self._telling]
        terms, is_retry = self._terms(scope, rule, said)
        with terms:
            if kind == "websocket" or (rule is not None and rule.stream):
                await self._run_stream(scope, receive, send, rule)
            else:
                asked = self._begin(rule, is_retry=is_retry, may_wait=is_asyncio())
                await self._go_on(asked, scope, receive, send, rule)

    def _terms(
        self, scope: Scope, rule: Rule | None, said: list[tuple[bytes, bytes]]
    ) -> tuple[AbstractContextManager[object], bool]:
        """Return what holds for all the work of a request, and whether it is a retry."""
        headers = self._headers
        is_trusted = headers.trusts(scope) if said else False
        received = headers.read(said, trusted=is_trusted)
        self.malformed_headers += received.malformed
        ruled = None if rule is None else rule.criticality
        criticality = criticality_of(received.criticality, ruled, trusted=is_trusted)
        key = None if self._key is None else self._key(scope)
        terms: object = _NO_TERMS
        if not (received.deadline is None and criticality is None and key is None):
            deadline = deadline_of(received.deadline, trusted=is_trusted)
            terms = _core.Scope(deadline=deadline, criticality=criticality, key=key)
        is_retry = any(_attempts.is_retry(name, value) for name, value in said)
        return cast("AbstractContextManager[object]", terms), is_retry

    def _begin(
        self, rule: Rule | None, *, is_retry: bool, may_wait: bool
    ) -> Permit | Rejection | Acquire:
        gate = self._gate
        if gate is None:
            return self.limiter.try_acquire()
        operation, inner = (None, None) if rule is None else (rule.operation, rule.gate)
        ask = gate._begin if may_wait else gate.try_acquire  # noqa: SLF001
        return ask(operation=operation, inner=inner, retry=is_retry)

    async def _go_on(
        self,
        begun: Permit | Rejection | Acquire,
        scope: Scope,
        receive: Receive,
        send: Send,
        rule: Rule | None,
    ) -> None:
        """Run what is admitted, refuse what is refused, and wait first if need be."""
        if isinstance(begun, Acquire):
            if is_asyncio():
                await self._wait(begun, scope, receive, send, rule)
                return
            begun.close()
            begun = self.limiter.try_acquire()
        if begun:
            await self._run(begun, scope, receive, send, rule)
        else:
            await self._refuse(begun, scope, receive, send, rule)

    async def _wait(
        self, wish: Acquire, scope: Scope, receive: Receive, send: Send, rule: Rule | None
    ) -> None:
        watch = ClientWatch(receive, is_without_body=is_without_body(scope))
        try:
            try:
                permit = await watch.wait_for(wish, self._runner.is_late)
            except Rejected as error:
                await self._refuse(error.rejection, scope, watch.receive, send, rule)
                return
            if permit is None:
                await answer_nobody(scope, send)
            else:
                await self._run(permit, scope, watch.receive, send, rule, watch)
        finally:
            watch.close()

    async def _run(
        self,
        permit: Permit,
        scope: Scope,
        receive: Receive,
        send: Send,
        rule: Rule | None,
        watch: ClientWatch | None = None,
    ) -> None:
        if type(permit) not in {Permit, Acquire}:
            # Of a limiter of the user's own, which knows no more than to be held.
            has_body = not is_without_body(scope)
            with permit:
                await self._runner.run(
                    self.app, None, scope, receive, send, watch, has_body=has_body
                )
            return
        operation = None if rule is None else rule.operation
        if operation is not None and self._gate is None:
            permit.operation = operation
        answer = Answer(permit, scope, send, self._hold, operation is not None)
        has_body = not is_without_body(scope)
        await self._runner.run(self.app, answer, scope, receive, send, watch, has_body=has_body)

    async def _run_exempt(self, scope: Scope, receive: Receive, send: Send) -> None:
        permit = self._exempt.take()
        if not permit:
            await self._refuse(permit, scope, receive, send, None)
            return
        with permit:
            await self._runner.run_aside(self.app, scope, receive, send)

    async def _run_stream(
        self, scope: Scope, receive: Receive, send: Send, rule: Rule | None
    ) -> None:
        operation = None if rule is None else rule.operation
        # Closed is closed: it says so itself, and counts it.
        is_closed = self._gate is not None and self._gate.closed
        permit = (
            self._begin(None, is_retry=False, may_wait=False)
            if is_closed
            else (self._streams.take(operation=operation))
        )
        if not permit:
            await self._refuse(permit, scope, receive, send, rule)
            return
        lifetime = None if rule is None else rule.max_lifetime
        with permit:
            is_over = await has_answered_in(lifetime, self.app, scope, receive, send)
        if not is_over:
            late = Rejection(getattr(self.limiter, "name", ""), Reason.WAIT)
            # The application has heard of the connection.
            heard = connected if scope["type"] == "websocket" else receive
            await self._refuse(late, scope, heard, send, rule)
