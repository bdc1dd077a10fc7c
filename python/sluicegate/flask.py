"""Load shedding for Flask applications, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from sluicegate._core import Rejection
from sluicegate._enums import Reason
from sluicegate._errors import Rejected, SluicegateError
from sluicegate._headers import Headers
from sluicegate._refusal import refusal
from sluicegate._rules import Rule
from sluicegate.wsgi import PERMIT, LoadSheddingMiddleware

try:
    from flask import Flask, Response, request
except ImportError as error:
    raise ImportError('sluicegate.flask needs Flask: pip install "sluicegate[flask]"') from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sluicegate._gate import Gate
    from sluicegate._limiter import BaseLimiter
    from sluicegate.wsgi import Environ, Respond

__all__ = ["Rule", "protect"]

AppT = TypeVar("AppT", bound=Flask)

_EXTENSION: Final = "sluicegate"
_DEFAULT_HEADERS: Final = Headers()
_UNAVAILABLE: Final = Rejection("", Reason.WAIT)


def protect(
    app: AppT,
    *,
    threads: int,
    gate: Gate | None = None,
    limit: float | BaseLimiter | None = None,
    rules: Sequence[Rule] | Callable[[Environ], Rule | None] = (),
    key: Callable[[Environ], str | None] | None = None,
    headers: Headers = _DEFAULT_HEADERS,
    exempt_limit: int = 16,
    max_streams: int | None = None,
    respond: Respond | None = None,
    degrade: Respond | None = None,
    degrade_limit: int = 16,
    on_reject: Callable[[Environ, Rejection], object] | None = None,
    queue_time_header: str | None = "x-request-start",
    max_queue_time: float | None = None,
) -> AppT:
    """Make an application shed load, and return the same object.

    `app = protect(Flask(__name__), threads=8)` stays a Flask application, served as before by
    `gunicorn --threads 8 module:app`. What is refused is refused before Flask begins with it; see
    `LoadSheddingMiddleware` for what that is, how long a permit is held, and for all options.

    A `Rejected` that is raised anywhere below is answered with the same 503 or 429, and a
    `TimedOut` or `QueueClosed` with 503, unless the application has a handler of its own for it or
    for `SluicegateError`.

    What a request teaches the limit goes by its route, as in `"/users/<int:id>"`, unless a rule
    names its `operation`. The middleware is `app.extensions["sluicegate"]`, with its `gate`.

    Args:
        app: A Flask application that has served no request yet.
        threads: How many worker threads the server has in this process, from 1 to 100,000.
        gate: As in `LoadSheddingMiddleware`.
        limit: As in `LoadSheddingMiddleware`.
        rules: As in `LoadSheddingMiddleware`.
        key: As in `LoadSheddingMiddleware`.
        headers: As in `LoadSheddingMiddleware`.
        exempt_limit: As in `LoadSheddingMiddleware`.
        max_streams: As in `LoadSheddingMiddleware`.
        respond: As in `LoadSheddingMiddleware`; a Flask `Response` can be returned. There is no
            application context. It does not answer what is raised below.
        degrade: As in `LoadSheddingMiddleware`, and without an application context.
        degrade_limit: As in `LoadSheddingMiddleware`.
        on_reject: As in `LoadSheddingMiddleware`, and without an application context.
        queue_time_header: As in `LoadSheddingMiddleware`.
        max_queue_time: As in `LoadSheddingMiddleware`.

    Raises:
        TypeError: If `app` is not a Flask application, or an argument is of a wrong type.
        ValueError: If an argument is out of its range, or the limit leaves no thread over.
        RuntimeError: If `app` has been protected already.

    """
    if not isinstance(app, Flask):
        raise TypeError(
            f"app must be a Flask application, got {app!r:.100}; wrap any other WSGI application: "
            "sluicegate.wsgi.LoadSheddingMiddleware(app, threads=...)"
        )
    if _EXTENSION in app.extensions:
        msg = "app is protected already: call protect() once for an application"
        raise RuntimeError(msg)
    # Whatever can fail comes first: an application is protected as a whole or not.
    shedding = LoadSheddingMiddleware(
        app.wsgi_app,
        threads=threads,
        gate=gate,
        limit=limit,
        rules=rules,
        key=key,
        headers=headers,
        exempt_limit=exempt_limit,
        max_streams=max_streams,
        respond=respond,
        degrade=degrade,
        degrade_limit=degrade_limit,
        on_reject=on_reject,
        queue_time_header=queue_time_header,
        max_queue_time=max_queue_time,
    )
    # For the base: a handler that the application has for one of ours is nearer to it.
    if SluicegateError not in app.error_handler_spec[None][None]:
        app.register_error_handler(SluicegateError, _answer)
    app.handle_exception = _answering(app)  # type: ignore[assignment,method-assign]
    # First, since one that answers by itself ends the list.
    app.before_request_funcs.setdefault(None, []).insert(0, _name_the_work)
    app.extensions[_EXTENSION] = shedding
    app.wsgi_app = shedding  # type: ignore[method-assign]
    return app


def _answering(app: Flask) -> Callable[[Exception], Response]:
    handle = app.handle_exception

    def handle_exception(error: Exception) -> Response:
        # Of what runs after a view, Flask asks no handler but that for a 500.
        if not isinstance(error, SluicegateError):
            return handle(error)
        answer = app.handle_user_exception(error)
        return app.finalize_request(answer, from_error_handler=True)

    return handle_exception


def _name_the_work() -> None:
    permit = request.environ.get(PERMIT)
    if permit is not None and permit.operation is None and request.url_rule is not None:
        permit.operation = request.url_rule.rule


def _answer(error: Exception) -> Response:
    rejection = error.rejection if isinstance(error, Rejected) else _UNAVAILABLE
    status, headers, body = refusal(rejection)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})
