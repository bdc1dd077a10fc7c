"""How long a request has been under way before a worker thread took it up, as a proxy tells."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final

from sluicegate import _core
from sluicegate._checks import check_seconds

if TYPE_CHECKING:
    from sluicegate._gate import Gate

_LOG: Final = logging.getLogger("sluicegate.wsgi")

# A moment after 2001 and before 5138, with at most as many digits as a float keeps apart.
_STAMP: Final = re.compile(r"(?:t=)?([0-9]{10,16}(?:\.[0-9]{1,9})?)", re.ASCII)
_LONGEST_TEXT: Final = 128
_MILLISECONDS_FROM: Final = 1e11
_MICROSECONDS_FROM: Final = 1e14
_LONGEST: Final = 3600.0

# What a `CoDelQueue` lets wait that is told no deadline.
_SHORTEST_BOUND: Final = 1.0
_SERVICES: Final = 10
# While a queue stands, its first ones would be served just before they are too late, and so
# be done too late: then half of the time has to do.
_HALF: Final = 0.5
# To refuse takes microseconds, so that no queue before us is stale for as long.
_CLOCKS_DIFFER_AFTER: Final = 10.0


def queue_time_in(text: str, now: float) -> float | None:
    """Return for how many seconds a request has been under way; `None` if that cannot be told.

    Of several moments, one of each proxy, the earliest counts.

    Args:
        text: Seconds, milliseconds or microseconds since 1970, with `t=` before it or without.
        now: Seconds since 1970.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    waited = None
    for part in text.split(","):
        match = _STAMP.fullmatch(part.strip(" \t"))
        if match is None:
            return None
        moment = float(match[1])
        if moment >= _MICROSECONDS_FROM:
            moment /= 1e6
        elif moment >= _MILLISECONDS_FROM:
            moment /= 1e3
        since = now - moment
        if not 0 <= since <= _LONGEST:
            return None
        waited = since if waited is None else max(waited, since)
    return waited


class QueueTime:
    """Reads how long requests were under way, and says which ones came too late.

    Too late is who has waited for as long as he gives; or for half of that while the queue stands:
    while nobody within half a second has waited for less than a quarter.

    Where every request comes too late for longer than any queue before us could last, the clocks
    differ: then nothing is believed until one comes in time. A stranger may give as little as he
    likes, which says nothing about clocks, nor about the queue: there he counts as one who gives
    nothing.

    Args:
        header: The header that tells; `None`: nothing is read.
        bound: For how many seconds one may have been under way that has no deadline; `None`: 1 s,
            or 10 mean service times if that is longer.

    Raises:
        ValueError: If an argument is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = (
        "_bound",
        "_codel",
        "_ignored",
        "_is_told",
        "_late_since",
        "_learn_at",
        "_learnt",
        "_lock",
        "header",
        "key",
    )

    def __init__(self, header: object, bound: object) -> None:
        text = f"queue_time_header must be the name of a header or None, got {header!r:.100}"
        if header is not None and not isinstance(header, str):
            raise TypeError(text)
        if header is not None and not re.fullmatch(r"[A-Za-z0-9-]+", header, re.ASCII):
            raise ValueError(text)
        if bound is not None:
            check_seconds("max_queue_time", bound)
            if isinstance(bound, (int, float)) and bound > _LONGEST:
                msg = (
                    "max_queue_time must be above 0 and at most 3600 seconds, or None, got "
                    f"{bound!r} (seconds, not milliseconds?)"
                )
                raise ValueError(msg)
        self.header = header
        self.key = None if header is None else "HTTP_" + header.upper().replace("-", "_")
        self._bound = bound if isinstance(bound, (int, float)) else None
        self._learnt, self._learn_at = _SHORTEST_BOUND, 0.0
        # Its delays are shares of the time that each gives: who gives more may wait for longer.
        self._codel = _core.Codel(target=_HALF / 2, interval=_HALF)
        self._codel.overloaded(0.0)  # it would judge at once by the first that it hears of
        self._ignored = 0
        self._late_since: float | None = None
        self._is_told = False
        self._lock = threading.Lock()

    @property
    def ignored(self) -> int:
        """How many times were told that cannot be, or were not believed."""
        return self._ignored

    def judge(
        self, environ: dict[str, object], deadline: float | None, gate: Gate, *, trusted: bool
    ) -> tuple[float, bool]:
        """Return for how many seconds a request was under way, and whether that is too long.

        Args:
            environ: The request.
            deadline: How many seconds it gives, or `None`.
            gate: Whose work says how long the others may have waited.
            trusted: Whether the deadline is of somebody who is trusted.
        """
        if self.key is None or (text := environ.get(self.key)) is None:
            return 0.0, False
        waited = queue_time_in(str(text), time.time())
        if waited is None:
            self._ignore()
            return 0.0, False
        if deadline == 0:
            # What was over when it was sent says nothing about the queue.
            return waited, False
        is_strangers = deadline is not None and not trusted
        given = self._bound_at(gate) if deadline is None or is_strangers else deadline
        share = min(waited / given, _LONGEST)
        is_late = self._codel.overloaded(share) or share >= 1
        if not self._believes(is_late=is_late):
            self._ignore()
            return 0.0, False
        if deadline is not None and is_strangers:
            share = waited / deadline
            # The longest delay changes nothing: it only asks whether the queue stands.
            is_late = share >= 1 or (share > _HALF and self._codel.overloaded(_LONGEST))
        return waited, is_late

    def _bound_at(self, gate: Gate) -> float:
        if self._bound is not None:
            return self._bound
        now = time.monotonic()
        if now >= self._learn_at:
            # A snapshot costs more than all else here.
            self._learn_at = now + 1
            self._learnt = max(_SHORTEST_BOUND, _SERVICES * gate.snapshot().service_mean)
        return self._learnt

    def _believes(self, *, is_late: bool) -> bool:
        if not is_late:
            self._late_since = None
            return True
        now = time.monotonic()
        with self._lock:
            if self._late_since is None:
                self._late_since = now
                self._is_told = False
            if now - self._late_since <= _CLOCKS_DIFFER_AFTER:
                return True
            is_told, self._is_told = self._is_told, True
        if not is_told:
            _LOG.warning(
                "every request came too late by its %s for %g s: the clock of the proxy differs, "
                "and the header is ignored until one is in time",
                self.header,
                _CLOCKS_DIFFER_AFTER,
            )
        return False

    def _ignore(self) -> None:
        with self._lock:
            self._ignored += 1
