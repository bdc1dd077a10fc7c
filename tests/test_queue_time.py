"""What a proxy tells about when a request came counts as time that it has waited."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import Gate, ManualClock, Reason, context
from sluicegate._queue_time import queue_time_in
from sluicegate.testing import use_clock
from sluicegate.wsgi import LoadSheddingMiddleware
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate.wsgi import Environ, StartResponse

NOW = 1_700_000_000.5


class Clocks:
    """The system's clocks, at a standstill."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOW
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture(name="clocks")
def clocks_at_a_standstill(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    with use_clock(ManualClock()):
        yield Clocks(monkeypatch)


class Shed:
    """A protected application that notes what is left of deadlines."""

    def __init__(self, *, gate: Gate | None = None, **options: Any) -> None:
        self.left: list[float | None] = []
        self.middleware = LoadSheddingMiddleware(self.serve, threads=4, gate=gate, **options)

    def serve(self, environ: Environ, start_response: StartResponse) -> list[bytes]:
        self.left.append(context.remaining())
        start_response("200 OK", [])
        return [b""]

    def ask(self, waited: float, **headers: str) -> int:
        """Return the status of a request that came so many seconds ago."""
        stamp = f"t={time.time() - waited:.6f}"
        return call(self.middleware, environ(x_request_start=stamp, **headers)).status


@pytest.mark.parametrize(
    ("text", "waited"),
    [
        ("t=1700000000.250", 0.25),
        ("1700000000.250", 0.25),
        (" t=1700000000.25\t", 0.25),
        ("t=1700000000", 0.5),
        ("1700000000250", 0.25),
        ("t=1700000000250", 0.25),
        ("t=1700000000250.0", 0.25),
        ("1700000000250000", 0.25),
        ("t=1700000000250000", 0.25),
        ("t=1700000000.500", 0),
        ("t=1699996400.500", 3600),
        # Two proxies: the one in front saw it first.
        ("t=1700000000.1, t=1700000000.4", 0.4),
        ("1700000000400,t=1700000000.1", 0.4),
        # What cannot be.
        ("t=1700000000.501", None),
        ("t=1700000001", None),
        ("t=1699996400.400", None),
        ("t=1600000000", None),
        ("t=1700000000.25, soon", None),
        ("t=1700000000.25,", None),
        ("", None),
        ("t=", None),
        ("soon", None),
        ("t=-1700000000", None),
        ("t=+1700000000", None),
        ("t=1e9", None),
        ("t=nan", None),
        ("t=1700000000.", None),
        ("t=.5", None),
        ("t=0", None),
        ("t=17000", None),
        ("T=1700000000", None),
        ("t=1_700_000_000", None),
        ("t=١٧٠٠٠٠٠٠٠٠", None),  # noqa: RUF001
        ("t=" + "9" * 17, None),
        ("1" * 10_000, None),
        ("t=1700000000.25," * 9 + "t=1700000000.25", None),
    ],
)
def test_what_a_proxy_tells(text: str, waited: float | None) -> None:
    assert queue_time_in(text, NOW) == (None if waited is None else pytest.approx(waited))


def test_what_cannot_be_is_ignored_and_counted(clocks: Clocks) -> None:
    shed = Shed()
    for text in ("soon", "t=1700000009", "t=1600000000"):
        assert call(shed.middleware, x_request_start=text).status == 200
    assert shed.middleware.ignored_queue_times == 3
    assert shed.ask(0.5) == 200
    assert shed.middleware.ignored_queue_times == 3


def test_it_is_taken_off_the_deadline(clocks: Clocks) -> None:
    with use_clock(ManualClock()):
        shed = Shed()
        assert shed.ask(0.4, x_request_timeout_ms="1000") == 200
        assert shed.ask(1.1, x_request_timeout_ms="1000") == 503
        assert shed.ask(9.0, x_request_timeout_ms="10000") == 200
        assert shed.left == [pytest.approx(0.6), pytest.approx(1.0)]
        assert shed.middleware.gate.snapshot().rejected[Reason.DEADLINE] == 1


@pytest.mark.parametrize(
    ("options", "bound"), [({}, 1.0), ({"max_queue_time": 0.2}, 0.2), ({"max_queue_time": 5}, 5.0)]
)
def test_who_has_no_deadline_is_refused_after_a_while(
    options: Any, bound: float, clocks: Clocks
) -> None:
    shed = Shed(**options)
    assert shed.ask(bound - 0.01) == 200
    assert shed.ask(bound + 0.01) == 503
    assert shed.left == [None]
    assert shed.middleware.gate.snapshot().rejected[Reason.DEADLINE] == 1


def test_slow_work_is_waited_for_longer(clocks: Clocks) -> None:
    clock = ManualClock()
    gate = Gate(3, clock=clock)
    with gate.try_acquire():
        clock.advance(0.5)
    shed = Shed(gate=gate)
    assert shed.ask(4.9) == 200
    with gate.try_acquire():
        clock.advance(0.5)
    assert shed.ask(5.1) == 503


def test_a_dry_run_counts_who_is_late_and_tells_no_deadline(clocks: Clocks) -> None:
    gate = Gate(3, dry_run=True)
    shed = Shed(gate=gate)
    assert shed.ask(5.0) == 200
    assert shed.left == [None]
    assert gate.snapshot().rejected[Reason.DEADLINE] == 1


def test_one_that_was_over_when_it_was_sent_says_nothing_about_clocks(clocks: Clocks) -> None:
    shed = Shed()
    for _ in range(30):
        assert shed.ask(0.001, x_request_timeout_ms="0") == 503
        clocks.now += 1
    assert shed.middleware.ignored_queue_times == 0


def test_a_clock_that_differs_does_not_refuse_everybody_for_long(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    shed = Shed()
    statuses = []
    for _ in range(15):
        statuses.append(shed.ask(30))
        clocks.now += 1
    assert statuses == [503] * 11 + [200] * 4
    assert shed.ask(30, x_request_timeout_ms="1000") == 200
    assert shed.middleware.ignored_queue_times == 5
    told = [record for record in caplog.records if record.name == "sluicegate.wsgi"]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert "the clock of the proxy differs" in caplog.text
    # One that is in time: the clocks are right again.
    assert shed.ask(0.1) == 200
    assert shed.ask(30) == 503


def test_strangers_cannot_have_the_clock_doubted(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    shed = Shed()
    for _ in range(30):
        assert shed.ask(0.002, x_request_timeout_ms="1") == 503
        clocks.now += 1
    assert shed.ask(30) == 503
    assert shed.middleware.ignored_queue_times == 0
    assert "the clock of the proxy differs" not in caplog.text


def test_nor_can_they_keep_it_believed(clocks: Clocks) -> None:
    shed = Shed()
    for _ in range(15):
        shed.ask(30, x_request_timeout_ms="60000")
        clocks.now += 1
    assert shed.middleware.ignored_queue_times == 4


@pytest.mark.parametrize("is_trusted", [False, True])
def test_the_deadlines_of_those_who_are_trusted_tell_of_clocks(
    is_trusted: bool, clocks: Clocks
) -> None:
    shed = Shed(headers=context.Headers(trusted=lambda _: is_trusted))
    for _ in range(15):
        shed.ask(0.5, x_request_timeout_ms="250")
        clocks.now += 1
    assert shed.middleware.ignored_queue_times == (4 if is_trusted else 0)


def test_strangers_do_not_make_the_queue_stand(clocks: Clocks) -> None:
    with use_clock(clock := ManualClock()):
        shed = Shed()
        for _ in range(50):
            shed.ask(0.002, x_request_timeout_ms="3")
            clock.advance(0.02)
        assert [shed.ask(0.9) for _ in range(3)] == [200] * 3
        # Where it does, half of what he gives has to do for a stranger too.
        for _ in range(100):
            shed.ask(0.4)
            clock.advance(0.02)
        for timeout, status in [("5000", 200), ("700", 503), ("1000", 200)]:
            assert shed.ask(0.4, x_request_timeout_ms=timeout) == status


def test_the_header_can_be_chosen(clocks: Clocks) -> None:
    old = f"{NOW - 5}"
    shed = Shed(queue_time_header="X-Queue-Start")
    assert call(shed.middleware, x_queue_start=old).status == 503
    assert call(shed.middleware, x_request_start=old).status == 200
    shed = Shed(queue_time_header=None)
    assert call(shed.middleware, x_request_start=old).status == 200


def test_probes_are_not_asked(clocks: Clocks) -> None:
    shed = Shed()
    assert call(shed.middleware, environ("/healthz", x_request_start="t=1699999990")).status == 200


def test_it_is_all_that_one_thread_can_go_by(clocks: Clocks) -> None:
    shed = Shed()
    shed.middleware = LoadSheddingMiddleware(shed.serve, threads=1)
    assert [shed.ask(waited) for waited in (0.1, 1.5, 0.1)] == [200, 503, 200]


@pytest.mark.parametrize("has_deadline", [False, True])
@pytest.mark.parametrize("given", [1, 20])
def test_while_the_queue_stands_half_of_the_time_has_to_do(
    given: float, has_deadline: bool, clocks: Clocks
) -> None:
    with use_clock(clock := ManualClock()):
        gate = Gate(3)
        headers = {"x_request_timeout_ms": str(given * 1000)} if has_deadline else {}
        shed = Shed(gate=gate, max_queue_time=given)

        def ask(share: float) -> int:
            status = shed.ask(given * share, **headers)
            clock.advance(0.02)
            return status

        # A burst is soon over, and may take all of it.
        assert [ask(share) for share in (0.9, 0.9, 0.01, 0.9)] == [200] * 4
        for _ in range(50):
            ask(0.9)
        # One in half a second is let through.
        late = [ask(0.55) for _ in range(50)]
        assert late.count(503) >= 47
        assert [ask(0.45) for _ in range(50)] == [200] * 50
        # What nobody waits for long at is no queue.
        for _ in range(50):
            ask(0.1)
        assert ask(0.9) == 200


def test_what_a_dry_run_admits_has_its_own_deadline(clocks: Clocks) -> None:
    with use_clock(clock := ManualClock()):
        shed = Shed(gate=Gate(3, dry_run=True))
        for _ in range(20):
            assert shed.ask(0.75, x_request_timeout_ms="1000") == 200
            clock.advance(0.1)
        assert shed.left == [pytest.approx(0.25)] * 20
        assert shed.middleware.gate.snapshot().rejected[Reason.DEADLINE] >= 8


def test_how_long_work_takes_is_looked_up_now_and_then(clocks: Clocks) -> None:
    clock = ManualClock()
    gate = Gate(3, clock=clock)
    shed = Shed(gate=gate)
    assert shed.ask(4.0) == 503
    with gate.try_acquire():
        clock.advance(0.5)
    assert shed.ask(4.0) == 503
    clocks.now += 1
    assert shed.ask(4.0) == 200
