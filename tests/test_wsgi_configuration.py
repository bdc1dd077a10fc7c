"""What the WSGI middleware takes, what is in effect, and how it says what cannot be."""

from __future__ import annotations

import logging
import math
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from sluicegate import Gate, GradientLimiter, SemaphoreLimiter
from sluicegate.classic import ClassicLimiter, Gradient2
from sluicegate.wsgi import LoadSheddingMiddleware, Rule
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from sluicegate.wsgi import Environ, StartResponse

GATE = Gate(2, max_waiting=0)


def ok(environ: Environ, start_response: StartResponse) -> list[bytes]:
    start_response("200 OK", [])
    return [b"ok"]


@pytest.mark.parametrize("threads", [2, 3, 8, 40])
def test_by_default_the_limit_follows_latency_below_the_threads(threads: int) -> None:
    gate = LoadSheddingMiddleware(ok, threads=threads).gate
    assert gate.name == "wsgi"
    assert gate.limit == min(20, threads - 1)
    assert gate.snapshot().max_waiting == 0
    limiter = GradientLimiter(max_limit=threads - 1, initial=1)
    assert LoadSheddingMiddleware(ok, threads=threads, limit=limiter).gate.limit == 1


def test_the_limit_that_follows_latency_cannot_reach_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(**options: Any) -> GradientLimiter:
        made.append(GradientLimiter(**options))
        return made[-1]

    made: list[GradientLimiter] = []
    monkeypatch.setattr("sluicegate._wsgi_gate.GradientLimiter", make)
    LoadSheddingMiddleware(ok, threads=8)
    LoadSheddingMiddleware(ok, threads=100)
    LoadSheddingMiddleware(ok, threads=8, rules=[Rule("/events", stream=True)])
    assert [limiter.snapshot().max_limit for limiter in made] == [7, 99, 5]


@pytest.mark.parametrize(
    "given",
    [
        {"limit": 8},
        {"limit": 64},
        {"limit": 8.0},
        {"limit": math.inf},
        {"limit": SemaphoreLimiter(8)},
        {"limit": GradientLimiter(initial=4)},
        {"limit": ClassicLimiter(Gradient2())},
        {"gate": Gate(8)},
        {"gate": Gate()},
        {"limit": 6, "rules": [Rule("/events", stream=True)]},
        {"limit": 5, "max_streams": 3},
    ],
)
def test_a_limit_that_leaves_no_thread_over_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limit must be below threads.*queue of the server"):
        LoadSheddingMiddleware(ok, threads=8, **given)


def test_one_thread_can_only_look_at_the_queue() -> None:
    assert LoadSheddingMiddleware(ok, threads=1).gate.limit == 1
    for given in ({"queue_time_header": None}, {"rules": [Rule("/events", stream=True)]}):
        with pytest.raises(ValueError, match="threads must be at least"):
            LoadSheddingMiddleware(ok, threads=1, **cast("Any", given))
    with pytest.raises(ValueError, match="limit must be below threads = 1, got 1"):
        LoadSheddingMiddleware(ok, threads=1, limit=1)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"threads": 0}, ValueError, "threads must be an integer from 1 to 100000, got 0"),
        ({"threads": 100_001}, ValueError, "threads must be"),
        ({"threads": 4.0}, TypeError, "threads must be an integer .* got 4.0"),
        ({"threads": True}, TypeError, "threads must be"),
        ({"threads": "4"}, TypeError, "threads must be"),
        ({"limit": 0}, ValueError, "limit must be a number above 0"),
        ({"limit": math.nan}, ValueError, "limit must be a number above 0"),
        ({"limit": "3"}, TypeError, "limit must be a number"),
        ({"limit": True}, TypeError, "limit must be a number"),
        ({"gate": 3}, TypeError, "gate must be a Gate"),
        ({"gate": Gate(1), "limit": 1}, TypeError, "gate and limit exclude each other"),
        ({"rules": 3}, TypeError, "rules must be"),
        ({"rules": ["/a"]}, TypeError, "rules must hold Rule"),
        ({"rules": "/a"}, TypeError, "rules must be"),
        ({"rules": [Rule("WEBSOCKET /a")]}, ValueError, "'WEBSOCKET /a' holds for no request"),
        (
            {"gate": GATE, "rules": [Rule("/a", gate=GATE)]},
            ValueError,
            "the gate of the rule for '/a' must be another one",
        ),
        ({"key": "user"}, TypeError, "key must be a callable"),
        ({"respond": 503}, TypeError, "respond must be a callable"),
        ({"degrade": 503}, TypeError, "degrade must be a callable"),
        ({"on_reject": 503}, TypeError, "on_reject must be a callable"),
        ({"headers": {}}, TypeError, "headers must be a Headers"),
        ({"exempt_limit": 0}, ValueError, "exempt_limit must be .* from 1"),
        ({"exempt_limit": None}, TypeError, "exempt_limit must be"),
        ({"degrade_limit": 1.5}, TypeError, "degrade_limit must be"),
        ({"max_streams": 3}, ValueError, "max_streams must be .* threads - 2 = 2"),
        ({"max_streams": 0}, ValueError, "max_streams must be"),
        ({"max_streams": True}, TypeError, "max_streams must be"),
        ({"queue_time_header": 3}, TypeError, "queue_time_header must be the name"),
        ({"queue_time_header": "a b"}, ValueError, "queue_time_header must be the name"),
        ({"max_queue_time": 0}, ValueError, "max_queue_time must be"),
        ({"max_queue_time": math.nan}, ValueError, "max_queue_time must be"),
        ({"max_queue_time": 5000}, ValueError, "seconds, not milliseconds"),
        ({"max_queue_time": "1"}, TypeError, "max_queue_time must be"),
    ],
)
def test_what_cannot_be_is_named(given: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        LoadSheddingMiddleware(ok, **{"threads": 4, **given})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rules": lambda _: Rule("/", gate=GATE)}, "must be another one than the main one"),
        ({"rules": lambda _: "/"}, "rules must return a Rule or None, got '/'"),
        ({"key": lambda _: 3}, "key must return a string or None, got 3"),
    ],
)
def test_what_a_function_says_that_cannot_be_is_reported(
    options: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append(str(it.exc_value)))
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=GATE, **options)
    assert call(middleware).status == 200
    assert len(reported) == 1
    assert words in reported[0]


