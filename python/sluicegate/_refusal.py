"""What a client is told that is refused."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from itertools import cycle
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sluicegate._core import Rejection

# Written out, since a quota has more waits than can be kept, and JSON would be most of it.
_RATE_LIMITED: Final = (
    b'{"error":"rate_limited","detail":"Too many requests; retry later.","retry_after":%d}'
)
_OVERLOADED: Final = (
    b'{"error":"overloaded","detail":"The service is at capacity; retry later.","retry_after":%d}'
)
_LONGEST_RETRY_AFTER: Final = 2**31 - 1
# A crowd that is told the same comes back together, and is refused together.
_UNKNOWN_RETRY_AFTER: Final = cycle((1, 2))


class Refusal(NamedTuple):
    """The parts of a response that refuses a request."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def refusal(rejection: Rejection) -> Refusal:
    """Return the response for a rejection, which tells a stranger no limits or counts."""
    return _refusal(rejection.status, _seconds(rejection))


def problem(rejection: Rejection) -> Refusal:
    """Return the same as problem details, as RFC 9457 describes them."""
    return _problem(rejection.status, _seconds(rejection))


def _seconds(rejection: Rejection) -> int:
    wait = rejection.retry_after
    if wait is None:
        return next(_UNKNOWN_RETRY_AFTER)
    # Written so that NaN ends as 1 and infinity does not overflow.
    return math.ceil(min(wait, _LONGEST_RETRY_AFTER)) if wait > 1 else 1


@lru_cache(maxsize=256)
def _refusal(status: int, seconds: int) -> Refusal:
    text = _RATE_LIMITED if status == 429 else _OVERLOADED
    return _rendered(status, seconds, b"application/json", text % seconds)


@lru_cache(maxsize=256)
def _problem(status: int, seconds: int) -> Refusal:
    title = "Too Many Requests" if status == 429 else "Service Unavailable"
    detail = _refusal(status, seconds).body
    content = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": json.loads(detail)["detail"],
        "retry_after": seconds,
    }
    body = json.dumps(content, separators=(",", ":")).encode()
    return _rendered(status, seconds, b"application/problem+json", body)


def _rendered(status: int, seconds: int, kind: bytes, body: bytes) -> Refusal:
    headers = (
        (b"content-type", kind),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"%d" % seconds),
        (b"cache-control", b"no-store"),
    )
    return Refusal(status, headers, body)
