"""An exit handler that was registered before the package was imported runs after its own."""

from __future__ import annotations

import pytest

import limiters
from subprocesses import run

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("kind", limiters.NAMES)
@pytest.mark.parametrize("ending", ["times out", "is granted"])
def test_a_worker_that_an_exit_handler_joins_is_answered(ending: str, kind: str) -> None:
    # As the clients for logs and metrics do that flush at exit.
    output = run(
        """
        import atexit, queue, sys, threading
        jobs = queue.Queue()

        def work():
            while (job := jobs.get()) is not None:
                job()

        worker = threading.Thread(target=work, daemon=True)
        worker.start()

        def flush():
            if sys.argv[1] == "is granted":
                permit.release()
            jobs.put(None)
            worker.join()
            print("flushed", flush=True)

        atexit.register(flush)
        from limiters import KINDS
        limiter = KINDS[sys.argv[2]](1)
        permit = limiter.try_acquire()
        began = threading.Event()

        def send():
            began.set()
            try:
                with limiter.acquire(timeout=0.3 if sys.argv[1] == "times out" else 30):
                    print("is granted", flush=True)
            except TimeoutError:
                print("times out", flush=True)

        jobs.put(send)
        began.wait()
        """,
        ending,
        kind,
    )
    assert output.splitlines() == [ending, "flushed"]
