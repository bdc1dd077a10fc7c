"""The WSGI middleware gives every permit back: exactly once, when the response is closed."""

from __future__ import annotations

import gc
import io
import random
import threading
import time
import wsgiref.util
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from sluicegate import Gate, Outcome
from sluicegate.testing import assert_idle
from sluicegate.wsgi import PERMIT, LoadSheddingMiddleware, Rule
from wsgi_calls import call, environ

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate.wsgi import Environ, StartResponse


def nothing(*_: object) -> None: ...


class Parts:
    """A response that counts what is done with it."""

    def __init__(self, *parts: bytes | BaseException) -> None:
        self.parts = iter(parts)
        self.closed = 0

    def __iter__(self) -> Parts:
        return self

    def __next__(self) -> bytes:
        part = next(self.parts)
        if isinstance(part, BaseException):
            raise part
        return part

    def close(self) -> None:
        self.closed += 1


class App:
    """Answers with one response, in one status."""

    def __init__(self, response: Any, status: str = "200 OK") -> None:
        self.response = response
        self.status = status
        self.gate = Gate(2, max_waiting=0)
        self.shedding = LoadSheddingMiddleware(self.serve, threads=4, gate=self.gate)

    def serve(self, environ: Environ, start_response: StartResponse) -> Any:
        start_response(self.status, [])
        if isinstance(self.response, BaseException):
            raise self.response
        return self.response

    def __call__(self, request: Environ | None = None) -> Any:
        return self.shedding(environ() if request is None else request, nothing)

    def ended_as(self) -> Outcome:
        """Say how the only permit was given back."""
        assert_idle(self.gate)
        counts = {outcome: n for outcome, n in self.gate.snapshot().outcomes.items() if n}
        assert list(counts.values()) == [1], counts
        assert self.gate.snapshot().stray_releases == 0
        return Outcome(next(iter(counts)))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("200 OK", Outcome.SUCCESS),
        ("204 No Content", Outcome.SUCCESS),
        ("302 Found", Outcome.SUCCESS),
        ("404 Not Found", Outcome.IGNORED),
        ("429 Too Many Requests", Outcome.IGNORED),
        ("500 Internal Server Error", Outcome.IGNORED),
        ("503 Service Unavailable", Outcome.IGNORED),
        ("504 Gateway Timeout", Outcome.OVERLOAD),
    ],
)
def test_the_status_says_how_it_ended(status: str, outcome: Outcome) -> None:
    app = App([b"a"], status)
    call(app.shedding)
    assert app.ended_as() is outcome


def test_the_permit_is_held_until_the_response_is_closed() -> None:
    parts = Parts(b"a", b"b")
    app = App(parts)
    response = app()
    assert list(response) == [b"a", b"b"]
    assert app.gate.in_flight == 1
    assert parts.closed == 0
    response.close()
    assert parts.closed == 1
    assert app.ended_as() is Outcome.SUCCESS
    response.close()
    assert parts.closed == 1
    assert app.ended_as() is Outcome.SUCCESS


@pytest.mark.parametrize("read", [0, 1])
def test_a_response_that_is_closed_before_its_end_was_cut_off(read: int) -> None:
    parts = Parts(b"a", b"b")
    app = App(parts)
    response = app()
    for _ in range(read):
        next(response)
    response.close()
    assert parts.closed == 1
    assert app.ended_as() is Outcome.IGNORED


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LookupError(), Outcome.IGNORED),
        (TimeoutError(), Outcome.OVERLOAD),
        (SystemExit(), Outcome.IGNORED),
        (KeyboardInterrupt(), Outcome.IGNORED),
    ],
)
def test_an_exception_ends_the_permit(error: BaseException, outcome: Outcome) -> None:
    app = App(error)
    with pytest.raises(type(error)):
        app()
    assert app.ended_as() is outcome

    parts = Parts(b"a", error)
    app = App(parts)
    response = app()
    next(response)
    with pytest.raises(type(error)):
        next(response)
    assert app.ended_as() is outcome
    response.close()
    assert parts.closed == 1
    assert app.ended_as() is outcome


