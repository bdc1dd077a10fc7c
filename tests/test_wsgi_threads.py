"""Whatever runs, one worker thread is left over to refuse."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import Gate, Outcome, Reason, Rejection
from sluicegate.testing import assert_idle
from sluicegate.wsgi import LoadSheddingMiddleware, Rule
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluicegate.wsgi import Environ, StartResponse

RULES = [Rule("/status", exempt=True), Rule("/events", stream=True)]


def ok(environ: Environ, start_response: StartResponse) -> list[bytes]:
    start_response("200 OK", [])
    return [b"ok"]


def cheaper(environ: Environ, start_response: StartResponse) -> list[bytes]:
    start_response("203 Cheaper", [])
    return [b"cheaper"]


class Service:
    """An application whose responses stay open, as those do that a client does not read."""

    def __init__(self, rules: Sequence[Rule] = RULES, threads: int = 4, **options: Any) -> None:
        self.middleware = LoadSheddingMiddleware(ok, threads=threads, rules=rules, **options)
        self.open: list[Any] = []

    def begin(self, path: str) -> int:
        """Return the status of a request; it goes on if it runs."""
        statuses: list[int] = []

        def start_response(status: str, *_: object) -> None:
            statuses.append(int(status[:3]))

        response = self.middleware(environ(path), start_response)
        if hasattr(response, "close"):
            self.open.append(response)
        return statuses[-1]

    def begin_all(self, *paths: str) -> list[int]:
        return [self.begin(path) for path in paths]

    def end(self, which: int = 0) -> None:
        self.open.pop(which).close()

    def end_all(self) -> None:
        while self.open:
            self.end()
        shed = self.middleware
        assert shed.degraded.in_flight == 0
        assert_idle(
            *(gate for gate in (shed.gate, shed.exempt, shed.running, shed.streams) if gate)
        )


def test_exempt_requests_leave_one_over() -> None:
    service = Service()
    assert service.begin_all(*["/status"] * 5) == [200] * 3 + [503] * 2
    assert service.begin("/work") == 503
    assert service.middleware.running.snapshot().rejected == {Reason.LIMIT: 3}
    service.end()
    assert service.begin_all("/work", "/work") == [200, 503]
    service.end_all()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_so_does_all_that_runs_together(count: int) -> None:
    service = Service(degrade=lambda *_: cheaper, gate=Gate(1, max_waiting=0), max_streams=1)
    paths = ["/work", "/work", "/events", "/status"]
    random.Random(count).shuffle(paths)
    statuses = service.begin_all(*paths, *paths)
    assert len(service.open) == 3
    assert statuses[-1] == 503
    service.end_all()


def test_what_finds_no_thread_has_given_its_permit_back() -> None:
    told: list[Rejection] = []
    gate, inner = Gate(2, max_waiting=0, name="api"), Gate(3)
    rules = [*RULES, Rule("/inner", gate=inner, operation="look")]
    service = Service(rules, gate=gate, on_reject=lambda _, rejection: told.append(rejection))
    service.begin_all(*["/status"] * 3)
    assert service.begin_all("/inner", "/events") == [503, 503]
    assert_idle(gate, inner)
    assert gate.snapshot().outcomes[Outcome.IGNORED] == 1
    text, _, _ = str(told[0]).partition(";")
    assert text == "gate 'api threads' rejected CRITICAL 'look': limit (3 in flight, limit 3)"
    service.end_all()


def test_what_the_gate_refuses_counts_there_only() -> None:
    service = Service((), gate=Gate(3, max_waiting=0))
    assert service.begin_all(*["/work"] * 5) == [200] * 3 + [503] * 2
    assert service.middleware.gate.snapshot().rejected == {Reason.LIMIT: 2}
    assert service.middleware.running.snapshot().rejected == {}
    service.end_all()


def test_degraded_answers_never_take_the_last_thread() -> None:
    service = Service((), 3, gate=Gate(1, max_waiting=0), degrade=lambda *_: cheaper)
    assert service.begin_all(*["/work"] * 3) == [200, 203, 503]
    # It is the gate that refuses: a second refusal of the same is not counted.
    assert service.middleware.running.snapshot().rejected == {}
    assert service.middleware.gate.snapshot().rejected == {Reason.LIMIT: 2}
    service.end_all()
    asked: list[Environ] = []
    service = Service(
        RULES[:1],
        3,
        gate=Gate(1, max_waiting=0),
        degrade=lambda environ, _: asked.append(environ),
    )
    assert service.begin_all(*["/work"] * 2, "/status", "/work") == [200, 503, 200, 503]
    assert len(asked) == 1
    service.end_all()


@pytest.mark.parametrize("path", ["/healthz", "/health/", "/ping", "/metrics"])
def test_a_probe_may_take_the_last_thread_while_all_others_work(path: str) -> None:
    service = Service((), gate=Gate(3, max_waiting=0))
    assert service.begin_all("/work", "/work", "/work", path) == [200] * 4
    assert service.middleware.running.limit == 3
    # It counts like all others: the next thread that comes free is the one that refuses.
    service.end()
    assert service.begin_all("/work", "/work") == [503, 503]
    assert service.begin("/livez") == 200
    service.end_all()


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/metrics", 503)])
def test_long_answers_do_not_where_others_are_exempt(path: str, status: int) -> None:
    service = Service()
    service.begin_all(*["/status"] * 3)
    assert service.begin(path) == status
    service.end_all()
    service.begin_all(*["/metrics"] * 3)
    assert service.begin(path) == status
    service.end_all()


def test_a_rule_makes_no_probe() -> None:
    service = Service([Rule("/healthz", exempt=True), *RULES[:1]], gate=Gate(3, max_waiting=0))
    service.begin_all(*["/work"] * 3)
    assert service.begin_all("/status", "/healthz") == [503, 200]
    service.end_all()
    service = Service([Rule("/healthz")], gate=Gate(3, max_waiting=0))
    assert service.begin_all(*["/work"] * 3, "/healthz") == [200] * 3 + [503]
    service.end_all()


def test_one_thread_is_none_left_over() -> None:
    service = Service((), 1)
    for path in ("/work", "/healthz"):
        assert service.begin_all(path, "/work", "/healthz") == [200, 503, 503]
        service.end_all()


def test_a_dry_run_refuses_nobody() -> None:
    service = Service(RULES[:1], gate=Gate(3, dry_run=True))
    assert service.begin_all(*["/status"] * 5, "/work") == [200] * 6
    assert service.middleware.running.snapshot().rejected == {Reason.LIMIT: 3}
    service.end_all()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_thread_is_given_back_however_it_ends(is_closed: bool) -> None:
    def fails(environ: Environ, start_response: StartResponse) -> list[bytes]:
        raise LookupError

    middleware = LoadSheddingMiddleware(fails, threads=2)
    for path in ("/work", "/healthz"):
        with pytest.raises(LookupError):
            call(middleware, environ(path))
    service = Service((), 2)
    for path in ("/work", "/healthz"):
        service.begin(path)
        assert service.middleware.running.in_flight == 1
        if is_closed:
            service.end()
        else:
            service.open.clear()
        assert_idle(middleware.running, service.middleware.running)


def test_no_more_run_than_leave_one_over_in_threads() -> None:
    threads = 6
    most = 0
    lock = threading.Lock()
    running: set[int] = set()

    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        nonlocal most
        with lock:
            running.add(threading.get_ident())
            most = max(most, len(running))
        try:
            return ok(environ, start_response)
        finally:
            with lock:
                running.discard(threading.get_ident())

    rules = [*RULES, Rule("/cheap", degrade=lambda *_: app)]
    middleware = LoadSheddingMiddleware(app, threads=threads, rules=rules)
    paths = ["/work", "/status", "/events", "/cheap"]
    ready = threading.Barrier(2 * threads)

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        ready.wait()
        for _ in range(300):
            assert call(middleware, environ(rng.choice(paths))).status in {200, 503}

    with ThreadPoolExecutor(2 * threads) as pool:
        list(pool.map(ask, range(2 * threads)))
    assert most <= threads - 1
    streams = middleware.streams
    assert streams is not None
    assert middleware.degraded.in_flight == 0
    assert_idle(middleware.gate, middleware.exempt, middleware.running, streams)


@pytest.mark.parametrize(
    ("threads", "options", "limit"),
    [
        (4, {}, 3),
        (4, {"rules": RULES[:1]}, 2),
        (4, {"rules": [Rule("/work", degrade=lambda *_: cheaper)]}, 2),
        (4, {"degrade": lambda *_: cheaper}, 2),
        (4, {"degrade": lambda *_: cheaper, "rules": RULES[:1]}, 2),
        (4, {"rules": RULES}, 1),
        (3, {"rules": RULES[:1]}, 1),
        (2, {"rules": RULES[:1]}, 1),
        (4, {"rules": RULES[:1], "limit": 3}, 3),
        (4, {"rules": lambda _: None}, 3),
    ],
)
def test_a_limit_of_our_own_leaves_a_thread_to_what_runs_beside_it(
    threads: int, options: Any, limit: int
) -> None:
    middleware = LoadSheddingMiddleware(ok, threads=threads, **options)
    assert middleware.gate.limit == limit


def test_so_what_is_exempt_or_degraded_runs_while_the_limit_is_reached() -> None:
    service = Service(RULES[:1])
    assert service.begin_all("/work", "/work", "/work", "/status") == [200, 200, 503, 200]
    service.end_all()
    service = Service((), degrade=lambda *_: cheaper)
    assert service.begin_all(*["/work"] * 4) == [200, 200, 203, 503]
    service.end_all()
