"""A permit that is held until a WSGI response is closed."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, cast

from sluicegate import _core
from sluicegate._enums import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from sluicegate._core import Deadline, Permit
    from sluicegate._enums import Criticality

_FIRST_ERROR: Final = "4"
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
    """Holds the permit of one request, and gives it back once.

    Called, it closes the response: it may stand in for the `close` of an iterable.
    """

    __slots__ = ("_close", "_permit", "asked", "is_complete", "status")

    def __init__(self, permit: Permit, asked: Asked | None) -> None:
        self._permit: Permit | None = permit
        self._close: Callable[[], object] | None = None
        self.asked = asked
        #: As told to `start_response`.
        self.status: str | None = None
        #: Whether the response was made to its end.
        self.is_complete = False

    def closes(self, close: Callable[[], object] | None) -> None:
        """Say what closes the response."""
        self._close = close

    def fail(self, error: BaseException) -> None:
        """Give the permit back as an exception says."""
        permit, self._permit = self._permit, None
        if permit is not None:
            # Inside, since it is the time that there was which tells what a time-out says.
            with nullcontext() if self.asked is None else self.asked.scope():
                permit.__exit__(type(error), error, error.__traceback__)

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

    def __del__(self) -> None:
        # The environ may be kept for longer, and the permit in it.
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.release(Outcome.IGNORED)

    def _outcome(self) -> Outcome:
        status = self.status
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

    __slots__ = ("__weakref__", "_ends", "_iterable", "_iterator", "close")

    def __init__(self, iterable: Iterable[bytes], hold: Hold, max_lifetime: float | None) -> None:
        self._iterable: Iterable[bytes] = iterable
        self._iterator: Iterator[bytes] | None = None
        self._ends = None if max_lifetime is None else time.monotonic() + max_lifetime
        self.close = hold

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        hold = self.close
        if self._ends is not None and time.monotonic() >= self._ends:
            hold.is_complete = True
            raise StopIteration
        try:
            if hold.asked is None:
                return self._next()
            with hold.asked.scope():
                return self._next()
        except StopIteration:
            hold.is_complete = True
            raise
        except BaseException as error:
            hold.fail(error)
            raise

    def _next(self) -> bytes:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        return next(self._iterator)


class SizedBody(Body):
    """One of a known number of parts, from which some servers tell the length of the whole."""

    __slots__ = ("_size",)

    def __init__(
        self, iterable: Iterable[bytes], hold: Hold, max_lifetime: float | None, size: int
    ) -> None:
        super().__init__(iterable, hold, max_lifetime)
        self._size = size

    def __len__(self) -> int:
        return self._size


def under(
    hold: Hold, iterable: Any, environ: dict[str, Any], max_lifetime: float | None
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
        return Body(iterable, hold, max_lifetime)
    return SizedBody(iterable, hold, max_lifetime, size)


def _is_closed_by(iterable: Any, hold: Hold) -> bool:
    try:
        iterable.close = hold
    except (AttributeError, TypeError):
        return False  # of a class in C: it is sent part by part
    return True