def test_a_close_that_fails_ends_the_permit() -> None:
    class Broken(Parts):
        def close(self) -> None:
            super().close()
            raise TimeoutError

    parts = Broken(b"a")
    app = App(parts)
    response = app()
    assert list(response) == [b"a"]
    with pytest.raises(TimeoutError):
        response.close()
    response.close()
    assert parts.closed == 1
    assert app.ended_as() is Outcome.OVERLOAD


def test_a_start_response_that_raises_ends_the_permit() -> None:
    def refusing(*_: object) -> None:
        raise ConnectionResetError

    app = App([b"a"])
    with pytest.raises(ConnectionResetError):
        app.shedding(environ(), refusing)
    assert app.ended_as() is Outcome.IGNORED


@pytest.mark.parametrize("read", [0, 1])
def test_a_response_that_nobody_closes_ends_with_it(read: int) -> None:
    app = App(Parts(b"a", b"b"))
    request = environ()
    response = app(request)
    for _ in range(read):
        next(response)
    assert app.gate.in_flight == 1
    del response
    gc.collect()
    assert PERMIT in request  # which the server may keep
    assert app.ended_as() is Outcome.IGNORED


def test_what_is_no_response_is_an_error_of_the_application() -> None:
    app = App(None)
    response = app()
    with pytest.raises(TypeError):
        list(response)
    assert app.ended_as() is Outcome.IGNORED


def test_a_generator_is_closed_in_the_context_and_once() -> None:
    def parts() -> Iterator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            ended.append(app.gate.in_flight)

    ended: list[int] = []
    app = App(parts())
    response = app()
    next(response)
    response.close()
    assert ended == [1]
    assert app.ended_as() is Outcome.IGNORED


# -- the protocol is kept ---------------------------------------------------------------


def test_the_server_can_see_how_many_parts_there_are() -> None:
    assert len(App([b"a"])()) == 1
    assert len(App((b"a", b"b"))()) == 2
    assert not hasattr(App(Parts(b"a"))(), "__len__")


def test_a_file_wrapper_stays_what_it_is() -> None:
    class File(io.BytesIO):
        closes = 0

        def close(self) -> None:
            self.closes += 1

    file = File(b"content")
    wrapper = wsgiref.util.FileWrapper(file)
    app = App(wrapper)
    request = environ() | {"wsgi.file_wrapper": wsgiref.util.FileWrapper}
    response = app(request)
    assert response is wrapper
    assert app.gate.in_flight == 1
    response.close()
    response.close()
    assert file.closes == 1
    assert app.ended_as() is Outcome.SUCCESS


def test_a_file_wrapper_that_nobody_closes_ends_with_it() -> None:
    wrapper = wsgiref.util.FileWrapper(io.BytesIO(b"content"))
    app = App(wrapper)
    response = app(environ() | {"wsgi.file_wrapper": wsgiref.util.FileWrapper})
    assert app.gate.in_flight == 1
    app.response = None
    del wrapper, response
    gc.collect()
    assert app.ended_as() is Outcome.IGNORED


def test_a_file_wrapper_that_cannot_be_changed_is_sent_in_parts() -> None:
    class Fixed:
        __slots__ = ("file",)

        def __init__(self, file: Any) -> None:
            self.file = file

        def __iter__(self) -> Any:
            return iter(self.file)

        def close(self) -> None:
            self.file.close()

    file = io.BytesIO(b"content")
    app = App(Fixed(file))
    response = app(environ() | {"wsgi.file_wrapper": Fixed})
    assert list(response) == [b"content"]
    response.close()
    assert file.closed
    assert app.ended_as() is Outcome.SUCCESS


def test_write_and_exc_info_are_those_of_the_server() -> None:
    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        write = start_response("200 OK", [("A", "b")])
        write(b"written")
        info = (LookupError, LookupError(), None)
        assert start_response("500 Internal Server Error", [], info) is write
        assert start_response("504 Gateway Timeout", [], exc_info=info) is write
        return []

    def start_response(*arguments: Any) -> Any:
        calls.append(arguments)
        return write

    calls: list[Any] = []
    written: list[bytes] = []
    write = written.append
    gate = Gate(1)
    shedding = LoadSheddingMiddleware(app, threads=4, gate=gate)
    response = cast("Any", shedding(environ(), start_response))
    assert list(response) == []
    response.close()
    assert [len(arguments) for arguments in calls] == [2, 3, 3]
    assert written == [b"written"]
    assert gate.snapshot().outcomes[Outcome.OVERLOAD] == 1


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_the_application_says_of_its_outcome_counts(outcome: Outcome) -> None:
    app = App(Parts(b"part"))
    request = environ()
    response = app(request)
    request[PERMIT].outcome = outcome
    list(response)
    response.close()
    assert app.ended_as() is outcome


