"""The wrappers around an application: the middleware under test, and who watches outside of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from conformance.apps.report import LIFETIME, LIMIT, PlannedError, Report, inside, outside, report
from sluicegate.asgi import DEFAULT_EXEMPT, LoadSheddingMiddleware, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluicegate import Rejection
    from sluicegate.asgi import ASGIApp, Message, Receive, Scope, Send

# Where a server mounts the whole, with a root path.
PREFIX = "/outer"


def cheaper(scope: Scope, _rejection: Rejection) -> ASGIApp:
    """Answer in the place of an application that is full."""
    name = name_in(scope)

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/raise":
            raise PlannedError(name)
        if scope["path"] == "/hold":
            await report.hold(name)
        headers = [(b"content-length", b"7"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else b"cheaper"
        await send({"type": "http.response.body", "body": body})

    return app


# Which options hold for a request with the header `x-gate`, and for one without.
OPTIONS: dict[str, dict[str, Any]] = {
    "": {"limit": report.limiter},
    "gate": {"limit": report.gate},
    "line": {"limit": report.line},
    "cancel": {"limit": report.line, "cancel_on_disconnect": True},
    "response": {"limit": report.limiter, "hold": "response"},
    "headers": {"limit": report.limiter, "hold": "headers"},
    "degrade": {"limit": report.limiter, "degrade": cheaper, "degrade_limit": 1},
    "streams": {
        "limit": report.limiter,
        "rules": [
            Rule("/sse", stream=True),
            Rule("/stream", stream=True, max_lifetime=LIFETIME),
            Rule("/hold", stream=True, max_lifetime=LIFETIME),
            Rule("WEBSOCKET /ws", max_lifetime=LIFETIME),
        ],
    },
}
for options in OPTIONS.values():
    options["max_streams"] = LIMIT


class Watch:
    """Stands outside of everything, and notes what comes out of the middleware."""

    def __init__(self, shedding: Mapping[str, ASGIApp], report: Report = report) -> None:
        self.shedding = shedding
        self.report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] == "lifespan":
            await self.shedding[""](scope, receive, send)
            return
        if scope["path"].startswith(PREFIX + "/"):
            scope = {**scope, "root_path": scope.get("root_path", "") + PREFIX}
        app = self.shedding[dict(scope["headers"]).get(b"x-gate", b"").decode()]
        name = name_in(scope)
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


def name_in(scope: Scope) -> str:
    """Return the name of a request, which its client chose."""
    asked = parse_qs(str(scope["query_string"], "ascii"))
    return asked.get("name", [""])[0]


def watched(app: ASGIApp) -> Watch:
    """Protect an application in every way: each with its options, around the same application."""
    return Watch({way: LoadSheddingMiddleware(app, **of) for way, of in OPTIONS.items()})
