"""A quota for each client, in front of any ASGI application."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from sluicegate._asgi_refusal import (
    Pair,
    Respond,
    adding,
    answer_of,
    ending,
    has_answered,
    send_refusal,
    tell,
)
from sluicegate._bucket import KeyedTokenBucket
from sluicegate._checks import check_callable, check_is_not_async, check_kind
from sluicegate._core import Rejection
from sluicegate._enums import Reason
from sluicegate._options import find_rule
from sluicegate._refusal import Refusal, refusal
from sluicegate._rules import Rule
from sluicegate._streams import refuse_websocket

if TYPE_CHECKING:
    from sluicegate._asgi_types import ASGIApp, Message, Receive, Scope, Send


# RFC 9651: what a String of a structured field can be made of.
_PRINTABLE: Final = re.compile(r"[ -~]+")
_RATE: Final = Reason.RATE
_MOST_KEPT: Final = 512


class RateLimitMiddleware:
    """Answer 429 to whoever asks more often than a quota allows.

    `users = KeyedTokenBucket(100, per=60, burst=20, name="users")`, and
    `RateLimitMiddleware(app, bucket=users, key=client_ip())`, or by `add_middleware`; outermost is
    cheapest. It is decided before the body is read, nobody waits, and the connection stays open,
    but for who expects "100 Continue", of whom nobody can know whether the body still comes.

    A refusal has `Retry-After` in whole seconds: until the tokens are there, rounded up, and up to
    a quarter or a second more at random, since several clients may share a key. It has the fields
    of draft-ietf-httpapi-ratelimit-headers-10, as has every answer to an admitted request:

    - `RateLimit-Policy: "users";q=20;w=12`: the name of the bucket, its burst in whole tokens, and
      in how many seconds they come, rounded up: never more than the rate.
    - `RateLimit: "users";r=7;t=1`: how many whole tokens are left, and in how many seconds there is
      one more; without `t` if there cannot be more.

    Fields of the application stay, so that several limits can be told, each by its own name. The
    body is as that of other refusals, small JSON.

    A websocket is refused before it is accepted: with the same answer if the server can send one
    (the extension `websocket.http.response`), else it is closed with 1013 ("try again later"), of
    which most clients see a 403. An open one is not limited by what it sends.

    Health probes are never limited: see `exempt`. Nor is anything but HTTP and websockets.

    Memory is bounded by `max_keys` of the bucket, whatever clients make up. If there are more keys,
    those without a bucket of their own share one more: they get less than their quota, nobody gets
    more. `bucket.snapshot().overflowed` counts it.

    If `key` or `tokens` raises an exception, it goes on to the server, which logs it and answers
    500: neither is the client unlimited then, whose request may be the cause, nor does another pay.

    Args:
        app: The ASGI application.
        bucket: The quota: what each key may take. Others may take from it as well. Its name is told
            to clients.
        key: Who asks, from the ASGI scope: a string, such as `client_ip()` tells, or `None` if this
            request is not limited. It must not trust what a client can write as he likes.
        tokens: How many tokens a request takes, from the scope, from 1e-9 to the burst. More than
            the burst is a `ValueError`, since it could never be there. Default: 1.
        exempt: What else is never limited than `DEFAULT_EXEMPT`: paths such as `"/a"`,
            `"GET /users/{id}"` or `"/static/*"`, as in a `Rule`, without the `root_path`.
        respond: What answers a refusal, from the scope and the rejection: an ASGI application such
            as a `Response` of Starlette, or `None` for the usual answer; may be async. The fields
            named above are added, `Retry-After` if it has none. If it raises an exception, or that
            application does before it has begun, that is reported by `sys.unraisablehook`, and the
            answer is the usual one. Websockets always get that.
        on_reject: Called with the scope and the rejection of each refusal, to count it. An
            exception is reported by `sys.unraisablehook`.
        headers: Whether admitted requests are told their quota too. Default: yes.

    Raises:
        TypeError: If an argument is of a wrong type; functions but `respond` cannot be async.
        ValueError: If the name of the bucket has other characters than printable ASCII, or
            `exempt` holds what is no pattern.
    """

    app: ASGIApp
    #: The quota of each key.
    bucket: KeyedTokenBucket

    def __init__(
        self,
        app: ASGIApp,
        *,
        bucket: KeyedTokenBucket,
        key: Callable[[Scope], str | None],
        tokens: Callable[[Scope], float] | None = None,
        exempt: Collection[str] = (),
        respond: Respond | None = None,
        on_reject: Callable[[Scope, Rejection], object] | None = None,
        headers: bool = True,
    ) -> None:
        check_quota(bucket, key, tokens)
        check_callable("respond", respond)
        check_callable("on_reject", on_reject)
        check_is_not_async("on_reject", on_reject)
        check_kind("headers", "True or False", headers, bool)
        self.app = app
        self.bucket = bucket
        self._take = bucket._take_from_quota  # noqa: SLF001
        self._key = key
        self._tokens = tokens
        self._exempt = find_rule([Rule(match) for match in _matches(exempt)])
        self._respond = respond
        self._on_reject = on_reject
        self._headers = headers
        # To write them takes longer than to take the tokens.
        self._fields = lru_cache(_MOST_KEPT)(partial(_fields_of, _quoted(bucket.name)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bucket={self.bucket!r}, key={self._key!r})"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, or refuse the request."""
        key = None
        kind = scope["type"]
        if kind in {"http", "websocket"} and self._exempt(scope) is None:
            key = self._key(scope)
        if key is None:
            await self.app(scope, receive, send)
            return
        wait, remaining, more_after, quota, window = (
            self._take(key) if self._tokens is None else self._take(key, self._tokens(scope))
        )
        if wait is None and not (self._headers and kind == "http"):
            await self.app(scope, receive, send)
            return
        fields = self._fields(remaining, more_after, quota, window)
        if wait is None:
            await self.app(scope, receive, adding(fields, send))
        else:
            await self._refuse(rate_rejection(self.bucket, wait), fields, scope, receive, send)

    async def _refuse(
        self,
        rejection: Rejection,
        fields: tuple[Pair, ...],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        tell(self._on_reject, scope, rejection)
        status, headers, body = refused = refusal(rejection)
        if scope["type"] == "websocket":
            denial = Refusal(status, (*headers, *fields), body)
            await refuse_websocket(denial, scope, receive, send)
            return
        if self._respond is not None:
            app = await answer_of(self._respond, scope, rejection)
            retry_after = next(pair for pair in headers if pair[0] == b"retry-after")
            sending = _completing((*fields, *ending(scope)), retry_after, send)
            if app is not None and await has_answered(app, scope, receive, sending):
                return
        await send_refusal(refused, scope, send, fields)


def rate_rejection(bucket: KeyedTokenBucket, wait: float) -> Rejection:
    """Return the rejection of a key whose tokens are there in that many seconds.

    Whole seconds are added at random: who shares a key is told the same, and would come back
    together, for the tokens of one.
    """
    spread = int(random.random() * (1 + wait / 4 if wait > 4 else 2))  # noqa: S311
    return Rejection(bucket.name, _RATE, wait + spread, kind="bucket")


def check_quota(bucket: object, key: object, tokens: object) -> None:
    """Refuse what can be no quota."""
    check_kind("bucket", "a KeyedTokenBucket", bucket, KeyedTokenBucket)
    if not callable(key):
        msg = f"key must be a callable, such as client_ip(), got {key!r:.100}"
        raise TypeError(msg)
    check_callable("tokens", tokens)
    check_is_not_async("key", key)
    check_is_not_async("tokens", tokens)


def _matches(exempt: object) -> Collection[str]:
    if isinstance(exempt, (str, bytes)) or not isinstance(exempt, Collection):
        msg = f"exempt must be a collection of paths, got {exempt!r:.100}"
        raise TypeError(msg)
    return exempt


def _quoted(name: str) -> str:
    if not _PRINTABLE.fullmatch(name):
        msg = (
            "bucket must have a name of printable ASCII characters, since RateLimit-Policy tells "
            f"it to clients, got {name!r:.100}"
        )
        raise ValueError(msg)
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _fields_of(
    name: str, remaining: int, more_after: int | None, quota: int, window: int
) -> tuple[Pair, ...]:
    time = "" if more_after is None else f";t={more_after}"
    return (
        (b"ratelimit-policy", f"{name};q={quota};w={window}".encode()),
        (b"ratelimit", f"{name};r={remaining}{time}".encode()),
    )


def _completing(fields: tuple[Pair, ...], retry_after: Pair, send: Send) -> Send:
    def completing(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *fields]
            if all(name.lower() != b"retry-after" for name, _ in headers):
                headers.append(retry_after)
            message = {**message, "headers": headers}
        return send(message)

    return completing
