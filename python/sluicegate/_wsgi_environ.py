"""What the environ of a WSGI request says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from sluicegate import _attempts
from sluicegate._headers import Headers, criticality_of

if TYPE_CHECKING:
    from sluicegate._enums import Criticality


def key_of(header: str) -> str:
    """Return under which key a header stands."""
    return "HTTP_" + header.upper().replace("-", "_")


def path_of(environ: dict[str, Any]) -> str:
    """Return the path below the mount, as text."""
    path: str = environ.get("PATH_INFO") or "/"
    # PEP 3333 has each byte as a character.
    return path if path.isascii() else path.encode("latin-1", "replace").decode("utf-8", "replace")


def is_retry(environ: dict[str, Any]) -> bool:
    """Whether a proxy or a client says that it sends this request not for the first time."""
    return any(
        key in environ and _attempts.is_retry(name, environ[key].encode("latin-1", "replace"))
        for key, name in _ATTEMPTS.items()
    )


_ATTEMPTS: Final = {key_of(name.decode()): name for name in _attempts.FIRST}


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

    def read(
        self, environ: dict[str, Any], ruled: Criticality | None
    ) -> tuple[float | None, Criticality | None, bool]:
        """Return what is left of the deadline, how much it matters, and whether it is believed.

        Strangers may only lower what a rule says.
        """
        pairs = [(name, str(environ[key])) for key, name in self._keys if key in environ]
        if not pairs:
            return None, ruled, False
        is_trusted = self._headers.trusts(environ)
        said = self._headers.read(pairs, trusted=is_trusted)
        if said.malformed:
            with self._lock:
                self._malformed += said.malformed
        criticality = criticality_of(said.criticality, ruled, trusted=is_trusted)
        return said.deadline, criticality, is_trusted
