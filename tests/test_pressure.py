"""Pressures: what they measure, where there is nothing to measure, and what they keep alive."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import uvloop

from sluicegate import ManualClock, _core, _cpu, _loop_lag, pressure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FACTORIES: dict[str, Callable[..., pressure.Pressure]] = {
    "loop_lag": pressure.loop_lag,
    "thread_pool": pressure.thread_pool,
    "cpu": pressure.cpu,
}
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(main: Callable[[], Any], loop_factory: Callable[[], Any] = LOOPS[0]) -> Any:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


# What all have in common


@pytest.mark.parametrize("name", [*FACTORIES, "queue_wait"])
def test_a_pressure_is_a_number_wherever_it_is_asked(name: str) -> None:
    make: Callable[[], pressure.Pressure] = getattr(pressure, name)
    source = make()
    assert source.name == pressure.name_of(source) == name
    assert repr(source).startswith(f"{name}(")

    async def inside() -> list[float]:
        return [source(), await asyncio.to_thread(source), source()]

    values = [source(), *run(inside), *run(inside, uvloop.new_event_loop), source()]
    assert all(math.isfinite(value) and value >= 0 for value in values), values


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("target", [0, -1, math.nan, math.inf, 10**400, 1e9])
def test_a_target_out_of_range_is_named(name: str, target: float) -> None:
    with pytest.raises(ValueError, match=r"^target must be a number above 0 and at most \d+, got "):
        FACTORIES[name](target=target)


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("target", [None, True, "1", [1]])
def test_a_target_of_a_wrong_type_is_named(name: str, target: Any) -> None:
    with pytest.raises(TypeError, match=r"^target must be a number above 0"):
        FACTORIES[name](target=target)


def test_names_of_what_users_bring() -> None:
    def disk() -> float:
        return 0.0

    class Named:
        name = "memory"

        def __call__(self) -> float:
            return 0.0

    class Nameless:
        def __call__(self) -> float:
            return 0.0

    assert [pressure.name_of(source) for source in (disk, Named(), Nameless())] == [
        "disk",
        "memory",
        "Nameless",
    ]


async def coroutine() -> float:
    return 0.0


class Numbered:
    name = 7

    def __call__(self) -> float:
        return 0.0


@pytest.mark.parametrize("source", [0.5, None, "cpu", coroutine, Numbered(), Numbered])
def test_what_is_no_pressure_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="pressure"):
        pressure.name_of(source)


# Event loops


def test_the_lag_of_a_loop_in_virtual_time() -> None:
    clock = ManualClock()
    window = _core.LagWindow(clock=clock)
    window.sample(0.05)
    for lag in [0.0] * 40 + [0.1] * 5:
        clock.advance(0.05 + lag)
        window.sample(0.05)
    assert window.pressure(0.05) == pytest.approx(2, rel=0.02)
    clock.advance(0.5)
    assert window.pressure(0.05) == 0


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_loop_that_is_blocked_again_and_again_has_lag(loop_factory: Callable[[], Any]) -> None:
    source = pressure.loop_lag(target=0.001)

    async def main() -> float:
        source()
        for _ in range(4):
            time.sleep(0.15)  # noqa: ASYNC251 it is what is measured
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        return source()

    # How much there is depends on the machine, but each sample was late.
    assert run(main, loop_factory) > 1
    assert source() >= 0


def test_one_loop_has_one_sampler_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        calls = 0
        call_later = loop.call_later

        def counting(*args: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            return call_later(*args, **keywords)

        monkeypatch.setattr(loop, "call_later", counting)
        for _ in range(10):
            pressure.loop_lag()()
        return calls

    assert run(main) == 1


def test_it_stops_when_nobody_reads_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = pressure.loop_lag()

    async def main() -> None:
        source()
        loop = asyncio.get_running_loop()
        sampler = _loop_lag._samplers[loop]
        monkeypatch.setattr(_loop_lag._Sampler, "_sample", lambda sampler, loop: None)
        for _ in range(19):
            sampler._tick()
        source()
        running = []
        for _ in range(21):
            running.append(sampler._is_running)
            sampler._tick()
        assert running == [True] * 20 + [False]
        source()
        running.append(sampler._is_running)
        assert running[-1]

    run(main)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_no_loop_is_kept_alive(loop_factory: Callable[[], Any]) -> None:
    source = pressure.loop_lag()
    loops = []

    async def main() -> None:
        source()
        await asyncio.sleep(0)
        loops.append(weakref.ref(asyncio.get_running_loop()))

    for _ in range(2):
        run(main, loop_factory)
    gc.collect()
    assert [loop() for loop in loops] == [None, None]
    assert source() == 0


def test_a_loop_that_nobody_closes_is_not_kept_alive_either() -> None:
    source = pressure.loop_lag()

    async def main() -> None:
        source()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.run_until_complete(main())
    loop.close()
    kept = weakref.ref(loop)
    del loop
    gc.collect()
    assert kept() is None


def test_the_highest_of_the_loops_it_was_read_on_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    source, other = pressure.loop_lag(), pressure.loop_lag()
    barrier = threading.Barrier(3)

    class Window:
        def __init__(self, lag: float) -> None:
            self.lag = lag

        def sample(self, interval: float) -> None: ...

        def pressure(self, target: float) -> float:
            return self.lag / target

    async def main(lag: float) -> float:
        source()
        sampler = _loop_lag._samplers[asyncio.get_running_loop()]
        monkeypatch.setattr(sampler, "_window", Window(lag))
        barrier.wait(30)
        try:
            return source()
        finally:
            barrier.wait(30)

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(run, partial(main, lag)) for lag in (0.05, 0.2, 0.1)]
        assert [run.result() for run in runs] == [4.0] * 3
    assert source() == 4.0
    assert other() == 0.0


def test_the_context_of_the_first_reader_is_not_kept() -> None:
    class Big:
        pass

    variable: contextvars.ContextVar[Big] = contextvars.ContextVar("variable")

    async def reader() -> weakref.ref[Big]:
        big = Big()
        variable.set(big)
        pressure.loop_lag()()
        return weakref.ref(big)

    async def main() -> bool:
        big = await asyncio.create_task(reader())
        await asyncio.sleep(0)  # the loop still holds what it has just called
        gc.collect()
        return big() is None

    assert run(main)


# Worker threads


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_tasks_that_wait_for_a_thread(loop_factory: Callable[[], Any]) -> None:
    source, strict = pressure.thread_pool(), pressure.thread_pool(target=0.25)
    release = threading.Event()

    async def in_thread() -> None:
        await anyio.to_thread.run_sync(release.wait)

    async def main() -> list[float]:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 2
        values = [source()]
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(in_thread)
            while limiter.statistics().tasks_waiting < 3:
                await anyio.lowlevel.checkpoint()
            values += [source(), strict()]
            release.set()
        return [*values, source()]

    assert run(main, loop_factory) == [0, 1.5, 6, 0]
    assert source() == 0


def test_without_anyio_there_are_no_worker_threads() -> None:
    program = """
