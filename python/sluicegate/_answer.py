"""What is seen of an answer on its way out: when it begins and ends, and its status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from sluicegate._enums import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sluicegate._asgi_types import Message, Scope, Send
    from sluicegate._core import Permit

Hold: TypeAlias = Literal["work", "response", "headers"]

_GATEWAY_TIMEOUT = 504


class Answer:
    """The `send()` of a request that holds a permit, which it gives back when it is time to.

    Timed is the work until the last byte of the answer, of server-sent events until the first:
    what comes after that is the client's time, or work that nobody waits for.
    """

    __slots__ = ("_hold", "_permit", "_scope", "_send", "status")

    def __init__(self, permit: Permit, scope: Scope, send: Send, hold: Hold) -> None:
        self._permit: Permit | None = permit
        self._scope = scope
        self._send = send
        self._hold = hold
        #: The status, once it is sent; 0 before.
        self.status = 0

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message on, and take note of it."""
        kind = message["type"]
        if kind == "http.response.start":
            self._note_start(message)
        elif kind in _PARTS and not message.get("more_body", False):
            self._note_end()
        return self._send(message)

    def _note_start(self, message: Message) -> None:
        self.status = message["status"]
        if self._hold == "headers":
            self.end()
        elif self._permit is not None and _is_event_stream(message):
            self._permit.answered()

    def _note_end(self) -> None:
        if self._hold == "response":
            self.end()
        elif self._permit is not None:
            self._permit.answered()

    def end(self) -> None:
        """Give the permit back; what the status says is the outcome."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        if permit.operation is None:
            permit.operation = _operation_of(self._scope)
        status = self.status
        if 0 < status < 400:
            permit.release()
        else:
            permit.release(Outcome.OVERLOAD if status == _GATEWAY_TIMEOUT else Outcome.IGNORED)

    def fail(self, error: BaseException) -> None:
        """Give the permit back; what the exception says is the outcome."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        if permit.operation is None:
            permit.operation = _operation_of(self._scope)
        permit.__exit__(type(error), error, error.__traceback__)


#: The messages that a body is made of.
_PARTS = frozenset({"http.response.body", "http.response.pathsend", "http.response.zerocopysend"})


def _is_event_stream(message: Message) -> bool:
    for name, value in message.get("headers", ()):
        if bytes(name).lower() == b"content-type":
            return bytes(value).lower().startswith(b"text/event-stream")
    return False


def _operation_of(scope: Scope) -> str | None:
    """Return the route that a framework has found; never the path, of which there is no end."""
    template = scope.get("path_template")
    if template is None:
        template = getattr(scope.get("route"), "path", None)
    return f"{scope['method']} {template}" if isinstance(template, str) else None