def test_a_stream_ends_after_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        while True:
            yield b"a"

    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rules = [Rule("/events", stream=True, max_lifetime=30)]
    shedding = LoadSheddingMiddleware(app, threads=8, rules=rules)
    response = cast("Any", shedding(environ("/events"), nothing))
    assert [next(response) for _ in range(3)] == [b"a"] * 3
    now[0] = 130.0
    assert list(response) == []
    response.close()
    assert shedding.streams is not None
    assert shedding.streams.in_flight == 0


@pytest.mark.parametrize(
    ("server", "method", "length", "fails"),
    [
        ("gunicorn/27.0.1", "GET", "3", True),
        ("", "GET", "3", True),
        # The whole of it is sent; and there is none.
        ("gunicorn/27.0.1", "GET", "2", False),
        ("gunicorn/27.0.1", "HEAD", "3", False),
        ("gunicorn/27.0.1", "GET", None, False),
        # These close the connection by themselves, and would log a traceback.
        ("waitress", "GET", "3", False),
        ("Granian", "GET", "3", False),
    ],
)
def test_one_that_announced_more_than_it_has_sent_is_not_taken_for_whole(
    server: str, method: str, length: str | None, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [] if length is None else [("content-LENGTH", length)])
        yield b"ab"
        yield b"c"

    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rules = [Rule("/events", stream=True, max_lifetime=30)]
    shedding = LoadSheddingMiddleware(app, threads=8, rules=rules)
    request = {**environ("/events", method), "SERVER_SOFTWARE": server}
    response = cast("Any", shedding(request, nothing))
    assert next(response) == b"ab"
    now[0] = 130.0
    if fails:
        with pytest.raises(BrokenPipeError):
            next(response)
    else:
        assert list(response) == []
    response.close()
    assert shedding.streams is not None
    assert shedding.streams.in_flight == 0


# -- many -------------------------------------------------------------------------------


def test_no_more_than_the_limit_run_at_once_in_threads() -> None:
    running = peak = 0

    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        go.wait(20)
        with lock:
            running -= 1
        start_response("200 OK", [])
        return [b"ok"]

    lock, go, refused = threading.Lock(), threading.Event(), threading.Semaphore(0)
    gate = Gate(3)
    shedding = LoadSheddingMiddleware(app, threads=8, gate=gate)

    def ask(_: int) -> int:
        status = call(shedding).status
        if status == 503:
            refused.release()
        return status

    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(ask, range(20))
        for _ in range(17):
            assert refused.acquire(timeout=20)
        go.set()
        assert sorted(answers) == [200] * 3 + [503] * 17
    assert peak == 3
    assert_idle(gate)


def test_random_servers_and_applications_leave_nothing_in_flight(scale: float) -> None:
    def respond(rng: random.Random) -> Any:
        error = rng.choice([LookupError(), TimeoutError(), OSError()])
        responses: list[Any] = [
            [b"a"],
            Parts(b"a", b"b"),
            Parts(b"a", error),
            (part for part in (b"a", b"b")),
            wsgiref.util.FileWrapper(io.BytesIO(b"a")),
            error,
        ]
        return rng.choice(responses)

    gate = Gate(3)

    def play(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(int(200 * scale)):
            app = App(respond(rng), rng.choice(["200 OK", "404 Not Found", "504 Late"]))
            shedding = LoadSheddingMiddleware(app.serve, threads=4, gate=gate)
            request = environ() | {"wsgi.file_wrapper": wsgiref.util.FileWrapper}
            try:
                response = cast("Any", shedding(request, nothing))
                for _, _part in zip(range(rng.randrange(4)), response, strict=False):
                    continue
                for _ in range(rng.randrange(3)):
                    getattr(response, "close", nothing)()
            except (LookupError, OSError):
                continue

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(play, range(12)))
    gc.collect()
    assert_idle(gate)
    assert gate.snapshot().stray_releases == 0
