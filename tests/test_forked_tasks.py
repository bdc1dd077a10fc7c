"""What a forked child must leave alone: the tasks of its parent, which still wait there."""

from __future__ import annotations

import textwrap

import pytest

import limiters
from subprocesses import run

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("kind", limiters.NAMES)
def test_a_child_does_not_run_the_finally_blocks_of_its_parent(kind: str) -> None:
    output = run(
        limiters.IMPORTS[kind]
        + textwrap.dedent("""
        import asyncio, gc, os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        limiter = Limiter(1)
        parent = os.getpid()

        async def handler(number):
            try:
                async with limiter.acquire(timeout=5):
                    pass
            finally:
                print("parent" if os.getpid() == parent else "CHILD", flush=True)

        async def main():
            permit = limiter.try_acquire()
            for number in range(3):
                # Nobody but the line of the limiter keeps it alive.
                asyncio.get_running_loop().create_task(handler(number))
            while limiter.waiting < 3:
                await asyncio.sleep(0)
            pid = os.fork()
            if pid == 0:
                gc.collect()
                assert (limiter.in_flight, limiter.waiting) == (0, 0)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            permit.release()
            while limiter.in_flight:
                await asyncio.sleep(0)

        asyncio.run(main())
        """),
        is_watched=False,
    )
    assert output.split() == ["parent"] * 3
