"""The applications that test_wsgi_server.py serves with gunicorn, in a process of its own."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import django
import flask
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from sluicegate import Gate, Reason, Rejected, Rejection, context
from sluicegate.flask import Rule, protect
from sluicegate.wsgi import LoadSheddingMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60
THREADS = 4

gate = Gate(1, max_waiting=0)
go = threading.Event()
closed: list[str] = []
rules = [
    Rule("/control/*", exempt=True),
    Rule("/free", exempt=True),
    Rule("/download", stream=True, max_lifetime=0.1),
]


def report() -> str:
    """Tell what is so, at an exempt path."""
    snapshot = gate.snapshot()
    return json.dumps(
        {
            "in_flight": snapshot.in_flight,
            "outcomes": snapshot.outcomes,
            "rejected": snapshot.rejected,
            "closed": closed,
        }
    )


def hold() -> str:
    """Work until it is told to go on."""
    go.wait(PATIENCE)
    go.clear()
    return "done"


def release() -> str:
    """Let who works go on."""
    go.set()
    return ""


def remaining() -> str:
    """Tell what is left of the deadline."""
    return json.dumps(context.remaining())


def broken() -> str:
    """Fail."""
    raise LookupError


def rejected() -> str:
    """Be rejected by something below."""
    raise Rejected(Rejection("users", Reason.RATE, 7))


def parts(count: int) -> Iterator[bytes]:
    """Yield so many parts; 0: without an end."""
    try:
        yield b"first"
        while count != 1:
            count -= 1
            yield b"x" * 65536
    finally:
        closed.append("stream")


def download() -> Iterator[bytes]:
    """Yield what is announced to be longer, and is over its lifetime then."""
    yield b"begin"
    time.sleep(0.2)
    yield b"more"
    yield b"never"


PLAIN: dict[str, Callable[[], str]] = {
    "work": lambda: "fine",
    "hold": hold,
    "remaining": remaining,
    "broken": broken,
    "rejected": rejected,
    "control/report": report,
    "control/release": release,
}


def size_of(body: bytes) -> str:
    """Tell how long a body was."""
    return str(len(body))


# -- Flask ------------------------------------------------------------------------------

flask_app = protect(flask.Flask(__name__), threads=THREADS, gate=gate, rules=rules)
for _name, _function in PLAIN.items():
    flask_app.add_url_rule(f"/{_name}", _name, _function)


@flask_app.get("/stream/<int:count>")
def flask_stream(count: int) -> flask.Response:
    """Stream."""
    return flask.Response(flask.stream_with_context(parts(count)))


@flask_app.get("/control/long")
def flask_long() -> flask.Response:
    """Answer at an exempt path without an end."""
    return flask.Response(parts(0))


@flask_app.post("/echo")
@flask_app.post("/free")
def flask_echo() -> str:
    """Read the body."""
    return size_of(flask.request.get_data())


@flask_app.get("/download")
def flask_download() -> flask.Response:
    """Announce more than is made in its lifetime."""
    return flask.Response(download(), headers={"content-length": "10"})


# -- Django -----------------------------------------------------------------------------


class AnswerRejected:
    """Answers what is rejected in views, as the documentation has it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer with the status of the rejection."""
        if not isinstance(error, Rejected):
            return None
        seconds = str(int(error.retry_after or 1))
        return HttpResponse(status=error.rejection.status, headers={"Retry-After": seconds})


def _view(function: Callable[[], str]) -> Callable[[HttpRequest], HttpResponse]:
    return lambda _: HttpResponse(function())


def django_stream(request: HttpRequest, count: int) -> StreamingHttpResponse:
    """Stream."""
    return StreamingHttpResponse(parts(count))


def django_long(request: HttpRequest) -> StreamingHttpResponse:
    """Answer at an exempt path without an end."""
    return StreamingHttpResponse(parts(0))


def django_download(request: HttpRequest) -> StreamingHttpResponse:
    """Announce more than is made in its lifetime."""
    return StreamingHttpResponse(download(), headers={"content-length": "10"})


def django_echo(request: HttpRequest) -> HttpResponse:
    """Read the body."""
    return HttpResponse(size_of(request.body))


urlpatterns: list[Any] = [
    *(path(name, _view(function)) for name, function in PLAIN.items()),
    path("stream/<int:count>", django_stream),
    path("control/long", django_long),
    path("download", django_download),
    path("echo", django_echo),
    path("free", django_echo),
]
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATA_UPLOAD_MAX_MEMORY_SIZE=None,
    MIDDLEWARE=[f"{__name__}.AnswerRejected"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",
)
django.setup()
django_app = LoadSheddingMiddleware(get_wsgi_application(), threads=THREADS, gate=gate, rules=rules)
