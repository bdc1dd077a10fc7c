"""What a rejection says, as a value and as an exception."""

from __future__ import annotations

import asyncio
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from sluicegate import (
    AdaptiveThrottle,
    CoDelQueue,
    Criticality,
    DeadlineExceeded,
    Gate,
    GradientLimiter,
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejected,
    Rejection,
    RetryBudget,
    SemaphoreLimiter,
    SluicegateError,
    TokenRetryBudget,
)
from sluicegate._classify import classify_error

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SHEDDABLE = Criticality.SHEDDABLE


class RejectedByOurs(Rejected):
    """As a user may derive one."""

    def __init__(self, rejection: Rejection, /, hint: str = "") -> None:
        super().__init__(rejection)
        self.hint = hint


class RequestRejected(Rejected, httpx.TransportError):
    """Caught where the errors of the client library are."""


def refuse(limiter: SemaphoreLimiter, cost: int = 1, operation: str | None = None) -> Rejection:
    rejection = limiter.try_acquire(cost, operation=operation)
    assert isinstance(rejection, Rejection)
    return rejection


def refused_by(name: str, in_flight: int = 2, operation: str | None = None) -> Rejection:
    limiter = SemaphoreLimiter(2, name=name)
    permit = limiter.try_acquire(in_flight)
    assert isinstance(permit, Permit)
    with permit:
        return refuse(limiter, 2, operation)


REJECTIONS = [
    refused_by("api"),
    refused_by("api", operation="GET /search"),
    Rejection("api", "rate", 1.5, 0, 4.5, 4, 2),
    Rejection("jobs", "full", 0.25, 1, 3.0, 1, 3, 3, "resize", "queue"),
    Rejection("it's \ud800", "priority", operation="a\nb", threshold=3, kind="throttle"),
    Rejection("api", "deadline", time_left=0.03, limit=1e300),
]
ERRORS = [Rejected, DeadlineExceeded, RejectedByOurs, RequestRejected]


def test_with_over_a_rejection_says_why() -> None:
    limiter = SemaphoreLimiter(2, name="api")
    permit = limiter.try_acquire(2)
    assert isinstance(permit, Permit)
    with permit, pytest.raises(Rejected) as raised, limiter.try_acquire(operation="GET /search"):
        pytest.fail("it must not run")
    error = raised.value
    assert type(error) is Rejected
    assert isinstance(error, SluicegateError)
    assert error.reason is Reason.LIMIT
    assert error.retry_after is None
    assert error.rejection == refused_by("api", operation="GET /search")
    text = "limiter 'api' rejected CRITICAL 'GET /search': limit (2 in flight, limit 2)"
    assert str(error) == str(error.rejection) == text


TEXTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "full",
        {
            "criticality": 0,
            "operation": "GET /search",
            "limit": 41.37,
            "in_flight": 41,
            "waiting": 82,
            "max_waiting": 82,
            "retry_after": 0.8,
        },
        "gate 'api' rejected SHEDDABLE 'GET /search': "
        "full (82 of 82 waiting, 41 in flight, limit 41.3); retry after 0.8 s",
    ),
    (
        "full",
        {"kind": "queue", "limit": 3, "max_waiting": 3, "waiting": 3, "in_flight": 1},
        "queue 'api' rejected CRITICAL work: full (3 of 3 waiting, 1 in flight)",
    ),
    (
        "wait",
        {"kind": "limiter", "waiting": 2, "in_flight": 4, "limit": 4.0},
        "limiter 'api' rejected CRITICAL work: "
        "wait (for too long; 2 waiting, 4 in flight, limit 4)",
    ),
    (
        "evicted",
        {"criticality": 1, "waiting": 2, "max_waiting": 2, "in_flight": 4, "limit": 4.98},
        "gate 'api' rejected SHEDDABLE_PLUS work: "
        "evicted (for more critical work; 2 of 2 waiting, 4 in flight, limit 4.9)",
    ),
    (
        "limit",
        {"in_flight": 3, "limit": 4, "waiting": 1},
        "gate 'api' rejected CRITICAL work: limit (3 in flight, limit 4, 1 waiting)",
    ),
    ("closed", {"in_flight": 3, "limit": 4}, "gate 'api' rejected CRITICAL work: closed"),
    (
        "rate",
        {"kind": "bucket", "retry_after": 12.01, "in_flight": 3},
        "bucket 'api' rejected CRITICAL work: rate; retry after 12.1 s",
    ),
    ("rate", {"retry_after": 0}, "gate 'api' rejected CRITICAL work: rate; retry after 0.0 s"),
    (
        "rate",
        {"retry_after": 1e-9},
        "gate 'api' rejected CRITICAL work: rate; retry after 0.1 s",
    ),
    (
        "priority",
        {"criticality": 0, "threshold": Criticality.SHEDDABLE_PLUS, "in_flight": 3},
        "gate 'api' rejected SHEDDABLE work: priority (below SHEDDABLE_PLUS)",
    ),
    ("priority", {}, "gate 'api' rejected CRITICAL work: priority"),
    ("deadline", {"in_flight": 3}, "gate 'api' rejected CRITICAL work: deadline"),
    (
        "deadline",
        {"time_left": 0.0},
        "gate 'api' rejected CRITICAL work: deadline (no time left)",
    ),
    (
        "deadline",
        {"time_left": 0.0301},
        "gate 'api' rejected CRITICAL work: deadline (0.030 s left)",
    ),
    (
        "deadline",
        {"time_left": 1e-9, "retry_after": 1.0},
        "gate 'api' rejected CRITICAL work: deadline (0.001 s left); retry after 1.0 s",
    ),
    (
        "deadline",
        {"time_left": 12.34},
        "gate 'api' rejected CRITICAL work: deadline (12.3 s left)",
    ),
    (
        "throttled",
        {"kind": "throttle", "in_flight": 3},
        "throttle 'api' rejected CRITICAL work: throttled",
    ),
    ("saturated", {}, "gate 'api' rejected CRITICAL work: saturated (the next stage)"),
    (
        "streams",
        {"in_flight": 1000, "limit": 1000},
        "gate 'api' rejected CRITICAL work: streams (1000 of 1000 streams)",
    ),
    (
        "budget",
        {"kind": "retry budget", "in_flight": 2, "limit": 2.99},
        "retry budget 'api' rejected CRITICAL work: budget (2 of 2.9 retries)",
    ),
    (
        "deadline",
        {"kind": "destination", "time_left": 0.25, "retry_after": 4.0},
        "destination 'api' rejected CRITICAL work: deadline (0.250 s left); retry after 4.0 s",
    ),
    (
        "limit",
        {"limit": float("inf")},
        "gate 'api' rejected CRITICAL work: limit (0 in flight, limit inf)",
    ),
]


@pytest.mark.parametrize(("reason", "values", "text"), TEXTS)
def test_it_says_what_matters(reason: str, values: dict[str, Any], text: str) -> None:
    rejection = Rejection("api", reason, **values)
    assert str(rejection) == text
    assert str(Rejected(rejection)) == text


def test_every_reason_and_criticality_has_a_text() -> None:
    assert {reason for reason, _, _ in TEXTS} == set(Reason)
    for criticality in Criticality:
        text = str(Rejection("api", "limit", criticality=criticality))
        assert f" rejected {criticality.name} work: " in text
        text = str(Rejection("api", "priority", threshold=criticality))
        part = "a part of" if criticality is Criticality.CRITICAL else "below"
        assert text.endswith(f"({part} {criticality.name})")


@pytest.mark.parametrize("name", ["a\nb", "it's", "\ud800", "x" * 10_000, "", "é" * 200])
def test_it_is_one_line_whatever_the_names_are(name: str) -> None:
    rejection = Rejection(name, "limit", operation=name)
    for text in (str(rejection), str(Rejected(rejection))):
        assert len(text) < 700
        assert text.splitlines() == [text]
        text.encode()
    assert (rejection.gate, rejection.operation) == (name, name)


