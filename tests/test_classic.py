"""Limiters that follow a published algorithm: as their originals, and as safe as any other."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import math
import pickle
import sys
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, assert_type

import pytest

from event_loops import KINDS, run_on
from sluicegate import Limiter, ManualClock, Outcome, Permit, SemaphoreLimiter, _core
from sluicegate.asgi import LoadSheddingMiddleware
from sluicegate.classic import (
    Aimd,
    Algorithm,
    ClassicLimiter,
    Fixed,
    Gradient,
    Gradient2,
    Vegas,
    Window,
)
from snippets import CHECK, LOOP_THREAD, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(60)

ALGORITHMS: list[Algorithm] = [
    Fixed(4),
    Aimd(initial=4, min_limit=1),
    Vegas(initial=4),
    Gradient(initial=4),
    Gradient2(initial=4, min_limit=1),
]
NAMES = [type(algorithm).__name__ for algorithm in ALGORITHMS]


def take(limiter: ClassicLimiter, cost: int = 1) -> Permit:
    permit = limiter.try_acquire(cost)
    assert isinstance(permit, Permit)
    return permit


class Followed:
    """A limiter without a window, all of whose permits are taken for each sample."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.clock = ManualClock(1)
        self.limiter = ClassicLimiter(algorithm, window=None, clock=self.clock)

    def full(self, seconds: float, outcome: Outcome = Outcome.SUCCESS) -> int:
        permits = [take(self.limiter) for _ in range(int(self.limiter.limit))]
        assert not self.limiter.try_acquire()
        self.clock.advance(seconds)
        last = permits.pop()
        for permit in permits:
            permit.release(Outcome.IGNORED)
        last.release(outcome)
        assert self.limiter.in_flight == 0
        assert self.limiter.limit == int(self.limiter.limit)
        return int(self.limiter.limit)


def test_aimd_by_default_is_the_original() -> None:
    followed = Followed(Aimd())
    assert [followed.full(0.01) for _ in range(5)] == [21, 22, 23, 24, 25]
    assert [followed.full(0.01, Outcome.OVERLOAD) for _ in range(4)] == [22, 20, 20, 20]
    assert [followed.full(6.0) for _ in range(2)] == [20, 20]


def test_vegas_by_default_is_the_original() -> None:
    followed = Followed(Vegas())
    assert followed.full(0.01) == 20
    assert [followed.full(0.01) for _ in range(5)] == [26, 32, 38, 44, 50]
    assert [followed.full(0.013) for _ in range(3)] == [49, 48, 47]
    assert [followed.full(0.02, Outcome.OVERLOAD) for _ in range(3)] == [46, 45, 44]


def test_gradient_by_default_is_the_original() -> None:
    followed = Followed(Gradient())
    assert [followed.full(0.01) for _ in range(6)] == [57, 64, 72, 80, 88, 97]
    assert [followed.full(0.02) for _ in range(3)] == [106, 116, 126]
    assert [followed.full(0.1) for _ in range(2)] == [115, 106]


def test_gradient2_by_default_is_the_original() -> None:
    followed = Followed(Gradient2())
    twelve = [20, 21, 22, 23, 24, 24, 25, 26, 27, 28, 28, 29]
    assert [followed.full(0.01) for _ in range(12)] == twelve
    followed = Followed(Gradient2(min_limit=1))
    assert [followed.full(0.01) for _ in range(12)] == twelve
    assert [followed.full(0.1, Outcome.OVERLOAD) for _ in range(4)] == [27, 25, 23, 22]


def test_a_fixed_limit_stays() -> None:
    followed = Followed(Fixed(3))
    assert [followed.full(seconds, Outcome.OVERLOAD) for seconds in (0.0, 0.1, 99.0)] == [3, 3, 3]
    assert followed.limiter.snapshot().limit_because == "fixed"


def test_a_window_is_one_sample() -> None:
    clock = ManualClock()
    limiter = ClassicLimiter(Aimd(initial=20), clock=clock)
    limits: dict[int, int] = {}
    for turn in range(400):
        permits = [take(limiter) for _ in range(20)]
        clock.advance(0.01)
        for permit in permits:
            permit.release()
        limits.setdefault(int(limiter.limit), turn)
    # The first 20 samples open it. It closes with the first one that ends after 1 s and more.
    assert limits == {20: 0, 21: 101, 22: 202, 23: 303}


