"""The demo: its accounting, its report, and that it leaves no process behind."""

import asyncio
import contextlib
import io
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("uvicorn")
pytest.importorskip("aiohttp")
pytest.importorskip("rich")

from aiohttp import web
from rich.console import Console
from yarl import URL

from sluicegate.demo import report
from sluicegate.demo.load import (
    Load,
    Phase,
    Tally,
    measure_capacity,
    new_session,
    poisson,
    retry_after,
)
from sluicegate.demo.results import (
    PhaseFigures,
    ServerFigures,
    missed,
    percentile,
    summarise,
    worst_lag,
)
from sluicegate.demo.schedule import Schedule

# --- figures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7.0], 0.0, 7.0),
        ([7.0], 0.99, 7.0),
        ([4.0, 1.0, 3.0, 2.0], 0.50, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 0.51, 3.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 102)], 0.99, 100.0),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_percentile(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


def test_everything_counts_in_the_phase_in_which_it_happened() -> None:
    phases = [Phase("1x", 1.0, settle=1.0, seconds=4.0), Phase("3x", 3.0, settle=1.0, seconds=2.0)]
    tally = Tally(
        arrivals=[(100.5, 9.0), (101.0, 0.001), (104.9, 0.003), (105.5, 9.0), (106.0, 0.002)],
        # before counting; at its first instant; the end of a phase belongs to the next one
        answers=[(100.9, 9.0, 9.0), (101.0, 0.1, 0.1), (105.0, 9.0, 9.0), (107.0, 1.5, 0.2)],
        refusals=[(100.2, 9.0), (106.5, 0.004), (107.5, 0.006), (108.0, 9.0)],
        timeouts=[104.0, 106.1, 107.9],
        errors=[100.0],
        retries=[103.0, 106.0, 107.0],
    )
    first, second = summarise(tally, phases, 100.0)
    assert first == PhaseFigures(
        name="1x",
        offered=0.5,
        retried=0.25,
        goodput=0.25,
        p50=0.1,
        p99=0.1,
        attempt_p99=0.1,
        refused=0,
        refusal_p99=None,
        timed_out=1,
        errors=0,
        lag_p99=0.003,
        goodput_by_second=[1, 1, 0, 0, 0],
    )
    assert second.offered == 0.5
    assert second.retried == 1.0
    assert second.goodput == 0.5
    assert (second.p99, second.attempt_p99) == (1.5, 0.2)
    assert (second.refused, second.refusal_p99, second.timed_out) == (2, 0.006, 2)
    assert second.goodput_by_second == [1, 0, 1]


def figures(goodput: float, **changes: object) -> PhaseFigures:
    values: dict[str, object] = {
        "name": "3x load",
        "offered": 600.0,
        "retried": 480.0,
        "goodput": goodput,
        "p50": 0.08,
        "p99": 1.2,
        "attempt_p99": 0.11,
        "refused": 0,
        "refusal_p99": None,
        "timed_out": 0,
        "errors": 0,
        "lag_p99": 0.002,
        "goodput_by_second": [200, 190],
    }
    return PhaseFigures(**(values | changes))  # type: ignore[arg-type]


def server(overload: PhaseFigures, **changes: object) -> ServerFigures:
    values: dict[str, object] = {"backlog": 0, "in_flight": 0, "drain_seconds": 1.0}
    normal = figures(198.0, name="1x load")
    return ServerFigures(phases=[normal, overload], **(values | changes))  # type: ignore[arg-type]


COLLAPSED = server(figures(20.0), backlog=8000, drain_seconds=42.0)
STEADY = server(figures(196.0, refused=7000, refusal_p99=0.003))


def test_promises_kept() -> None:
    assert missed(COLLAPSED, STEADY, 200.0) == []


@pytest.mark.parametrize(
    ("unprotected", "protected", "words"),
    [
        (COLLAPSED, server(figures(179.0, refusal_p99=0.003)), ["protected", "90%"]),
        (server(figures(60.0)), STEADY, ["unprotected", "30%"]),
        (COLLAPSED, server(figures(196.0, refusal_p99=0.020)), ["20.0 ms", "less than 20 ms"]),
        (COLLAPSED, server(figures(196.0)), ["refused nothing"]),
        (server(figures(20.0), in_flight=7), STEADY, ["7 requests", "unprotected"]),
    ],
)
def test_a_missed_promise_is_one_line(
    unprotected: ServerFigures, protected: ServerFigures, words: list[str]
) -> None:
    lines = missed(unprotected, protected, 200.0)
    assert len(lines) == 1
    assert all(word in lines[0] for word in words)


def test_worst_lag_is_the_worst_of_all_phases() -> None:
    assert worst_lag([COLLAPSED, server(figures(196.0, lag_p99=0.021))]) == 0.021
    assert worst_lag([server(figures(0.0, lag_p99=None))]) == 0.002


def test_the_sentence_follows_from_the_figures() -> None:
    good = report.sentence(COLLAPSED, STEADY, 200.0)
    assert "3.0 times" in good
    assert "kept answering 196 requests per second in time (98% of capacity)" in good
    assert "within 3.0 ms" in good
    assert "fell to 20 (10%)" in good
    assert "42 s" in good
    assert "8000 requests" in good

    bad = report.sentence(
        server(figures(150.0), in_flight=5, backlog=9, drain_seconds=None),
        server(figures(100.0)),
        200.0,
    )
    assert "fell to 100" in bad
    assert "answered 150 (75%)" in bad
    assert "never came to rest: 5" in bad
    assert "kept" not in bad


def test_the_table_fits_into_80_columns() -> None:
    servers = {"unprotected": COLLAPSED, "protected": STEADY}
    output = io.StringIO()
    Console(width=80, file=output).print(report.table(servers, 200.0, 2.0))
    text = output.getvalue()
    assert "…" not in text
    rows = {
        title: cells
        for title, *cells in (
            [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines()
        )
    }
    assert rows["goodput, rps"] == ["198", "198", "20", "196"]
    assert rows["share of capacity"] == ["99%", "99%", "10%", "98%"]
    assert rows["time to refuse, p99"] == ["-", "-", "-", "3.0 ms"]
    assert rows["empty after"] == ["", "", "42.0 s", "1.00 s"]
    assert rows["in flight at the end"] == ["", "", "0", "0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0042, "4.2 ms"), (0.25, "250 ms"), (1.5, "1.50 s"), (42.0, "42.0 s")],
)
def test_seconds(value: float | None, text: str) -> None:
    assert report.seconds(value) == text


# --- load ----------------------------------------------------------------------------------


def test_poisson_arrivals_are_repeatable_ordered_and_of_the_right_rate() -> None:
    arrivals = poisson(200.0, 50.0, random.Random(7))
    assert arrivals == poisson(200.0, 50.0, random.Random(7))
    assert arrivals == sorted(arrivals)
    assert all(0 <= at < 50 for at in arrivals)
    assert len(arrivals) == pytest.approx(10_000, rel=0.05)


def test_everybody_is_woken_in_the_order_in_which_they_are_due() -> None:
    async def go() -> list[float]:
        schedule = Schedule()
        woken: list[float] = []
        start = time.monotonic()

        async def wait(due: float) -> None:
            await schedule.until(start + due)
            assert time.monotonic() >= start + due
            woken.append(due)

        # One that is already due, several within the same millisecond, one that is cancelled,
        # and one that comes when the timer is set to a later one.
        dues = [0.0302, 0.06, 0.0301, 0.0303, -1.0, 0.0304]
        tasks = [asyncio.ensure_future(wait(due)) for due in dues]
        await asyncio.sleep(0)
        tasks.pop().cancel()
        tasks.append(asyncio.ensure_future(wait(0.01)))
        await asyncio.gather(*tasks)
        return woken

    assert asyncio.run(go()) == [-1.0, 0.01, 0.0301, 0.0302, 0.0303, 0.06]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0), ("1", 1), ("0.5", 0.5), ("-3", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_retry_after(header: str | None, seconds: float) -> None:
    assert retry_after(header) == seconds


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def script(*steps: tuple[float, int, dict[str, str]]) -> Handler:
    """Answer the n-th request with the n-th step: seconds of waiting, status, headers."""
    left = iter(steps)

    async def handle(_: web.Request) -> web.StreamResponse:
        delay, status, headers = next(left)
        await asyncio.sleep(delay)
        return web.Response(status=status, headers=headers)

    return handle


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[URL]:
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield URL(f"http://127.0.0.1:{runner.addresses[0][1]}/")
    finally:
        await runner.cleanup()


def ask_once(handler: Handler, patience: float) -> Tally:
    """Be one client of a scripted server and return what it saw."""

    async def go() -> Tally:
        async with serving(handler) as url, new_session() as session:
            load = Load(session, url, patience=patience)
            await load.request(time.monotonic())
            return load.tally

    return asyncio.run(go())


def counts(tally: Tally) -> dict[str, int]:
    names = ("arrivals", "answers", "refusals", "timeouts", "errors", "retries")
    found = {name: len(getattr(tally, name)) for name in names}
    return {name: count for name, count in found.items() if count}


def test_an_answer_in_time() -> None:
    tally = ask_once(script((0.05, 200, {})), patience=5.0)
    assert counts(tally) == {"arrivals": 1, "answers": 1}
    _, latency, attempt = tally.answers[0]
    assert 0.05 <= attempt <= latency < 1


def test_a_refused_client_comes_back_when_it_was_told_to() -> None:
    tally = ask_once(script((0, 503, {"Retry-After": "1"}), (0, 200, {})), patience=5.0)
    assert counts(tally) == {"arrivals": 1, "refusals": 1, "retries": 1, "answers": 1}
    _, latency, attempt = tally.answers[0]
    assert latency >= 1.0
    assert attempt < 0.9
    assert tally.refusals[0][1] < 0.9


def test_a_refused_client_does_not_wait_longer_than_its_patience() -> None:
    tally = ask_once(script((0, 503, {"Retry-After": "6"})), patience=5.0)
    assert counts(tally) == {"arrivals": 1, "refusals": 1}


def test_a_client_retries_only_once() -> None:
    tally = ask_once(script((0, 503, {}), (0, 429, {})), patience=5.0)
    assert counts(tally) == {"arrivals": 1, "refusals": 2, "retries": 1}


def test_a_client_leaves_when_its_patience_is_over_and_retries_at_once() -> None:
    tally = ask_once(script((30, 200, {}), (0, 200, {})), patience=0.5)
    assert counts(tally) == {"arrivals": 1, "timeouts": 1, "retries": 1, "answers": 1}
    _, latency, attempt = tally.answers[0]
    assert latency >= 0.5
    assert attempt <= 0.5


def test_an_error_is_neither_an_answer_nor_a_refusal() -> None:
    tally = ask_once(script((0, 500, {}), (0, 200, {})), patience=5.0)
    assert counts(tally) == {"arrivals": 1, "errors": 1, "retries": 1, "answers": 1}


def test_nobody_listens() -> None:
    async def go() -> Tally:
        async with serving(script()) as url:
            pass
        async with new_session() as session:
            load = Load(session, url)
            await load.request(time.monotonic())
            return load.tally

    assert counts(asyncio.run(go())) == {"arrivals": 1, "errors": 2, "retries": 1}


def test_the_load_does_not_wait_for_answers() -> None:
    """A server that never answers gets the same arrivals as any other, on time."""
    phases = [Phase("a", 50.0, 0.0, 0.5), Phase("b", 150.0, 0.0, 0.5)]

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async def go() -> tuple[Tally, float]:
        async with serving(hang) as url, new_session() as session:
            load = Load(session, url, patience=1.5)
            start = time.monotonic() + 0.1
            await load.run(phases, start=start, seed=3)
            return load.tally, start

    tally, start = asyncio.run(go())
    rng = random.Random(3)
    expected = poisson(50.0, 0.5, rng)
    expected += [0.5 + at for at in poisson(150.0, 0.5, rng)]
    assert [at - start for at, _ in tally.arrivals] == pytest.approx(expected)
    lag = percentile([lag for _, lag in tally.arrivals], 0.5)
    assert lag is not None
    assert lag < 0.25  # far below the patience that a closed loop would have waited
    assert counts(tally) == {
        "arrivals": len(expected),
        "timeouts": 2 * len(expected),
        "retries": len(expected),
    }
    assert tally.waiting == 0


def test_the_capacity_is_what_the_pool_allows() -> None:
    pool = asyncio.Semaphore(2)
    most, inside = 0, 0

    async def handle(_: web.Request) -> web.StreamResponse:
        nonlocal most, inside
        async with pool:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.04)
            inside -= 1
        return web.Response()

    async def go() -> float:
        async with serving(handle) as url, new_session() as session:
            return await measure_capacity(session, url, clients=4, seconds=1.0)

    capacity = asyncio.run(go())
    assert most == 2
    assert 10 < capacity < 51  # 2 / 0.04 = 50, less what a busy machine takes


# --- app -----------------------------------------------------------------------------------

Probe = dict[str, int | None]


def test_the_probe_tells_what_is_in_flight_and_the_limit_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import httpx

    from sluicegate.demo import LIMIT_VARIABLE
    from sluicegate.demo.app import Pool, protected, unprotected

    monkeypatch.setenv(LIMIT_VARIABLE, "3")

    async def go(app: object, expected: int) -> tuple[Probe, list[int], Probe]:
        answered = asyncio.Event()
        monkeypatch.setattr(Pool, "query", lambda _: answered.wait())
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://demo") as client:
            work = [asyncio.ensure_future(client.get("/orders")) for _ in range(5)]
            during: Probe = {}
            async with asyncio.timeout(10):
                while during.get("running") != expected:
                    await asyncio.sleep(0.001)  # the probe itself never lets the others run
                    during = (await client.get("/healthz")).json()
            answered.set()
            statuses = sorted([(await request).status_code for request in work])
            return during, statuses, (await client.get("/healthz")).json()

    during, statuses, after = asyncio.run(go(protected(), 3))
    assert during == {"running": 3, "in_flight": 3}
    assert statuses == [200, 200, 200, 503, 503]
    assert after == {"running": 0, "in_flight": 0}

    during, statuses, after = asyncio.run(go(unprotected(), 5))
    assert during == {"running": 5, "in_flight": None}
    assert statuses == [200] * 5
    assert after == {"running": 0, "in_flight": None}


# --- processes -----------------------------------------------------------------------------

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def parent_and_state(pid: int) -> tuple[int, str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return int(parent), state


def children(pid: int) -> set[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return {child for child in pids if (parent_and_state(child) or (0, ""))[0] == pid}


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    found = parent_and_state(pid)
    return found is not None and found[1] not in "ZX"


def wait_gone(pids: set[int], within: float) -> set[int]:
    deadline = time.monotonic() + within
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@contextlib.contextmanager
def running_demo() -> Iterator[subprocess.Popen[str]]:
    """Run a demo in a process group of its own, as a shell does with a foreground job."""
    demo = subprocess.Popen(
        [sys.executable, "-c", "from sluicegate.cli import main; main()", "demo", "--seconds=4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    started: set[int] = set()
    try:
        yield demo
    finally:
        started |= children(demo.pid)
        demo.kill()
        demo.wait()
        assert demo.stdout is not None
        demo.stdout.close()
        for pid in wait_gone(started, 5.0):
            os.kill(pid, signal.SIGKILL)


def read_until(demo: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert demo.stdout is not None
    seen = ""
    for line in demo.stdout:
        seen += line
        if match := re.search(pattern, seen):
            return match
    raise AssertionError(f"{pattern!r} never came; exit code {demo.wait(10)}, output:\n{seen}")


def rest(demo: subprocess.Popen[str]) -> str:
    assert demo.stdout is not None
    return demo.stdout.read()


@pytest.mark.parametrize("enough", [False, True])
def test_the_limit_of_open_files(enough: bool) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if enough else 1024
    if enough and hard != resource.RLIM_INFINITY and hard < 8192:
        pytest.skip("this machine has fewer")
    set_limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard})); "
    check = (
        "from sluicegate.demo.processes import raise_descriptor_limit as r; r(); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    result = subprocess.run(
        [sys.executable, "-c", set_limit + check],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if enough:
        assert result.stdout.strip() == "8192"
    else:
        assert "this system allows 1024" in result.stderr


SERVERS_START = r"unprotected +http://127\.0\.0\.1:\d+ \(pid (\d+)\)"
BOTH_START = r"protected +http://127\.0\.0\.1:\d+ \(pid (\d+)\)\n(?s:.*)protected .*\(pid (\d+)\)"
MEASURED = r"capacity +\d+ rps"
LOAD = r"unprotected: \d+ offered/s"


@linux
@pytest.mark.parametrize(
    ("moment", "to_group"),
    [
        (SERVERS_START, False),
        (BOTH_START, True),
        (MEASURED, False),
        (LOAD, False),
        (LOAD, True),
    ],
)
def test_ctrl_c_leaves_no_process_behind(moment: str, to_group: bool) -> None:
    with running_demo() as demo:
        read_until(demo, moment)
        started = children(demo.pid)
        assert started
        send = os.killpg if to_group else os.kill
        send(demo.pid, signal.SIGINT)
        output = rest(demo)
        assert demo.wait(10) == 130, output
        assert "SIGINT" in output
        assert "Traceback" not in output
        assert not wait_gone(started, 0.0)


@linux
def test_impatient_ctrl_c_leaves_no_process_behind() -> None:
    with running_demo() as demo:
        read_until(demo, LOAD)
        started = children(demo.pid)
        for _ in range(20):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(demo.pid, signal.SIGINT)
            time.sleep(0.005)
        # Once nothing is left to clean up, the interpreter itself may die of the signal.
        assert demo.wait(10) in {1, 130, -signal.SIGINT}
        assert not wait_gone(started, 0.0)


@linux
def test_a_reader_that_leaves_ends_the_demo() -> None:
    """As in ``sluicegate demo | head``."""
    with running_demo() as demo:
        read_until(demo, MEASURED)
        started = children(demo.pid)
        assert demo.stdout is not None
        demo.stdout.close()
        assert demo.wait(20) == 1
        assert not wait_gone(started, 0.0)


@linux
def test_sigterm_leaves_no_process_behind() -> None:
    with running_demo() as demo:
        read_until(demo, LOAD)
        started = children(demo.pid)
        assert len(started) == 4
        demo.terminate()
        output = rest(demo)
        assert demo.wait(10) == 143, output
        assert not wait_gone(started, 0.0)


@linux
@pytest.mark.parametrize("moment", [BOTH_START, LOAD])
def test_sigkill_leaves_no_process_behind(moment: str) -> None:
    with running_demo() as demo:
        read_until(demo, moment)
        started = children(demo.pid)
        demo.kill()
        demo.wait(10)
        assert not wait_gone(started, 10.0)


@linux
@pytest.mark.parametrize("which", [1, 2], ids=["unprotected", "protected"])
def test_a_server_that_dies_is_reported(which: int) -> None:
    with running_demo() as demo:
        pid = int(read_until(demo, BOTH_START)[which])
        read_until(demo, LOAD)
        started = children(demo.pid)
        os.kill(pid, signal.SIGKILL)
        output = rest(demo)
        assert demo.wait(10) == 1, output
        name = {1: "unprotected", 2: "protected"}[which]
        assert f"stopped: the {name} server (pid {pid}) was killed by SIGKILL" in output
        assert not wait_gone(started, 0.0)


@linux
def test_a_server_that_cannot_start_is_reported() -> None:
    with running_demo() as demo:
        pid = int(read_until(demo, SERVERS_START)[1])
        os.kill(pid, signal.SIGTERM)
        output = rest(demo)
        assert demo.wait(30) == 1, output
        assert f"the unprotected server (pid {pid})" in output
