"""A permit that is held until a WSGI response is closed."""

from __future__ import annotations

import errno
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

from sluicegate import _core
from sluicegate._enums import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from sluicegate._core import Deadline, Permit
    from sluicegate._enums import Criticality
    from sluicegate._wsgi_refusal import Environ, Start, StartResponse, WSGIApp

    #: Answers instead of an exception, if it is to be answered.
    Refuse: TypeAlias = Callable[[BaseException], Iterable[bytes] | None]

_FIRST_ERROR: Final = "4"
# They close the connection after a response that is shorter than was announced.
_ENDING_WITH_LESS: Final = ("waitress", "granian")
_GATEWAY_TIMEOUT: Final = "504"


class Asked:
    """What is asked for the work of a request, for each step of it.

    A context is entered and left within one step: it would stay in the thread of a server that
    does not close a response, and count for whatever comes next there.
    """

    __slots__ = ("_criticality", "_deadline", "_key")

    def __init__(
        self, deadline: Deadline | None, criticality: Criticality | None, key: str | None
    ) -> None:
        self._deadline = deadline
        self._criticality = criticality
        self._key = key

    def scope(self) -> AbstractContextManager[object]:
        """Make the block of one step."""
        return _core.Scope(deadline=self._deadline, criticality=self._criticality, key=self._key)


