"""The limiter whose limit follows latency: what it learns from, what it shows, what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import math
import threading
import weakref
from typing import Any, assert_type

import pytest

from event_loops import KINDS, run_on
from sluicegate import (
    GradientLimiter,
    GradientSnapshot,
    Limiter,
    ManualClock,
    Outcome,
    Permit,
    Rejection,
    SemaphoreLimiter,
    Snapshot,
)
from sluicegate.asgi import LoadSheddingMiddleware
from sluicegate.classic import ClassicLimiter, Fixed

pytestmark = pytest.mark.timeout(60)

NAN, INF = math.nan, math.inf
LIMITS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, "0"),
    (-1, ValueError, "-1"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (1e10, ValueError, "10000000000"),
    (10**400, ValueError, "1000"),
    ("64", TypeError, "'64'"),
    (True, TypeError, "True"),
    (2j, TypeError, "2j"),
    ([4], TypeError, "[4]"),
]
TARGETS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, "0"),
    (-0.5, ValueError, "-0.5"),
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (5000, ValueError, "seconds, not milliseconds?"),
    ("0.1", TypeError, "'0.1'"),
    (False, TypeError, "False"),
]
RANGES = {
    "initial": "a number from min_limit to max_limit",
    "min_limit": "a number above 0 and at most 1e9",
    "max_limit": "a number from min_limit to 1e9",
    "latency_target": "a number of seconds above 0 and at most 3600, or None",
}
WRONG = [
    (parameter, *row)
    for parameter in RANGES
    for row in (TARGETS if parameter == "latency_target" else [*LIMITS, (None, TypeError, "None")])
]


def take(limiter: GradientLimiter, cost: int = 1, *, operation: str | None = None) -> Permit:
    permit = limiter.try_acquire(cost, operation=operation)
    assert isinstance(permit, Permit)
    return permit


class Used:
    """A limiter in use by so many at once, all of whom take equally long."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock(1)
        self.limiter = GradientLimiter(clock=self.clock, **options)

    def use(
        self,
        seconds: float,
        *,
        at_once: int = 1000,
        times: int = 40,
        operation: str | None = None,
        outcome: Outcome = Outcome.SUCCESS,
    ) -> float:
        for _ in range(times):
            permits: list[Permit] = []
            while len(permits) < at_once and (permit := self.limiter.try_acquire()):
                permits.append(permit)
            self.clock.advance(seconds)
            for permit in permits:
                # Named late, as by a router.
                permit.operation = operation
                permit.release(outcome)
        return self.limiter.limit

    @property
    def because(self) -> str:
        return self.limiter.snapshot().limit_because


@pytest.mark.parametrize(("parameter", "value", "kind", "shown"), WRONG)
def test_what_cannot_be_is_refused(
    parameter: str, value: Any, kind: type[Exception], shown: str
) -> None:
    with pytest.raises(kind) as error:
        GradientLimiter(**{parameter: value})
    assert f"{parameter} must be {RANGES[parameter]}, got " in str(error.value)
    assert shown.lower() in str(error.value).lower()
    if parameter == "initial" or value is None:
        return
    limiter = GradientLimiter(latency_target=0.5)
    before = limiter.snapshot()
    with pytest.raises(kind) as error:
        limiter.update(**{parameter: value})
    assert f"{parameter} must be {RANGES[parameter]}, got " in str(error.value)
    assert limiter.snapshot() == before


@pytest.mark.parametrize(
    "options",
    [
        {"min_limit": 0.1, "initial": 0.1, "max_limit": 0.1},
        {"initial": 1e9, "max_limit": 1e9},
        {"min_limit": 1e-9},
        {"latency_target": 1e-9},
        {"latency_target": 3600},
        {"latency_target": None},
    ],
)
def test_what_can_be_is_taken(options: dict[str, Any]) -> None:
    snapshot = GradientLimiter(**options).snapshot()
    for parameter, value in options.items():
        got = snapshot.limit if parameter == "initial" else getattr(snapshot, parameter)
        assert got == value


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"max_limit": 19}, "initial"),
        ({"min_limit": 21}, "initial"),
        ({"min_limit": 5, "max_limit": 4, "initial": 5}, "max_limit"),
    ],
)
def test_a_range_that_cannot_be(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong} must be"):
        GradientLimiter(**options)


def test_the_defaults() -> None:
    limiter = GradientLimiter()
    snapshot = assert_type(limiter.snapshot(), GradientSnapshot)
    assert (snapshot.limit, snapshot.min_limit, snapshot.max_limit) == (20, 1, 1000)
    assert (snapshot.latency_target, snapshot.baseline, snapshot.recent) == (None, None, None)
    assert (snapshot.slowdown, snapshot.significance, snapshot.cap) == (1, 0, 20)
    assert snapshot.limit_because == "initial"
    assert limiter.name.startswith("limiter")
    assert isinstance(limiter, Limiter)


