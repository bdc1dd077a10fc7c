"""`protect()` and the middleware inside FastAPI and Starlette applications."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount, Route, Router

from sluicegate import Gate, SemaphoreLimiter
from sluicegate.asgi import LoadSheddingMiddleware, Rule
from sluicegate.fastapi import protect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

OVERLOADED = {
    "error": "overloaded",
    "detail": "The service is at capacity; retry later.",
}


@pytest.fixture(name="full")
def full_limiter() -> Iterator[SemaphoreLimiter]:
    limiter = SemaphoreLimiter(1)
    with limiter.try_acquire():
        yield limiter


def client(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def ask(app: Any, path: str = "/", method: str = "GET") -> httpx.Response:
    async def main() -> httpx.Response:
        async with client(app) as http:
            return await http.request(method, path)

    return asyncio.run(main())


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("home")


def fastapi_app(**options: Any) -> FastAPI:
    app = FastAPI(**options)
    app.get("/", response_class=PlainTextResponse)(lambda: "home")
    app.get("/healthz", response_class=PlainTextResponse)(lambda: "fine")
    return app


def starlette_app(**options: Any) -> Starlette:
    return Starlette(routes=[Route("/", home), Route("/healthz", home)], **options)


def added(make: Callable[[], Starlette], limiter: SemaphoreLimiter) -> ASGIApp:
    app = make()
    app.add_middleware(LoadSheddingMiddleware, limit=limiter)
    return app


WAYS: dict[str, Callable[[SemaphoreLimiter], ASGIApp]] = {
    "protect FastAPI": lambda limiter: protect(fastapi_app(), limit=limiter),
    "protect Starlette": lambda limiter: protect(starlette_app(), limit=limiter),
    "add to FastAPI": lambda limiter: added(fastapi_app, limiter),
    "add to Starlette": lambda limiter: added(starlette_app, limiter),
    "wrap FastAPI": lambda limiter: LoadSheddingMiddleware(fastapi_app(), limit=limiter),
    "name for Starlette": lambda limiter: starlette_app(
        middleware=[Middleware(LoadSheddingMiddleware, limit=limiter)]
    ),
    "mount": lambda limiter: Router(
        [Mount("", app=LoadSheddingMiddleware(starlette_app(), limit=limiter))]
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_sheds(way: str, full: SemaphoreLimiter) -> None:
    app = WAYS[way](full)
    response = ask(app)
    assert response.status_code == 503
    seconds = response.headers["retry-after"]
    assert seconds in {"1", "2"}
    assert response.json() == {**OVERLOADED, "retry_after": int(seconds)}
    assert response.headers["cache-control"] == "no-store"
    assert ask(app, "/healthz").status_code == 200
    open_app = WAYS[way](SemaphoreLimiter(1))
    assert [ask(open_app).text for _ in range(3)] == ["home"] * 3


def test_protect_returns_the_application_itself() -> None:
    app = fastapi_app()
    assert protect(app, limit=1) is app
    assert isinstance(app, FastAPI)
    assert repr(type(app)) == repr(FastAPI)


def test_shedding_is_outside_of_middleware_that_is_added_later(full: SemaphoreLimiter) -> None:
    ran: list[str] = []

    class Noting:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            ran.append(scope["path"])
            await self.app(scope, receive, send)

    app = protect(fastapi_app(), limit=full)
    app.add_middleware(Noting)
    assert ask(app).status_code == 503
    assert ran == []
    assert ask(app, "/healthz").status_code == 200
    assert ran == ["/healthz"]
    assert [str(each) for each in app.user_middleware] == ["Middleware(Noting)"]
    assert isinstance(app.middleware_stack, ServerErrorMiddleware)


def test_a_subclass_with_a_stack_of_its_own_goes_on_working(full: SemaphoreLimiter) -> None:
    class Marked(FastAPI):
        def build_middleware_stack(self) -> ASGIApp:
            self.add_middleware(GZipMiddleware)
            inner = super().build_middleware_stack()

            async def stack(scope: Scope, receive: Receive, send: Send) -> None:
                scope.setdefault("state", {})["marked"] = True
                await inner(scope, receive, send)

            return stack

    app = protect(Marked(), limit=full, rules=[Rule("/marked", exempt=True)])

    @app.get("/marked")
    def marked(request: Request) -> bool:
        return bool(request.state.marked)

    app.get("/")(marked)
    assert ask(app).status_code == 503
    assert ask(app, "/marked").json() is True
    assert len(app.user_middleware) == 1


def test_instrumentation_that_takes_the_stack_apart_keeps_shedding(full: SemaphoreLimiter) -> None:
    app = protect(fastapi_app(), limit=full)
    build = app.build_middleware_stack
    traced: list[int] = []

    def build_traced() -> ASGIApp:
        stack = build()
        assert isinstance(stack, ServerErrorMiddleware)
        inner = stack.app

        async def trace(scope: Scope, receive: Receive, send: Send) -> None:
            traced.append(1)
            await inner(scope, receive, send)

        return ServerErrorMiddleware(trace, stack.handler, stack.debug)

    app.build_middleware_stack = build_traced  # type: ignore[method-assign]
    assert ask(app).status_code == 503
    assert ask(app, "/healthz").status_code == 200
    # What is refused is outside of it.
    assert traced == [1]
    assert app.user_middleware == []


def test_the_limiter_is_made_once_at_protect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_LIMIT", "1")
    monkeypatch.setenv("SLUICEGATE_MAX_WAITING", "0")
    app = protect(fastapi_app())
    monkeypatch.delenv("SLUICEGATE_LIMIT")
    statuses: list[int] = []

    @app.get("/nested")
    async def nested() -> None:
        async with client(app) as http:
            statuses.append((await http.get("/")).status_code)
        app.middleware_stack = None
        async with client(app) as http:
            statuses.append((await http.get("/")).status_code)

    assert ask(app, "/nested").status_code == 200
    assert statuses == [503, 503]


# -- errors at construction -------------------------------------------------------------


def test_protecting_twice_says_so() -> None:
    app = protect(fastapi_app(), limit=1)
    with pytest.raises(RuntimeError, match="protected already"):
        protect(app, limit=1)
    ask(app)
    with pytest.raises(RuntimeError, match="protected already"):
        protect(app, limit=1)


def test_protecting_a_started_application_says_so() -> None:
    app = fastapi_app()
    ask(app)
    with pytest.raises(RuntimeError, match="after it has started"):
        protect(app, limit=1)


@pytest.mark.parametrize(
    "app", [None, FastAPI, Router(), LoadSheddingMiddleware(Router(), limit=1)]
)
def test_what_is_no_application_says_so(app: Any) -> None:
    with pytest.raises(TypeError, match="app must be a FastAPI or Starlette application"):
        protect(app, limit=1)


def test_a_bad_limit_leaves_the_application_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_LIMIT", "many")
    app = fastapi_app()
    before = dict(app.__dict__)
    bad: Any = "64"
    with pytest.raises(TypeError, match="limit"):
        protect(app, limit=bad)
    with pytest.raises(ValueError, match="limit"):
        protect(app, limit=0)
    with pytest.raises(ValueError, match="SLUICEGATE_LIMIT"):
        protect(app)
    with pytest.raises(TypeError, match="rules"):
        protect(app, limit=1, rules=bad)
    assert app.__dict__ == before
    protect(app, limit=1)


def test_without_fastapi_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "try:\n    import sluicegate.fastapi\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 'pip install "sluicegate[fastapi]"' in done.stdout


# -- how long a permit is held ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync", "yield dependency"])
def test_an_endpoint_runs_under_one_permit(kind: str) -> None:
    limiter = SemaphoreLimiter(4)
    app = protect(FastAPI(), limit=limiter)

    async def a_sync() -> int:
        return limiter.in_flight

    async def dependency() -> AsyncIterator[int]:
        yield limiter.in_flight
        closed.append(limiter.in_flight)

    async def with_dependency(seen: int = Depends(dependency)) -> int:
        return seen

    closed: list[int] = []
    endpoints: dict[str, Callable[..., Any]] = {
        "async": a_sync,
        "sync": lambda: limiter.in_flight,
        "yield dependency": with_dependency,
    }
    app.get("/", response_model=None)(endpoints[kind])
    assert ask(app).json() == 1
    assert closed == ([1] if "yield" in kind else [])
    assert limiter.in_flight == 0


def test_background_tasks_hold_the_permit() -> None:
    async def main() -> None:
        started, go = asyncio.Event(), asyncio.Event()
        limiter = SemaphoreLimiter(1)
        app = protect(FastAPI(), limit=limiter)

        async def work() -> None:
            started.set()
            await go.wait()

        def later(tasks: BackgroundTasks) -> str:
            tasks.add_task(work)
            return "accepted"

        app.post("/")(later)
        async with client(app) as http:
            first = asyncio.create_task(http.post("/"))
            await started.wait()
            assert limiter.in_flight == 1
            assert (await http.post("/")).status_code == 503
            go.set()
            assert (await first).status_code == 200
        assert limiter.in_flight == 0

    asyncio.run(main())


def test_a_streaming_response_holds_the_permit() -> None:
    limiter = SemaphoreLimiter(1)
    app = protect(FastAPI(), limit=limiter)

    async def chunks() -> AsyncIterator[str]:
        for _ in range(3):
            yield str(limiter.in_flight)

    app.get("/", response_model=None)(lambda: StreamingResponse(chunks()))
    assert ask(app).text == "111"
    assert limiter.in_flight == 0


def test_an_error_in_an_endpoint_ends_the_permit() -> None:
    limiter = SemaphoreLimiter(1)
    app = protect(FastAPI(), limit=limiter)

    @app.get("/")
    async def broken() -> None:
        raise LookupError

    assert [ask(app).status_code for _ in range(2)] == [500, 500]
    assert limiter.in_flight == 0


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
def test_instrumentation_that_replaces_the_call_of_the_class_is_used(
    kind: type[Starlette], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = protect(kind(), limit=1)
    plain = kind.__call__
    traced: list[str] = []

    async def trace(self: Starlette, scope: Scope, receive: Receive, send: Send) -> None:
        traced.append(scope["path"])
        await plain(self, scope, receive, send)

    monkeypatch.setattr(kind, "__call__", trace)
    assert ask(app, "/nowhere").status_code == 404
    assert traced == ["/nowhere"]


@pytest.mark.parametrize("path", ["/reports", "/api/reports"])
def test_a_root_path_of_the_applications_own_is_no_way_around_a_rule(path: str) -> None:
    small = Gate(1, max_waiting=0)
    app = FastAPI()
    app.root_path = "/api"
    app.get("/reports")(lambda: "x")
    protect(app, limit=5, rules=[Rule("/reports", gate=small)])
    with small.acquire():
        assert ask(app, path).status_code == 503
    assert ask(app, path).status_code == 200
