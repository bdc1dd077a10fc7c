"""What a gate is made of: what cannot be is refused, by parameter, value and range."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import OrderedDict
from dataclasses import asdict
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from gate_use import take, turns
from sluicegate import (
    Criticality,
    Gate,
    GradientLimiter,
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejected,
    SemaphoreLimiter,
    TokenBucket,
)
from sluicegate.classic import Aimd, ClassicLimiter, Fixed, Vegas
from sluicegate.testing import assert_idle

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)
NAN, INF = math.nan, math.inf
C = Criticality

LIMIT = "limit must be a number above 0 and at most 1e9"
MAX_WAITING = "max_waiting must be an integer from 0 to 1e9, or None (automatic)"
MAX_WAIT = "max_wait must be a number of seconds from 0 to 3600, or None (automatic)"
RESERVE = "reserve must be a mapping of Criticality to a share from 0 to 1, or None"
SHARES = "reserve must be shares from 0 to 1, of 1 at most together"
PRESSURE = "pressure must be a sequence of pressures, or None"


async def later(_: object) -> Outcome:
    return Outcome.SUCCESS


WRONG: list[tuple[str, Any, type[Exception], str]] = [
    *(("limit", value, ValueError, LIMIT) for value in (0, -1, NAN, INF, 1e10, 10**400)),
    *(("limit", value, TypeError, LIMIT) for value in ("64", True, 2j, [4], object())),
    ("limit", Gate(1), TypeError, "limit must be a limiter and not a Gate"),
    *(("max_waiting", value, ValueError, MAX_WAITING) for value in (-1, 10**9 + 1, 2**70)),
    *(("max_waiting", value, TypeError, MAX_WAITING) for value in (1.0, "1", True, object())),
    *(("max_wait", value, ValueError, MAX_WAIT) for value in (-1, -1e-9, NAN, INF, 3601)),
    *(("max_wait", value, TypeError, MAX_WAIT) for value in ("1", True, object())),
    *(("reserve", {C.CRITICAL: value}, ValueError, SHARES) for value in (-0.1, 1.1, NAN, INF)),
    ("reserve", {C.CRITICAL: 0.6, C.CRITICAL_PLUS: 0.6}, ValueError, SHARES),
    *(("reserve", {C.CRITICAL: value}, TypeError, RESERVE) for value in ("1", True, None)),
    *(("reserve", value, TypeError, RESERVE) for value in (0.2, [C.CRITICAL], {2: 0.2}, {"a": 1})),
    *(
        ("rate", value, TypeError, "rate must be a TokenBucket, or None")
        for value in (100, "100", TokenBucket, SemaphoreLimiter(1))
    ),
    *(("pressure", value, TypeError, PRESSURE) for value in (1, lambda: 1.0)),
    *(
        ("pressure", [value], TypeError, "pressure must be callables that return a number")
        for value in (1, "cpu", later, float)
    ),
    *(
        ("classify", value, TypeError, "classify must be callable and not async, or None")
        for value in (1, "classify", later)
    ),
    *(
        ("dry_run", value, TypeError, "dry_run must be True or False")
        for value in (0, 1, "1", object())
    ),
    *(("clock", value, TypeError, "clock must be an object with a method now()") for value in (5,)),
    *(("name", value, TypeError, "name must be a string or None") for value in (5, b"api", True)),
]


@pytest.mark.parametrize(("parameter", "value", "kind", "text"), WRONG)
def test_what_cannot_be(parameter: str, value: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match="^" + re.escape(text)):
        Gate(**{parameter: value})


def test_a_wait_in_milliseconds_is_asked_about() -> None:
    with pytest.raises(ValueError, match="seconds, not milliseconds\\?"):
        Gate(max_wait=5000)


@pytest.mark.parametrize(
    "arguments", [{"limt": 2}, {"timeout": 2}, {"limit": 1, "latency_target": 2}]
)
def test_an_unknown_parameter(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        Gate(**arguments)
    with pytest.raises(TypeError):
        Gate(2, "api")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit": 0.25},
        {"limit": Decimal("2.5")},
        {"limit": 10**9},
        {"max_waiting": 0},
        {"max_waiting": 10**9},
        {"max_wait": 0},
        {"max_wait": 3600},
        {"reserve": {}},
        {"reserve": {C.CRITICAL: 1}},
        {"reserve": OrderedDict({C.CRITICAL: 0.2, C.CRITICAL_PLUS: 0.1})},
        {"reserve": MappingProxyType({C.CRITICAL: Decimal("0.2")})},
        {"pressure": ()},
        {"pressure": [lambda: 1]},
        {"pressure": iter([lambda: 1])},
        {"dry_run": True},
        {"name": ""},
    ],
)
def test_what_can_be(options: dict[str, Any]) -> None:
    gate = Gate(**options, clock=ManualClock())
    with gate.acquire():
        assert gate.in_flight == 1
    assert gate.snapshot().outcomes == {Outcome.SUCCESS: 1}


# The limit


@pytest.mark.parametrize(
    "limiter",
    [SemaphoreLimiter(7), GradientLimiter(initial=7), ClassicLimiter(Vegas(initial=7))],
)
def test_a_limiter_is_taken_over(limiter: Any) -> None:
    gate = Gate(limiter, name="api")
    assert gate.limit == 7
    for method in ("try_acquire", "acquire", "acquire_sync", "update"):
        with pytest.raises(RuntimeError, match='belongs to gate "api": acquire and update there'):
            getattr(limiter, method)()
    permits = [gate.try_acquire() for _ in range(7)]
    assert all(permits)
    assert gate.try_acquire().reason is Reason.LIMIT  # type: ignore[union-attr]
    for permit in permits:
        assert isinstance(permit, Permit)
        permit.release()
    with pytest.raises(RuntimeError, match='belongs to gate "api"'):
        Gate(limiter, name="other")
    assert gate.limit >= 1


@pytest.mark.parametrize("limiter", [SemaphoreLimiter(7), GradientLimiter(initial=7)])
def test_a_limiter_in_use_is_not_taken_over(limiter: Any) -> None:
    with limiter.acquire(), pytest.raises(ValueError, match=r"not in use yet.*1 in flight"):
        Gate(limiter)
    assert Gate(limiter).limit == 7


def test_a_gate_that_cannot_be_takes_nothing_over() -> None:
    limiter: Any = SemaphoreLimiter(7)
    bad: Any
    for bad in ({"max_wait": -1}, {"clock": 5}, {"name": 5}, {"classify": 5}):
        with pytest.raises((ValueError, TypeError)):
            Gate(limiter, **bad)
    with limiter.acquire():
        pass


def test_a_subclass_of_a_number_and_of_a_gate() -> None:
    class Mine(Gate):
        extra = 5

    gate = Mine(2, name="mine")
    assert (gate.extra, gate.limit) == (5, 2.0)
    assert repr(gate) == "<Mine 'mine': limit 2, 0 in flight, 0 waiting>"
    assert isinstance(Mine.from_env(), Mine)


def test_without_a_limit_it_follows_latency() -> None:
    gate = Gate()
    assert gate.limit == 20
    assert gate.snapshot().limit_because
    gate.update(limit=5)
    assert gate.limit == 5


def test_names() -> None:
    names = {Gate().name for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"gate(-\d+)?", name) for name in names)
    assert Gate(name="api").name == "api"
    gate = Gate(1, name="quote ' and \" and ünï")
    assert gate.name in repr(gate) or repr(gate.name) in repr(gate)
    assert gate.name in str(gate.snapshot())


def test_nothing_of_it_can_be_set() -> None:
    gate = Gate(2)
    for name in ("limit", "in_flight", "waiting", "saturation", "name", "closed", "other"):
        with pytest.raises(AttributeError):
            setattr(gate, name, 1)


# Update


@pytest.mark.parametrize(
    ("parameter", "value", "kind", "text"),
    [
        *(
            ("limit", value, kind, "limit must be a number from 0 (admits nobody) to 1e9")
            for value, kind in [(-1, ValueError), (NAN, ValueError), ("1", TypeError)]
        ),
        *(
            (p, value, kind, text.replace("None (automatic)", '"auto"'))
            for p, value, kind, text in WRONG
            if p.startswith("max_")
        ),
        *(row for row in WRONG if row[0] == "dry_run"),
    ],
)
def test_an_update_that_cannot_be_changes_nothing(
    parameter: str, value: Any, kind: type[Exception], text: str
) -> None:
    gate = Gate(3, max_waiting=5, max_wait=0.5)
    before = gate.snapshot()
    others: dict[str, Any] = {"limit": 9, "max_waiting": 9, "max_wait": 0.9, "dry_run": True}
    with pytest.raises(kind, match="^" + re.escape(text)):
        gate.update(**(others | {parameter: value}))
    assert gate.snapshot() == before


def test_an_update_holds_from_now_on() -> None:
    gate = Gate(2, clock=ManualClock())
    permits = [gate.acquire_sync(), gate.acquire_sync()]
    gate.update(limit=4)
    permits += [gate.acquire_sync(), gate.acquire_sync()]
    gate.update(limit=2)
    gate.update()
    gate.update(limit=None, max_waiting=None, max_wait=None, dry_run=None)
    assert (gate.limit, gate.in_flight, gate.saturation) == (2.0, 4, 2.0)
    gate.update(max_waiting=3, max_wait=0.25)
    snapshot = gate.snapshot()
    assert (snapshot.max_waiting, snapshot.wait_bound) == (3, 0.25)
    gate.update(max_waiting=0)
    assert (gate.snapshot().max_waiting, gate.snapshot().wait_bound) == (0, 0.0)
    gate.update(limit=0)
    for permit in permits:
        permit.release()
    assert not gate.try_acquire()
    assert gate.saturation == 1.0
    gate.update(limit=1)
    gate.acquire_sync().release()


def test_what_was_given_can_be_made_automatic_again() -> None:
    automatic, gate = Gate(2, clock=ManualClock()), Gate(2, clock=ManualClock())
    expected = (automatic.snapshot().max_waiting, automatic.snapshot().wait_bound)
    gate.update(max_waiting=3, max_wait=0.25)
    gate.update(max_waiting="auto")
    snapshot = gate.snapshot()
    assert (snapshot.max_waiting, snapshot.wait_bound) == (expected[0], 0.25)
    gate.update(max_waiting=3, max_wait="auto")
    snapshot = gate.snapshot()
    assert (snapshot.max_waiting, snapshot.wait_bound) == (3, expected[1])
    gate.update(max_waiting="auto", max_wait=0)
    assert (gate.snapshot().max_waiting, gate.snapshot().wait_bound) == (0, 0)
    gate.update(max_waiting="auto", max_wait="auto")
    snapshot = gate.snapshot()
    assert (snapshot.max_waiting, snapshot.wait_bound) == expected


def test_who_begins_to_wait_again_is_let_in() -> None:
    async def main() -> None:
        gate = Gate(1, max_waiting=0)
        with take(gate):
            assert not gate.try_acquire()
            with pytest.raises(Rejected):
                await gate.acquire()
            gate.update(max_waiting="auto")
            wait = asyncio.ensure_future(gate.acquire())
            await turns()
            assert gate.waiting == 1
        (await wait).release()
        assert_idle(gate)

    asyncio.run(main())


FOLLOWING: list[Callable[[], Any]] = [
    lambda: None,
    lambda: GradientLimiter(initial=20, min_limit=2, max_limit=50, latency_target=0.5),
    lambda: ClassicLimiter(Aimd()),
    lambda: ClassicLimiter(Fixed(20)),
]


@pytest.mark.parametrize("limit", FOLLOWING)
def test_a_limit_that_follows_is_held_and_follows_again(limit: Callable[[], Any]) -> None:
    clock = ManualClock()
    gate = Gate(limit(), clock=clock)
    because = gate.snapshot().limit_because

    def load(rounds: int) -> None:
        for _ in range(rounds):
            permits = [gate.try_acquire() for _ in range(100)]
            clock.advance(0.01)
            for permit in permits:
                if permit:
                    permit.release()

    gate.update(limit="auto")
    assert (gate.limit, gate.snapshot().limit_because) == (20, because)
    gate.update(limit=7)
    gate.update(max_waiting=5)
    assert (gate.limit, gate.snapshot().limit_because) == (7, "held by update()")
    load(200)
    assert (gate.limit, gate.in_flight) == (7, 0)
    gate.update(limit=11)
    load(200)
    assert gate.limit == 11
    gate.update(limit="auto")
    assert gate.snapshot().limit_because != "held by update()"
    # It has the range of before.
    load(400)
    assert gate.limit >= 20


@pytest.mark.parametrize("limit", [*FOLLOWING, lambda: 20, lambda: SemaphoreLimiter(20)])
def test_a_limit_of_0_admits_nobody_whatever_it_follows(limit: Callable[[], Any]) -> None:
    clock = ManualClock()
    gate = Gate(limit(), max_wait=3600, clock=clock)

    async def main() -> None:
        held = await gate.acquire()
        gate.update(limit=0)
        assert (gate.limit, gate.saturation) == (0, 1)
        wait = asyncio.ensure_future(gate.acquire())
        await clock.settle(1)
        held.release()
        await clock.settle(1800)
        assert not wait.done()
        assert not gate.try_acquire()
        assert (gate.limit, gate.in_flight, gate.waiting) == (0, 0, 1)
        gate.update(limit=20 if gate.snapshot().limit_because == "fixed" else "auto")
        (await wait).release()
        assert gate.limit == 20

    asyncio.run(main())
    assert_idle(gate)


@pytest.mark.parametrize("limit", [5, SemaphoreLimiter(5)])
def test_a_fixed_limit_follows_nothing(limit: Any) -> None:
    gate = Gate(limit, max_waiting=3)
    text = 'limit must be a number from 0 (admits nobody) to 1e9, since it is fixed, got "auto"'
    with pytest.raises(ValueError, match="^" + re.escape(text) + "$"):
        gate.update(limit="auto", max_waiting=9)
    assert (gate.limit, gate.snapshot().max_waiting) == (5, 3)


@pytest.mark.parametrize("value", [-1, NAN, INF, 1.1e9])
@pytest.mark.parametrize("limit", FOLLOWING)
def test_a_limit_that_cannot_be_is_not_held(limit: Callable[[], Any], value: float) -> None:
    gate = Gate(limit())
    before = gate.snapshot()
    with pytest.raises(ValueError, match=r"^limit must be .* from 0 \(admits nobody\) to 1e9, got"):
        gate.update(limit=value)
    assert gate.snapshot() == before


@pytest.mark.parametrize("max_wait", [0.05, 0.25, 1, 30, 3600])
def test_the_wait_bound_is_what_is_given(max_wait: float) -> None:
    assert Gate(2, max_wait=max_wait).snapshot().wait_bound == max_wait


# The environment


def test_from_env_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LIMIT": "64",
        "MAX_WAITING": "5",
        "MAX_WAIT": "0.5",
        "DRY_RUN": "1",
        "NAME": "api",
    }.items():
        monkeypatch.setenv("SLUICEGATE_" + name, value)
    snapshot = Gate.from_env().snapshot()
    assert (snapshot.limit, snapshot.max_waiting, snapshot.wait_bound) == (64.0, 5, 0.5)
    assert (snapshot.dry_run, snapshot.name) == (True, "api")


@pytest.mark.parametrize("value", [None, ""])
def test_what_is_not_set_is_automatic(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    for name in ("LIMIT", "LATENCY_TARGET", "MAX_WAITING", "MAX_WAIT", "DRY_RUN", "NAME"):
        if value is None:
            monkeypatch.delenv("SLUICEGATE_" + name, raising=False)
        else:
            monkeypatch.setenv("SLUICEGATE_" + name, value)
    snapshot, plain = Gate.from_env().snapshot(), Gate().snapshot()
    assert snapshot.limit == plain.limit
    assert snapshot.max_waiting == plain.max_waiting
    assert snapshot.wait_bound == plain.wait_bound
    assert snapshot.dry_run is False


def test_from_env_with_a_target_and_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_LATENCY_TARGET", "0.25")
    monkeypatch.setenv("SLUICEGATE_LIMIT", "7")
    assert Gate.from_env("API_").limit == 20
    assert Gate.from_env().limit == 7
    monkeypatch.setenv("API_LIMIT", "7")
    with pytest.raises(ValueError, match=r"^API_LIMIT and API_LATENCY_TARGET exclude each other"):
        Gate.from_env("API_")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LIMIT", "0"),
        ("LIMIT", "-1"),
        ("LIMIT", "nan"),
        ("LIMIT", "many"),
        ("LIMIT", "1e10"),
        ("LATENCY_TARGET", "0"),
        ("LATENCY_TARGET", "fast"),
        ("MAX_WAITING", "-1"),
        ("MAX_WAITING", "1.5"),
        ("MAX_WAITING", "nan"),
        ("MAX_WAITING", "inf"),
        ("MAX_WAITING", "1e300"),
        ("MAX_WAIT", "-1"),
        ("MAX_WAIT", "5000"),
        ("MAX_WAIT", "0,5"),
        ("DRY_RUN", "perhaps"),
        ("DRY_RUN", "2"),
    ],
)
def test_a_variable_that_cannot_be_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("SLUICEGATE_" + name, value)
    with pytest.raises(ValueError, match=f"^SLUICEGATE_{name} ") as error:
        Gate.from_env()
    assert "got" in str(error.value)


@pytest.mark.parametrize(
    ("said", "given", "is_dry"),
    [
        ("1", None, True),
        ("on", None, True),
        ("0", None, False),
        ("", None, False),
        (None, None, False),
        ("1", False, False),
        ("0", True, True),
    ],
)
def test_a_gate_that_is_made_in_code_follows_the_variable_as_well(
    monkeypatch: pytest.MonkeyPatch, said: str | None, given: bool | None, is_dry: bool
) -> None:
    monkeypatch.delenv("SLUICEGATE_DRY_RUN", raising=False)
    if said is not None:
        monkeypatch.setenv("SLUICEGATE_DRY_RUN", said)
    assert Gate(20, name="http", dry_run=given).snapshot().dry_run is is_dry
    gate = Gate(20) if given is None else Gate(20, dry_run=given)
    assert gate.snapshot().dry_run is is_dry


def test_a_prefix_of_ones_own_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_DRY_RUN", "1")
    assert Gate.from_env("API_").snapshot().dry_run
    monkeypatch.setenv("API_DRY_RUN", "0")
    assert not Gate.from_env("API_").snapshot().dry_run


def test_a_variable_for_a_dry_run_that_cannot_be_is_named_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICEGATE_DRY_RUN", "perhaps")
    with pytest.raises(ValueError, match=r"^SLUICEGATE_DRY_RUN must be 1 or 0, got 'perhaps'"):
        Gate(20)
    assert not Gate(20, dry_run=False).snapshot().dry_run


# What it says


def test_a_snapshot_is_json_and_one_line() -> None:
    clock = ManualClock()
    gate = Gate(2.5, name="api", pressure=[lambda: 0.5], max_waiting=3, max_wait=0.25, clock=clock)
    with gate.acquire(2):
        gate.try_acquire()
        snapshot = gate.snapshot()
    assert (snapshot.name, snapshot.limit, snapshot.limit_because) == ("api", 2.5, "fixed")
    assert (snapshot.in_flight, snapshot.waiting, snapshot.saturation) == (2, 0, 0.8)
    assert (snapshot.admitted, snapshot.rejected) == (1, {Reason.LIMIT: 1})
    assert (snapshot.max_waiting, snapshot.wait_bound) == (3, 0.25)
    assert (snapshot.dry_run, snapshot.disabled, snapshot.closed) == (False, False, False)
    assert snapshot.threshold is Criticality.SHEDDABLE
    values = json.loads(json.dumps(asdict(snapshot), allow_nan=False))
    assert values["rejected"] == {"limit": 1}
    (pressure,) = values["pressure"].values()
    assert pressure == 0.5
    start = "api: limit 2.5 (fixed) | 2 in flight | 0/3 waiting"
    assert str(snapshot) == f"{start} | <lambda> 0.50 | 1 rejected (limit 1)"
    gate.close()
    gate.update(dry_run=True)
    end = "| 1 rejected (limit 1) | closed | dry run: all are admitted"
    assert str(gate.snapshot()).endswith(end)
    assert repr(gate) == "<Gate 'api': limit 2.5, 0 in flight, 0 waiting, dry run>"
    gate.update(dry_run=False)
    assert repr(gate) == "<Gate 'api': limit 2.5, 0 in flight, 0 waiting>"


def test_the_kill_switch_is_in_the_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_DISABLED", "1")
    said = "<Gate 'api': limit 2, 0 in flight, 0 waiting, dry run, disabled>"
    assert repr(Gate(2, name="api", dry_run=True)) == said
