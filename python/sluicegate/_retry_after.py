"""What an answer says about when to come back."""

from __future__ import annotations

import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from sluicegate import _core

# A delay of more digits is none that anybody means.
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


def retry_after_of(answer: object) -> float | None:
    """Return after how many seconds an answer asks to come back, if it does.

    Args:
        answer: A response, or an exception, of httpx, requests, aiohttp, or what has `headers`
            like theirs, itself or as its `response`.

    """
    try:
        for one in (answer, getattr(answer, "response", None)):
            headers: Any = getattr(one, "headers", None)
            get = getattr(headers, "get", None)
            if callable(get):
                value = get("retry-after") or get("Retry-After")
                if isinstance(value, bytes):
                    value = value.decode("latin-1")
                if isinstance(value, (str, int)):
                    return parse_retry_after(str(value))
    except Exception as error:
        # What answers is not ours.
        _core.report(error, answer)
    return None


def parse_retry_after(value: str) -> float | None:
    """Return the seconds that a `Retry-After` means; `None` if it is malformed.

    Args:
        value: A number of seconds, or a date of HTTP (RFC 9110, 10.2.3).

    """
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    # Without a zone it is one of HTTP, which are all in UTC.
    at = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - time.time())
