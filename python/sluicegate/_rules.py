"""What holds for which requests, by method and path."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from sluicegate._checks import check_callable, check_kind, check_seconds
from sluicegate._enums import Criticality
from sluicegate._gate import Gate

if TYPE_CHECKING:
    Finder: TypeAlias = Callable[[str, str], "Rule | None"]

#: The paths of health probes and metrics, which are exempt unless a rule names them.
DEFAULT_EXEMPT: Final = ("/healthz", "/livez", "/readyz", "/health", "/ping", "/metrics")

_MATCH: Final = re.compile(r"(?:(?P<method>[A-Z][A-Z-]*) )?(?P<path>/(?:\S| (?=\S))*|\*)")
_PARAMETER: Final = re.compile(r"\{([^{}/:]+)(?::([^{}/:]*))?\}")
# Of Starlette: how much of a path a parameter takes.
_CONVERTERS: Final = {
    None: "[^/]+",
    "str": "[^/]+",
    "int": "[0-9]+",
    "float": r"[0-9]+(?:\.[0-9]+)?",
    "uuid": "[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}",
}
_PATH_AT_THE_END: Final = re.compile(r"/\{[^{}/:]+:path\}/?$")
# Two in one part would be searched for at each place of the other.
_TWO_IN_A_PART: Final = re.compile(r"\}[^/]*\{")
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_SLASHES: Final = re.compile(r"//+")
# Services have methods of their own, so that only what looks like one of these is refused.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "WEBSOCKET")
_LIKENESS: Final = 0.75
_MATCH_RANGE: Final = (
    "a path such as '/a', '/users/{id}' or '/reports/*', with a method before it or without"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for the requests of a path, in a table of which the first match counts.

    Attributes:
        match: `"/a"`, `"POST /a"`, `"/users/{id}"` (one part of a path, which has at most one), or
            `"/reports/*"` (what begins so, and `/reports` itself); `"*"` is every path. A slash at
            the end makes no difference, nor do two for one. A websocket has the method
            `WEBSOCKET`. A HEAD request is matched by a rule for GET too.
        criticality: How much it matters, if the client does not say that it matters less; `None`:
            CRITICAL.
        gate: A gate of its own, decided together with the main one: if either refuses, the other
            has given nothing. Not for streams and websockets.
        operation: What kind of work it is, for the estimates of time; `None`: the template of the
            route, where the framework tells it. Of a stream it is a name in its rejections.
        exempt: Whether it takes no permit, as probes do; at most `exempt_limit` of these run at
            once. It excludes all that follows and comes before. A websocket is never exempt.
        stream: Whether it is a long-lived answer, such as server-sent events or a long poll: it
            takes one of `max_streams` instead of a permit, and is no sample of latency.
        max_lifetime: After how many seconds a stream or a websocket is ended, above 0; with
            `stream=True`, or a match such as `"WEBSOCKET /a"`; `None`:
            never. One that has not begun to answer by then is refused. One that has announced more
            (`content-length`) than is sent by then ends with its connection, so that nobody takes
            it for whole. What its handler does in a task of its own, as in Quart and Django,
            goes on.
        degrade: What answers instead if it would be refused, as in the option of this name. Not for
            websockets.

    Raises:
        ValueError: If `match` is no such pattern, or what is given excludes each other or would do
            nothing.
        TypeError: If an argument is of a wrong type.
    """

    match: str
    criticality: Criticality | None = None
    gate: Gate | None = None
    operation: str | None = None
    exempt: bool = False
    stream: bool = False
    max_lifetime: float | None = None
    degrade: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Check what can be checked."""
        check_kind("match", _MATCH_RANGE, self.match, str)
        _pattern_of(self.match)
        check_kind(
            "criticality", "a Criticality or None", self.criticality, (Criticality, NoneType)
        )
        check_kind("gate", "a Gate or None", self.gate, (Gate, NoneType))
        check_kind("operation", "a string or None", self.operation, (str, NoneType))
        check_kind("exempt", "True or False", self.exempt, bool)
        check_kind("stream", "True or False", self.stream, bool)
        check_callable("degrade", self.degrade)
        if self.max_lifetime is not None:
            check_seconds("max_lifetime", self.max_lifetime)
        self._check_what_goes_together()

    def _check_what_goes_together(self) -> None:
        """Refuse what would do nothing."""
        is_websocket = self.is_for_websockets
        if self.max_lifetime is not None and not (self.stream or is_websocket):
            msg = (
                "max_lifetime is for streams and websockets: it needs stream=True, or a match "
                f"such as 'WEBSOCKET /a', in the rule for {self.match!r}"
            )
            raise ValueError(msg)
        excluded: dict[str, tuple[str, ...]] = {
            "exempt": ("criticality", "gate", "operation", "stream", "degrade"),
            "stream": ("gate",),
            "a websocket": ("exempt", "gate", "degrade"),
        }
        given = {"exempt": self.exempt, "stream": self.stream, "a websocket": is_websocket}
        for name, others in excluded.items():
            # Not by equality: that of SHEDDABLE is the number 0.
            values = [(other, getattr(self, other)) for other in others]
            wrong = [other for other, value in values if not (value is None or value is False)]
            if given[name] and wrong:
                msg = f"{name} excludes {wrong[0]}, in the rule for {self.match!r}"
                raise ValueError(msg)

    @property
    def is_for_websockets(self) -> bool:
        """Whether it holds for websockets only."""
        return self.match.startswith("WEBSOCKET ")


class _Table(NamedTuple):
    """Rules in the order in which they were given; -1 stands for what comes before all."""

    exact: dict[tuple[str | None, str], tuple[int, Rule]]
    patterns: list[tuple[int, str | None, re.Pattern[str], Rule]]


def _table(rules: object) -> _Table:
    if not isinstance(rules, Sequence) or isinstance(rules, (str, bytes)):
        msg = f"rules must be a sequence of Rule or a callable, got {rules!r:.100}"
        raise TypeError(msg)
    table = _Table({}, [])
    for place, rule in enumerate(rules):
        if not isinstance(rule, Rule):
            msg = f"rules must hold Rule, got {rule!r:.100}"
            raise TypeError(msg)
        method, path = _pattern_of(rule.match)
        if isinstance(path, str):
            table.exact.setdefault((method, path), (place, rule))
        else:
            table.patterns.append((place, method, path, rule))
    for path in DEFAULT_EXEMPT:
        if not any(known == path for _, known in table.exact):
            # A pattern such as "*" does not name it.
            table.exact[None, path] = (-1, Rule(path, exempt=True))
    return table


def whole_paths(rules: object) -> dict[str, Rule] | None:
    """Return the rules by path, if there is nothing else to look at.

    Raises:
        TypeError: If it is no sequence of rules.
    """
    exact, patterns = _table(rules)
    if patterns or any(method is not None for method, _ in exact):
        return None
    return {path: rule for (_, path), (_, rule) in exact.items()}


def plain(path: str) -> str:
    """Return a path without what frameworks pass over when they look for a route.

    Slashes that are doubled or last, and a line feed at the end: else a rule would hold for less
    than the route that it is about.
    """
    if "//" in path or path[-1:] in {"/", "\n"}:
        path = _SLASHES.sub("/", path.rstrip("\n"))
        return path.rstrip("/") or "/"
    return path


def finder(rules: object) -> Finder:
    """Return what finds the rule for a method and a path.

    Whole paths are found at once, however many rules there are; patterns are tried in their order.

    Raises:
        TypeError: If it is no sequence of rules.
    """
    exact, patterns = _table(rules)
    none: tuple[int, Rule | None] = (len(exact) + len(patterns), None)

    def find(method: str, path: str) -> Rule | None:
        path = plain(path)
        methods: tuple[str | None, ...] = (
            (None, method, "GET") if method == "HEAD" else (None, method)
        )
        found = none
        for one in methods:
            known = exact.get((one, path), none)
            if known[0] < found[0]:
                found = known
        for place, one, pattern, rule in patterns:
            if place > found[0]:
                break
            if one in methods and pattern.fullmatch(path):
                return rule
        return found[1]

    return find


def _pattern_of(match: str) -> tuple[str | None, str | re.Pattern[str]]:
    """Return the method, and the path, or a pattern if it is one."""
    parts = _MATCH.fullmatch(match)
    path = parts["path"] if parts else ""
    _check_text(match, parts["method"] if parts else None, path)
    path = _PATH_AT_THE_END.sub("/*", path)
    whole = _PARAMETER.sub("", path).removesuffix("*")
    is_right = (
        parts
        and not _TWO_IN_A_PART.search(path)
        and not set("{}<>*?#") & set(whole)
        and (path[-2:] == "/*" or path[-1:] != "*" or path == "*")
    )
    if not parts or not is_right:
        msg = f"match must be {_MATCH_RANGE}, got {match!r:.100}"
        raise ValueError(msg)
    if path == "*":
        return parts["method"], re.compile(r".*", re.DOTALL)
    if whole == path:
        return parts["method"], plain(path)
    begin = path.removesuffix("/*")
    if begin == path:
        begin = path = plain(path)
    pattern, end = "", 0
    for parameter in _PARAMETER.finditer(begin):
        pattern += re.escape(begin[end : parameter.start()]) + _converted(match, parameter)
        end = parameter.end()
    pattern += re.escape(begin[end:])
    if begin != path:
        pattern += "(?:/.*)?"
    return parts["method"], re.compile(pattern, re.DOTALL)


def _check_text(match: str, method: str | None, path: str) -> None:
    """Refuse what would hold for no request."""
    if method is not None and method not in _METHODS:
        for meant in get_close_matches(method, _METHODS, 1, _LIKENESS):
            msg = f"{method} is no method, in the match {match!r:.100}: is {meant} meant?"
            raise ValueError(msg)
    if _ENCODED.search(path):
        msg = (
            f"match is compared with decoded paths: write {unquote(path)!r:.100}, "
            f"got {match!r:.100}"
        )
        raise ValueError(msg)


def _converted(match: str, parameter: re.Match[str]) -> str:
    name = parameter[2]
    pattern = _CONVERTERS.get(name)
    if pattern is None:
        begin = match[: match.index(parameter[0])].rpartition("/")[0]
        msg = (
            f"the converter {name!r} in the match {match!r:.100} is none of str, int, float and "
            "uuid, nor is it path at the end, after a slash: for all that begins so there is "
            f"{begin + '/*'!r:.100}"
        )
        raise ValueError(msg)
    return pattern
