"""What a client is told that is refused."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from itertools import cycle
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sluicegate._core import Rejection

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
    wait = rejection.retry_after
    if wait is None:
        seconds = next(_UNKNOWN_RETRY_AFTER)
    else:
        # Written so that NaN ends as 1 and infinity does not overflow.
        seconds = math.ceil(min(wait, _LONGEST_RETRY_AFTER)) if wait > 1 else 1
    return _refusal(rejection.status, seconds)


@lru_cache(maxsize=256)
def _refusal(status: int, seconds: int) -> Refusal:
    if status == 429:
        error, detail = "rate_limited", "Too many requests; retry later."
    else:
        error, detail = "overloaded", "The service is at capacity; retry later."
    body = json.dumps(
        {"error": error, "detail": detail, "retry_after": seconds}, separators=(",", ":")
    ).encode()
    headers = (
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"%d" % seconds),
        (b"cache-control", b"no-store"),
    )
    return Refusal(status, headers, body)
