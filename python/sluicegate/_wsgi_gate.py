"""Which gate stands in front of a WSGI application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from sluicegate._gate import Gate
from sluicegate._gradient import GradientLimiter
from sluicegate._rules import Rule

if TYPE_CHECKING:
    from sluicegate._limiter import BaseLimiter

_MOST_THREADS: Final = 100_000
_INITIAL: Final = 20


def check_threads(threads: object) -> int:
    """Return the number of threads.

    Raises:
        ValueError: If it is out of its range.
        TypeError: If it is no integer.
    """
    text = f"threads must be an integer from 1 to {_MOST_THREADS}, got {threads!r:.100}"
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(text)
    if not 1 <= threads <= _MOST_THREADS:
        raise ValueError(text)
    return threads


def gate_for(
    gate: object,
    limit: object,
    *,
    threads: int,
    streams: int,
    beside: bool,
    has_queue_time: bool,
    name: str,
) -> Gate:
    """Return the gate that is given, or make the one that is meant.

    Args:
        gate: A `Gate`, or `None`.
        limit: A number, a limiter of this package, or `None`.
        threads: How many worker threads there are.
        streams: How many of these may be taken by streams.
        beside: Whether something is exempt or degraded, for which a gate that is made here leaves a
            thread if it can.
        has_queue_time: Whether requests are refused for their time in the queue.
        name: What the gate is called if it is made here.

    Raises:
        ValueError: If the limit leaves no thread over.
        TypeError: If an argument is of a wrong type, or both `gate` and `limit` are given.
    """
    if gate is not None and limit is not None:
        msg = "gate and limit exclude each other: give the gate its limit, as in Gate(limit)"
        raise TypeError(msg)
    if gate is not None:
        if not isinstance(gate, Gate):
            msg = f"gate must be a Gate or None, got {gate!r:.100}"
            raise TypeError(msg)
        _check_limit("gate.limit", gate.limit, threads, streams)
        return gate
    room = threads - streams - 1
    if limit is not None:
        # What is none of these is refused by the gate, which says what it takes.
        if isinstance(limit, (int, float)) and not isinstance(limit, bool):
            _check_limit("limit", limit, threads, streams)
        elif callable(getattr(limit, "snapshot", None)):
            snapshot = cast("Any", limit).snapshot()
            _check_limit("limit", getattr(snapshot, "max_limit", snapshot.limit), threads, streams)
        return Gate(cast("float | BaseLimiter", limit), max_waiting=0, name=name)
    if room >= 1:
        if beside and room > 1:
            room -= 1
        limiter = GradientLimiter(initial=min(_INITIAL, room), max_limit=room)
        return Gate(limiter, max_waiting=0, name=name)
    if threads == 1 and has_queue_time and not streams:
        # One thread is never refused for what is in flight: there is only the queue before it.
        return Gate(1, max_waiting=0, name=name)
    least = streams + 2
    msg = (
        f"threads must be at least {least} here, got {threads}: {_why(streams)}; with one thread "
        "requests can only be refused for their time in the queue, by queue_time_header"
    )
    raise ValueError(msg)


def streams_of(max_streams: object, rules: object, threads: int) -> int:
    """Return how many threads streams may take, from 0.

    Raises:
        ValueError: If `max_streams` is out of its range.
        TypeError: If it is neither an integer nor `None`.
    """
    if max_streams is None:
        has_one = isinstance(rules, Sequence) and any(
            isinstance(rule, Rule) and rule.stream for rule in rules
        )
        return max(1, threads // 4) if has_one else 0
    text = f"max_streams must be an integer from 1 to threads - 2 = {threads - 2}"
    if isinstance(max_streams, bool) or not isinstance(max_streams, int):
        msg = f"{text}, or None, got {max_streams!r:.100}"
        raise TypeError(msg)
    if not 1 <= max_streams <= threads - 2:
        msg = f"{text}, since a stream holds a thread, got {max_streams}"
        raise ValueError(msg)
    return max_streams


def _check_limit(name: str, limit: float, threads: int, streams: int) -> None:
    # Written so that NaN is left to whoever refuses it.
    if limit >= threads - streams:
        less = f"threads - max_streams = {threads - streams}" if streams else f"threads = {threads}"
        msg = f"{name} must be below {less}, got {limit:g}: {_why(streams)}"
        raise ValueError(msg)


def _why(streams: int) -> str:
    others = ", and streams take theirs" if streams else ""
    return (
        "what no thread is free for waits in the queue of the server, where nobody refuses it, so "
        f"that one thread has to be left over{others}"
    )
