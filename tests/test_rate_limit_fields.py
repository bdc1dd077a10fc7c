"""What clients are told of their quotas: what is left, and when to come back."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from quota_support import (
    BODY,
    START,
    answer_ok,
    ask,
    bucket,
    limited,
    must_not_run,
    play,
    request,
)
from sluicegate import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate.asgi import Receive, Scope, Send

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(name="late")
def random_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let what is added to `Retry-After` at random be known."""

    def late(value: float) -> None:
        monkeypatch.setattr("random.random", lambda: value)

    late(0)
    return late


# -- what they are told -----------------------------------------------------------------


def test_a_refusal(late: Callable[[float], None]) -> None:
    clock = ManualClock()
    app = limited(bucket(clock=clock), app=must_not_run)
    assert app.bucket.try_take("ann", 2)
    clock.advance(0.25)
    answer = ask(app)
    assert answer.status == 429
    assert answer.headers == {
        b"content-type": b"application/json",
        b"content-length": b"%d" % len(answer.body),
        b"retry-after": b"1",
        b"cache-control": b"no-store",
        b"ratelimit-policy": b'"users";q=2;w=2',
        b"ratelimit": b'"users";r=0;t=1',
    }
    assert json.loads(answer.body) == {
        "error": "rate_limited",
        "detail": "Too many requests; retry later.",
        "retry_after": 1,
    }


def test_a_refusal_of_head_has_no_body() -> None:
    app = limited(app=must_not_run)
    assert app.bucket.try_take("ann", 2)
    answer = ask(app, request(method="HEAD"))
    assert (answer.status, answer.body) == (429, b"")
    assert int(answer.headers[b"content-length"]) > 0


def test_an_admitted_answer_says_what_is_left() -> None:
    clock = ManualClock()
    app = limited(bucket(0.5, burst=3, clock=clock))
    answer = ask(app)
    assert answer.names == [b"content-length", b"ratelimit-policy", b"ratelimit"]
    assert answer.headers[b"ratelimit-policy"] == b'"users";q=3;w=6'
    assert answer.headers[b"ratelimit"] == b'"users";r=2;t=2'
    assert ask(app).headers[b"ratelimit"] == b'"users";r=1;t=2'
    clock.advance(1.5)
    assert ask(app).headers[b"ratelimit"] == b'"users";r=0;t=1'
    assert ask(app, request(user="bob")).headers[b"ratelimit"] == b'"users";r=2;t=2'
    # The application's own message and list are as they were.
    assert START == {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-length", b"2")],
    }


def test_without_headers_an_admitted_answer_is_the_applications_own() -> None:
    app = limited(headers=False)
    seen: list[Any] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(send)
        await answer_ok(scope, receive, send)

    app.app = note
    assert [play(app, request()) for _ in range(2)] == [[START, BODY]] * 2
    assert "play" in seen[0].__qualname__
    assert ask(app).headers[b"ratelimit"] == b'"users";r=0;t=1'


