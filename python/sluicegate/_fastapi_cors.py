"""What a browser needs to show a script a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.middleware.cors import CORSMiddleware

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from sluicegate._asgi_refusal import Through
    from sluicegate._asgi_types import ASGIApp, Receive, Scope, Send

_ANSWER: Final = "sluicegate.answer"


class Cors:
    """Finds the CORS middleware of an application, for answers that come from outside of it.

    It is the class of Starlette, as `add_middleware` was told to make it: so a refusal has the
    headers that the answer of a route would have. What else an application has for CORS may be
    anything, and is left alone.
    """

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._through: Through | None = None
        self._is_found = False

    def __call__(self, scope: Scope) -> Through | None:
        """Return it for the request of a script, if there is one."""
        if not self._is_found:
            self._through = self._find()
            # Until then some may still be added.
            self._is_found = self._app.middleware_stack is not None
        if self._through is None:
            return None
        # Without an origin there is nothing to say, of what nobody may store.
        return self._through if any(name == b"origin" for name, _ in scope["headers"]) else None

    def _find(self) -> Through | None:
        added: list[Any] = list(self._app.user_middleware)
        known = [each for each in added if each.cls is CORSMiddleware]
        if not known:
            return None
        outermost: ASGIApp = _answer
        for each in reversed(known):
            outermost = CORSMiddleware(outermost, *each.args, **each.kwargs)

        async def through(answer: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
            await outermost({**scope, _ANSWER: (answer, scope)}, receive, send)

        return through


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    answer, own = scope[_ANSWER]
    await answer(own, receive, send)
