"""A client that speaks HTTP/2 in cleartext, to a server that is known to understand it."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)

from conformance.client import Answer
from conformance.server import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable


class Exchange:
    """One request on a connection, and what has come of its answer."""

    def __init__(self, connection: Http2Connection, number: int) -> None:
        self._connection = connection
        self._number = number
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_over = False
        self.is_reset = False

    def note(self, event: Event) -> None:
        """Add what has come."""
        match event:
            case ResponseReceived(headers=pairs):
                self.headers = {name.decode(): value.decode() for name, value in pairs or ()}
                self.status = int(self.headers.pop(":status"))
            case DataReceived(data=data):
                self.body += data or b""
            case StreamEnded():
                self.is_over = True
            case StreamReset() if not self.is_over:
                # After the end of an answer it says that the rest of the request is not wanted.
                self.is_over = self.is_reset = True

    def send(self, body: bytes, *, is_all: bool = True) -> None:
        """Send so much of the body, which has to fit into the window."""
        self._connection.send(self._number, body, is_all=is_all)

    def reset(self) -> None:
        """Tell the server that nobody wants the answer."""
        self._connection.reset_stream(self._number)

    def read_head(self) -> Answer:
        self._connection.read_until(lambda: self.status > 0 or self.is_over)
        return self._answer()

    def read(self) -> Answer:
        self._connection.read_until(lambda: self.is_over)
        return self._answer()

    def read_body(self, body: bytes) -> None:
        """Wait until this has come."""
        self._connection.read_until(lambda: self.body == body or self.is_over)
        assert self.body == body

    def _answer(self) -> Answer:
        assert not self.is_reset, "the server has reset the stream"
        return Answer(self.status, self.headers, self.body)


class Http2Connection:
    """One connection with a server, on which many requests go on at once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self._state = H2Connection(H2Configuration(client_side=True))
        self._exchanges: dict[int, Exchange] = {}
        self._state.initiate_connection()
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Go without a word: the other side gets a reset and not an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def ask(self, line: str, *headers: tuple[str, str], is_all: bool = True) -> Exchange:
        """Send a request, and if that is not all go on with its body."""
        method, path = line.split()
        number = self._state.get_next_available_stream_id()
        pairs = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "conformance"),
            (":path", path),
            *headers,
        ]
        self._state.send_headers(number, pairs, end_stream=is_all)
        self._exchanges[number] = Exchange(self, number)
        self._flush()
        return self._exchanges[number]

    def get(self, path: str, *headers: tuple[str, str]) -> Answer:
        return self.ask(f"GET {path}", *headers).read()

    def send(self, number: int, body: bytes, *, is_all: bool) -> None:
        self._state.send_data(number, body, end_stream=is_all)
        self._flush()

    def reset_stream(self, number: int) -> None:
        self._state.reset_stream(number)
        self._flush()

    def read_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError("the server has closed the connection")
            for event in self._state.receive_data(data):
                assert not isinstance(event, ConnectionTerminated), event
                number = getattr(event, "stream_id", None)
                if number in self._exchanges:
                    self._exchanges[number].note(event)
                if isinstance(event, DataReceived):
                    self._state.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id
                    )
            self._flush()

    def _flush(self) -> None:
        self.socket.sendall(self._state.data_to_send())
