"""The ends of interpreters, while somebody waits or holds a permit, and more than one of them."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import limiters
from snippets import UNTIL
from subprocesses import run

pytestmark = pytest.mark.timeout(120)

PRELUDE = (
    UNTIL
    + """
import asyncio, sys, threading, time, warnings

def use():
    async def main():
        await asyncio.gather(*(work(1) for _ in range(50)))
    asyncio.run(main())
    with limiter.acquire():
        pass
"""
)

ENDINGS = {
    "nothing": "",
    "used": "use()",
    "permit held": "permit = limiter.try_acquire()",
    "permit held by a frame": "def end():\n    p = limiter.try_acquire()\n    sys.exit()\nend()",
    "never used": "wish = limiter.acquire()",
    "pending tasks": """
loop = asyncio.new_event_loop()
permit = limiter.try_acquire(2)
tasks = [loop.create_task(work(None)) for _ in range(3)] + [loop.create_task(work(60))]
loop.run_until_complete(asyncio.sleep(0))
loop.set_exception_handler(lambda loop, context: None)
""",
    "run with pending tasks": """
async def main():
    permit = limiter.try_acquire(2)
    tasks = [asyncio.create_task(work(timeout)) for timeout in (None, 0.001, 60)]
    await asyncio.sleep(0)
asyncio.run(main())
""",
    "daemons parked": "permit = limiter.try_acquire(2)\ndaemons(block, None)",
    "daemons about to time out": """
permit = limiter.try_acquire(2)
daemons(block, 0.02)
linger()
""",
    "daemons on a clock of their own": """
class Clock:
    def now(self):
        return time.monotonic()
limiter = Limiter(2, clock=Clock())
permit = limiter.try_acquire(2)
daemons(block, None)
linger()
""",
    "daemons granted at exit": """
permit = limiter.try_acquire(2)
daemons(block, None)
import atexit
atexit.register(permit.release)
linger()
""",
    "daemons that hammer": "daemons(block, 0.001)\nlinger()",
    "a daemon with a loop": """
permit = limiter.try_acquire(2)
threading.Thread(target=lambda: asyncio.run(work(0.01)), daemon=True).start()
threading.Thread(target=lambda: asyncio.run(work(None)), daemon=True).start()
until(lambda: limiter.waiting)
linger()
""",
    "daemons with busy loops": """
async def busy():
    async def again_and_again():
        while True:
            try:
                await work(0.001)
            except TimeoutError:
                pass
    await asyncio.gather(*(again_and_again() for _ in range(20)))
for _ in range(2):
    threading.Thread(target=lambda: asyncio.run(busy()), daemon=True).start()
time.sleep(0.05)
linger()
""",
    "threads that end": """
permit = limiter.try_acquire(2)
threads = [threading.Thread(target=block, args=[0.05]) for _ in range(4)]
for thread in threads:
    thread.start()
""",
}
TO_END = (
    PRELUDE
    + """
warnings.simplefilter("ignore")
sys.unraisablehook = lambda unraisable: None
limiter = Limiter(2)

async def work(timeout):
    async with limiter.acquire(timeout=timeout):
        await asyncio.sleep(0)

def block(timeout):
    while True:
        try:
            with limiter.acquire(timeout=timeout):
                time.sleep(0)
        except TimeoutError:
            if not threading.current_thread().daemon:
                return

def daemons(target, timeout):
    for _ in range(4):
        threading.Thread(target=target, args=[timeout], daemon=True).start()
    time.sleep(0.03)

class Linger:
    def __del__(self, sleep=time.sleep):
        sleep(0.15)

def linger():
    '''Make the interpreter take its time when it is past its last threads.'''
    sys.modules["zz"] = Linger()
"""
)


@pytest.mark.parametrize("kind", limiters.NAMES)
def test_fifty_processes_end_well(kind: str) -> None:
    names = [*itertools.islice(itertools.cycle(ENDINGS), 42), *["daemons with busy loops"] * 8]

    def end(name: str) -> tuple[str, Any]:
        try:
            return name, run(limiters.IMPORTS[kind] + TO_END + ENDINGS[name], seconds=8)
        except AssertionError as failure:
            return name, failure

    with ThreadPoolExecutor(4) as pool:
        failures = [row for row in pool.map(end, names) if isinstance(row[1], AssertionError)]
    assert not failures, "\n".join(f"{name}: {failure}" for name, failure in failures)


@pytest.mark.parametrize("where", ["main first", "sub-interpreters first"])
@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_a_sub_interpreter_is_refused_or_works(kind: str, where: str) -> None:
    run(
        """
        import os, sys
        kind, where = sys.argv[1:]
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
            make = lambda: interpreters.create(kind)
        else:
            import _xxsubinterpreters as interpreters
            make = lambda: interpreters.create(isolated=kind == "isolated")

        code = '''if True:
            try:
                import sluicegate
            except ImportError:
                pass
            else:
                limiter = sluicegate.SemaphoreLimiter(1)
                with limiter.acquire() as permit:
                    permit.outcome = sluicegate.Outcome.OVERLOAD
                    try:
                        with limiter.try_acquire():
                            pass
                    except sluicegate.Rejected as error:
                        assert error.reason is sluicegate.Reason.LIMIT
                    else:
                        raise AssertionError
                assert limiter.in_flight == 0
                del limiter, permit
        '''
        if where == "main first":
            exec(code)
        for _ in range(3):
            interpreter = make()
            failure = interpreters.run_string(interpreter, code)
            assert failure is None, failure
            interpreters.destroy(interpreter)
        exec(code)
        assert "sluicegate" in sys.modules
        if sys.version_info[:2] == (3, 12):
            # It aborts at exit by itself, once asyncio was imported in two of them.
            os._exit(0)
        """,
        kind,
        where,
        seconds=5,
    )
