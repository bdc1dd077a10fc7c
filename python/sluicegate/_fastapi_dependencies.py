"""Limits of single routes, as dependencies of FastAPI."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from sluicegate._checks import check_kind
from sluicegate._enums import Criticality
from sluicegate._errors import Rejected
from sluicegate._gate import Gate
from sluicegate._rate_limit import check_quota, rate_rejection

try:
    from starlette.requests import HTTPConnection  # noqa: TC002 (FastAPI looks at it)
except ImportError as error:
    raise ImportError(
        'sluicegate.fastapi needs FastAPI: pip install "sluicegate[fastapi]"'
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sluicegate._asgi_types import Scope
    from sluicegate._bucket import KeyedTokenBucket
    from sluicegate._core import Permit

# Where FastAPI keeps what it ends after the response is sent, since 0.118.
_STACK: Final = "fastapi_inner_astack"


def quota(
    bucket: KeyedTokenBucket,
    *,
    key: Callable[[Scope], str | None],
    tokens: Callable[[Scope], float] | None = None,
) -> Callable[[HTTPConnection], Awaitable[None]]:
    """Return a dependency that lets nobody ask more often than a quota allows.

    `@app.get("/search", dependencies=[Depends(quota(bucket, key=client_ip()))])`, or for all routes
    of a router. Who is above it gets a `Rejected` with the reason RATE, which `protect()` answers
    with 429 and `Retry-After`. Without `protect()` it is a 500, unless the application has a
    handler:

        @app.exception_handler(Rejected)
        async def reject(request: Request, error: Rejected) -> JSONResponse:
            headers = {"Retry-After": str(math.ceil(error.retry_after or 1))}
            return JSONResponse({"error": "rejected"}, error.rejection.status, headers)

    FastAPI reads the body before it calls a dependency. For a whole application
    `RateLimitMiddleware` costs an eighth, decides before that, and tells clients what is left.

    An exception of `key` or `tokens` goes on, as one of the route would.

    Args:
        bucket: The quota: what each key may take; several dependencies may share it.
        key: Who asks, from the ASGI scope: a string, or `None` if this request is not limited.
            `scope["path_params"]` and `scope["state"]` are there by now.
        tokens: How many tokens a request takes, from the scope, from 1e-9 to the burst. Default: 1.

    Raises:
        TypeError: If an argument is of a wrong type; functions cannot be async.
    """
    check_quota(bucket, key, tokens)

    async def within_quota(connection: HTTPConnection) -> None:
        scope = connection.scope
        name = key(scope)
        if name is None:
            return
        count = 1 if tokens is None else tokens(scope)
        wait = bucket._take_from_quota(name, count)[0]  # noqa: SLF001
        if wait is not None:
            raise Rejected(rate_rejection(bucket, wait))

    return within_quota


def guard(
    gate: Gate, *, criticality: Criticality | None = None
) -> Callable[[HTTPConnection], Awaitable[Permit]]:
    """Return a dependency that holds a permit of a gate while a route works.

    `Guarded = Annotated[Permit, Depends(guard(gate))]`, and `async def search(permit: Guarded)`; or
    `dependencies=[Depends(guard(gate))]`, if the permit is not needed. It never waits: who waits
    inside holds what he got outside. Without room it raises `Rejected`, which `protect()` answers
    with 503 (or 429, if the rate of the gate is why) and `Retry-After`; without `protect()` the
    application needs a handler, as for `quota()`.

    The permit is held until the response is sent and its background tasks are done, or the route
    has failed; a client that leaves does not end it. A normal end counts as SUCCESS, a
    `TimeoutError` as OVERLOAD, every other exception as IGNORED; `permit.outcome` overrules that.

    The same dependency takes one permit for a request, however often it is named; two calls of
    `guard()` are two dependencies. To have the route's limit decided together with that of the
    whole service, and before FastAPI has read the body, use `Rule(gate=…)` instead.

    Args:
        gate: Where the permit comes from.
        criticality: How much it matters; default: from the context, else CRITICAL.

    Raises:
        TypeError: If an argument is of a wrong type.
    """
    check_kind("gate", "a Gate", gate, Gate)
    if criticality is not None:
        check_kind("criticality", "a Criticality or None", criticality, Criticality)

    async def guarded(connection: HTTPConnection) -> Permit:
        stack = connection.scope.get(_STACK)
        if not isinstance(stack, AsyncExitStack):
            raise RuntimeError(  # noqa: TRY004 (no argument is wrong)
                "guard() finds nothing that ends with the request: it needs FastAPI 0.118 or newer"
            )
        verdict = gate.try_acquire(criticality=criticality)
        if not verdict:
            raise Rejected(verdict)
        # A dependency with `yield` would do the same, at the price of an async generator.
        stack.push(verdict)
        return verdict

    return guarded
