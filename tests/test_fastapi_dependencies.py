"""Quotas and gates of single routes: who is refused, with what, and when a permit ends."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    FastAPI,
    HTTPException,
    Request,
    WebSocket,
)
from fastapi.responses import JSONResponse, StreamingResponse

from sluicegate import (
    Criticality,
    Gate,
    KeyedTokenBucket,
    ManualClock,
    Outcome,
    Permit,
    Reason,
    Rejected,
    Rejection,
    context,
)
from sluicegate.fastapi import guard, protect, quota
from sluicegate.testing import assert_idle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sluicegate.asgi import Scope

pytestmark = pytest.mark.timeout(30)


def user(scope: Scope) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), None)


def ask(app: Any, path: str = "/", method: str = "GET", **options: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.request(method, path, **options)

    return asyncio.run(main())


def as_user(name: str) -> dict[str, Any]:
    return {"headers": {"x-user": name}}


def bucket(**over: Any) -> KeyedTokenBucket:
    options = {"burst": 2, "name": "users", "clock": ManualClock(), **over}
    return KeyedTokenBucket(0.1, **options)


def gate(limit: float = 1, **over: Any) -> Gate:
    return Gate(limit, **{"name": "search", "pressure": (), **over})


# -- quota ------------------------------------------------------------------------------


def on_a_route(limit: Any) -> FastAPI:
    app = FastAPI()
    app.get("/", dependencies=[Depends(limit)])(lambda: "ran")
    return app


def on_a_router(limit: Any) -> FastAPI:
    router = APIRouter(dependencies=[Depends(limit)])
    router.get("/")(lambda: "ran")
    app = FastAPI()
    app.include_router(router)
    return app


def on_the_application(limit: Any) -> FastAPI:
    app = FastAPI(dependencies=[Depends(limit)])
    app.get("/")(lambda: "ran")
    return app


def on_what_is_mounted(limit: Any) -> FastAPI:
    app = FastAPI()
    app.mount("", on_a_route(limit))
    return app


def by_a_parameter(limit: Any) -> FastAPI:
    app = FastAPI()
    limiting = Depends(limit)

    @app.get("/")
    async def endpoint(_: Any = limiting) -> str:
        return "ran"

    return app


PLACES: list[Callable[[Any], FastAPI]] = [
    on_a_route,
    on_a_router,
    on_the_application,
    on_what_is_mounted,
    by_a_parameter,
]


@pytest.mark.parametrize("place", PLACES)
def test_each_key_has_its_quota(place: Callable[[Any], FastAPI]) -> None:
    limit = bucket()
    app = protect(place(quota(limit, key=user)), limit=10)
    assert [ask(app, **as_user("ann")).status_code for _ in range(3)] == [200, 200, 429]
    assert ask(app, **as_user("bob")).status_code == 200
    assert [ask(app).status_code for _ in range(3)] == [200] * 3
    answer = ask(app, **as_user("ann"))
    seconds = int(answer.headers["retry-after"])
    assert 10 <= seconds <= 13
    assert answer.json() == {
        "error": "rate_limited",
        "detail": "Too many requests; retry later.",
        "retry_after": seconds,
    }
    assert limit.snapshot().admitted == 3


def test_a_route_takes_what_it_costs() -> None:
    limit = bucket(burst=3)
    app = FastAPI()
    cheap = quota(limit, key=user)
    dear = quota(limit, key=user, tokens=lambda scope: float(scope["path_params"]["count"]))
    app.get("/cheap", dependencies=[Depends(cheap)])(lambda: "ran")
    app.get("/dear/{count}", dependencies=[Depends(dear)])(lambda: "ran")
    protect(app, limit=10)
    assert ask(app, "/dear/2.5", **as_user("ann")).status_code == 200
    assert ask(app, "/cheap", **as_user("ann")).status_code == 429
    assert ask(app, "/dear/0.5", **as_user("ann")).status_code == 200
    assert limit.tokens("ann") == 0


def test_it_is_a_rejected_with_the_reason_rate() -> None:
    app = on_a_route(quota(bucket(burst=1), key=user))
    seen: list[Rejected] = []

    # As the documentation says it.
    @app.exception_handler(Rejected)
    async def reject(request: Request, error: Rejected) -> JSONResponse:
        seen.append(error)
        headers = {"Retry-After": str(math.ceil(error.retry_after or 1))}
        return JSONResponse({"error": "rejected"}, error.rejection.status, headers)

    assert ask(app, **as_user("ann")).status_code == 200
    answer = ask(app, **as_user("ann"))
    assert answer.status_code == 429
    assert 10 <= int(answer.headers["retry-after"]) <= 13
    (error,) = seen
    assert (error.reason, error.rejection.gate, error.rejection.kind) == (
        Reason.RATE,
        "users",
        "bucket",
    )


def test_an_exception_of_the_key_goes_on() -> None:
    app = protect(on_a_route(quota(bucket(), key=lambda scope: 1 / 0)), limit=10)  # type: ignore[arg-type,return-value]
    assert ask(app).status_code == 500


def test_many_keys_take_no_memory() -> None:
    limit = bucket(max_keys=10)
    within = quota(limit, key=lambda scope: scope["key"])
    refused = 0

    async def main() -> None:
        nonlocal refused
        for number in range(100_000):
            try:
                await within(Request({"type": "http", "key": str(number)}))
            except Rejected:
                refused += 1

    asyncio.run(main())
    assert limit.keys == 10
    assert refused == 100_000 - 12


async def coroutine_key(scope: Scope) -> str:
    return ""


@pytest.mark.parametrize(
    ("over", "text"),
    [
        ({"bucket": 5}, "bucket must be a KeyedTokenBucket, got 5"),
        ({"key": "ip"}, "key must be a callable, such as client_ip\\(\\), got 'ip'"),
        ({"key": coroutine_key}, "key must be a callable that is not async"),
        ({"tokens": 5}, "tokens must be a callable or None, got 5"),
    ],
)
def test_what_can_be_no_quota(over: dict[str, Any], text: str) -> None:
    options = {"bucket": bucket(), "key": user, **over}
    with pytest.raises(TypeError, match=text):
        quota(options.pop("bucket"), **options)


# -- guard ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_gate_that_is_full_refuses_at_once(place: Callable[[Any], FastAPI]) -> None:
    limit = gate()
    app = protect(place(guard(limit)), limit=10)
    assert [ask(app).status_code for _ in range(3)] == [200] * 3
    assert_idle(limit)
    with limit.try_acquire():
        answer = ask(app)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"] == "overloaded"
        assert limit.waiting == 0
    assert ask(app).status_code == 200
    assert_idle(limit)


def test_the_permit_is_there_for_the_route() -> None:
    limit = gate()
    app = FastAPI()
    seen: list[Any] = []
    guarded = Depends(guard(limit))

    @app.get("/")
    async def endpoint(permit: Permit = guarded) -> str:
        seen.append((permit.waited, limit.in_flight))
        permit.outcome = Outcome.OVERLOAD
        return "ran"

    assert ask(app).status_code == 200
    assert seen == [(0, 1)]
    assert limit.snapshot().outcomes[Outcome.OVERLOAD] == 1
    assert_idle(limit)


shared = gate()
Guarded = Annotated[Permit, Depends(guard(shared))]


def test_it_can_be_named_once_for_many_routes() -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(permit: Guarded) -> str:
        return type(permit).__name__

    assert ask(app).json() == "Permit"
    assert_idle(shared)


def test_the_same_dependency_takes_one_permit() -> None:
    limit = gate()
    guarded = Depends(guard(limit))
    app = FastAPI(dependencies=[guarded])

    @app.get("/", dependencies=[guarded])
    async def endpoint(permit: Permit = guarded) -> int:
        return limit.in_flight

    assert ask(app).json() == 1
    assert limit.snapshot().admitted == 1
    assert_idle(limit)


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (TimeoutError(), 500, Outcome.OVERLOAD),
        (OSError(), 500, Outcome.IGNORED),
        (HTTPException(404), 404, Outcome.IGNORED),
        (Rejected(Rejection("inner", Reason.LIMIT)), 500, Outcome.IGNORED),
    ],
    ids=["time-out", "error", "404", "rejected"],
)
def test_a_route_that_fails_gives_its_permit_back(
    error: Exception, status: int, outcome: Outcome
) -> None:
    limit = gate()
    app = FastAPI()

    @app.get("/", dependencies=[Depends(guard(limit))])
    async def endpoint() -> None:
        raise error

    assert ask(app).status_code == status
    assert limit.snapshot().outcomes == {
        one: int(one is outcome) for one in limit.snapshot().outcomes
    }
    assert_idle(limit)


def test_a_later_dependency_that_fails_gives_it_back() -> None:
    limit, full = gate(), gate(max_waiting=0)

    def fail() -> None:
        raise OSError

    app = FastAPI()
    app.get("/fails", dependencies=[Depends(guard(limit)), Depends(fail)])(lambda: "ran")
    app.get("/refuses", dependencies=[Depends(guard(limit)), Depends(guard(full))])(lambda: "ran")
    protect(app, limit=10)
    with full.try_acquire():
        assert ask(app, "/fails").status_code == 500
        assert_idle(limit)
        assert ask(app, "/refuses").status_code == 503
        assert_idle(limit)
    assert limit.snapshot().admitted == 2


def test_a_body_that_is_malformed_gives_it_back() -> None:
    limit = gate()
    app = FastAPI()

    @app.post("/", dependencies=[Depends(guard(limit))])
    async def endpoint(number: int) -> None: ...

    assert ask(app, "/?number=x", "POST").status_code == 422
    assert_idle(limit)


def test_it_is_held_until_the_work_ends() -> None:
    limit = gate(2)
    app = FastAPI()
    seen: list[tuple[str, int]] = []

    @app.get("/", dependencies=[Depends(guard(limit))])
    async def endpoint(tasks: BackgroundTasks) -> StreamingResponse:
        async def chunks() -> AsyncIterator[str]:
            seen.append(("first", limit.in_flight))
            yield "a"
            await asyncio.sleep(0)
            seen.append(("last", limit.in_flight))
            yield "b"

        async def after() -> None:
            await asyncio.sleep(0)
            seen.append(("background", limit.in_flight))

        tasks.add_task(after)
        return StreamingResponse(chunks(), background=tasks)

    assert ask(app).text == "ab"
    assert seen == [("first", 1), ("last", 1), ("background", 1)]
    assert_idle(limit)


def test_a_request_that_is_cancelled_gives_it_back() -> None:
    limit = gate()
    app = FastAPI()

    @app.get("/", dependencies=[Depends(guard(limit))])
    async def endpoint() -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            task = asyncio.create_task(http.get("/"))
            await started.wait()
            assert limit.in_flight == 1
            assert (await http.get("/")).status_code == 503
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    protect(app, limit=10)
    asyncio.run(main())
    assert_idle(limit)


def test_as_many_as_the_limit_says_run_at_once() -> None:
    limit = gate(3)
    app = FastAPI()
    running = peak = 0

    @app.get("/", dependencies=[Depends(guard(limit))])
    async def endpoint() -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1

    protect(app, limit=1000)

    async def main() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            answers = await asyncio.gather(*(http.get("/") for _ in range(50)))
        return [answer.status_code for answer in answers]

    statuses = asyncio.run(main())
    assert peak == 3
    assert set(statuses) == {200, 503}
    assert limit.snapshot().admitted == statuses.count(200)
    assert_idle(limit)


def test_who_matters_less_is_refused_first() -> None:
    limit = gate(4, reserve={Criticality.CRITICAL_PLUS: 0.5}, max_waiting=0)
    app = FastAPI()
    plus = guard(limit, criticality=Criticality.CRITICAL_PLUS)
    app.get("/plus", dependencies=[Depends(plus)])(lambda: "ran")
    app.get("/context", dependencies=[Depends(guard(limit))])(lambda: "ran")
    protect(app, limit=10)
    with limit.try_acquire(3):
        with context.criticality(Criticality.SHEDDABLE):
            assert ask(app, "/context").status_code == 503
        assert ask(app, "/plus").status_code == 200
    (rejected,) = [number for number in limit.snapshot().rejected.values() if number]
    assert rejected == 1


def test_a_websocket_is_guarded_for_as_long_as_it_lasts() -> None:
    limit = gate()
    app = FastAPI()

    @app.websocket("/ws", dependencies=[Depends(guard(limit))])
    async def endpoint(connection: WebSocket) -> None:
        await connection.accept()
        accepted.set()
        await connection.receive_text()

    accepted = asyncio.Event()
    scope = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b""}

    async def main() -> None:
        first: asyncio.Queue[Any] = asyncio.Queue()
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        first.put_nowait({"type": "websocket.connect"})
        task = asyncio.create_task(app(dict(scope), first.get, send))
        await accepted.wait()
        assert limit.in_flight == 1
        sent.clear()
        await app(dict(scope), first.get, send)
        assert [(message["type"], message["code"]) for message in sent] == [
            ("websocket.close", 1013)
        ]
        assert limit.in_flight == 1
        first.put_nowait({"type": "websocket.receive", "text": "bye"})
        await task

    protect(app, limit=10)
    asyncio.run(main())
    assert_idle(limit)


def test_where_nothing_ends_with_the_request_nothing_is_taken() -> None:
    limit = gate()

    async def main() -> None:
        await guard(limit)(Request({"type": "http"}))

    with pytest.raises(RuntimeError, match=r"needs FastAPI 0\.118 or newer"):
        asyncio.run(main())
    assert limit.snapshot().admitted == 0


def test_openapi_has_no_parameter_for_it() -> None:
    app = FastAPI()
    limits = [Depends(guard(gate())), Depends(quota(bucket(), key=user))]
    app.get("/", dependencies=limits)(lambda: "ran")
    protect(app, limit=10)
    operation = app.openapi()["paths"]["/"]["get"]
    assert "parameters" not in operation
    assert {"429", "503"} <= operation["responses"].keys()


@pytest.mark.parametrize(
    ("over", "text"),
    [
        ({"gate": 5}, "gate must be a Gate, got 5"),
        ({"gate": bucket()}, "gate must be a Gate, got <KeyedTokenBucket"),
        ({"criticality": 2}, "criticality must be a Criticality or None, got 2"),
    ],
)
def test_what_can_be_no_guard(over: dict[str, Any], text: str) -> None:
    options = {"gate": gate(), **over}
    with pytest.raises(TypeError, match=text):
        guard(options.pop("gate"), **options)
