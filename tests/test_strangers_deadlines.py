"""A deadline that a stranger chose is his own affair: it says nothing about load."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from asgi_client import Client, scope_of
from sluicegate import (
    AdaptiveThrottle,
    Gate,
    ManualClock,
    Outcome,
    Permit,
    context,
)
from sluicegate import wsgi as sync
from sluicegate.asgi import Headers, LoadSheddingMiddleware
from sluicegate.testing import assert_idle, use_clock
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sluicegate.asgi import Receive, Scope, Send

pytestmark = pytest.mark.timeout(20)

O = Outcome  # noqa: E741


class Service:
    """One that takes its time, and gives up when that of its caller is over."""

    def __init__(self, gate: Gate, *, trusted: bool = False) -> None:
        self.clock = ManualClock()
        self.gate = gate
        self.headers = Headers(trusted=trusted)
        #: What it does after so many seconds: raise it, or answer with that status.
        self.does: BaseException | int = 200
        self.takes = 0.1
        self.around: Callable[[], Any] = nullcontext

    def work(self) -> int:
        with use_clock(self.clock), self.around():
            self.clock.advance(self.takes)
            if isinstance(self.does, BaseException):
                raise self.does
            return self.does

    def ask(self, deadline: float | None = None) -> None:
        raise NotImplementedError


class Asgi(Service):
    def __init__(self, gate: Gate, *, trusted: bool = False) -> None:
        super().__init__(gate, trusted=trusted)
        self.app = LoadSheddingMiddleware(self._serve, gate=gate, headers=self.headers)

    async def _serve(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        status = self.work()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(self, deadline: float | None = None) -> None:
        said = {} if deadline is None else {"x-request-timeout-ms": f"{deadline * 1000:.0f}"}

        async def main() -> None:
            client = Client(self.app, scope_of(headers=said))
            await asyncio.wait([client.task])
            client.task.exception()

        with use_clock(self.clock):
            asyncio.run(main())


class Wsgi(Service):
    is_late = False

    def __init__(self, gate: Gate, *, trusted: bool = False) -> None:
        super().__init__(gate, trusted=trusted)
        self.app = sync.LoadSheddingMiddleware(
            self._serve, threads=1000, gate=gate, headers=self.headers
        )

    def _serve(self, _environ: dict[str, Any], start: Any) -> Any:
        if self.is_late:
            return self._parts(start)
        start(f"{self.work()} As it is", [])
        return []

    def _parts(self, start: Any) -> Iterator[bytes]:
        start(f"{self.work()} As it is", [])
        yield b"part"

    def ask(self, deadline: float | None = None) -> None:
        said = {} if deadline is None else {"x_request_timeout_ms": f"{deadline * 1000:.0f}"}
        with use_clock(self.clock):
            try:
                call(self.app, environ(**said))
            except TimeoutError as error:
                assert error is self.does or self.around is not nullcontext  # noqa: PT017


class Streaming(Wsgi):
    is_late = True


FACES = pytest.mark.parametrize("face", [Asgi, Wsgi, Streaming])
TOO_LATE = pytest.mark.parametrize("does", [TimeoutError(), 504], ids=["raises", "504"])


def outcomes(gate: Gate) -> list[Outcome]:
    return [outcome for outcome, count in gate.snapshot().outcomes.items() if count]


@FACES
@TOO_LATE
@pytest.mark.parametrize(
    ("deadline", "trusted", "expected"),
    [
        (0.05, False, O.IGNORED),
        # He may have passed on what was left of it, or less.
        (0.1, False, O.IGNORED),
        (0.2, False, O.IGNORED),
        (0.201, False, O.OVERLOAD),
        (None, False, O.OVERLOAD),
        (0.05, True, O.OVERLOAD),
    ],
)
def test_whose_time_was_too_short(
    face: type[Service],
    does: BaseException | int,
    deadline: float | None,
    trusted: bool,
    expected: Outcome,
) -> None:
    gate = Gate(5)
    service = face(gate, trusted=trusted)
    service.does = does
    service.ask(deadline)
    assert outcomes(gate) == [expected]
    assert_idle(gate)


@FACES
def test_what_is_done_is_done_however_late(face: type[Service]) -> None:
    gate = Gate(5)
    face(gate).ask(0.01)
    assert outcomes(gate) == [O.SUCCESS]


@FACES
@TOO_LATE
def test_strangers_do_not_cut_the_limit(face: type[Service], does: BaseException | int) -> None:
    clock = ManualClock()
    gate = Gate(clock=clock)
    service = face(gate)
    service.clock = clock
    for _ in range(100):
        service.ask()
    before = gate.limit
    assert before >= 20
    service.does, service.takes = does, 0.001
    for _ in range(300):
        service.ask(0.001)
    assert gate.limit == before
    assert outcomes(gate) == [O.SUCCESS, O.IGNORED]


@FACES
def test_a_deadline_that_is_long_for_such_work_does(face: type[Service]) -> None:
    clock = ManualClock()
    gate = Gate(clock=clock)
    service = face(gate)
    service.clock = clock
    for _ in range(100):
        service.ask(2)
    before = gate.limit
    service.does, service.takes = TimeoutError(), 2
    for _ in range(100):
        service.ask(2)
    assert gate.limit < before
    assert outcomes(gate) == [O.SUCCESS, O.IGNORED]


@FACES
def test_what_a_handler_asks_for_its_part_is_spared_as_well(face: type[Service]) -> None:
    inner, throttle = Gate(5, name="inner"), AdaptiveThrottle()
    service = face(Gate(5))

    @throttle.guard()
    def late() -> None:
        service.clock.advance(0.1)
        raise TimeoutError

    class Calls:
        def __enter__(self) -> None:
            permit = inner.try_acquire()
            assert isinstance(permit, Permit)
            with permit:
                late()

        def __exit__(self, *_: object) -> None: ...

    service.around = Calls
    service.ask(0.05)
    assert outcomes(inner) == [O.IGNORED]
    assert throttle.snapshot().outcomes == {O.IGNORED: 1}
    service.ask()
    assert inner.snapshot().outcomes == {O.IGNORED: 1, O.OVERLOAD: 1}
    assert throttle.snapshot().outcomes == {O.IGNORED: 1, O.OVERLOAD: 1}


@FACES
def test_a_shorter_time_of_the_service_itself_is_its_own(face: type[Service]) -> None:
    gate = Gate(5, name="inner")
    service = face(Gate(5))

    class Calls:
        def __enter__(self) -> None:
            permit = gate.try_acquire()
            assert isinstance(permit, Permit)
            with context.deadline(0.08), permit:
                service.clock.advance(0.08)
                raise TimeoutError

        def __exit__(self, *_: object) -> None: ...

    service.around = Calls
    service.ask(0.1)
    assert outcomes(gate) == [O.OVERLOAD]