def test_the_limit_grows_while_it_is_reached_and_latency_is_as_usual() -> None:
    used = Used(initial=4)
    used.use(0.01, at_once=1)
    assert used.limiter.limit == 4
    assert used.because == "held: less than half in flight"
    assert used.use(0.01) > 4
    assert used.because == "grown: latency 1.0x of 10 ms"
    assert used.use(0.01, times=10_000) == 1000


def test_the_limit_is_cut_while_latency_is_significantly_above_usual() -> None:
    used = Used(initial=8)
    used.use(0.01, at_once=4)
    assert used.use(0.015) >= 8
    before = used.limiter.limit
    # For a moment only: what is slower for longer, whatever the limit, has become slower.
    assert used.use(0.05, times=5) < before
    assert used.because.endswith("latency 5.0x of 10 ms")
    snapshot = used.limiter.snapshot()
    assert snapshot.recent == pytest.approx(0.05)
    assert snapshot.baseline == pytest.approx(0.01, rel=0.01)
    assert snapshot.slowdown == pytest.approx(5, rel=0.01)
    assert snapshot.significance >= 2


def test_what_has_become_slower_whatever_the_limit_is_usual_soon() -> None:
    used = Used()
    used.use(0.01, at_once=15)
    used.use(0.1, times=1_000)
    baseline = used.limiter.snapshot().baseline
    assert baseline == pytest.approx(0.1)
    assert used.limiter.limit > 20


def test_strangers_who_hang_up_cut_nothing_and_time_outs_by_cancellation_do() -> None:
    used = Used(initial=8)
    used.use(0.01, at_once=4)
    assert used.use(0.001, outcome=Outcome.IGNORED, times=1_000) >= 8
    assert used.use(0.02, outcome=Outcome.IGNORED, times=1_000) == 1
    assert used.because == "held: overload downstream"


def test_an_exception_is_classified() -> None:
    used = Used(initial=8)
    used.use(0.01, at_once=4)
    for _ in range(40):  # not so many that it is as low as it may be
        with pytest.raises(TimeoutError), used.limiter.acquire_sync():  # noqa: PT012
            used.clock.advance(0.01)
            raise TimeoutError
    assert used.limiter.limit < 8
    assert used.because == "cut: overload downstream"


def test_more_of_a_slow_operation_is_no_overload() -> None:
    used = Used(initial=8)
    for _ in range(4):
        used.use(0.01, at_once=3, operation="GET /page")
        used.use(0.4, at_once=3, operation="GET /report")
    before = used.limiter.limit
    assert used.use(0.4, operation="GET /report") > before
    assert used.limiter.snapshot().slowdown == pytest.approx(1, rel=0.01)
    before = used.limiter.limit
    assert used.use(0.4, operation="GET /page", times=3) < before
    assert used.limiter.snapshot().slowdown > 10


def test_a_name_may_be_long_odd_or_made_up() -> None:
    used = Used(initial=8)
    for turn in range(1_000):
        name = "/users/\ud800" + "ü" * (turn % 300) + str(turn)
        used.use(0.01, at_once=3, times=1, operation=name)
    assert used.limiter.snapshot().slowdown == pytest.approx(1, rel=0.01)
    assert used.limiter.limit == 8


@pytest.mark.parametrize(
    "limiter", [GradientLimiter(), SemaphoreLimiter(3), ClassicLimiter(Fixed(3))], ids=repr
)
def test_an_operation_is_kept_on_the_permit(
    limiter: GradientLimiter | SemaphoreLimiter | ClassicLimiter,
) -> None:
    with limiter.acquire_sync(operation="a") as permit:
        assert permit.operation == "a"
        permit.operation = "b"
        assert permit.operation == "b"
        permit.operation = None
    assert permit.operation is None

    async def main() -> None:
        async with limiter.acquire(operation="c") as permit:
            assert permit.operation == "c"

    asyncio.run(main())
    tried = limiter.try_acquire(operation="d")
    assert tried
    assert isinstance(tried, Permit)
    assert tried.operation == "d"
    tried.release()


def test_a_guard_names_its_operation() -> None:
    used = Used(initial=8)

    @used.limiter.guard(operation="slow")
    def slow() -> None:
        used.clock.advance(0.4)

    @used.limiter.guard()
    async def quick() -> None:
        used.clock.advance(0.01)

    async def main() -> None:
        for _ in range(100):
            await quick()

    for _ in range(3):
        asyncio.run(main())
        for _ in range(60):
            slow()
    assert used.limiter.snapshot().slowdown == pytest.approx(1, rel=0.2)
    assert used.limiter.snapshot().baseline == pytest.approx(0.4, rel=0.2)


