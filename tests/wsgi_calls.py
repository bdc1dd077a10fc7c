"""Calls a WSGI application as a server does."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def environ(path: str = "/work", method: str = "GET", **headers: str) -> dict[str, Any]:
    """Make that of a request; headers are named as in `x_request_start`."""
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "test",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **{f"HTTP_{name.upper()}": value for name, value in headers.items()},
    }


def call(app: App, request: dict[str, Any] | None = None, **headers: str) -> Answer:
    """Play one request to its end."""
    seen: list[Any] = []

    def start_response(status: str, fields: list[tuple[str, str]], exc_info: Any = None) -> Any:
        seen[:] = [status, fields]
        return written.append

    written: list[bytes] = []
    response = app(environ(**headers) if request is None else request, start_response)
    try:
        written.extend(response)
    finally:
        close = getattr(response, "close", None)
        if close is not None:
            close()
    status, fields = seen
    return Answer(int(status[:3]), dict(fields), b"".join(written))