class Hold:
    """Holds the permit of one request, and that of its thread, and gives them back once.

    Called, it closes the response: it may stand in for the `close` of an iterable.
    """

    __slots__ = ("_close", "_permit", "_start", "_thread", "asked", "is_complete")

    def __init__(self, permit: Permit, thread: Permit, asked: Asked | None, start: Start) -> None:
        self._permit: Permit | None = permit
        self._thread: Permit | None = thread
        self._close: Callable[[], object] | None = None
        self._start = start
        self.asked = asked
        #: Whether the response was made to its end.
        self.is_complete = False

    def closes(self, close: Callable[[], object] | None) -> None:
        """Say what closes the response from now on."""
        self._close = close

    def announced(self) -> int:
        """Return how long the response is said to be, or 0."""
        return self._start.announced()

    def fail(self, error: BaseException) -> None:
        """Give the permit back as an exception says."""
        permit, self._permit = self._permit, None
        if permit is not None:
            # Inside, since it is the time that there was which tells what a time-out says.
            with nullcontext() if self.asked is None else self.asked.scope():
                permit.__exit__(type(error), error, error.__traceback__)
        self._leave()

    def __call__(self) -> None:
        """Close the response, and give the permit back; a second call does nothing."""
        close, self._close = self._close, None
        try:
            if close is not None:
                if self.asked is None:
                    close()
                else:
                    with self.asked.scope():
                        close()
        except BaseException as error:
            self.fail(error)
            raise
        permit, self._permit = self._permit, None
        if permit is not None:
            # What the application has said of it counts.
            permit.release(permit.outcome or self._outcome())
        self._leave()

    def __del__(self) -> None:
        # The environ may be kept for longer, and the permit in it.
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.release(Outcome.IGNORED)
        self._leave()

    def _leave(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.release(Outcome.IGNORED)

    def _outcome(self) -> Outcome:
        status = self._start.status
        if not self.is_complete or status is None:
            return Outcome.IGNORED
        if status < _FIRST_ERROR:
            return Outcome.SUCCESS
        if not status.startswith(_GATEWAY_TIMEOUT):
            return Outcome.IGNORED
        with nullcontext() if self.asked is None else self.asked.scope():
            return _core.outcome_here(Outcome.OVERLOAD)


class Body:
    """The iterable of a response, under a permit."""

    __slots__ = (
        "__weakref__",
        "_ends",
        "_iterable",
        "_iterator",
        "_may_end_short",
        "_refuse",
        "_sent",
        "close",
    )

    def __init__(
        self,
        iterable: Iterable[bytes],
        hold: Hold,
        refuse: Refuse,
        environ: Environ,
        max_lifetime: float | None,
    ) -> None:
        self._sent = 0
        self._may_end_short = max_lifetime is not None and _may_end_short(environ)
        self._iterable: Iterable[bytes] = iterable
        #: Until something is sent: then it cannot be refused any more.
        self._refuse: Refuse | None = refuse
        self._iterator: Iterator[bytes] | None = None
        self._ends = None if max_lifetime is None else time.monotonic() + max_lifetime
        self.close = hold

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        hold = self.close
        if self._ends is not None and time.monotonic() >= self._ends:
            self._end()
        try:
            if hold.asked is None:
                part = self._next()
            else:
                with hold.asked.scope():
                    part = self._next()
        except StopIteration:
            hold.is_complete = True
            raise
        except BaseException as error:
            hold.fail(error)
            refuse, self._refuse = self._refuse, None
            answer = None if refuse is None else refuse(error)
            if answer is None:
                raise
            return self._go_on_with(answer)
        if part:
            self._refuse = None
            self._sent += len(part)
        return part

    def _end(self) -> NoReturn:
        """End it after its lifetime."""
        if self._sent < self.close.announced() and not self._may_end_short:
            # Else gunicorn takes it for whole, and the client what comes next for the rest. It
            # takes this for a client that has left: it closes the connection, and logs nothing.
            error = BrokenPipeError(errno.EPIPE, "the response is over its lifetime")
            self.close.fail(error)
            raise error
        self.close.is_complete = True
        raise StopIteration

    def _go_on_with(self, answer: Iterable[bytes]) -> bytes:
        """Refuse after all: a generator begins to work only when it is asked for a part."""
        hold = self.close
        # Of what has failed; from now on it is the refusal that is to be closed.
        hold()
        hold.closes(getattr(answer, "close", None))
        self._iterator = iter(answer)
        return next(self._iterator, b"")

    def _next(self) -> bytes:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        return next(self._iterator)


class SizedBody(Body):
    """One of a known number of parts, from which some servers tell the length of the whole."""

    __slots__ = ("_size",)

    def __init__(
        self,
        iterable: Iterable[bytes],
        hold: Hold,
        refuse: Refuse,
        environ: Environ,
        max_lifetime: float | None,
        size: int,
    ) -> None:
        super().__init__(iterable, hold, refuse, environ, max_lifetime)
        self._size = size

    def __len__(self) -> int:
        return self._size


def run_under(
    hold: Hold,
    app: WSGIApp,
    environ: Environ,
    start_response: StartResponse,
    refuse: Refuse,
    max_lifetime: float | None,
) -> Iterable[bytes]:
    """Run an application under a permit.

    Args:
        hold: The permit, which is given back when the response is closed, or has failed.
        app: The application.
        environ: The request.
        start_response: Begins the response.
        refuse: Answers instead of an exception that comes before anything is sent, or returns
            `None`: then it is raised.
        max_lifetime: After how many seconds the response is ended; `None`: never.
    """
    try:
        if hold.asked is None:
            iterable = app(environ, start_response)
        else:
            with hold.asked.scope():
                iterable = app(environ, start_response)
        return _under(hold, iterable, environ, refuse, max_lifetime)
    except BaseException as error:
        hold.fail(error)
        answer = refuse(error)
        if answer is None:
            raise
        return answer


def _under(
    hold: Hold, iterable: Any, environ: Environ, refuse: Refuse, max_lifetime: float | None
) -> Iterable[bytes]:
    """Return an iterable that is closed with its permit.

    What the server sends by itself, from a `wsgi.file_wrapper`, stays what it is, and gets a
    `close` of its own where that can be.
    """
    hold.closes(getattr(iterable, "close", None))
    wrapper = environ.get("wsgi.file_wrapper")
    if (
        isinstance(wrapper, type)
        and isinstance(iterable, wrapper)
        and max_lifetime is None
        and _is_closed_by(iterable, hold)
    ):
        hold.is_complete = True
        return cast("Iterable[bytes]", iterable)
    try:
        size = len(iterable)
    except TypeError:
        return Body(iterable, hold, refuse, environ, max_lifetime)
    return SizedBody(iterable, hold, refuse, environ, max_lifetime, size)


def _may_end_short(environ: Environ) -> bool:
    """Return whether no harm comes of a response that is shorter than was announced."""
    server = str(environ.get("SERVER_SOFTWARE", "")).lower()
    return environ.get("REQUEST_METHOD") == "HEAD" or server.startswith(_ENDING_WITH_LESS)


def _is_closed_by(iterable: Any, hold: Hold) -> bool:
    try:
        iterable.close = hold
    except (AttributeError, TypeError):
        return False  # of a class in C: it is sent part by part
    return True