def test_a_latency_target_is_what_is_aimed_at() -> None:
    used = Used(latency_target=0.1)
    used.use(0.001, at_once=15)
    before = used.limiter.limit
    assert used.use(0.09, times=200) > before
    assert used.because == "grown: latency 90 ms"
    # What takes so long whatever the limit is gains nothing from a lower one.
    assert used.use(0.2, times=200) > before


def test_a_latency_target_bounds_the_queue() -> None:
    used = Used(initial=100, latency_target=0.1)
    used.use(0.005, at_once=1, times=100)
    for _ in range(1000):
        # One after the other.
        used.use(0.005 * int(used.limiter.limit), times=1)
    assert 12 <= used.limiter.limit <= 23


def test_an_update_moves_the_limit_and_keeps_the_rest() -> None:
    limiter = GradientLimiter()
    limiter.update()
    assert limiter.snapshot().limit_because == "initial"
    limiter.update(max_limit=10)
    assert (limiter.limit, limiter.snapshot().min_limit) == (10, 1)
    assert limiter.snapshot().limit_because == "cut: the range was changed"
    limiter.update(min_limit=0.5, max_limit=0.5, latency_target=0.25)
    snapshot = limiter.snapshot()
    assert (snapshot.limit, snapshot.latency_target) == (0.5, 0.25)
    limiter.update(max_limit=100)
    assert (limiter.limit, limiter.snapshot().latency_target) == (0.5, 0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_admits_at_once(kind: str) -> None:
    async def main() -> None:
        limiter = GradientLimiter(initial=1)
        held = take(limiter)
        waits = [asyncio.ensure_future(limiter.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        assert limiter.waiting == 3
        limiter.update(min_limit=3)
        permits = await asyncio.gather(*waits[:2])
        assert (limiter.in_flight, limiter.waiting) == (3, 1)
        held.release()
        permits.append(await waits[2])
        for permit in permits:
            permit.release()
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run_on(kind, main())


def test_a_snapshot_is_frozen_and_json() -> None:
    used = Used()
    used.use(0.01)
    snapshot = used.limiter.snapshot()
    assert isinstance(snapshot, Snapshot)
    assert json.loads(json.dumps(dataclasses.asdict(snapshot)))["baseline"] == pytest.approx(0.01)
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.slowdown = 1  # type: ignore[misc]
    assert str(snapshot).startswith(f"{used.limiter.name}: limit ")
    assert snapshot.limit_because in str(snapshot)
    assert repr(used.limiter).startswith("<GradientLimiter 'limiter")


def test_a_rejection_shows_the_limit() -> None:
    limiter = GradientLimiter(initial=1.5, name="backend")
    permit = take(limiter)
    rejection = limiter.try_acquire()
    assert isinstance(rejection, Rejection)
    assert (rejection.gate, rejection.limit, rejection.in_flight) == ("backend", 1.5, 1)
    permit.release()


def test_a_second_release_teaches_nothing() -> None:
    limiter = GradientLimiter()
    permit = take(limiter)
    permit.release()
    permit.release(Outcome.OVERLOAD)
    assert limiter.snapshot().stray_releases == 1
    assert limiter.snapshot().outcomes == {Outcome.SUCCESS: 1}


def test_many_threads_stay_within_the_limit() -> None:
    limiter = GradientLimiter(initial=3, max_limit=5)
    lock = threading.Lock()
    inside, highest = 0, 0

    def work(number: int) -> None:
        nonlocal inside, highest
        for turn in range(500):
            with limiter.acquire_sync(operation=f"op {number}") as permit:
                with lock:
                    inside += 1
                    highest = max(highest, inside)
                if turn % 7 == 0:
                    permit.outcome = Outcome.OVERLOAD
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = limiter.snapshot()
    assert highest <= 5
    assert (snapshot.in_flight, snapshot.waiting, snapshot.admitted) == (0, 0, 4_000)
    assert 1 <= snapshot.limit <= 5


def test_a_limiter_of_ones_own_kind_is_collected_with_its_waiters() -> None:
    class Mine(GradientLimiter):
        pass

    limiter = Mine(initial=1)
    reference = weakref.ref(limiter)
    take(limiter).release()
    del limiter
    gc.collect()
    assert reference() is None


def test_it_is_a_limit_of_an_application() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    limiter = GradientLimiter()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(LoadSheddingMiddleware(app, limit=limiter)(scope, receive, send))
    assert sent[0]["status"] == 200
    assert limiter.snapshot().outcomes == {Outcome.SUCCESS: 1}