def test_what_the_application_says_of_other_limits_stays() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = ((b"ratelimit", b'"daily";r=99'), (b"x", b"y"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(BODY)

    inner = limited(bucket(100, name="inner"), app=app)
    messages = play(limited(bucket(name="outer"), app=inner), request())
    told = [value for name, value in messages[0]["headers"] if name == b"ratelimit"]
    assert told == [b'"daily";r=99', b'"inner";r=1;t=1', b'"outer";r=1;t=1']


def test_a_response_without_headers_gets_them() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body", "body": b""})

    assert ask(limited(app=app)).names == [b"ratelimit-policy", b"ratelimit"]


@pytest.mark.parametrize(
    ("rate", "per", "burst", "policy"),
    [
        (100, 60, 100, b"q=100;w=60"),
        (100, 60, 10, b"q=10;w=6"),
        (100, 1, 10, b"q=10;w=1"),
        (3, 1, 10, b"q=10;w=4"),
        (1, 1, 2.9, b"q=2;w=3"),
        (1e9, 1, 1e9, b"q=1000000000;w=1"),
        (1e-6, 1, 1e9, b"q=1000000000;w=999999999999999"),
        (1, 1, 0.5, b"q=0;w=1"),
    ],
)
def test_the_policy_promises_no_more_than_the_rate(
    rate: float, per: float, burst: float, policy: bytes
) -> None:
    quota = bucket(rate, per=per, burst=burst)
    answer = ask(limited(quota, tokens=lambda scope: min(1, burst)))
    assert answer.headers[b"ratelimit-policy"] == b'"users";' + policy
    told = re.fullmatch(rb"q=(\d+);w=(\d+)", policy)
    assert told
    assert int(told[1]) / int(told[2]) <= rate / per * (1 + 1e-9)


def test_without_room_for_one_more_there_is_no_time_for_it() -> None:
    app = limited(bucket(burst=1.5), tokens=lambda scope: 0.25)
    assert ask(app).headers[b"ratelimit"] == b'"users";r=1'
    assert ask(app).headers[b"ratelimit"] == b'"users";r=1'
    assert ask(app).headers[b"ratelimit"] == b'"users";r=0;t=1'


def test_a_policy_that_changes_is_told() -> None:
    app = limited(bucket(1, burst=2))
    assert ask(app).headers[b"ratelimit-policy"] == b'"users";q=2;w=2'
    app.bucket.update(rate=10, burst=5)
    assert ask(app).headers[b"ratelimit-policy"] == b'"users";q=5;w=1'
    app.bucket.update(rate=0.1)
    assert ask(app).headers[b"ratelimit-policy"] == b'"users";q=5;w=50'


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a b", b'"a b"'),
        ('say "hi"', rb'"say \"hi\""'),
        ("back\\slash", rb'"back\\slash"'),
        ("a;q=9,", b'"a;q=9,"'),
    ],
)
def test_the_name_is_a_string_of_a_structured_field(name: str, quoted: bytes) -> None:
    headers = ask(limited(bucket(name=name))).headers
    assert headers[b"ratelimit-policy"] == quoted + b";q=2;w=2"
    assert headers[b"ratelimit"] == quoted + b";r=1;t=1"


# -- when to come back ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "least"), [(0.0, 10), (0.001, 10), (1.0, 9), (1.001, 9), (8.999, 2), (9.5, 1)]
)
def test_nobody_is_told_to_come_too_early(
    passed: float, least: int, late: Callable[[float], None]
) -> None:
    clock = ManualClock()
    app = limited(bucket(0.1, burst=1, clock=clock))
    assert ask(app).status == 200
    clock.advance(passed)
    answer = ask(app)
    seconds = int(answer.headers[b"retry-after"])
    assert seconds == least
    assert answer.headers[b"ratelimit"] == b'"users";r=0;t=%d' % least
    clock.advance(seconds)
    assert ask(app).status == 200


def test_those_who_share_a_key_are_not_told_the_same(late: Callable[[float], None]) -> None:
    app = limited(bucket(0.01, burst=1))
    assert ask(app).status == 200
    told = []
    for value in (0.0, 0.5, 0.999999):
        late(value)
        answer = ask(app)
        told.append(int(answer.headers[b"retry-after"]))
        assert json.loads(answer.body)["retry_after"] == told[-1]
        assert answer.headers[b"ratelimit"] == b'"users";r=0;t=100'
    assert told == [100, 113, 125]


def test_what_is_added_at_random_is_so() -> None:
    app = limited()
    assert app.bucket.try_take("ann", 2)
    told = {ask(app).headers[b"retry-after"] for _ in range(100)}
    assert told == {b"1", b"2"}


def test_the_longest_wait_is_one_that_clients_can_read() -> None:
    app = limited(bucket(1e-6, burst=1e6), tokens=lambda scope: 1e6)
    assert ask(app).status == 200
    answer = ask(app)
    assert answer.headers[b"retry-after"] == b"%d" % (2**31 - 1)
    assert answer.headers[b"ratelimit"] == b'"users";r=0;t=1000000'
