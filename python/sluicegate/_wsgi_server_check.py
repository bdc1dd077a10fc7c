"""Says so once if the server leaves nothing to refuse."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

_LOG: Final = logging.getLogger("sluicegate.wsgi")

#: So many requests without the header are no probes and no tries by hand.
LOOKED_AT: Final = 100
# The test client of Flask says that it has one thread, and is no server: it has neither.
_OF_SERVERS: Final = frozenset({"SERVER_SOFTWARE", "uwsgi.version"})


class ServerCheck:
    """Looks at the first requests, and warns if nothing can ever be refused.

    With `threads` above 1 that is so where the server has one thread; with one thread, where no
    request tells how long it has waited.

    Attributes:
        is_done: Whether no more requests have to be looked at.

    """

    __slots__ = ("_header", "_key", "_left", "_lock", "_threads", "is_done")

    def __init__(self, threads: int, header: str | None, key: str | None) -> None:
        self._threads = threads
        self._header, self._key = header, key
        self._left = LOOKED_AT
        self._lock = threading.Lock()
        self.is_done = False

    def look(self, environ: dict[str, Any]) -> None:
        """Look at a request that is not exempt."""
        if _OF_SERVERS.isdisjoint(environ):
            return
        has_one_thread = not environ.get("wsgi.multithread", True)
        with self._lock:
            if self.is_done:
                return
            if self._threads > 1 or not has_one_thread:
                self.is_done = True
            elif self._key is None or self._key in environ:
                self.is_done = True
                return
            else:
                self._left -= 1
                self.is_done = self._left == 0
            if not (self.is_done and has_one_thread):
                return
        if self._threads == 1:
            _LOG.warning(
                "none of %d requests had the header %s: without it, and with one thread, nothing "
                "is ever refused",
                LOOKED_AT,
                self._header,
            )
        elif self._header is None:
            _LOG.warning(
                "threads=%d, but the server has one thread: nothing is refused (for gunicorn: "
                "--threads %d)",
                self._threads,
                self._threads,
            )
        else:
            _LOG.warning(
                "threads=%d, but the server has one thread: nothing is refused but what a proxy "
                "says by %s has waited for too long (for gunicorn: --threads %d)",
                self._threads,
                self._header,
                self._threads,
            )
