"""What a request says of the attempts before it."""

from __future__ import annotations

from typing import Final

#: The headers that tell, in lower case, and what they say of a first attempt: the number of this
#: one, and how many there were before it.
FIRST: Final = {b"x-envoy-attempt-count": 1, b"grpc-previous-rpc-attempts": 0}
_MOST_DIGITS: Final = 9


def is_retry(name: bytes, value: bytes) -> bool:
    """Whether a header says that this request is not sent for the first time."""
    first = FIRST.get(name)
    # Of bytes only ASCII digits are digits.
    is_number = len(value) <= _MOST_DIGITS and value.isdigit()
    return first is not None and is_number and int(value) > first
