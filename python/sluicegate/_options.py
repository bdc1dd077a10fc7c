"""The options of the middleware of servers, checked where it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, TypeVar, cast, get_args

from sluicegate import _core
from sluicegate._checks import (
    check_callable,
    check_count,
    check_is_not_async,
    check_kind,
    check_seconds,
)
from sluicegate._gate import Gate
from sluicegate._headers import Headers
from sluicegate._rules import Rule, finder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from logging import Logger

    from sluicegate._asgi_refusal import Respond
    from sluicegate._asgi_types import Scope
    from sluicegate._core import Rejection
    from sluicegate._limiter import Limit, Limiter


T = TypeVar("T")

Hold: TypeAlias = Literal["work", "response", "headers"]
HOLDS: Final = get_args(Hold)


class Options(TypedDict, total=False):
    """What `LoadSheddingMiddleware` and `protect()` may be told; see there."""

    gate: Gate | None
    limit: Limit | None
    rules: Sequence[Rule] | Callable[[Scope], Rule | None]
    key: Callable[[Scope], str | None] | None
    headers: Headers
    hold: Hold
    cancel_on_disconnect: bool
    body_timeout: float | None
    max_streams: int
    exempt_limit: int
    respond: Respond | None
    degrade: Respond | None
    degrade_limit: int
    on_reject: Callable[[Scope, Rejection], None] | None


def limiter_of(gate: object, limit: object) -> Limiter:
    """Return what is asked for permits.

    Raises:
        TypeError: If both are given, or what is given is of a wrong type.
        ValueError: If a number is out of its range.
    """
    if gate is not None:
        if limit is not None:
            msg = "gate and limit exclude each other: limit=64 stands for gate=Gate(64)"
            raise TypeError(msg)
        check_kind("gate", "a Gate", gate, Gate)
        return cast("Gate", gate)
    if limit is None:
        return Gate.from_env()
    if isinstance(limit, (int, float)) and not isinstance(limit, bool):
        return Gate(limit)
    if not isinstance(limit, type) and callable(getattr(limit, "try_acquire", None)):
        return cast("Limiter", limit)
    raise TypeError(
        "limit must be a number above 0 and at most 1e9, or a limiter such as "
        f"SemaphoreLimiter(64), got {limit!r:.100}"
    )


def warn_if_all_are_admitted(log: Logger, limiter: object) -> None:
    """Say in the log if a gate refuses nobody."""
    if not isinstance(limiter, Gate):
        return
    state = limiter.snapshot()
    if state.disabled:
        log.warning(
            "gate %r is disabled: all are admitted, since SLUICEGATE_DISABLED is set", state.name
        )
    elif state.dry_run:
        log.warning("gate %r is in a dry run: all are admitted", state.name)


def find_rule(rules: object, limiter: object = None) -> Callable[[Scope], Rule | None]:
    """Return what finds the rule for a request, at a limiter if one is given.

    Raises:
        TypeError: If it is neither a sequence of rules nor callable, or a rule has a gate which the
            limiter cannot be asked together with.
        ValueError: If that is the same one.
    """
    if callable(rules) and not isinstance(rules, type):
        return _sound(rules, limiter)
    if limiter is not None and isinstance(rules, Sequence):
        for rule in rules:
            check_gate(rule, limiter)
    find = finder(rules)

    def find_by_path(scope: Scope) -> Rule | None:
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        # Of a mounted application the path is what comes after its root.
        if root and path.startswith(root) and path[len(root) : len(root) + 1] in {"", "/"}:
            path = path[len(root) :]
        return find(scope.get("method", "WEBSOCKET"), path)

    return find_by_path


def _sound(
    rules: Callable[[Scope], Rule | None], limiter: object
) -> Callable[[Scope], Rule | None]:
    find = _unfailing("rules", "a Rule", rules, Rule)

    def find_sound(scope: Scope) -> Rule | None:
        rule = find(scope)
        if rule is not None and rule.gate is not None and limiter is not None:
            try:
                check_gate(rule, limiter)
            except (TypeError, ValueError) as error:
                _core.report(error, rules)
                return None
        return rule

    return find_sound


def key_of(key: Callable[[Scope], str | None] | None) -> Callable[[Scope], str | None] | None:
    """Return what tells who calls, and fails for nobody."""
    return None if key is None else _unfailing("key", "a string", key, str)


def _unfailing(
    name: str, kind: str, function: Callable[[Scope], T | None], class_: type[T]
) -> Callable[[Scope], T | None]:
    def call(scope: Scope) -> T | None:
        # Whoever is to keep a service alive does not fail for what a rule or a key does.
        try:
            value: object = function(scope)
        except Exception as error:
            _core.report(error, function)
            return None
        if value is None or isinstance(value, class_):
            return value
        msg = f"{name} must return {kind} or None, got {value!r:.100}"
        _core.report(TypeError(msg), function)
        return None

    return call


def check_gate(rule: object, limiter: object) -> None:
    """Refuse a rule whose gate could not be asked together with the main one.

    Raises:
        TypeError: If there is no main gate.
        ValueError: If it is the same one.
    """
    gate = rule.gate if isinstance(rule, Rule) else None
    if gate is None or not isinstance(rule, Rule):
        return
    if not isinstance(limiter, Gate):
        msg = f"the gate of the rule for {rule.match!r} needs a main gate, got {limiter!r:.100}"
        raise TypeError(msg)
    if gate is limiter:
        msg = f"the gate of the rule for {rule.match!r} must be another one than the main one"
        raise ValueError(msg)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what is out of its range, or of a wrong type.

    Raises:
        TypeError: If an option is of a wrong type, or is none.
        ValueError: If an option is out of its range.
    """
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        name, known = min(unknown), ", ".join(Options.__annotations__)
        of_gate = Gate.__new__.__kwdefaults__ or {}
        hint = f" (it belongs to the gate: gate=Gate(..., {name}=...))" if name in of_gate else ""
        msg = f"unexpected option {name!r}{hint}; known are {known}"
        raise TypeError(msg)
    check_kind("headers", "a Headers", options.get("headers", _HEADERS), Headers)
    hold = options.get("hold", "work")
    if hold not in HOLDS:
        msg = f"hold must be 'work', 'response' or 'headers', got {hold!r:.100}"
        raise ValueError(msg)
    cancels = options.get("cancel_on_disconnect", False)
    check_kind("cancel_on_disconnect", "True or False", cancels, bool)
    if options.get("body_timeout") is not None:
        check_seconds("body_timeout", options["body_timeout"])
    for name in ("max_streams", "exempt_limit", "degrade_limit"):
        check_count(name, options.get(name, 1))
    for name in ("key", "respond", "degrade", "on_reject"):
        check_callable(name, options.get(name))
    for name in ("key", "rules", "on_reject"):
        check_is_not_async(name, options.get(name))


_HEADERS: Final = Headers()
