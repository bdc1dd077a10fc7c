"""A client that writes what a test says, byte by byte, and reads one answer at a time."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from conformance.server import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.http2 import Http2Connection


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def keeps_the_connection(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class Connection:
    """One connection with a server."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def reset(self) -> None:
        """Go without a word: the other side gets a reset and not an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def write(self, line: str, *headers: str, body: bytes = b"") -> None:
        """Send the head of a request, and as much of its body as one likes."""
        lines = [f"{line} HTTP/1.1", "host: conformance", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)

    def start_body(self, body: bytes) -> threading.Thread:
        """Send in the background, for who reads meanwhile; the server may hang up on it."""

        def send() -> None:
            with contextlib.suppress(OSError):
                self.socket.sendall(body)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        return thread

    def read_head(self) -> Answer:
        line = self.file.readline()
        if not line:
            raise ConnectionResetError("the server has closed the connection before its answer")
        status = int(line.split()[1])
        headers: dict[str, str] = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return Answer(status, headers, b"")

    def read(self, *, head_only: bool = False) -> Answer:
        answer = self.read_head()
        if head_only or answer.status < 200:
            return answer
        if answer.headers.get("transfer-encoding") == "chunked":
            return answer._replace(body=b"".join(self.chunks()))
        if "content-length" in answer.headers:
            body = self.file.read(int(answer.headers["content-length"]))
            return answer._replace(body=body)
        assert not answer.keeps_the_connection, answer
        return answer._replace(body=self.file.read())

    def chunks(self) -> Iterator[bytes]:
        """Give the chunks of a body as they come."""
        while size := int(self.file.readline(), 16):
            yield self.file.read(size)
            assert self.file.readline() == b"\r\n"
        assert self.file.readline() == b"\r\n"

    def get(self, path: str, *headers: str) -> Answer:
        self.write(f"GET {path}", *headers)
        return self.read()

    def is_at_its_end(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


class Site:
    """A server with an application, and what one test does there."""

    def __init__(self, kind: str, app: str, address: tuple[str, int]) -> None:
        self.kind = kind
        self.app = app
        self.address = address
        self._orders: Connection | None = None
        self._names = 0
        self._open: list[Connection | Http2Connection] = []

    def connect(self) -> Connection:
        """Open a connection, which is closed after the test at the latest."""
        connection = Connection(self.address)
        self.closes(connection)
        return connection

    def closes(self, connection: Connection | Http2Connection) -> None:
        """Take over what is to be closed after the test."""
        self._open.append(connection)

    def name(self) -> str:
        """Make a name for a request."""
        self._names += 1
        return f"r{self._names}"

    def close(self) -> None:
        """Close what a test has opened."""
        for connection in self._open:
            connection.close()
        self._open.clear()

    def hang_up(self) -> None:
        """Close the connection on which it asks what goes on, until it asks again."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None

    def _ask(self, path: str) -> bytes:
        # One connection for all tests: to open one costs more than to ask.
        if self._orders is None:
            self._orders = Connection(self.address)
        try:
            answer = self._orders.get(path)
        except BaseException:
            self.hang_up()
            raise
        if not answer.keeps_the_connection:
            self.hang_up()
        assert answer.status == 200, answer
        return answer.body

    def state(self, name: str = "") -> dict[str, Any]:
        """Ask, at an exempt path, what goes on and what was with a request."""
        state: dict[str, Any] = json.loads(self._ask(f"/metrics?name={name}"))
        return state

    def until(self, name: str = "", **facts: Any) -> dict[str, Any]:
        """Wait, with a bound, until something is so."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state = self.state(name)
            if all(state.get(key) == value for key, value in facts.items()):
                return state
            assert time.monotonic() < deadline, f"never {facts}: {state}"
            time.sleep(0.002)

    def release(self, *names: str) -> None:
        """Let requests go on."""
        self._ask("/ping?" + "&".join(f"release={name}" for name in names))

    def cancel(self, name: str) -> None:
        """Cancel the task of a request."""
        self._ask(f"/ping?cancel={name}")

    def release_all(self) -> None:
        """Let everything go on that a failed test left."""
        self._ask("/ping?release_all=1")

    def hold(self, *headers: str) -> tuple[Connection, str]:
        """Begin a request which works until it is released."""
        name = self.name()
        connection = self.connect()
        connection.write(f"GET /hold?name={name}", *headers)
        self.until(name, started=True)
        return connection, name