def test_each_says_what_it_is() -> None:
    def of(limiter: SemaphoreLimiter | GradientLimiter) -> Rejection:
        with limiter.acquire_sync():
            rejection = limiter.try_acquire(operation="GET /")
        assert isinstance(rejection, Rejection)
        return rejection

    gradient = GradientLimiter(name="api", min_limit=1, initial=1, max_limit=1)
    for limiter in (SemaphoreLimiter(1, name="api"), gradient):
        assert (of(limiter).kind, of(limiter).operation) == ("limiter", "GET /")
    gate = Gate(1, name="api", max_waiting=0)
    with gate.acquire_sync():
        error = raised_by(lambda: gate.acquire_sync(operation="GET /", criticality=SHEDDABLE))
        late = gate.try_acquire(deadline=0)
    text = "gate 'api' rejected SHEDDABLE 'GET /': limit (1 in flight, limit 1)"
    assert str(error).startswith(f"{text}; retry after ")
    assert error.rejection.max_waiting == 0
    text = "gate 'api' rejected CRITICAL work: deadline (no time left)"
    assert str(late).startswith(f"{text}; retry after ")
    for budget in (RetryBudget(floor=0, name="b"), TokenRetryBudget(name="b")):
        if isinstance(budget, TokenRetryBudget):
            for _ in range(10):
                budget.record_failure()
        refused = budget.try_retry()
        assert isinstance(refused, Rejection)
        assert str(refused).startswith("retry budget 'b' rejected")
    queue: CoDelQueue[int] = CoDelQueue(1, name="jobs")
    queue.put_nowait(1)
    with pytest.raises(Rejected) as raised:
        queue.put_nowait(2, operation="resize")
    rejection = raised.value.rejection
    assert (rejection.kind, rejection.operation, rejection.max_waiting) == ("queue", "resize", 1)
    text = "queue 'jobs' rejected CRITICAL 'resize': full (1 of 1 waiting, 0 in flight)"
    assert str(raised.value) == text


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("rejection", REJECTIONS, ids=str)
def test_a_rejection_travels(rejection: Rejection, protocol: int) -> None:
    for other in (
        pickle.loads(pickle.dumps(rejection, protocol)),
        copy.copy(rejection),
        copy.deepcopy(rejection),
        eval(repr(rejection), {"Rejection": Rejection}),
    ):
        assert type(other) is Rejection
        assert other == rejection
        assert hash(other) == hash(rejection)
        assert repr(other) == repr(rejection)
        assert str(other) == str(rejection)
        assert not other


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ERRORS)
def test_an_exception_travels(kind: type[Rejected], protocol: int) -> None:
    for rejection in REJECTIONS:
        error = kind(rejection)
        error.add_note("seen at the gate")
        for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
            assert type(other) is kind
            assert other
            assert (other.rejection, other.args) == (rejection, (rejection,))
            assert (other.reason, other.retry_after) == (rejection.reason, rejection.retry_after)
            assert str(other) == str(rejection)
            assert other.__notes__ == error.__notes__


@pytest.mark.parametrize("kind", ERRORS)
def test_it_is_an_exception_like_any_other(kind: type[Rejected]) -> None:
    rejection = REJECTIONS[1]

    def fail() -> None:
        raise kind(rejection) from KeyError("below")

    # A falsy exception would be taken for none there.
    with ThreadPoolExecutor(1) as pool, pytest.raises(kind) as raised:
        pool.submit(fail).result()
    assert raised.value.rejection is rejection
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(kind):
        asyncio.run(asyncio.to_thread(fail))
    assert classify_error(raised.value) is Outcome.IGNORED
    limiter = SemaphoreLimiter(1)
    with pytest.raises(kind), limiter.acquire_sync():
        fail()
    assert limiter.snapshot().outcomes == {Outcome.IGNORED: 1}


def test_a_subclass_may_say_more_and_be_the_error_of_a_library() -> None:
    error = RejectedByOurs(REJECTIONS[0], hint="later")
    assert (error.hint, str(error)) == ("later", str(REJECTIONS[0]))
    with pytest.raises(httpx.HTTPError):
        raise RequestRejected(REJECTIONS[0])


@pytest.mark.parametrize("kind", ERRORS)
def test_what_was_made_wrongly_can_still_be_printed(kind: Callable[..., Rejected]) -> None:
    assert str(kind("text")) == "text"
    assert repr(kind("text"))


def raised_by(act: Callable[[], object]) -> Rejected:
    with pytest.raises(Rejected) as raised:
        act()
    return raised.value


def enter(rejection: Rejection) -> None:
    with rejection:
        pytest.fail("it must not run")


