"""What a call by a destination does: how often it is tried, for how long it waits, how it ends."""

from __future__ import annotations

import asyncio
import email.utils
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import (
    AdaptiveThrottle,
    DeadlineExceeded,
    Destination,
    Gate,
    GradientLimiter,
    ManualClock,
    Outcome,
    Reason,
    Rejected,
    RetryBudget,
    SemaphoreLimiter,
    TokenBucket,
    TokenRetryBudget,
    context,
)
from virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from virtual_time import VirtualLoop

SERVICE = 0.05


def answer(status: int = 200, **headers: str) -> Any:
    pairs = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(status_code=status, headers=pairs)


class Backend:
    """Answers by what it is given, one after the other, and then by the last of it."""

    def __init__(self, *answers: Any, service: float = SERVICE) -> None:
        self.answers = list(answers)
        self.service = service
        self.calls: list[float] = []

    async def ask(self) -> Any:
        self.calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.service)
        return self.next()

    def ask_sync(self) -> Any:
        self.calls.append(0.0)
        return self.next()

    def next(self) -> Any:
        one = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(one, BaseException):
            raise one
        return one


def generous() -> RetryBudget:
    return RetryBudget(1.0, floor=1000.0)


def made(**options: Any) -> Destination:
    options.setdefault("budget", generous())
    return Destination("payments", **options)