import asyncio, sys
sys.modules["anyio"] = None
from sluicegate import pressure
source = pressure.thread_pool()
async def main():
    return source()
print(source(), asyncio.run(main()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["0.0", "0.0"]


# Processors

STAT = """\
cpu  1000 0 500 8000 500 0 0 0 0 0
cpu0 100 20 30 800 40 5 3 2 50 0
cpu1 900 0 100 0 0 0 0 0 0 0
intr 1 2 3
"""


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_usage_in_virtual_time() -> None:
    clock, used, available = ManualClock(), 0.0, 0.0
    source = _cpu.Cpu(0.9, lambda: (used, available), clock)
    values = []
    for busy in [0.45] * 20 + [1.0] * 20:
        values.append(source())
        clock.advance(0.2)
        used += busy * 0.2
        available += 0.2
    assert values[0] == 0
    assert values[19] == pytest.approx(0.5)
    # On its way: smoothed over half a second.
    assert 0.5 < values[21] < values[23] < 1.5
    assert values[39] == pytest.approx(1.5, rel=0.01)


def test_counters_are_read_five_times_a_second_at_most() -> None:
    clock, reads = ManualClock(), 0

    def counters() -> tuple[float, float]:
        nonlocal reads
        reads += 1
        return 0.0, float(reads)

    source = _cpu.Cpu(0.9, counters, clock)
    for _ in range(1000):
        source()
        clock.advance(0.001)
    assert reads == 5


def test_counters_that_are_gone_raise_nothing() -> None:
    clock, error = ManualClock(), False

    def counters() -> tuple[float, float]:
        if error:
            raise FileNotFoundError
        return clock.now() / 2, clock.now()

    source = _cpu.Cpu(0.5, counters, clock)
    source()
    clock.advance(0.2)
    assert source() == pytest.approx(1)
    error = True
    clock.advance(0.2)
    assert source() == pytest.approx(1)


def test_only_the_processors_it_may_run_on_count(tmp_path: Path) -> None:
    write(tmp_path, **{"proc/stat": STAT})
    assert _cpu.find_counters(tmp_path, frozenset({0}))() == (160, 1000)
    assert _cpu.find_counters(tmp_path, frozenset({1}))() == (1000, 1000)
    assert _cpu.find_counters(tmp_path, frozenset({0, 1}))() == (1160, 2000)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            },
            id="version 2, as a container sees it",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/app.slice/web.service\n",
                "sys/fs/cgroup/app.slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/app.slice/cpu.stat": "usage_usec 2500000\n",
                "sys/fs/cgroup/app.slice/web.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/app.slice/web.service/cpu.stat": "usage_usec 1\n",
            },
            id="version 2, bounded further out",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/web\n",
                "sys/fs/cgroup/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/cpu.stat": "usage_usec 1\n",
                "sys/fs/cgroup/web/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/web/cpu.stat": "usage_usec 2500000\n",
            },
            id="version 2, the narrowest",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/docker/4f\n1:name=systemd:/x\n0::/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpuacct/cpuacct.usage": "2500000000\n",
            },
            id="version 1, of which a container sees the innermost only",
        ),
    ],
)
def test_a_quota_of_a_control_group_bounds(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, **{"proc/stat": STAT}, **files)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    assert _cpu.find_counters(tmp_path, frozenset(range(4)))() == (2.5, 15.0)
    # One that is wider than the processors does not.
    assert _cpu.find_counters(tmp_path, frozenset({0}))() == (160, 1000)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/stat": ""},
        {"proc/stat": "cpu0 a b c\n"},
        {"proc/stat": "cpu0 1\n", "proc/self/cgroup": "nonsense\n"},
        {"sys/fs/cgroup/cpu.max": "100000 0\n"},
        {"sys/fs/cgroup/cpu.max": "50000 100000\n"},
        {"sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/cpu.stat": "user_usec 1\n"},
        {"sys/fs/cgroup/cpu.max": "\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"},
    ],
)
def test_where_nothing_can_be_read_the_process_counts(
    tmp_path: Path, files: dict[str, str]
) -> None:
    write(tmp_path, **files)
    used, available = _cpu.find_counters(tmp_path, frozenset({0, 1}))()
    assert 0 < used <= time.process_time()
    assert 0 < available <= 2 * time.monotonic()
