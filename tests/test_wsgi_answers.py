"""What answers instead of the application, where it is a generator or the like."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

import pytest

from sluicegate import Gate
from sluicegate.wsgi import LoadSheddingMiddleware
from wsgi_calls import call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sluicegate.wsgi import Environ, StartResponse


def ok(environ: Environ, start_response: StartResponse) -> list[bytes]:
    start_response("200 OK", [])
    return [b"ok"]


@pytest.fixture(name="full")
def full_gate() -> Iterator[Gate]:
    gate = Gate(1, max_waiting=0)
    with gate.try_acquire():
        yield gate


class Steps:
    """An answer that begins late and notes what is done with it."""

    def __init__(self, *steps: bytes | Exception) -> None:
        self.steps = list(steps)
        self.done: list[str] = []
        self.start_response: StartResponse | None = None

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self.start_response = start_response
        return self

    def __iter__(self) -> Self:
        self.done.append("iter")
        return self

    def __next__(self) -> bytes:
        self.done.append("next")
        if not self.steps:
            raise StopIteration
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        assert self.start_response is not None
        self.start_response("429 Later", [])
        return step

    def close(self) -> None:
        self.done.append("close")


def test_respond_may_return_what_begins_late(full: Gate) -> None:
    answer = Steps(b"la", b"ter")
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full, respond=lambda *_: answer)
    assert call(middleware) == (429, {}, b"later")
    assert answer.done == ["iter", "next", "next", "next", "close"]


def test_what_fails_before_it_begins_is_closed(full: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: reported.append(it.exc_type))
    answer = Steps(LookupError())
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full, respond=lambda *_: answer)
    assert call(middleware).status == 503
    assert answer.done == ["iter", "next", "close"]
    assert reported == [LookupError]
    # What has begun is the server's, which closes it.
    answer = Steps(b"part", LookupError())
    with pytest.raises(LookupError):
        call(middleware)
    assert answer.done == ["iter", "next", "next", "close"]


NO_PARTS: dict[str, bytes] = {}


def fails_between(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
    start_response("200 OK", [])
    yield NO_PARTS["first"]


@pytest.mark.parametrize("option", ["degrade", "respond"])
def test_one_that_fails_after_its_status_is_the_servers_and_closed(full: Gate, option: str) -> None:
    options: dict[str, Any] = {option: lambda *_: fails_between}
    middleware = LoadSheddingMiddleware(ok, threads=4, gate=full, **options)
    with pytest.raises(KeyError):
        call(middleware)
    assert middleware.degraded.in_flight == 0
