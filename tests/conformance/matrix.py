"""Which server serves which framework, and which of the cases cannot be had where."""

from __future__ import annotations

from typing import Final

from conformance.server import SERVERS

# In full over every server; the others over one uvicorn and one other server each.
EVERYWHERE: Final = ("plain", "fastapi", "fastapi_protect")
ELSEWHERE: Final = {
    "starlette": ("uvicorn-httptools-uvloop", "granian"),
    "litestar": ("uvicorn-h11-asyncio", "hypercorn"),
    "quart": ("uvicorn-httptools-asyncio", "hypercorn"),
    "django": ("uvicorn-h11-uvloop", "granian"),
}
HTTP2: Final = ("granian", "hypercorn")
SITES: Final = tuple(
    [(server, app) for server in SERVERS for app in EVERYWHERE]
    + [(server, app) for app, servers in ELSEWHERE.items() for server in servers]
)

_500: Final = "answers an exception with 500 by itself, so that none gets out"
_NO_STATE: Final = "gives handlers no state of the lifespan"
_TASK: Final = "runs its handlers in a task, so in a context, of their own"
_OUTLIVES: Final = "runs its handlers in a task of their own, which outlives the request's"
_HTTP1: Final = "speaks HTTP/1.1 only"
_NO_RETURN: Final = "never returns from the last send() for an HTTP/2 connection that is gone"
_CANCELS: Final = "cancels a handler whose client has left"

#: By framework or server, and by test: why a case is not for it.
SKIPS: Final[dict[tuple[str, str], str]] = {
    ("litestar", "exception"): _500,
    ("quart", "exception"): _500,
    ("django", "exception"): _500,
    ("litestar", "lifespan_state"): _NO_STATE,
    ("quart", "lifespan_state"): _NO_STATE,
    ("django", "lifespan_state"): "knows no lifespan",
    ("quart", "context_outside"): _TASK,
    ("django", "context_outside"): _TASK,
    ("quart", "cancelled"): _OUTLIVES,
    ("django", "cancelled"): _OUTLIVES,
    ("quart", "background"): "runs background tasks outside of the request, so without its permit",
    ("django", "background"): "has no background tasks",
    ("quart", "sub_app"): "mounts no ASGI applications",
    ("django", "sub_app"): "mounts no ASGI applications",
    ("django", "websocket"): "knows no websockets",
    # So what is in flight for it is so for ever; who is cancelled calls it no more.
    (
        "hypercorn",
        "http2_connection_goes",
    ): "never returns from send() once such a connection is gone",
    **{(server, "http2"): _HTTP1 for server in SERVERS if server not in HTTP2},
    ("quart", "leaving_work"): _CANCELS,
    ("django", "leaving_work"): _CANCELS,
}
