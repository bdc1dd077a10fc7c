"""The wrappers around an application: the middleware under test, and who watches outside of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from conformance.apps.report import LIMIT, Report, inside, outside, report
from sluicegate.asgi import DEFAULT_EXEMPT, LoadSheddingMiddleware

if TYPE_CHECKING:
    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send

# Where a server mounts the whole, with a root path.
PREFIX = "/outer"

OPTIONS: dict[str, Any] = {"max_streams": LIMIT}


class Watch:
    """Stands outside of everything, and notes what comes out of the middleware.

    With the header `x-gate: line` a request goes through a gate at which it may wait.
    """

    def __init__(self, shedding: ASGIApp, in_line: ASGIApp, report: Report = report) -> None:
        self.shedding = shedding
        self.in_line = in_line
        self.report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] == "lifespan":
            await self.shedding(scope, receive, send)
            return
        if scope["path"].startswith(PREFIX + "/"):
            scope = {**scope, "root_path": scope.get("root_path", "") + PREFIX}
        app = self.in_line if (b"x-gate", b"line") in scope["headers"] else self.shedding
        name = parse_qs(scope["query_string"].decode()).get("name", [""])[0]
        if scope["path"] in DEFAULT_EXEMPT or not name:
            await app(scope, receive, send)
            return
        task = asyncio.current_task()
        if task is not None:
            self.report.tasks[name] = task
        facts = self.report.facts[name]
        facts["arrived"] = True
        outside.set(name)

        async def observe(message: Message) -> None:
            facts["sent"] = facts.get("sent", 0) + len(message.get("body", b""))
            await send(message)

        try:
            await app(scope, receive, observe)
        except BaseException as error:
            facts["error"] = type(error).__name__
            facts["is_the_same_error"] = error is self.report.raised.get(name)
            raise
        finally:
            facts["inside_seen_outside"] = inside.get()
            facts["is_over"] = True
            self.report.tasks.pop(name, None)


def watched(app: ASGIApp) -> Watch:
    """Protect an application twice: with a limit that refuses, and with a gate that may wait."""
    return Watch(
        LoadSheddingMiddleware(app, limit=report.limiter, **OPTIONS),
        LoadSheddingMiddleware(app, limit=report.line, **OPTIONS),
    )
