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
_LENGTH = len("content-type")
_EVENT_STREAM = b"text/event-stream"


class Answer:
    """The `send()` of a request that holds a permit, which it gives back when it is time to.

    Timed is the work until the last byte of the answer, of server-sent events until the first:
    what comes after that is the client's time, or work that nobody waits for.
    """

    __slots__ = ("_hold", "_is_named", "_permit", "_scope", "_send", "_status")

    def __init__(
        self, permit: Permit, scope: Scope, send: Send, hold: Hold, *, is_named: bool
    ) -> None:
        self._permit: Permit | None = permit
        self._scope = scope
        self._send = send
        self._hold = hold
        # Whether a rule has said what kind of work it is.
        self._is_named = is_named
        # 0 until one is sent.
        self._status = 0

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message on, and take note of it."""
        kind = message["type"]
        if kind == "http.response.start":
            self._note_start(message)
        elif kind in _PARTS and not message.get("more_body", False):
            self._note_end()
        return self._send(message)

    def _note_start(self, message: Message) -> None:
        self._status = message["status"]
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
        if not self._is_named:
            self._name(permit)
        status = self._status
        if 0 < status < 400:
            permit.release()
        else:
            permit.release(Outcome.OVERLOAD if status == _GATEWAY_TIMEOUT else Outcome.IGNORED)

    def fail(self, error: BaseException) -> None:
        """Give the permit back; what the exception says is the outcome."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        if not self._is_named:
            self._name(permit)
        permit.__exit__(type(error), error, error.__traceback__)

    def _name(self, permit: Permit) -> None:
        """Name the work by the route that a framework has found.

        Never by the path, of which there is no end.
        """
        scope = self._scope
        if "route" in scope:
            template = getattr(scope["route"], "path", None)
        elif "path_template" in scope:
            template = scope["path_template"]
        else:
            return
        if isinstance(template, str):
            permit.operation = f"{scope['method']} {template}"


#: The messages that a body is made of.
_PARTS = frozenset({"http.response.body", "http.response.pathsend", "http.response.zerocopysend"})


def _is_event_stream(message: Message) -> bool:
    for name, value in message.get("headers", ()):
        # In ASGI names are in lower case; not every application knows.
        if len(name) == _LENGTH and bytes(name).lower() == b"content-type":
            return bytes(value[: len(_EVENT_STREAM)]).lower() == _EVENT_STREAM
    return False
