"""Load shedding for FastAPI and Starlette applications, in one line."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sluicegate._core import Rejection
from sluicegate._enums import Reason
from sluicegate._errors import QueueClosed, Rejected, SluicegateError, TimedOut
from sluicegate._fastapi_dependencies import guard, quota
from sluicegate._refusal import refusal
from sluicegate.asgi import LoadSheddingMiddleware, Rule

try:
    from fastapi import FastAPI
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Host, Mount
    from starlette.websockets import WebSocket, WebSocketState

    from sluicegate._fastapi_cors import Cors
except ImportError as error:
    raise ImportError(
        'sluicegate.fastapi needs FastAPI: pip install "sluicegate[fastapi]"'
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from typing import Unpack

    from starlette.types import ExceptionHandler

    from sluicegate.asgi import ASGIApp, Message, Options, Receive, Scope, Send

__all__ = ["Rule", "guard", "protect", "quota"]

AppT = TypeVar("AppT", bound=Starlette)

_TRY_AGAIN_LATER: Final = 1013
_METHODS: Final = frozenset(
    {"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"}
)
_SCHEMA_NAME: Final = "SluicegateRefusal"
_SCHEMA: Final = {
    "title": _SCHEMA_NAME,
    "type": "object",
    "required": ["error", "detail", "retry_after"],
    "properties": {
        "error": {"title": "Error", "type": "string"},
        "detail": {"title": "Detail", "type": "string"},
        "retry_after": {"title": "Retry After", "type": "integer", "minimum": 1},
    },
}
_RESPONSE: Final = {
    "headers": {
        "Retry-After": {
            "description": "Seconds to wait before the next attempt",
            "schema": {"type": "integer", "minimum": 1},
        }
    },
    "content": {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{_SCHEMA_NAME}"}},
    },
}
_DESCRIPTIONS: Final = {"429": "Too Many Requests", "503": "Service Unavailable"}

_PROTECTED: Final = "_sluicegate_is_protected"


def protect(app: AppT, **options: Unpack[Options]) -> AppT:
    """Make an application shed load, and return the same object.

    `app = protect(FastAPI())` stays a FastAPI application, so that `fastapi run` and
    `uvicorn module:app` serve it protected. Refusals are decided outside of every middleware, also
    of what is added later; see `LoadSheddingMiddleware` for what is refused and how long a permit
    is held. They have the headers for scripts of other origins all the same, if `app` has a
    `CORSMiddleware` of Starlette.

    A `Rejected` that is raised anywhere below is answered with the same 503 or 429, and a
    `TimedOut` or `QueueClosed` with 503, unless the application has a handler of its own for it.
    The OpenAPI document lists both answers for every operation that is not exempt and does not
    declare them itself; replace `app.openapi` before this call, not after it.

    The middleware is `app.state.sluicegate`, with its `gate`, `exempt` and `streams`: to watch the
    gate, `app.state.sluicegate.gate.snapshot()`. Or make it yourself: `http = Gate(name="http")`,
    `protect(app, gate=http)`.

    Args:
        app: A FastAPI or Starlette application that has not started yet.
        **options: Those of `sluicegate.asgi.LoadSheddingMiddleware`.

    Raises:
        TypeError: If `app` is not a FastAPI or Starlette application, an option is of a wrong
            type, or `gate` and `limit` are both given.
        ValueError: If an option, or what the environment says of the gate, is out of its range.
        RuntimeError: If `app` has been protected already, or has started.

    """
    if not isinstance(app, Starlette):
        raise TypeError(
            f"app must be a FastAPI or Starlette application, got {app!r}; wrap any other "
            "ASGI application: sluicegate.asgi.LoadSheddingMiddleware(app, limit=...)"
        )
    kind = type(app)
    if getattr(kind, _PROTECTED, False):
        raise RuntimeError("app is protected already: call protect() once for an application")
    if app.middleware_stack is not None:
        raise RuntimeError("Cannot protect an application after it has started")

    # Whatever can fail comes first: an application is protected as a whole or not.
    shedding = LoadSheddingMiddleware(_call(kind, app), **options)
    if root_path := getattr(app, "root_path", ""):
        # FastAPI puts it into the scope only inside of its own call.
        shedding.look_below(root_path)
    # A call looks `__call__` up in the class and not in the object. So the object
    # gets a class of its own; to shed only in its middleware stack would cost 4 µs
    # more, which FastAPI spends before it gets there.
    app.__class__ = _shedding_class(kind, app, shedding)
    cors = Cors(app)
    shedding.refuse_through(cors)
    app.state.sluicegate = shedding
    app.build_middleware_stack = _answer_rejected(app, cors)  # type: ignore[method-assign]
    if isinstance(app, FastAPI):
        app.openapi = _document(app.openapi, shedding.is_exempt)  # type: ignore[method-assign]
    return app


def _shedding_class(kind: type[AppT], app: AppT, shedding: LoadSheddingMiddleware) -> type[AppT]:
    async def __call__(self: AppT, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: N807
        # A copy of the application has the same class, and the same limit.
        shed = shedding if self is app else shedding.for_app(_call(kind, self))
        await shed(scope, receive, send)

    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    metaclass: Any = type(kind)
    made: type[AppT] = metaclass(
        kind.__name__, (kind,), {**names, "__call__": __call__, _PROTECTED: True}
    )
    return made


def _call(kind: type[AppT], app: AppT) -> ASGIApp:
    # Looked up for each request: instrumentation may replace it later.
    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return kind.__call__(app, scope, receive, send)

    return call


def _answer_rejected(app: Starlette, cors: Cors) -> Callable[[], ASGIApp]:
    build = app.build_middleware_stack

    def build_middleware_stack() -> ASGIApp:
        _handle_rejected(app)
        outermost = Middleware(_RejectedMiddleware, handlers=app.exception_handlers, cors=cors)
        app.user_middleware.insert(0, outermost)
        try:
            return build()
        finally:
            app.user_middleware.remove(outermost)

    return build_middleware_stack


def _handle_rejected(app: Starlette) -> None:
    # A mounted application answers 500 by itself, so it needs the handler as well.
    todo: list[Any] = [app]
    seen: set[int] = set()
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Starlette) and SluicegateError not in part.exception_handlers:
            for error in _ANSWERED:
                if not any(base in part.exception_handlers for base in error.__mro__[:-3]):
                    part.exception_handlers[error] = cast("ExceptionHandler", _answer)
        routes: Collection[BaseRoute] | None = getattr(part, "routes", None)
        if routes is None:
            todo.append(getattr(part, "app", None))
        else:
            todo.extend(route.app for route in routes if isinstance(route, (Mount, Host)))


_ANSWERED = (Rejected, TimedOut, QueueClosed)
_UNAVAILABLE = Rejection("", Reason.WAIT)


async def _answer(connection: Request | WebSocket, error: Exception) -> Response | None:
    if isinstance(connection, WebSocket):
        states = (connection.client_state, connection.application_state)
        if WebSocketState.DISCONNECTED not in states:
            await connection.close(_TRY_AGAIN_LATER)
        return None
    rejection = error.rejection if isinstance(error, Rejected) else _UNAVAILABLE
    status, headers, body = refusal(rejection)
    return Response(
        b"" if connection.method == "HEAD" else body,
        status,
        {name.decode(): value.decode() for name, value in headers},
    )


class _RejectedMiddleware:
    """Answer a `Rejected` that other middleware raises, where no exception handler works."""

    def __init__(self, app: ASGIApp, handlers: Mapping[Any, ExceptionHandler], cors: Cors) -> None:
        self.app = app
        self._handlers = handlers
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def observe(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, observe)
        except _ANSWERED as error:
            mro = (cls for cls in type(error).__mro__ if issubclass(cls, SluicegateError))
            handler: Any = next(filter(None, map(self._handlers.get, mro)), None)
            if started or handler is None:
                raise
            request = Request(scope, receive)
            if inspect.iscoroutinefunction(handler):
                response = await handler(request, error)
            else:
                response = await run_in_threadpool(handler, request, error)
                if inspect.isawaitable(response):
                    response = await response
            through = self._cors(scope)
            if through is None:
                await response(scope, receive, send)
            else:
                await through(response, scope, receive, send)


def _document(
    openapi: Callable[[], dict[str, Any]], is_exempt: Callable[[str, str], bool]
) -> Callable[[], dict[str, Any]]:
    def documented() -> dict[str, Any]:
        # Copies, level by level: the document may be cached, or shared with others.
        document = dict(openapi())
        document["paths"] = {
            path: _with_refusals(path, item, is_exempt)
            for path, item in document.get("paths", {}).items()
        }
        components = dict(document.get("components", {}))
        components["schemas"] = {_SCHEMA_NAME: _SCHEMA, **components.get("schemas", {})}
        document["components"] = components
        return document

    return documented


def _with_refusals(
    path: str, item: dict[str, Any], is_exempt: Callable[[str, str], bool]
) -> dict[str, Any]:
    item = dict(item)
    for method in _METHODS & item.keys():
        if is_exempt(method.upper(), path):
            continue
        operation = item[method] = dict(item[method])
        responses = operation["responses"] = dict(operation.get("responses", {}))
        declared = {str(status).upper() for status in responses}
        for status, description in _DESCRIPTIONS.items():
            if declared.isdisjoint({status, f"{status[0]}XX"}):
                responses[status] = {"description": description, **_RESPONSE}
    return item
