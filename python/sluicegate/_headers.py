"""How a deadline and a criticality travel between services."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sluicegate import _core
from sluicegate._enums import Criticality
from sluicegate._guard import is_coroutine_function

Pairs: TypeAlias = Iterable[tuple[bytes | str, bytes | str]]

_GRPC = b"grpc-timeout"
# What gRPC allows, and as whole milliseconds more than a day.
_GRPC_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_LONG_UNITS = {b"H": 3600, b"M": 60, b"S": 1}
_SHORT_UNITS = {b"m": 10**3, b"u": 10**6, b"n": 10**9}
_MOST_DIGITS = 9
_LONGEST = 64
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)

_LEVELS = {level.name.encode(): level for level in Criticality}
_MOST_OF_STRANGERS = Criticality.CRITICAL
_SHORTEST_DEADLINE = 0.001
_LONGEST_DEADLINE = 3600.0


class Received(NamedTuple):
    """What the headers of a request say.

    Attributes:
        deadline: How many seconds are left; 0 if it is over. `None` if nothing is said.
        criticality: How much it matters; `None` if nothing is said.
        malformed: How many values were passed over since they say nothing that can be.
    """

    deadline: float | None = None
    criticality: Criticality | None = None
    malformed: int = 0


_NOTHING = Received()


@dataclass(frozen=True)
class Headers:
    """By which headers a deadline and a criticality travel: the same object on both sides.

    A deadline travels as what is left of it, in whole milliseconds, since clocks differ; in a
    header named `grpc-timeout` as gRPC writes it. A criticality travels by its name, such as
    `CRITICAL_PLUS`; read are also `critical-plus` and any mixture. Of several values counts the
    shortest deadline and the least criticality. What is malformed is passed over and counted.

    Strangers may shorten and lower, but not extend or raise: nobody gets more than `max_deadline`,
    and who is not trusted no more than `CRITICAL`, which is the default.

    Args:
        deadline_in: The headers that are read.
        deadline_out: The header that is written.
        criticality: The header of the criticality.
        saturation: The header in which an answer says how full its service is, if it says so.
        max_deadline: How many seconds a deadline is at most, from 0.001 to 3600.
        trusted: Whether callers are trusted: for all alike, or by the scope of each request.

    Raises:
        ValueError: If an argument is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    deadline_in: tuple[str, ...] = ("x-request-timeout-ms", "x-envoy-expected-rq-timeout-ms")
    deadline_out: str = "x-request-timeout-ms"
    criticality: str = "x-criticality"
    saturation: str | None = None
    max_deadline: float = 60.0
    trusted: bool | Callable[[MutableMapping[str, Any]], bool] = False

    def __post_init__(self) -> None:
        _check_names("deadline_in", self.deadline_in)
        _check_name("deadline_out", self.deadline_out)
        _check_name("criticality", self.criticality)
        if self.saturation is not None:
            _check_name("saturation", self.saturation)
        _check_max_deadline(self.max_deadline)
        trusted = self.trusted
        is_function = callable(trusted) and not is_coroutine_function(trusted)
        if not (isinstance(trusted, bool) or is_function):
            msg = f"trusted must be a bool, or callable with a scope and not async, got {trusted!r}"
            raise TypeError(msg)
        if len(self._known) <= len(self.deadline_in):
            names = (self.criticality, *self.deadline_in)
            msg = f"criticality and deadline_in must be different headers, got {names!r}"
            raise ValueError(msg)

    def trusts(self, scope: MutableMapping[str, Any], /) -> bool:
        """Say whether the caller of this request is trusted.

        If `trusted` raises an exception, that is reported by `sys.unraisablehook`, and the caller
        is a stranger.

        Args:
            scope: The ASGI scope of the request, or what else `trusted` understands.

        Returns:
            Whether it says `True`, and not what is merely truthy.
        """
        trusted = self.trusted
        if isinstance(trusted, bool):
            return trusted
        try:
            return trusted(scope) is True
        except Exception as error:
            _core.report(error, trusted)
            return False

    def read(
        self, headers: Pairs | Mapping[str, str], /, *, trusted: bool | None = None
    ) -> Received:
        """Read what a request says.

        Args:
            headers: Pairs of names and values, in bytes as in an ASGI scope, where names are in
                lower case, or in text; or a mapping.
            trusted: Whether to believe a criticality above CRITICAL; if not given, whether all
                callers are trusted alike.
        """
        if trusted is None:
            trusted = self.trusted is True
        known = self._known
        if isinstance(headers, list) and headers and isinstance(headers[0][0], bytes):
            pairs: Iterable[tuple[bytes, bytes]] = headers
        else:
            pairs = _as_in_a_scope(headers)
        # Most requests say nothing.
        found = [pair for pair in pairs if pair[0] in known]
        return self._parse(found, trusted=trusted) if found else _NOTHING

    def _parse(self, pairs: list[tuple[bytes, bytes]], *, trusted: bool) -> Received:
        deadlines: list[float] = []
        levels: list[Criticality] = [] if trusted else [_MOST_OF_STRANGERS]
        malformed = said = 0
        for name, value in pairs:
            is_a_deadline = self._known[name]
            for part in _parts(value):
                if is_a_deadline:
                    left = _grpc_seconds(part) if name == _GRPC else _seconds(part)
                    if left is not None:
                        deadlines.append(left)
                        continue
                elif (level := _level(part)) is not None:
                    levels.append(level)
                    said += 1
                    continue
                malformed += 1
        deadline = self._bounded(min(deadlines)) if deadlines else None
        return Received(deadline, min(levels) if said else None, malformed)

    def names(self) -> frozenset[bytes]:
        """Return the names of the headers that are read, in lower case."""
        return frozenset(self._known)

    def write(self) -> list[tuple[str, str]]:
        """Return the headers that say what is asked here and now: see `sluicegate.context`.

        What is left of a deadline is at least one millisecond, until it is over: then it is 0.
        """
        deadline, criticality, *_ = _core.current()
        written = []
        if deadline is not None:
            left = deadline.remaining()
            # Rounded down: on the way it does not get longer.
            milliseconds = max(int(left * 1000), 1) if left > 0 else 0
            unit = "m" if self.deadline_out.lower().encode() == _GRPC else ""
            written.append((self.deadline_out, f"{milliseconds}{unit}"))
        if criticality is not None:
            written.append((self.criticality, criticality.name))
        return written

    @functools.cached_property
    def _known(self) -> dict[bytes, bool]:
        """What is read, and whether it is a deadline, by the name as it stands in a scope."""
        known = {name.lower().encode(): True for name in self.deadline_in}
        return known | {self.criticality.lower().encode(): False}

    def _bounded(self, seconds: float) -> float:
        if seconds == 0:
            return 0.0
        return min(max(seconds, _SHORTEST_DEADLINE), self.max_deadline)