def test_a_window_stays_open_until_it_has_its_samples() -> None:
    clock = ManualClock()
    limiter = ClassicLimiter(Aimd(min_limit=1), window=Window(min_samples=3), clock=clock)
    limits = []
    for outcome in (Outcome.OVERLOAD, *[Outcome.SUCCESS] * 5):
        permit = take(limiter)
        clock.advance(60)
        permit.release(Outcome.IGNORED)
        permit = take(limiter)
        clock.advance(0.1)
        permit.release(outcome)
        limits.append(limiter.limit)
    assert limits == [20, 20, 18, 18, 18, 18]


def test_what_is_ignored_teaches_nothing_and_an_exception_is_classified() -> None:
    clock = ManualClock()
    limiter = ClassicLimiter(Aimd(initial=30), window=None, clock=clock)
    for error, limit in ((KeyError(), 30), (asyncio.CancelledError(), 30), (TimeoutError(), 27)):
        with pytest.raises(type(error)), limiter.acquire_sync():  # noqa: PT012
            clock.advance(9)
            raise error
        assert limiter.limit == limit
    assert limiter.snapshot().limit_because == "aimd: overload, cut"
    assert limiter.snapshot().outcomes == {Outcome.IGNORED: 2, Outcome.OVERLOAD: 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_grown_limit_wakes_and_a_cut_one_does_not(kind: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = ClassicLimiter(Aimd(initial=2, min_limit=1), window=None, clock=clock)
        first, second = take(limiter), take(limiter)
        ran: list[int] = []

        async def wait(number: int) -> Permit:
            permit = await limiter.acquire()
            ran.append(number)
            return permit

        tasks = [asyncio.create_task(wait(number)) for number in range(4)]
        await clock.settle(1)
        assert (limiter.waiting, ran) == (4, [])
        second.release()
        await clock.settle()
        # One has the permit that was given back, and one the unit that the limit grew by.
        assert (limiter.limit, ran) == (3, [0, 1])
        first.release(Outcome.OVERLOAD)
        await clock.settle()
        assert (limiter.limit, ran) == (2, [0, 1])
        for task in tasks[:2]:
            task.result().release(Outcome.IGNORED)
        await clock.settle()
        assert ran == [0, 1, 2, 3]
        for task in tasks[2:]:
            task.result().release()
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run_on(kind, main())


def test_the_time_in_line_is_no_latency() -> None:
    clock = ManualClock()
    limiter = ClassicLimiter(Aimd(initial=1, min_limit=1), window=None, clock=clock)

    async def main() -> None:
        held = take(limiter)
        waits = asyncio.ensure_future(limiter.acquire())
        await clock.settle()
        await clock.settle(60)
        held.release(Outcome.IGNORED)
        await clock.settle()
        permit = await waits
        assert permit.waited == 60
        clock.advance(1)
        permit.release()

    asyncio.run(main())
    assert limiter.limit == 2


def test_why_the_limit_is_what_it_is_is_part_of_a_snapshot() -> None:
    clock = ManualClock()
    limiter = ClassicLimiter(Gradient2(min_limit=1), name="db", window=None, clock=clock)
    snapshot = limiter.snapshot()
    assert str(snapshot).startswith("db: limit 20 (gradient2: initial) | 0 in flight")
    permits = [take(limiter) for _ in range(20)]
    clock.advance(0.01)
    for permit in permits:
        permit.release()
    assert limiter.snapshot().limit_because == "gradient2: 1.0x of the long-term latency, grown"
    assert json.loads(json.dumps(dataclasses.asdict(limiter.snapshot())))["limit"] == limiter.limit
    assert repr(limiter).startswith(f"<ClassicLimiter 'db': limit {limiter.limit:g}, 0 in flight")


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
@pytest.mark.parametrize("window", [None, Window(), Window(min_rtt=0, min_samples=1)])
def test_zero_latencies_lose_no_permit(algorithm: Algorithm, window: Window | None) -> None:
    limiter = ClassicLimiter(algorithm, window=window, clock=ManualClock())
    for turn in range(200):
        permits = [take(limiter) for _ in range(int(limiter.limit))]
        assert not limiter.try_acquire()
        for number, permit in enumerate(permits):
            permit.release(list(Outcome)[(turn + number) % 3])
        assert limiter.in_flight == 0
        assert 1 <= limiter.limit <= 1000


class Clock:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.reading: Any = 1.0

    def now(self) -> float:
        if isinstance(self.reading, BaseException):
            raise self.reading
        reading: float = self.reading
        return reading


ODD_READINGS = [1.0, 0.0, -5.0, 1e300, 2.0, OSError("no clock"), math.nan, 3.0, 1e9, math.inf, "1"]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
@pytest.mark.parametrize("window", [None, Window(min_rtt=0, min_samples=1)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_odd_clocks_lose_no_permit(algorithm: Algorithm, window: Window | None) -> None:
    clock = Clock()
    limiter = ClassicLimiter(algorithm, window=window, clock=clock)
    held: list[Permit] = []
    for turn in range(300):
        clock.reading = ODD_READINGS[turn * 7 % len(ODD_READINGS)]
        for _ in range(2):
            try:
                permit = limiter.try_acquire()
            except (OSError, ValueError, TypeError):
                continue
            if permit:
                held.append(permit)
        assert limiter.in_flight == len(held)
        if held and turn % 3:
            held.pop(turn % len(held)).release(list(Outcome)[turn % 3])
            assert limiter.in_flight == len(held)
        assert 1 <= limiter.limit <= 1000
    for permit in held:
        permit.release()
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


PRELUDE = (
    CHECK
    + UNTIL
    + LOOP_THREAD
    + """
import asyncio, random, sys, threading, uvloop
from sluicegate import Outcome
from sluicegate.classic import *

class Peak:
    '''Counts who is inside, by itself.'''
    def __init__(self):
        self.lock, self.inside, self.highest, self.entries = threading.Lock(), 0, 0, 0
    def enter(self):
        with self.lock:
            self.inside += 1
            self.entries += 1
            self.highest = max(self.highest, self.inside)
    def leave(self):
        with self.lock:
            self.inside -= 1
"""
)


@pytest.mark.parametrize("name", ["Aimd", "Vegas", "Gradient", "Gradient2"])
@pytest.mark.parametrize("window", ["None", "Window(min_duration=1e-3, max_duration=1e-2)"])
def test_threads_and_loops_never_exceed_the_most(name: str, window: str, scale: float) -> None:
    run(
        PRELUDE
        + """
kind, window, count = globals()[sys.argv[1]], eval(sys.argv[2]), int(sys.argv[3])
sys.setswitchinterval(1e-5)
limiter = ClassicLimiter(kind(initial=4, min_limit=2, max_limit=8), window=window)
peak = Peak()
outcomes = [Outcome.SUCCESS] * 7 + [Outcome.OVERLOAD, Outcome.IGNORED, None]

async def work(chance):
    try:
        async with asyncio.timeout(chance.choice([None, None, 0.001])):
            async with limiter.acquire(timeout=chance.choice([None, None, 0.002])) as permit:
                peak.enter()
                try:
                    permit.outcome = chance.choice(outcomes)
                    await asyncio.sleep(chance.choice([0, 0, 0.0005]))
                finally:
                    peak.leave()
    except TimeoutError:
        pass

async def main(seed):
    chance = random.Random(seed)
    for _ in range(count // 50):
        await asyncio.gather(*(work(chance) for _ in range(50)))

def run_loop(factory, seed):
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(seed))

def run_plain(seed):
    chance = random.Random(seed)
    for _ in range(count):
        permit = limiter.try_acquire() if chance.random() < 0.5 else limiter.acquire_sync()
        if permit:
            peak.enter()
            peak.leave()
            permit.release(chance.choice(outcomes) or Outcome.SUCCESS)

threads = [threading.Thread(target=run_loop, args=[asyncio.new_event_loop, 1])]
threads.append(threading.Thread(target=run_loop, args=[uvloop.new_event_loop, 2]))
threads += [threading.Thread(target=run_plain, args=[seed]) for seed in (3, 4)]
for thread in threads:
    thread.start()
for turn in range(20):
    limiter.update(max_limit=6 + turn % 3)
for thread in threads:
    thread.join()
assert peak.highest <= 8 and peak.inside == 0, (peak.highest, peak.inside)
assert peak.entries == limiter.snapshot().admitted
assert 2 <= limiter.limit <= 8
check(2)
""",
        name,
        window,
        str(int(5_000 * scale)),
        seconds=50,
    )


def test_a_range_can_be_changed_and_what_cannot_be_changes_nothing() -> None:
    limiter = ClassicLimiter(Aimd(), clock=ManualClock())
    limiter.update()
    limiter.update(max_limit=30)
    limiter.update(min_limit=25)
    assert limiter.limit == 25
    assert limiter.snapshot().limit_because == "aimd: the range was changed, grown"
    before = limiter.snapshot()
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"min_limit": 0}, ValueError, "min_limit must be an integer from 1 to 1e9, got 0"),
        ({"min_limit": 31}, ValueError, "max_limit must be an integer from min_limit to 1e9"),
        ({"max_limit": 24}, ValueError, "max_limit must be an integer from min_limit"),
        ({"max_limit": 2.5}, TypeError, "max_limit must be an integer"),
        ({"max_limit": True}, TypeError, "max_limit must be an integer"),
        ({"max_limit": 10**30}, ValueError, "max_limit must be an integer"),
        ({"limit": 5}, TypeError, "limit"),
    ]
    for changes, kind, text in cases:
        with pytest.raises(kind, match=text):
            limiter.update(**changes)
        assert limiter.snapshot() == before
    fixed = ClassicLimiter(Fixed(7))
    with pytest.raises(ValueError, match="max_limit must be left alone at a fixed limit, got 8"):
        fixed.update(max_limit=8)
    assert fixed.limit == 7


NAN, INF = math.nan, math.inf
WRONG: list[tuple[Callable[..., Any], str, list[Any], list[Any]]] = [
    # Who, which parameter, values that are out of range, and values of a wrong type.
    *[
        (kind, name, [0, -1, 10**9 + 1, 2**40], ["20", 2.5, True, None])
        for kind in (Aimd, Vegas, Gradient, Gradient2)
        for name in ("initial", "min_limit", "max_limit")
    ],
    (Fixed, "limit", [0, -1, 10**9 + 1], ["20", 2.5, True, None]),
    (Aimd, "backoff_ratio", [0.49, 1.0, NAN, INF, -INF], ["0.9", True, None]),
    (Gradient, "backoff_ratio", [0.49, 1.01, NAN, INF], ["0.9", True, None]),
    (Aimd, "timeout", [0, -1, NAN, INF, 3601, 1e-12], ["5", True, None]),
    *[
        (kind, "smoothing", [0, -0.1, 1.01, NAN, INF], ["0.2", True, None])
        for kind in (Vegas, Gradient, Gradient2)
    ],
    *[
        (kind, "tolerance", [0.99, -1, NAN, INF, 10**400], ["2", True, None])
        for kind in (Gradient, Gradient2)
    ],
    (Vegas, "alpha", [-1, 1001], ["3", 3.0, True, None]),
    (Vegas, "beta", [-1, 2, 1001], ["6", 6.0, True, None]),
    (Vegas, "probe_multiplier", [0, -1, 2**32], ["30", 3.0, True]),
    (Gradient, "probe_interval", [0, -1, 2**32], ["30", 3.0, True]),
    (Gradient, "queue_size", [-1, 10**9 + 1, 2**32], ["4", 4.0, True]),
    (Gradient2, "queue_size", [-1, 10**9 + 1, 2**32], ["4", 4.0, True, None]),
    (Gradient2, "long_window", [-1, 0, 10**9 + 1, 2**32], ["600", 6.0, True, None]),
    *[(kind, "seed", [-1, 2**64], ["1", 1.0, True]) for kind in (Vegas, Gradient)],
    *[
        (Window, name, [0, -1, NAN, INF, 3601], ["1", True, None])
        for name in ("min_duration", "max_duration")
    ],
    (Window, "min_samples", [0, -1, 2**32], ["10", 1.0, True, None]),
    (Window, "min_rtt", [-1, NAN, INF, 3601], ["1", True, None]),
]


@pytest.mark.parametrize(("kind", "parameter", "out_of_range", "wrong_types"), WRONG)
def test_what_cannot_be_is_refused_by_name_value_and_range(
    kind: Callable[..., Any], parameter: str, out_of_range: list[Any], wrong_types: list[Any]
) -> None:
    for error, values in ((ValueError, out_of_range), (TypeError, wrong_types)):
        for value in values:
            with pytest.raises(error) as raised:
                kind(**{parameter: value})
            text = str(raised.value).lower()
            # A range is empty if either end is moved beyond the other.
            names = (parameter, "initial") if parameter.endswith("limit") else (parameter,)
            names = (*names, "max_duration") if parameter == "min_duration" else names
            assert text.startswith(tuple(f"{name} must be a" for name in names)), text
            assert ", got " in text
            assert len(text) < 250
    with pytest.raises(TypeError, match="unexpected keyword"):
        kind(**{parameter + "s": 1})


@pytest.mark.parametrize(
    ("arguments", "keywords", "text"),
    [
        ((), {}, "algorithm"),
        ((20,), {}, r"algorithm must be Fixed\(…\), Aimd\(…\), .*got 20"),
        ((Aimd,), {}, "algorithm must be"),
        ((SemaphoreLimiter(3),), {}, "algorithm must be"),
        ((Aimd(), Window()), {}, "positional"),
        ((Aimd(),), {"window": 1.0}, r"window must be Window\(…\) or None, got 1.0"),
        ((Aimd(),), {"window": Window}, "window must be"),
        ((Aimd(),), {"name": 5}, "name must be a string or None, got 5"),
        ((Aimd(),), {"clock": 5}, r"clock must be an object with a method now\(\)"),
        ((Aimd(),), {"limit": 5}, "unexpected keyword"),
    ],
)
def test_a_limiter_that_cannot_be(
    arguments: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        ClassicLimiter(*arguments, **keywords)


def test_the_core_is_made_by_its_classes_only() -> None:
    for kind in (_core.BaseLimiter, _core.Algorithm):
        with pytest.raises(TypeError):
            kind()


@pytest.mark.parametrize("value", [*ALGORITHMS, Window()], ids=[*NAMES, "Window"])
def test_a_configuration_is_a_value(value: Any) -> None:
    same = dataclasses.replace(value)
    assert same == value
    assert hash(same) == hash(value)
    assert eval(repr(value)) == value
    assert pickle.loads(pickle.dumps(value)) == value
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, 5)
    with pytest.raises(ValueError, match="must be"):
        dataclasses.replace(value, **{field: 0})
    assert value != Fixed(5)


def test_an_algorithm_can_be_shared() -> None:
    aimd = Aimd(initial=30)
    limiters = [ClassicLimiter(aimd, window=None) for _ in range(2)]
    take(limiters[0]).release(Outcome.OVERLOAD)
    assert [limiter.limit for limiter in limiters] == [27, 30]


def test_a_seed_says_when_it_probes() -> None:
    def probes(seed: int | None) -> list[int]:
        clock = ManualClock()
        algorithm = Gradient(initial=4, max_limit=4, probe_interval=20, seed=seed)
        limiter = ClassicLimiter(algorithm, window=None, clock=clock)
        turns = []
        for turn in range(300):
            permit = take(limiter)
            clock.advance(0.01)
            permit.release()
            if "learned anew" in limiter.snapshot().limit_because:
                turns.append(turn)
        return turns

    assert probes(1) == probes(1) != probes(2)
    assert len({tuple(probes(None)) for _ in range(4)}) > 1


def test_it_is_a_limiter_like_any_other() -> None:
    limiter = ClassicLimiter(Aimd())
    assert isinstance(limiter, Limiter)
    assert LoadSheddingMiddleware(lambda *_: None, limit=limiter).limiter is limiter  # type: ignore[arg-type]
    with limiter.try_acquire(20):
        assert (limiter.in_flight, limiter.saturation) == (20, 1.0)
        assert not limiter.try_acquire()
    assert (limiter.in_flight, limiter.saturation) == (0, 0.0)


def test_a_guard_keeps_the_type_of_what_it_guards() -> None:
    clock = ManualClock()
    limiter = ClassicLimiter(Aimd(initial=30), window=None, clock=clock)

    @limiter.guard(timeout=1)
    async def double(number: int) -> float:
        clock.advance(6)
        return 2.0 * number

    @limiter.guard()
    def halve(number: int) -> float:
        clock.advance(1)
        return number / 2

    doubled = assert_type(double(3), Coroutine[Any, Any, float])
    half = assert_type(halve(3), float)
    assert (asyncio.run(doubled), half) == (6.0, 1.5)
    assert limiter.limit == 27
    with pytest.raises(TypeError, match="generator"):
        limiter.guard()(lambda: (yield))


def test_one_that_is_in_a_cycle_with_its_clock_is_collected() -> None:
    clock: Any = Clock()
    limiter = ClassicLimiter(Aimd(), clock=clock)
    clock.limiter = limiter
    alive = weakref.ref(limiter)
    del clock, limiter
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_the_child_of_a_fork_begins_anew_with_what_was_learned() -> None:
    run(
        """
import os
from sluicegate.classic import Aimd, ClassicLimiter
from sluicegate import Outcome

limiter = ClassicLimiter(Aimd(initial=30), window=None)
limiter.try_acquire().release(Outcome.OVERLOAD)
permit = limiter.try_acquire(27)
assert not limiter.try_acquire()
child = os.fork()
if child == 0:
    try:
        assert (limiter.limit, limiter.in_flight) == (27, 0), limiter
        permit.release(Outcome.OVERLOAD)
        assert limiter.limit == 27, limiter
        limiter.try_acquire(27).release()
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert limiter.in_flight == 27
permit.release()
""",
        is_watched=False,
    )