def test_a_deadline_is_exceeded_wherever_that_is_why() -> None:
    queue: CoDelQueue[str] = CoDelQueue(4, name="jobs", clock=ManualClock())

    async def put() -> None:
        await queue.put("a", deadline=0)

    rejection = Rejection("api", "deadline", time_left=0.5)
    for error in (
        raised_by(lambda: queue.put_nowait("a", deadline=0)),
        raised_by(lambda: queue.put_sync("a", deadline=-1)),
        raised_by(lambda: asyncio.run(put())),
        raised_by(lambda: enter(rejection)),
    ):
        assert type(error) is DeadlineExceeded
        assert isinstance(error, TimeoutError)
        assert error.args == (error.rejection,)
        assert error.reason is Reason.DEADLINE
        assert error.rejection.time_left in (0.0, 0.5)
        assert (error.errno, error.strerror, error.filename) == (None, None, None)
        assert classify_error(error) is Outcome.IGNORED
    assert str(error) == "gate 'api' rejected CRITICAL work: deadline (0.500 s left)"


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.DEADLINE])
def test_nothing_else_is_a_time_out(reason: Reason) -> None:
    assert type(raised_by(lambda: enter(Rejection("api", reason)))) is Rejected


def test_a_throttle_takes_an_exceeded_deadline_for_ours() -> None:
    throttle = AdaptiveThrottle()

    @throttle.guard()
    def call() -> None:
        raise DeadlineExceeded(REJECTIONS[0])

    with pytest.raises(DeadlineExceeded):
        call()
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 1}


def test_a_rejection_is_a_falsy_value() -> None:
    one, same, other = refused_by("api"), refused_by("api"), refused_by("api", 1)
    assert not one
    assert one == same
    assert {one, same, other} == {one, other}
    assert one != other
    assert one != refused_by("other")
    assert one != "api"
    assert (one.gate, one.reason, one.criticality) == ("api", Reason.LIMIT, Criticality.CRITICAL)
    assert (one.status, one.retry_after) == (503, None)
    assert (one.limit, one.in_flight, one.waiting) == (2.0, 2, 0)
    assert (one.kind, one.operation, one.max_waiting) == ("limiter", None, None)
    assert (one.threshold, one.time_left) == (None, None)
    assert Rejection("api", Reason.RATE, 2.5).status == 429
    assert Rejection("api", "limit").kind == "gate"


def test_every_value_makes_a_difference() -> None:
    values: dict[str, Any] = {
        "gate": "api",
        "reason": "wait",
        "retry_after": 1.0,
        "criticality": 1,
        "limit": 1.0,
        "in_flight": 1,
        "waiting": 1,
        "max_waiting": 1,
        "operation": "GET /",
        "kind": "queue",
        "threshold": SHEDDABLE,
        "time_left": 1.0,
    }
    plain = Rejection("other", "full")
    made = Rejection(**values)
    for name, value in values.items():
        assert getattr(made, name) == value
        other = Rejection(**(values | {name: getattr(plain, name)}))
        assert other != made
        assert repr(other) != repr(made)
    assert Rejection("\ud800", "limit") != Rejection("\ud801", "limit")


@pytest.mark.parametrize(
    "values",
    [
        {"reason": "no such reason"},
        {"retry_after": -1.0},
        {"retry_after": float("nan")},
        {"criticality": 4},
        {"criticality": -1},
        {"criticality": 2**70},
        {"limit": float("nan")},
        {"kind": "door"},
        {"threshold": 4},
        {"time_left": -0.1},
        {"time_left": float("inf")},
    ],
)
def test_a_rejection_that_cannot_be(values: dict[str, Any]) -> None:
    [name] = values
    with pytest.raises(ValueError, match=f"^{name} must be .*, got"):
        Rejection(**({"gate": "api", "reason": "limit"} | values))


@pytest.mark.parametrize("bad", [None, True, "2", 2.0])
def test_the_criticality_of_a_rejection_is_one(bad: Any) -> None:
    text = f"must be a Criticality, or its value from 0 to 3, got {bad!r}"
    with pytest.raises(TypeError, match=f"^criticality {text}"):
        Rejection("api", "limit", criticality=bad)
    if bad is not None:
        with pytest.raises(TypeError, match=f"^threshold {text}"):
            Rejection("api", "limit", threshold=bad)
    for criticality in Criticality:
        made = Rejection("api", "limit", criticality=criticality, threshold=criticality)
        assert made.criticality is criticality
        assert made.threshold is criticality
        assert Rejection("api", "limit", None, criticality, threshold=int(criticality)) == made


@pytest.mark.parametrize("bad", [1, b"GET /"])
def test_an_operation_is_a_name(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"^operation must be a string or None"):
        Rejection("api", "limit", operation=bad)