def criticality_of(
    said: Criticality | None, ruled: Criticality | None, *, trusted: bool
) -> Criticality | None:
    """Return how much a request matters, of which a rule may know: strangers may only lower it."""
    is_believed = said is not None and (ruled is None or trusted or said < ruled)
    return said if is_believed else ruled


def deadline_of(seconds: float | None, *, trusted: bool) -> _core.Deadline | None:
    """Return the deadline that a caller has chosen.

    That of a stranger may be as short as he likes: once half of it is over a time-out says nothing
    about load, at none of the gates and throttles that are asked within it.
    """
    if seconds is None:
        return None
    make = _core.Deadline.after if trusted else _core.Deadline._by_stranger  # noqa: SLF001
    return make(seconds)


def _as_in_a_scope(headers: Pairs | Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return ((_ascii(name).lower(), _ascii(value)) for name, value in pairs)


def _ascii(text: bytes | str) -> bytes:
    # What is replaced is part of no name and no value.
    return text.encode("ascii", "replace") if isinstance(text, str) else text


def _parts(value: bytes) -> list[bytes]:
    """Return the values of a field; a proxy may have made one of several."""
    if len(value) > _LONGEST:
        return [b""]
    return [part.strip(b" \t") for part in value.split(b",")]


def _seconds(part: bytes) -> float | None:
    # Of bytes only ASCII digits are digits.
    return int(part) / 1000 if part.isdigit() and len(part) <= _MOST_DIGITS else None


def _grpc_seconds(part: bytes) -> float | None:
    match = _GRPC_TIMEOUT.fullmatch(part)
    if match is None:
        return None
    # Divided, since a thousandth is no number that a float can be.
    digits, unit = match.groups()
    return int(digits) * _LONG_UNITS.get(unit, 1) / _SHORT_UNITS.get(unit, 1)


def _level(part: bytes) -> Criticality | None:
    return _LEVELS.get(part.upper().replace(b"-", b"_"))


def _check_names(parameter: str, names: object) -> None:
    # A string is an iterable of strings too.
    if not isinstance(names, tuple):
        msg = f"{parameter} must be a tuple of names of headers, got {names!r:.100}"
        raise TypeError(msg)
    for name in names:
        _check_name(parameter, name)


def _check_name(parameter: str, name: object) -> None:
    text = f"{parameter} must be the name of a header, got {name!r:.100}"
    if not isinstance(name, str):
        raise TypeError(text)
    if not _TOKEN.fullmatch(name):
        raise ValueError(text)


def _check_max_deadline(value: object) -> None:
    text = f"max_deadline must be a number of seconds from 0.001 to 3600, got {value!r:.100}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(text)
    if not _SHORTEST_DEADLINE <= value <= _LONGEST_DEADLINE:
        raise ValueError(text)
