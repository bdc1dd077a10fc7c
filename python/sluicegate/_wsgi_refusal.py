"""How a refusal is answered over WSGI."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sluicegate import _core
from sluicegate._core import Rejection
from sluicegate._enums import Reason
from sluicegate._errors import QueueClosed, Rejected, TimedOut
from sluicegate._refusal import refusal

if TYPE_CHECKING:
    from types import TracebackType

    ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
WSGIApp: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]
Respond: TypeAlias = Callable[[Environ, Rejection], WSGIApp | None]
"""Gets the environ and the rejection, and returns what answers, such as a Flask or Werkzeug
`Response`; `None`: as without it."""

_STATUS: Final = {429: "429 Too Many Requests", 503: "503 Service Unavailable"}
_ANSWERED: Final = (Rejected, TimedOut, QueueClosed)
_UNAVAILABLE: Final = Rejection("", Reason.WAIT)


def ask(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function of the user; what it raises is reported, and it has said nothing."""
    try:
        return function(*arguments)
    except Exception as error:
        _core.report(error, function)
        return None


def rejection_of(error: BaseException) -> Rejection | None:
    """Return what is answered instead of an exception, if it is a rejection by something below."""
    if isinstance(error, Rejected):
        return error.rejection
    return _UNAVAILABLE if isinstance(error, _ANSWERED) else None


class Start:
    """The `start_response` of what answers: it knows the status, if there is one.

    Attributes:
        status: As it was told last.
        headers: So are these.

    """

    __slots__ = ("_start_response", "headers", "status")

    def __init__(self, start_response: StartResponse) -> None:
        self._start_response = start_response
        self.status: str | None = None
        self.headers: list[tuple[str, str]] = []

    def __call__(self, status: str, headers: Any, exc_info: Any = None) -> Any:
        self.status = status
        self.headers = headers
        if exc_info is None:
            return self._start_response(status, headers)
        try:
            return self._start_response(status, headers, exc_info)
        finally:
            exc_info = None  # it holds this frame

    def announced(self) -> int:
        """Return how long the response is, as its headers have it, or 0."""
        lengths = (value for name, value in self.headers if name.lower() == "content-length")
        length = next(lengths, "")
        return int(length) if length.isdecimal() else 0


class _Begun:
    """A response whose first part is made already."""

    __slots__ = ("_first", "_parts", "_response")

    def __init__(self, response: Iterable[bytes]) -> None:
        self._response = response
        self._parts = iter(response)
        self._first = next(self._parts, None)

    def __iter__(self) -> _Begun:
        return self

    def __next__(self) -> bytes:
        first, self._first = self._first, None
        return next(self._parts) if first is None else first

    def close(self) -> None:
        _close(self._response)


def _close(response: object) -> None:
    close = getattr(response, "close", None)
    if close is not None:
        close()


def answer_by(
    respond: Respond | None, environ: Environ, start_response: StartResponse, rejection: Rejection
) -> Iterable[bytes]:
    """Refuse by what the user answers, or as usual.

    What fails before it has begun is reported, and is no reason for a 500.
    """
    app: WSGIApp | None = None if respond is None else ask(respond, environ, rejection)
    if app is not None:
        start = Start(start_response)
        response: Iterable[bytes] | None = None
        try:
            response = app(environ, start)
            # A generator begins to work only when it is asked for a part.
            return response if start.status is not None else _Begun(response)
        except Exception as error:
            # The server knows nothing of it yet.
            ask(_close, response)
            if start.status is not None:
                raise
            _core.report(error, app)
    return answer(environ, start_response, rejection)


def answer(
    environ: Environ,
    start_response: StartResponse,
    rejection: Rejection,
    exc_info: ExcInfo | None = None,
) -> Iterable[bytes]:
    """Refuse as usual; with `exc_info` instead of what was begun, if none of it is sent yet.

    Raises:
        BaseException: What is in `exc_info`, if some is sent.
    """
    status, headers, body = refusal(rejection)
    # A fresh list: middleware outside this one may add to it.
    fields = [(name.decode(), value.decode()) for name, value in headers]
    try:
        if exc_info is None:
            start_response(_STATUS[status], fields)
        else:
            start_response(_STATUS[status], fields, exc_info)
    finally:
        exc_info = None
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]


def info_of(error: BaseException) -> ExcInfo:
    """Return an exception as `start_response` takes it."""
    return type(error), error, error.__traceback__
