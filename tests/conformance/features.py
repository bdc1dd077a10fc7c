"""What the installed middleware can do, so that its cases come with it."""

from __future__ import annotations

import inspect

from sluicegate import asgi

_OPTIONS = {
    *inspect.signature(asgi.LoadSheddingMiddleware).parameters,
    *getattr(getattr(asgi, "Options", None), "__annotations__", {}),
}

#: A cap of their own for websockets and streams; with it came waiting in line at a gate.
HAS_STREAM_CAP = "max_streams" in _OPTIONS
