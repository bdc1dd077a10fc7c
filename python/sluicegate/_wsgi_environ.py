"""What the environ of a WSGI request says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from sluicegate._headers import Headers, Received

if TYPE_CHECKING:
    from sluicegate._enums import Criticality

_NOTHING: Final = Received()
_ATTEMPT_COUNT: Final = "HTTP_X_ENVOY_ATTEMPT_COUNT"
_MOST_DIGITS: Final = 9


def key_of(header: str) -> str:
    """Return under which key a header stands."""
    return "HTTP_" + header.upper().replace("-", "_")


def path_of(environ: dict[str, Any]) -> str:
    """Return the path below the mount, as text."""
    path: str = environ.get("PATH_INFO") or "/"
    # PEP 3333 has each byte as a character.
    return path if path.isascii() else path.encode("latin-1", "replace").decode("utf-8", "replace")


def is_retry(environ: dict[str, Any]) -> bool:
    """Whether a proxy says that it sends this request not for the first time."""
    count: str = environ.get(_ATTEMPT_COUNT, "")
    return count.isdecimal() and count.isascii() and len(count) <= _MOST_DIGITS and int(count) > 1


class HeaderReader:
    """Reads what `Headers` says from an environ, and counts what is malformed.

    Raises:
        TypeError: If it is given no `Headers`.
    """

    __slots__ = ("_headers", "_keys", "_lock", "_malformed")

    def __init__(self, headers: object) -> None:
        if not isinstance(headers, Headers):
            msg = f"headers must be a Headers, got {headers!r:.100}"
            raise TypeError(msg)
        self._headers = headers
        names = (*headers.deadline_in, headers.criticality)
        self._keys = tuple((key_of(name), name.lower()) for name in names)
        self._malformed = 0
        self._lock = threading.Lock()

    @property
    def malformed(self) -> int:
        """How many values were passed over."""
        return self._malformed

    def read(self, environ: dict[str, Any]) -> Received:
        """Return what is said."""
        pairs = [(name, str(environ[key])) for key, name in self._keys if key in environ]
        if not pairs:
            return _NOTHING
        said = self._headers.read(pairs, trusted=self._headers.trusts(environ))
        if said.malformed:
            with self._lock:
                self._malformed += said.malformed
        return said


def lower(said: Criticality | None, ruled: Criticality | None) -> Criticality | None:
    """Return the less critical of two, of which either may say nothing."""
    if said is None or ruled is None:
        return ruled if said is None else said
    return min(said, ruled)
