"""Clients that leave, with middleware made from Starlette's BaseHTTPMiddleware around or inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, Work, scope_of
from gate_use import turns
from sluicegate import Gate
from sluicegate.asgi import LoadSheddingMiddleware
from sluicegate.testing import assert_idle
from virtual_time import run_in_virtual_time

pytest.importorskip("starlette")

from starlette.middleware.base import BaseHTTPMiddleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from sluicegate.asgi import ASGIApp
    from virtual_time import VirtualLoop

    CallNext = Callable[[Request], Awaitable[Response]]

pytestmark = pytest.mark.timeout(20)


class Logging(BaseHTTPMiddleware):
    """Takes note of what was answered, as such middleware does."""

    def __init__(self, app: ASGIApp, *, reads: bool = False) -> None:
        super().__init__(app)
        self.reads = reads
        self.answered: list[tuple[str, int]] = []

    async def dispatch(self, request: Request, call_next: CallNext) -> Response:
        if self.reads:
            await request.body()
        response = await call_next(request)
        self.answered.append((request.url.path, response.status_code))
        return response


def outside(times: int, *, reads: bool = False) -> Callable[[Work, Gate], Any]:
    def build(work: Work, gate: Gate) -> Any:
        app: Any = LoadSheddingMiddleware(work, gate=gate)
        for _ in range(times):
            app = Logging(app, reads=reads)
        return app

    return build


def inside(**options: Any) -> Callable[[Work, Gate], Any]:
    return lambda work, gate: LoadSheddingMiddleware(Logging(work), gate=gate, **options)


ORDERS = {
    "outside": outside(1),
    "outside, four times": outside(4),
    "outside, and reads": outside(1, reads=True),
    "inside": inside(),
    "inside, cancelling": inside(cancel_on_disconnect=True),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("has_body", [False, True])
def test_who_leaves_the_line_is_not_begun_and_nobody_fails(order: str, has_body: bool) -> None:
    async def main(_loop: VirtualLoop) -> None:
        work, gate = Work(), Gate(1)
        app = ORDERS[order](work, gate)
        first = Client(app, scope_of("/1"))
        await turns(40)
        headers = {"content-length": "6"} if has_body else {}
        second = Client(
            app, scope_of("/2", "POST", headers), [b"abc", b"def"] if has_body else None
        )
        await turns(40)
        assert gate.waiting == 1
        second.leave()
        await turns(40)
        # Nobody listens for an upload that stands in line.
        assert gate.waiting == has_body
        work.go.set()
        assert await first.answer() == 200
        await second.task
        assert work.begun == ["/1"]
        if isinstance(app, Logging):
            assert dict(app.answered) == {"/1": 200, "/2": 499}
        assert_idle(gate)

    run_in_virtual_time(main)


@pytest.mark.parametrize("order", ORDERS)
def test_who_stays_is_served_with_all_of_his_body(order: str) -> None:
    async def main(_loop: VirtualLoop) -> None:
        work, gate = Work(), Gate(1)
        app = ORDERS[order](work, gate)
        first = Client(app, scope_of("/1"))
        await turns(40)
        second = Client(app, scope_of("/2", "POST", {"content-length": "6"}), [b"abc", b"def"])
        await turns(40)
        assert gate.waiting == 1
        work.go.set()
        assert [await first.answer(), await second.answer()] == [200, 200]
        assert work.bodies == [b"", b"abcdef"]
        assert_idle(gate)

    run_in_virtual_time(main)


@pytest.mark.parametrize("order", ["outside", "outside, four times", "inside"])
def test_a_body_that_stops_is_answered_408(order: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        work, gate = Work(), Gate(1)
        work.go.set()
        times = {"outside": 1, "outside, four times": 4, "inside": 0}[order]
        app: Any = Logging(work) if order == "inside" else work
        app = LoadSheddingMiddleware(app, gate=gate, body_timeout=5)
        for _ in range(times):
            app = Logging(app)

        class Stopping(Client):
            async def receive(self) -> Any:
                if not self._body:
                    await self._gone.wait()
                return {"type": "http.request", "body": self._body.pop(), "more_body": True}

        client = Stopping(app, scope_of("/1", "POST", {"content-length": "6"}), [b"abc"])
        assert await client.answer() == 408
        assert loop.time() == pytest.approx(5)
        assert_idle(gate)

    run_in_virtual_time(main)
