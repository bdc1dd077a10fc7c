"""What else one could put in front of a route of FastAPI; the benches beside it use it.

fastapi-concurrency-limiter is there from Python 3.12 on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Request
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

if TYPE_CHECKING:
    from fastapi_concurrency_limiter import Resource

HAS_CONCURRENCY_LIMITER: Final = bool(importlib.util.find_spec("fastapi_concurrency_limiter"))

# It says so of each request that it refuses, which would be most of what that costs.
logging.getLogger("slowapi").disabled = True


def by_slowapi(path: str, quota: str) -> FastAPI:
    """Make an application with a quota for each address, as slowapi's documentation does."""
    limiter = Limiter(key_func=get_remote_address)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]

    @app.get(path)
    @limiter.limit(quota)
    async def _(request: Request) -> str:  # noqa: ARG001 (slowapi wants to see it)
        return "hello"

    return app


def by_concurrency_limiter(path: str, resource: Resource, timeout: float) -> FastAPI:
    """Make an application with a limit for its route; who finds no room waits for *timeout*."""
    from fastapi_concurrency_limiter import Limiter

    app = FastAPI()
    limiter = Limiter(timeout=timeout, resources=[resource])

    async def hello() -> str:
        return "hello"

    app.get(path)(limiter.resources([resource])(hello))
    return app


def resource_of(capacity: int) -> Resource:
    """Make a resource."""
    from fastapi_concurrency_limiter import Resource

    return Resource(capacity)


def fill(resource: Resource) -> None:
    """Leave no room at a resource, on whatever event loop."""
    resource._semaphore = asyncio.Semaphore(0)  # noqa: SLF001
