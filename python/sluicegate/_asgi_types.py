"""The words of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

# What a body is made of.
_PARTS: Final = {"http.response.body", "http.response.pathsend", "http.response.zerocopysend"}


def is_last(message: Message) -> bool:
    """Return whether an answer over HTTP is complete with this message."""
    return message["type"] in _PARTS and not message.get("more_body", False)