def in_virtual_time(main: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    async def run(loop: VirtualLoop) -> None:
        await main(loop)

    run_in_virtual_time(run)


def assert_idle(destination: Destination) -> None:
    limiter: Any = destination.limiter
    assert (limiter.in_flight, limiter.waiting) == (0, 0)
    assert destination.throttle.snapshot().in_flight == 0
    budget: Any = destination.budget.snapshot()
    assert budget.held == 0


def test_a_call_returns_what_the_function_returns() -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination = made()

        async def add(a: int, *, b: int) -> int:
            assert destination.limiter.in_flight == 1  # type: ignore[attr-defined]
            return a + b

        assert await destination.call(add, 1, b=2) == 3
        assert destination.snapshot().limiter.outcomes == {Outcome.SUCCESS: 1}
        assert destination.snapshot().throttle.outcomes == {Outcome.SUCCESS: 1}
        assert_idle(destination)

    in_virtual_time(main)


def test_what_is_made_by_default_follows_the_latency() -> None:
    destination = Destination("payments")
    assert isinstance(destination.limiter, GradientLimiter)
    assert destination.limiter.name == destination.throttle.name == "payments"
    assert (destination.attempts, destination.attempt_timeout) == (3, None)
    assert isinstance(Destination("a", limit=4).limiter, SemaphoreLimiter)
    mine = SemaphoreLimiter(3)
    assert Destination("a", limit=mine).limiter is mine


# Retries


@pytest.mark.parametrize(
    "bad", [answer(503), answer(429), TimeoutError(), ConnectionRefusedError()], ids=repr
)
def test_what_is_overload_is_tried_again(bad: Any) -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(), Backend(bad, bad, answer())
        assert (await destination.call(backend.ask)).status_code == 200
        assert len(backend.calls) == 3
        outcomes = destination.snapshot().limiter.outcomes
        assert outcomes == {Outcome.OVERLOAD: 2, Outcome.SUCCESS: 1}
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("final", [answer(404), answer(500), ValueError("mine")], ids=repr)
def test_what_is_no_overload_is_not_tried_again(final: Any) -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(), Backend(final, answer())
        if isinstance(final, Exception):
            with pytest.raises(ValueError, match="mine") as raised:
                await destination.call(backend.ask)
            assert raised.value is final
        else:
            assert await destination.call(backend.ask) is final
        assert len(backend.calls) == 1
        assert_idle(destination)

    in_virtual_time(main)


def test_the_last_attempt_ends_as_it_ends() -> None:
    async def main(_loop: VirtualLoop) -> None:
        last = answer(503)
        destination, backend = made(attempts=2), Backend(answer(503), last)
        assert await destination.call(backend.ask) is last
        error = TimeoutError("slow")
        destination, backend = made(attempts=2), Backend(TimeoutError(), error)
        with pytest.raises(TimeoutError) as raised:
            await destination.call(backend.ask)
        assert raised.value is error
        assert len(backend.calls) == 2
        assert_idle(destination)

    in_virtual_time(main)


def test_our_own_refusals_are_never_tried_again_nor_held_against_the_backend() -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination = made()
        gate = Gate(1, max_waiting=0)
        calls = []

        async def refused() -> None:
            calls.append(1)
            gate.try_acquire(deadline=0).__enter__()

        with pytest.raises(Rejected):
            await destination.call(refused)
        assert len(calls) == 1
        assert destination.snapshot().throttle.outcomes == {Outcome.IGNORED: 1}
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("kind", ["requests", "tokens"])
def test_retries_are_of_the_budget(kind: str) -> None:
    async def main(_loop: VirtualLoop) -> None:
        budget: Any = RetryBudget(0.1, floor=0)
        if kind == "tokens":
            budget = TokenRetryBudget(10, 0.1)
        destination = made(budget=budget, throttle=AdaptiveThrottle(max_rejection=0))
        backend = Backend(answer(503))
        for _ in range(100):
            await destination.call(backend.ask)
        # Of ten tokens each failure takes one, and above five of them there is a retry: two for the
        # first call, one for the second.
        assert len(backend.calls) == (110 if kind == "requests" else 103)
        assert_idle(destination)

    in_virtual_time(main)


def test_between_attempts_it_waits_at_random_and_longer_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []

    async def main(loop: VirtualLoop) -> None:
        for _ in range(200):
            destination, backend = made(backoff=1.0), Backend(answer(503))
            await destination.call(backend.ask)
            first, second, third = backend.calls
            drawn.append((second - first - SERVICE, third - second - SERVICE))
        assert loop.time() > 0

    in_virtual_time(main)
    firsts, seconds = zip(*drawn, strict=True)
    assert all(0 <= wait < 1.0 for wait in firsts)
    assert all(0 <= wait < 2.0 for wait in seconds)
    # Uniform: of 200 the mean is within 5 standard errors.
    assert sum(firsts) / 200 == pytest.approx(0.5, abs=5 * 0.289 / 200**0.5)
    assert sum(seconds) / 200 == pytest.approx(1.0, abs=5 * 0.577 / 200**0.5)


# Retry-After


@pytest.mark.parametrize("form", ["seconds", "date", "exception"])
def test_nobody_sends_before_the_backend_said(form: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        value = "5"
        if form == "date":
            value = email.utils.formatdate(time.time() + 5.9, usegmt=True)
        busy: Any = answer(429, retry_after=value)
        if form == "exception":
            error = ConnectionRefusedError()
            error.response = busy  # type: ignore[attr-defined]
            busy = error
        destination, backend = made(limit=100), Backend(busy, answer())
        first = asyncio.create_task(destination.call(backend.ask))
        await asyncio.sleep(2 * SERVICE)
        at = loop.time()
        others = [asyncio.create_task(destination.call(backend.ask)) for _ in range(20)]
        await asyncio.sleep(4)
        assert len(backend.calls) == 1
        state = destination.snapshot()
        assert (state.waiting, state.pushback > 0) == (21, True)
        assert "nothing is sent for" in str(state)
        await asyncio.gather(first, *others)
        least = 4.5 if form == "date" else 5.0
        assert all(least - SERVICE <= called - at + SERVICE for called in backend.calls[1:])
        assert backend.calls[-1] - at < 8
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("value", ["soon", "", "-1", "1e9", "9" * 40, "Wed, 99 Foo", "\u0661"])
def test_a_malformed_retry_after_is_passed_over(value: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        destination, backend = made(backoff=0.0), Backend(answer(503, retry_after=value), answer())
        await destination.call(backend.ask)
        assert loop.time() == pytest.approx(2 * SERVICE)

    in_virtual_time(main)


def test_no_more_than_the_most_is_believed() -> None:
    async def main(loop: VirtualLoop) -> None:
        busy = answer(503, retry_after="86400")
        destination, backend = made(max_retry_after=10.0), Backend(busy, answer())
        await destination.call(backend.ask)
        assert 10 < loop.time() < 12

    in_virtual_time(main)


def test_several_that_say_the_same_do_not_add_up() -> None:
    async def main(loop: VirtualLoop) -> None:
        busy = answer(503, retry_after="5")
        destination = made(limit=100, throttle=AdaptiveThrottle(max_rejection=0))
        backends = [Backend(busy, answer()) for _ in range(30)]
        await asyncio.gather(*(destination.call(backend.ask) for backend in backends))
        assert 5 < loop.time() < 7

    in_virtual_time(main)


def test_a_retry_after_of_what_is_no_overload_holds_nobody() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination, backend = made(), Backend(answer(200, retry_after="5"), answer())
        await destination.call(backend.ask)
        await destination.call(backend.ask)
        assert loop.time() == pytest.approx(2 * SERVICE)

    in_virtual_time(main)


# Deadlines


def test_who_cannot_be_sent_in_time_is_refused_at_once() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination, backend = made(), Backend(answer())
        destination.push_back(10)
        with context.deadline(5), pytest.raises(DeadlineExceeded) as raised:
            await destination.call(backend.ask)
        assert loop.time() == 0
        assert raised.value.reason is Reason.DEADLINE
        assert 10 <= (raised.value.retry_after or 0) < 12
        assert "destination 'payments' rejected" in str(raised.value)
        with context.deadline(0), pytest.raises(DeadlineExceeded):
            await destination.call(backend.ask)
        assert backend.calls == []
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("where", ["limiter", "gate", "rate", "token rate"])
def test_who_waits_for_too_long_is_refused_and_takes_nothing(where: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        rate, tokens = TokenBucket(100, burst=5), TokenBucket(100, burst=50)
        limit: Any = Gate(1, name="own") if where == "gate" else 1
        destination = made(limit=limit, rate=rate, token_rate=tokens)
        held = None
        if where in {"limiter", "gate"}:
            limiter: Any = limit if where == "gate" else destination.limiter
            held = limiter.try_acquire()
        elif where == "rate":
            rate.pause(60)
        else:
            tokens.pause(60)

        @destination.guard(tokens=lambda: 10)
        async def ask() -> None:
            raise AssertionError

        before = (rate.tokens, tokens.tokens)
        with context.deadline(0.5), pytest.raises(Rejected) as raised:
            await ask()
        assert raised.value.reason in {Reason.DEADLINE, Reason.WAIT}
        assert loop.time() <= 0.51
        if where != "rate":
            # It goes back, also where the next step fails.
            assert rate.tokens == pytest.approx(before[0])
        if held is not None:
            held.release()
        assert destination.throttle.snapshot().requests == 0
        assert_idle(destination)

    in_virtual_time(main)


def test_a_retry_that_would_come_too_late_is_none() -> None:
    async def main(loop: VirtualLoop) -> None:
        busy = answer(503, retry_after="5")
        destination, backend = made(), Backend(busy, answer())
        with context.deadline(2):
            assert await destination.call(backend.ask) is busy
        assert loop.time() == pytest.approx(SERVICE)
        assert destination.budget.snapshot().admitted == 0

    in_virtual_time(main)


def test_an_attempt_ends_after_its_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination = made(attempt_timeout=1.0, attempts=2, backoff=0.0)
        backend = Backend(answer(), service=10)
        with pytest.raises(TimeoutError):
            await destination.call(backend.ask)
        assert loop.time() == pytest.approx(2.0, abs=0.02)
        assert destination.snapshot().limiter.outcomes == {Outcome.OVERLOAD: 2}
        with context.deadline(0.3), pytest.raises(TimeoutError):
            await destination.call(backend.ask)
        assert loop.time() == pytest.approx(2.3, abs=0.02)
        assert_idle(destination)

    in_virtual_time(main)


def test_what_is_called_knows_how_long_it_may_take() -> None:
    async def main(_loop: VirtualLoop) -> None:
        seen: list[float | None] = []

        async def ask() -> None:
            seen.append(context.remaining())

        await made().call(ask)
        await made(attempt_timeout=2.0).call(ask)
        with context.deadline(1.0):
            await made(attempt_timeout=2.0).call(ask)
            await made().call(ask)
        assert seen == [None, *(pytest.approx(left) for left in (2.0, 1.0, 1.0))]

    in_virtual_time(main)


# Waiting


def test_callers_are_slowed_down_to_the_limit() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination, backend = made(limit=2), Backend(answer())
        await asyncio.gather(*(destination.call(backend.ask) for _ in range(20)))
        assert loop.time() == pytest.approx(10 * SERVICE)
        assert_idle(destination)

    in_virtual_time(main)


def test_each_attempt_takes_a_token_of_the_rate() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination = made(rate=TokenBucket(10, burst=1), backoff=0.0)
        backend = Backend(answer(503), answer(503), answer(), service=0.0)
        await destination.call(backend.ask)
        await destination.call(backend.ask)
        assert loop.time() == pytest.approx(0.3)

    in_virtual_time(main)


def test_tokens_are_estimated_and_settled() -> None:
    async def main(_loop: VirtualLoop) -> None:
        bucket = TokenBucket(1e-6, burst=1000)
        destination = made(token_rate=bucket, attempts=1)

        @destination.guard(
            operation="complete",
            tokens=lambda prompt, **_: len(prompt),
            settle=lambda result: result.used,
        )
        async def complete(prompt: str, *, then: Any) -> Any:
            assert prompt
            if isinstance(then, Exception):
                raise then
            return then

        good = answer()
        good.used = 30
        await complete("x" * 100, then=good)
        assert bucket.tokens == pytest.approx(970, abs=0.01)
        await complete("x" * 100, then=answer(429))
        assert bucket.tokens == pytest.approx(970, abs=0.01)
        with pytest.raises(TimeoutError):
            # Nobody knows what became of it.
            await complete("x" * 100, then=TimeoutError())
        assert bucket.tokens == pytest.approx(870, abs=0.01)
        assert_idle(destination)

    in_virtual_time(main)


def test_a_throttled_call_is_not_sent() -> None:
    async def main(_loop: VirtualLoop) -> None:
        throttle = AdaptiveThrottle(min_requests=0)
        destination = made(throttle=throttle, attempts=1)
        backend = Backend(answer(503), service=0.0)
        reasons = []
        for _ in range(300):
            try:
                await destination.call(backend.ask)
            except Rejected as error:
                reasons.append(error.reason)
        assert set(reasons) == {Reason.THROTTLED}
        assert len(reasons) + len(backend.calls) == 300
        assert len(reasons) > 200
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1, 0.3, 1.0, 6.0])
def test_who_is_cancelled_leaves_nothing_behind(after: float) -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination = made(limit=1, backoff=1.0, rate=TokenBucket(1000, burst=1000))
        backend = Backend(answer(503), answer(503, retry_after="5"), answer())
        tasks = [asyncio.create_task(destination.call(backend.ask)) for _ in range(4)]
        await asyncio.sleep(after)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert_idle(destination)
        assert (await destination.call(backend.ask)).status_code in {200, 503}
        assert_idle(destination)

    in_virtual_time(main)


# In threads


def test_a_thread_does_the_same() -> None:
    clock = ManualClock()
    destination = made(clock=clock, backoff=0.0, limit=1)
    backend = Backend(answer(503), ConnectionRefusedError(), answer())
    assert destination.call_sync(backend.ask_sync).status_code == 200
    assert len(backend.calls) == 3

    @destination.guard()
    def guarded(a: int) -> int:
        assert destination.limiter.in_flight == 1  # type: ignore[attr-defined]
        return a

    assert guarded(4) == 4
    destination.push_back(10)
    with context.deadline(1), pytest.raises(DeadlineExceeded):
        guarded(4)
    assert_idle(destination)


def test_a_guarded_function_stays_what_it_is() -> None:
    destination = made()

    @destination.guard()
    async def one(a: int) -> int:
        """Say a."""
        return a

    @destination.guard()
    def other(a: int) -> int:
        return a

    assert asyncio.iscoroutinefunction(one)
    assert not asyncio.iscoroutinefunction(other)
    assert (one.__name__, one.__doc__) == ("one", "Say a.")
    with pytest.raises(TypeError, match="generator function"):
        destination.guard()(lambda: (yield))


# What goes wrong


def test_a_classifier_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)

    async def main(_loop: VirtualLoop) -> None:
        def classify(_: object) -> Outcome:
            raise KeyError

        destination, backend = made(classify=classify), Backend(answer(503))
        assert (await destination.call(backend.ask)).status_code == 503
        assert len(backend.calls) == 1
        assert destination.snapshot().limiter.outcomes == {Outcome.IGNORED: 1}
        assert_idle(destination)

    in_virtual_time(main)
    assert [type(one.exc_value) for one in reported] == [KeyError]


@pytest.mark.parametrize("wrong", [KeyError(), float("nan"), None, 1e12])
def test_a_settlement_that_fails_is_reported_and_loses_nothing(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)

    def settle(_result: Any) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    async def main(_loop: VirtualLoop) -> None:
        bucket = TokenBucket(1e-6, burst=10)
        destination = made(token_rate=bucket)

        @destination.guard(tokens=lambda: 4, settle=settle)
        async def ask() -> Any:
            return answer()

        assert (await ask()).status_code == 200
        assert bucket.tokens == pytest.approx(6, abs=0.01)
        assert_idle(destination)

    in_virtual_time(main)
    assert len(reported) == 1


def test_a_limiter_of_ones_own_is_held() -> None:
    held: list[str] = []

    class Mine:
        def try_acquire(self, cost: int = 1, /) -> Any:
            raise NotImplementedError(cost)

        def acquire(self, cost: int = 1, /) -> Any:
            assert cost == 1
            return self

        def __await__(self) -> Any:
            held.append("taken")
            yield from ()
            return self

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            held.append("given back")

    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(limit=Mine()), Backend(answer())
        await destination.call(backend.ask)
        assert held == ["taken", "given back"]
        assert destination.snapshot().limiter is None

    in_virtual_time(main)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"attempts": 0}, ValueError, "attempts must be an integer from 1 to 100, got 0"),
        ({"attempts": True}, TypeError, "attempts must be an integer"),
        ({"attempts": 2.0}, TypeError, "attempts must be an integer"),
        ({"attempt_timeout": 0}, ValueError, "attempt_timeout must be a number of seconds above 0"),
        ({"attempt_timeout": float("nan")}, ValueError, "attempt_timeout must be"),
        ({"attempt_timeout": 4000}, ValueError, "attempt_timeout must be a number of seconds"),
        ({"attempt_timeout": "1"}, TypeError, "attempt_timeout must be"),
        ({"backoff": -1}, ValueError, "backoff must be a number of seconds from 0 to 3600"),
        ({"backoff": "1"}, TypeError, "backoff must be"),
        ({"max_retry_after": -1}, ValueError, "max_retry_after must be"),
        ({"max_retry_after": None}, TypeError, "max_retry_after must be"),
        ({"rate": 5}, TypeError, "rate must be a TokenBucket, or None, got 5"),
        ({"token_rate": 5}, TypeError, "token_rate must be a TokenBucket"),
        ({"throttle": 5}, TypeError, "throttle must be an AdaptiveThrottle"),
        ({"budget": 0.1}, TypeError, "budget must be a RetryBudget"),
        ({"classify": 5}, TypeError, "classify must be a callable"),
        ({"limit": 0}, ValueError, "limit must be"),
        ({"limit": "5"}, TypeError, "limit must be"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_refused_by_name(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Destination("a", **options)


def test_what_a_guard_cannot_be_told_is_refused_by_name() -> None:
    destination = Destination("a")
    with pytest.raises(ValueError, match="tokens needs a destination with a token_rate"):
        destination.guard(tokens=len)
    with pytest.raises(TypeError, match="operation must be a string, or None, got 5"):
        destination.guard(operation=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a string, got 5"):
        Destination(5)  # type: ignore[arg-type]
    for seconds in (-1, float("nan"), 3601):
        with pytest.raises(ValueError, match="seconds must be a number of seconds"):
            destination.push_back(seconds)


# What others do meanwhile


@pytest.mark.parametrize("line", ["limiter", "rate"])
def test_who_is_in_line_already_waits_for_a_retry_after_too(line: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        options: dict[str, Any] = {"limit": 1}
        if line == "rate":
            options = {"limit": 100, "rate": TokenBucket(20, burst=1)}
        destination = made(attempts=1, throttle=AdaptiveThrottle(max_rejection=0), **options)
        backend = Backend(answer(429, retry_after="30"), answer())
        tasks = [asyncio.create_task(destination.call(backend.ask)) for _ in range(20)]
        await asyncio.sleep(10)
        # With a rate, one more was on its way when the answer came.
        assert len(backend.calls) <= (1 if line == "limiter" else 2)
        await asyncio.gather(*tasks)
        assert all(called >= 30 for called in backend.calls[2:])
        assert loop.time() < 36
        assert_idle(destination)

    in_virtual_time(main)


def test_callers_in_a_hurry_say_nothing_about_the_backend() -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(limit=100, attempts=1), Backend(answer())

        async def hurry() -> None:
            with context.deadline(SERVICE / 5):
                await destination.call(backend.ask)

        hurried = await asyncio.gather(*(hurry() for _ in range(60)), return_exceptions=True)
        assert all(isinstance(error, TimeoutError) for error in hurried)
        patient = await asyncio.gather(*(destination.call(backend.ask) for _ in range(50)))
        assert {one.status_code for one in patient} == {200}
        assert destination.throttle.snapshot().outcomes == {Outcome.SUCCESS: 50}
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("first", [answer(503), TimeoutError("first")], ids=repr)
def test_a_retry_that_is_refused_leaves_the_answer_that_there_is(first: Any) -> None:
    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(1, max_waiting=0)
        destination, backend = made(limit=gate, backoff=1.0), Backend(first, answer())
        task = asyncio.create_task(destination.call(backend.ask))
        while len(backend.calls) == 0 or gate.in_flight:
            await asyncio.sleep(0)
            if backend.calls:
                await asyncio.sleep(SERVICE / 10)
        with gate.try_acquire():
            if isinstance(first, Exception):
                with pytest.raises(TimeoutError, match="first"):
                    await task
            else:
                assert await task is first
        assert len(backend.calls) == 1
        assert_idle(destination)

    in_virtual_time(main)


def test_what_waits_for_another_of_ours_is_not_held_against_the_backend() -> None:
    async def main(_loop: VirtualLoop) -> None:
        inner = Destination("inner", limit=1)
        limiter: Any = inner.limiter
        destination = made(attempt_timeout=0.5)
        calls = []

        async def ask() -> None:
            calls.append(1)
            await inner.call(asyncio.sleep, 0)

        with limiter.try_acquire(), pytest.raises(DeadlineExceeded):
            await destination.call(ask)
        assert len(calls) == 1
        assert destination.throttle.snapshot().outcomes == {Outcome.IGNORED: 1}
        assert_idle(destination)

    in_virtual_time(main)


def test_a_fallback_is_judged_by_its_own_end() -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(), Backend(TimeoutError(), answer())
        try:
            Gate(1, max_waiting=0).try_acquire(deadline=0).__enter__()
        except Rejected:
            assert (await destination.call(backend.ask)).status_code == 200
        assert destination.throttle.snapshot().outcomes == {
            Outcome.OVERLOAD: 1,
            Outcome.SUCCESS: 1,
        }

    in_virtual_time(main)


def test_tokens_that_waited_for_a_permit_are_not_sent_all_at_once() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination = made(limit=20, rate=TokenBucket(20, burst=1), attempts=1)
        limiter: Any = destination.limiter
        stalled = [limiter.try_acquire() for _ in range(20)]
        backend = Backend(answer(), service=0.0)
        tasks = [asyncio.create_task(destination.call(backend.ask)) for _ in range(40)]
        await asyncio.sleep(4)
        for permit in stalled:
            permit.release()
        await asyncio.sleep(0.1)
        assert len(backend.calls) <= 4
        await asyncio.gather(*tasks)
        assert loop.time() == pytest.approx(6, abs=0.2)
        assert_idle(destination)

    in_virtual_time(main)


@pytest.mark.parametrize("bucket", ["rate", "token_rate"])
def test_who_cannot_get_tokens_in_time_hears_at_once_and_when(bucket: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        slow = TokenBucket(1, per=60, burst=1)
        assert slow.try_take()
        destination = made(**{bucket: slow})
        guard = destination.guard(tokens=lambda: 1) if bucket == "token_rate" else None

        async def ask() -> None:
            raise AssertionError

        with context.deadline(0.5), pytest.raises(DeadlineExceeded) as raised:
            await (guard(ask)() if guard else destination.call(ask))
        assert loop.time() == 0
        assert raised.value.retry_after == pytest.approx(60)

    in_virtual_time(main)


def test_a_retry_after_of_nothing_holds_nobody() -> None:
    async def main(loop: VirtualLoop) -> None:
        busy = answer(429, retry_after="0")
        destination, backend = made(backoff=0.0), Backend(busy, answer())
        await destination.call(backend.ask)
        assert loop.time() == pytest.approx(2 * SERVICE)

    in_virtual_time(main)


def test_what_must_not_be_done_twice_is_not() -> None:
    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(), Backend(answer(503))
        await destination.guard(attempts=1)(backend.ask)()
        assert len(backend.calls) == 1
        with pytest.raises(ValueError, match="attempts must be"):
            destination.guard(attempts=0)

    in_virtual_time(main)


@pytest.mark.parametrize("way", ["aclose", "close", "fails"])
def test_a_response_that_is_not_used_is_closed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    closed: list[str] = []

    async def aclose() -> None:
        closed.append("aclose")

    def close() -> None:
        closed.append("close")
        if way == "fails":
            raise OSError

    async def main(_loop: VirtualLoop) -> None:
        busy, good = answer(503), answer()
        busy.close = good.close = close
        if way == "aclose":
            busy.aclose = good.aclose = aclose
        destination, backend = made(), Backend(busy, busy, good)
        assert await destination.call(backend.ask) is good
        assert closed == ["aclose" if way == "aclose" else "close"] * 2
        assert_idle(destination)

    in_virtual_time(main)


def test_a_plain_call_that_would_have_to_be_awaited_is_refused() -> None:
    destination = made()

    async def inner() -> None:
        raise AssertionError

    def plain() -> Any:
        return inner()

    with pytest.raises(TypeError, match="has returned a coroutine"):
        destination.call_sync(plain)
    with pytest.raises(TypeError, match="has returned a coroutine"):
        destination.guard()(plain)()
    assert_idle(destination)


class Hostile(Exception):
    status = 429

    class headers:  # noqa: N801
        @staticmethod
        def get(name: str) -> str:
            raise KeyError(name)


def test_a_hostile_answer_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)

    async def main(_loop: VirtualLoop) -> None:
        destination, backend = made(attempts=1), Backend(Hostile())
        with pytest.raises(Hostile) as raised:
            await destination.call(backend.ask)
        assert raised.value is not None
        assert_idle(destination)

    in_virtual_time(main)
    assert len(reported) == 1


@pytest.mark.parametrize("settled", [False, True])
def test_a_refusal_that_is_raised_costs_nothing(settled: bool) -> None:
    async def main(_loop: VirtualLoop) -> None:
        bucket = TokenBucket(1e-6, burst=1000)
        destination = made(token_rate=bucket, attempts=1)
        error: Any = ConnectionError("429")
        error.response = answer(429)

        @destination.guard(tokens=lambda: 500, settle=(lambda _: 1) if settled else None)
        async def ask() -> None:
            raise error

        with pytest.raises(ConnectionError):
            await ask()
        assert bucket.tokens == pytest.approx(1000, abs=0.01)

    in_virtual_time(main)


def test_a_price_may_be_known_only_afterwards() -> None:
    async def main(_loop: VirtualLoop) -> None:
        bucket = TokenBucket(1e-6, burst=1000)
        destination = made(token_rate=bucket)

        @destination.guard(settle=lambda _: 300)
        async def ask() -> Any:
            return answer()

        await ask()
        assert bucket.tokens == pytest.approx(700, abs=0.01)

    in_virtual_time(main)


def test_a_limit_and_a_rate_that_are_as_much_do_not_stand_in_each_others_way() -> None:
    async def main(loop: VirtualLoop) -> None:
        destination = made(limit=5, rate=TokenBucket(5 / SERVICE, burst=1), attempts=1)
        backend = Backend(answer())
        await asyncio.gather(*(destination.call(backend.ask) for _ in range(200)))
        assert 2.0 <= loop.time() < 2.5
        assert_idle(destination)

    in_virtual_time(main)


def test_to_wait_for_tokens_is_no_latency() -> None:
    async def main(_loop: VirtualLoop) -> None:
        gate = Gate(10)
        destination = made(limit=gate, rate=TokenBucket(1, burst=1), attempts=1)
        backend = Backend(answer())
        for _ in range(4):
            await destination.call(backend.ask)
        assert gate.snapshot().service_mean == pytest.approx(SERVICE)

    in_virtual_time(main)


def test_processes_do_not_come_back_at_the_same_moment() -> None:
    held = []
    for _ in range(50):
        destination = Destination("a", clock=ManualClock())
        destination.push_back(10)
        held.append(destination.snapshot().pushback)
    assert all(10 <= seconds <= 11 for seconds in held)
    assert max(held) - min(held) > 0.5
