"""Pieces of Python that several snippets for processes of their own begin with."""

from __future__ import annotations

CHECK = """
def check(capacity=1):
    import gc
    gc.collect()
    assert (limiter.in_flight, limiter.waiting) == (0, 0), limiter
    limiter.acquire_sync(capacity, timeout=1).release()
"""

UNTIL = """
import time

def until(condition, seconds=3.0):
    end = time.monotonic() + seconds
    while not condition():
        known = {name: globals()[name] for name in ("limiter", "queue") if name in globals()}
        assert time.monotonic() < end, known
        time.sleep(0.001)
"""

QUEUE_CHECK = """
def check():
    # Nothing is inside, nobody is in line, and both lines still work.
    import gc
    gc.collect()
    snapshot = queue.snapshot()
    counts = (snapshot.depth, snapshot.getting, snapshot.putting, snapshot.working)
    assert counts == (0, 0, 0, 0), snapshot
    for number in range(queue.capacity):
        queue.put_sync(number, timeout=1)
    for number in range(queue.capacity):
        with queue.take(timeout=1) as item:
            assert item == number
"""

LOOP_THREAD = """
import asyncio, threading

class LoopThread:
    def __init__(self, factory=asyncio.new_event_loop):
        self.loop = factory()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def submit(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
"""
