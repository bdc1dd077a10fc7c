"""Ctrl-C, while somebody waits or holds a permit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import limiters
from snippets import CHECK, UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    CHECK
    + UNTIL
    + """
import asyncio, gc, os, random, signal, sys, threading, time, warnings

"""
)


Play = Callable[..., str]


@pytest.fixture(params=limiters.NAMES)
def play(request: pytest.FixtureRequest) -> Play:
    """Run a snippet, with limiters of each kind, in a process of its own."""
    prelude = limiters.IMPORTS[request.param] + PRELUDE

    def play(snippet: str, *arguments: str, seconds: float = 15.0, is_watched: bool = True) -> str:
        return run(prelude + snippet, *arguments, seconds=seconds, is_watched=is_watched)

    return play


@pytest.mark.parametrize("way", ["acquire_sync", "with", "guard"])
@pytest.mark.parametrize("timeout", ["None", "60"])
def test_an_interrupt_ends_a_wait_in_the_main_thread(play: Play, way: str, timeout: str) -> None:
    latest = 0.0
    for _ in range(3):
        answer = play(
            """
way, timeout = sys.argv[1], eval(sys.argv[2])
limiter = Limiter(1)

def wait():
    if way == "acquire_sync":
        limiter.acquire_sync(timeout=timeout)
    elif way == "with":
        with limiter.acquire(timeout=timeout):
            pass
    else:
        limiter.guard()(lambda: None)()

for _ in range(3):
    other = limiter.try_acquire()
    sent = []
    def interrupt():
        until(lambda: limiter.waiting == 1)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        wait()
    except KeyboardInterrupt:
        print(time.monotonic() - sent[0])
    else:
        raise AssertionError("it was not interrupted")
    assert (limiter.in_flight, limiter.waiting) == (1, 0), limiter
    other.release()
    check()
""",
            way,
            timeout,
        )
        latest = max(map(float, answer.split()))
        if latest < 0.2:
            return
    pytest.fail(f"interrupted after {latest:.3f} s")


def test_interrupts_at_any_moment_lose_nothing(play: Play) -> None:
    play(
        """
limiter = Limiter(2)
is_over = threading.Event()
is_armed, interrupts = False, 0

def handle(*args):
    # One for each time it is armed, so that none strikes where nobody expects it.
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)

def beside():
    while not is_over.is_set():
        with limiter.acquire():
            pass

def interrupt():
    randomness = random.Random(5)
    while not is_over.is_set():
        time.sleep(randomness.uniform(0, 0.004))
        os.kill(os.getpid(), signal.SIGINT)

# A permit between its grant and its name is collected, and says so.
warnings.simplefilter("ignore", ResourceWarning)
warnings.simplefilter("ignore", RuntimeWarning)
threads = [threading.Thread(target=beside) for _ in range(2)]
threads += [threading.Thread(target=interrupt)]
for thread in threads:
    thread.start()
end = time.monotonic() + 1.5

def work():
    global is_armed
    is_armed = True
    while time.monotonic() < end:
        with limiter.acquire(), limiter.acquire():
            pass
    is_armed = False

while time.monotonic() < end:
    try:
        work()
    except KeyboardInterrupt:
        interrupts += 1
is_over.set()
for thread in threads:
    thread.join()
assert interrupts > 20, interrupts
check(2)
"""
    )


@pytest.mark.parametrize("moment", ["waits", "holds", "is granted"])
def test_an_interrupt_of_a_loop_loses_nothing(play: Play, moment: str) -> None:
    play(
        """
moment = sys.argv[1]
limiter = Limiter(1)
ended = []

async def work():
    try:
        async with limiter.acquire():
            await asyncio.sleep(0 if moment == "waits" else 5)
    finally:
        ended.append(1)

async def main():
    loop = asyncio.get_running_loop()
    other = limiter.try_acquire()
    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    if moment != "waits":
        loop.call_soon(other.release)
    if moment == "is granted":
        loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
    else:
        loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
    try:
        await asyncio.gather(*tasks)
    finally:
        other.release()

begin = time.monotonic()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    assert time.monotonic() - begin < 2
else:
    raise AssertionError("it was not interrupted")
assert ended == [1] * 3
assert limiter.snapshot().stray_releases == (moment != "waits")
check()
""",
        moment,
    )


def test_a_handler_that_raises_while_somebody_is_woken_loses_nobody_and_is_heard() -> None:
    # As a soft time limit does, which is an Exception like others.
    run(
        """
        import asyncio, signal, sys, threading, time
        from sluicegate import SemaphoreLimiter

        class SoftTimeLimit(Exception):
            pass

        struck = heard = 0
        is_armed = False

        def handler(*_):
            global struck, is_armed
            if is_armed:
                # Once a release: of two that strike the same one, only one can be heard.
                is_armed = False
                struck += 1
                raise SoftTimeLimit

        signal.signal(signal.SIGALRM, handler)
        limiter = SemaphoreLimiter(1)
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()

        async def wait():
            async with limiter.acquire():
                pass

        waits = []
        signal.setitimer(signal.ITIMER_REAL, 0.00037, 0.00037)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            permit = limiter.try_acquire()
            if not permit:
                time.sleep(0)
                continue
            waits.append(asyncio.run_coroutine_threadsafe(wait(), loop))
            while not limiter.waiting:
                time.sleep(0)
            try:
                is_armed = True
                permit.release()
                is_armed = False
            except SoftTimeLimit:
                heard += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each in waits:
            each.result(3)
        assert struck > 0, "nothing was tried"
        assert heard == struck, (heard, struck)
        assert (limiter.in_flight, limiter.waiting) == (0, 0)
        """,
        seconds=20,
    )
