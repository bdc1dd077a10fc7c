"""All that runs leaves one worker thread over, which refuses."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from sluicegate._caps import Cap
from sluicegate._rules import DEFAULT_EXEMPT, plain

if TYPE_CHECKING:
    from sluicegate._core import Permit, Rejection
    from sluicegate._enums import Criticality
    from sluicegate._gate import Gate

#: Whose answer may be so long that a client who does not read it holds the thread.
_LONG: Final = "/metrics"


class Threads:
    """How many worker threads run something: permits, streams, exempt requests, degraded answers.

    Args:
        threads: How many there are, from 1. One is left over, unless it is the only one.
        gate: What decides about most of them. Where that admits everybody, so does this.
    """

    __slots__ = ("_cap", "_lock", "_threads", "gate")

    def __init__(self, threads: int, gate: Gate) -> None:
        self._threads = threads
        self._cap = Cap(max(threads - 1, 1), "threads", gate)
        #: Who was refused is counted here.
        self.gate = self._cap.gate
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether only the thread is free that refuses."""
        return self.gate.in_flight >= self.gate.limit

    def take(
        self, *, criticality: Criticality | None = None, operation: str | None = None
    ) -> Permit | Rejection:
        """Take a thread, or say that only the last one is left."""
        with self._lock:
            return self._cap.take(criticality=criticality, operation=operation)

    def take_for_exempt(self, path: str, exempt: Gate) -> Permit | Rejection:
        """Take a thread for an exempt request, which may be the last one for a probe.

        Then nobody is refused until it, or something else, is done. So it is for the answers that
        are short: `DEFAULT_EXEMPT`, and `/metrics` of these only while nothing else is exempt.

        Args:
            path: Of the request.
            exempt: Counts the exempt requests, this one among them.
        """
        if not self.is_full or not _is_probe(path, exempt):
            return self.take()
        with self._lock:
            self.gate.update(limit=self._threads)
            try:
                return self._cap.take()
            finally:
                self.gate.update(limit=max(self._threads - 1, 1))


def _is_probe(path: str, exempt: Gate) -> bool:
    path = plain(path)
    return path in DEFAULT_EXEMPT and (path != _LONG or exempt.in_flight <= 1)
