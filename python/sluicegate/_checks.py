"""What an argument has to be, said in one way wherever it is refused."""

from __future__ import annotations

from sluicegate._guard import is_coroutine_function

_MOST = 10**9


def check_kind(name: str, kind: str, value: object, class_: type | tuple[type, ...]) -> None:
    """Refuse what is not of a class, or of one of several."""
    if not isinstance(value, class_):
        msg = f"{name} must be {kind}, got {value!r:.100}"
        raise TypeError(msg)


def check_callable(name: str, value: object) -> None:
    """Refuse what is neither `None` nor can be called."""
    if value is not None and not callable(value):
        msg = f"{name} must be a callable or None, got {value!r:.100}"
        raise TypeError(msg)


def check_is_not_async(name: str, value: object) -> None:
    """Refuse a coroutine function, of which nobody would await what it returns."""
    if callable(value) and is_coroutine_function(value):
        msg = f"{name} must be a callable that is not async, got {value!r:.100}"
        raise TypeError(msg)


def check_count(name: str, value: object) -> None:
    """Refuse what is no integer from 1 to 1e9."""
    text = f"{name} must be an integer from 1 to 1e9, got {value!r:.100}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(text)
    if not 1 <= value <= _MOST:
        raise ValueError(text)


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no number of seconds above 0."""
    text = f"{name} must be a number of seconds above 0, or None, got {value!r:.100}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