@pytest.mark.parametrize("name", ["key", "respond", "degrade", "on_reject", "rules"])
def test_nothing_is_awaited_here(name: str) -> None:
    async def function(*_: object) -> None: ...

    with pytest.raises(TypeError, match=f"{name} must not be async"):
        LoadSheddingMiddleware(ok, threads=4, **cast("Any", {name: function}))
    app = cast("Any", function)
    with pytest.raises(TypeError, match=r"app must be a WSGI application.*sluicegate\.asgi"):
        LoadSheddingMiddleware(app, threads=4)


def test_it_says_what_is_in_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sluicegate.wsgi"):
        middleware = LoadSheddingMiddleware(ok, threads=8, limit=5)
    assert repr(middleware) in caplog.text
    assert "in this process" in caplog.text
    assert "threads=8" in repr(middleware)
    assert "limit 5" in repr(middleware)


def test_it_says_if_all_are_admitted(caplog: pytest.LogCaptureFixture) -> None:
    LoadSheddingMiddleware(ok, threads=8, gate=Gate(5, name="api", dry_run=True))
    assert warnings(caplog) == ["gate 'api' is in a dry run: all are admitted"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(each.name == "sluicegate.wsgi" for each in caplog.records)
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def of_a_sync_worker(path: str = "/work", **headers: str) -> Environ:
    said = {"wsgi.multithread": False, "SERVER_SOFTWARE": "gunicorn/27.0.1"}
    return environ(path, **headers) | said


@pytest.mark.parametrize("header", ["x-request-start", None])
def test_a_server_with_one_thread_where_more_are_said_is_in_the_log(
    header: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    middleware = LoadSheddingMiddleware(ok, threads=8, queue_time_header=header)
    call(middleware, of_a_sync_worker("/healthz"))
    assert warnings(caplog) == []
    for _ in range(200):
        call(middleware, of_a_sync_worker())
    (line,) = warnings(caplog)
    assert line.startswith("threads=8, but the server has one thread: nothing is refused")
    assert line.endswith("(for gunicorn: --threads 8)")
    assert ("x-request-start" in line) == (header is not None)


def test_a_server_with_threads_is_not(caplog: pytest.LogCaptureFixture) -> None:
    middleware = LoadSheddingMiddleware(ok, threads=8)
    for threads in (True, False):
        call(middleware, of_a_sync_worker() | {"wsgi.multithread": threads})
    # Nor is the test client of Flask, which has one thread and is no server.
    call(LoadSheddingMiddleware(ok, threads=8), environ() | {"wsgi.multithread": False})
    assert warnings(caplog) == []


def test_one_thread_and_nobody_tells_of_the_queue_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    middleware = LoadSheddingMiddleware(ok, threads=1)
    for _ in range(99):
        call(middleware, of_a_sync_worker())
        call(middleware, of_a_sync_worker("/healthz"))
    assert warnings(caplog) == []
    for _ in range(200):
        call(middleware, of_a_sync_worker())
    assert warnings(caplog) == [
        "none of 100 requests had the header x-request-start: without it, and with one thread, "
        "nothing is ever refused"
    ]


def test_one_thread_and_a_proxy_that_tells_is_not(caplog: pytest.LogCaptureFixture) -> None:
    middleware = LoadSheddingMiddleware(ok, threads=1)
    call(middleware, of_a_sync_worker(x_request_start="t=0"))
    for _ in range(200):
        call(middleware, of_a_sync_worker())
    assert warnings(caplog) == []
