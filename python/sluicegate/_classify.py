"""What the end of a call says about the load of whoever was called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from sluicegate._enums import Outcome
from sluicegate._errors import SluicegateError

Classify: TypeAlias = Callable[[Any], Outcome]
"""Says how a call ended; gets its result, or the exception that it raised."""

_STATUSES = range(100, 600)
_FIRST_ERROR = 400
_OVERLOAD = frozenset({429, 503, 504})


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what it was raised from, and so on."""
    return _chain(error, lambda error: error.__cause__)


def classify_result(result: object) -> Outcome:
    """Say what a result means where nobody said otherwise.

    It is a SUCCESS unless it is a response with another status: 429, 503 and 504 are OVERLOAD, and
    other statuses from 400 on say nothing about load.
    """
    status = _status(result)
    return Outcome.SUCCESS if status is None else _of_status(status)


def classify_error(error: object) -> Outcome:
    """Say what an exception means where nobody said otherwise.

    A `TimeoutError` or a `ConnectionRefusedError` is OVERLOAD, also behind another exception, and
    so is one that holds a response which says so. Our own errors say nothing about whoever was
    called, nor does anything else.
    """
    if not isinstance(error, BaseException):
        return Outcome.IGNORED
    # httpcore cuts off what it was raised from, and leaves what was being handled.
    chain = tuple(_chain(error, _before))
    # First, since some of ours are a TimeoutError, too. What is only being handled meanwhile, such
    # as a rejection for which somebody else is asked, is no cause.
    if any(isinstance(link, SluicegateError) for link in causes(error)):
        return Outcome.IGNORED
    overload = (TimeoutError, ConnectionRefusedError)
    if any(isinstance(link, overload) and not isinstance(link, SluicegateError) for link in chain):
        return Outcome.OVERLOAD
    status = _status(getattr(error, "response", None)) or _status(error)
    return Outcome.OVERLOAD if status in _OVERLOAD else Outcome.IGNORED


def _status(response: object) -> int | None:
    """Return the HTTP status of what looks like a response: of httpx, requests, aiohttp, …."""
    for name in ("status_code", "status"):
        status = getattr(response, name, None)
        if type(status) is int and status in _STATUSES:
            return status
    return None


def _of_status(status: int) -> Outcome:
    if status in _OVERLOAD:
        return Outcome.OVERLOAD
    return Outcome.SUCCESS if status < _FIRST_ERROR else Outcome.IGNORED


def _before(error: BaseException) -> BaseException | None:
    return error.__context__ if error.__cause__ is None else error.__cause__


def _chain(
    error: BaseException, before: Callable[[BaseException], BaseException | None]
) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        yield link
        seen.add(id(link))
        link = before(link)
