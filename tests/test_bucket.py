"""The token bucket without anybody waiting: what it gives, when, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from sluicegate import KeyedTokenBucket, ManualClock, Reason, TokenBucket

NAN, INF = math.nan, math.inf
KINDS: list[type[TokenBucket | KeyedTokenBucket]] = [TokenBucket, KeyedTokenBucket]


class Unprintable:
    def __repr__(self) -> str:
        raise OSError


class Float:
    def __float__(self) -> float:
        raise OSError


NO_NUMBERS: list[tuple[Any, type[Exception], str]] = [
    (NAN, ValueError, "nan"),
    (INF, ValueError, "inf"),
    (-INF, ValueError, "-inf"),
    (0, ValueError, "0"),
    (-1, ValueError, "-1"),
    (10**400, ValueError, "1000"),
    (Decimal("NaN"), ValueError, "nan"),
    ("64", TypeError, "'64'"),
    (b"64", TypeError, "b'64'"),
    (True, TypeError, "True"),
    (2j, TypeError, "2j"),
    ([4], TypeError, "[4]"),
    (object(), TypeError, "object"),
    (Unprintable(), TypeError, "Unprintable"),
    (Float(), TypeError, "Float"),
]
RATES = [*NO_NUMBERS, (None, TypeError, "None"), (1e-7, ValueError, "1e-7"), (2e9, ValueError, "2")]
PERS = [
    *NO_NUMBERS,
    (None, TypeError, "None"),
    (1e-10, ValueError, "1e-10"),
    (2e9, ValueError, "2000000000"),
]
BURSTS = [*NO_NUMBERS, (1e-10, ValueError, "1e-10"), (1.1e9, ValueError, "1100000000")]
NS = [
    *NO_NUMBERS,
    (None, TypeError, "None"),
    (1e-10, ValueError, "1e-10"),
    (3.000000001, ValueError, "3.000000001"),
]
ADJUSTMENTS = [
    *(row for row in NO_NUMBERS if row[0] not in (0, -1)),
    (None, TypeError, "None"),
    (1.1e9, ValueError, "1100000000"),
    (-1.1e9, ValueError, "-1100000000"),
]


def names_all(error: pytest.ExceptionInfo[Exception], *parts: str) -> None:
    text = str(error.value).lower()
    for part in parts:
        assert part.lower() in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "error", "shown"), RATES)
def test_a_rate_that_cannot_be(kind: Any, value: Any, error: type[Exception], shown: str) -> None:
    with pytest.raises(error) as raised:
        kind(value)
    names_all(raised, "rate must be", "1e-6 to 1e9 tokens a second", shown)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "error", "shown"), PERS)
def test_a_period_that_cannot_be(kind: Any, value: Any, error: type[Exception], shown: str) -> None:
    with pytest.raises(error) as raised:
        kind(1, per=value)
    names_all(raised, "per must be", "seconds", "1e-9 to 1e9", shown)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "error", "shown"), BURSTS)
def test_a_burst_that_cannot_be(kind: Any, value: Any, error: type[Exception], shown: str) -> None:
    with pytest.raises(error) as raised:
        kind(1, burst=value)
    names_all(raised, "burst must be", "1e-9 to 1e9", shown)


def test_a_rate_is_judged_together_with_its_period() -> None:
    assert TokenBucket(1e12, per=1000).rate == 1e12
    assert TokenBucket(1, per=1e6).per == 1e6
    for rate, per in [(1e12, 999), (1, 1.001e6)]:
        with pytest.raises(ValueError, match="rate must be a number that makes 1e-6 to 1e9"):
            TokenBucket(rate, per=per)


@pytest.mark.parametrize("value", [0, -1, 10**7 + 1, 2**70, 1.5, "9", True, None, object()])
def test_a_number_of_keys_that_cannot_be(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="max_keys must be an integer from 1 to 1e7"):
        KeyedTokenBucket(1, max_keys=value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"clock": 5}, {"name": 5}, {"name": b"x"}])
def test_a_clock_or_a_name_that_cannot_be(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(options))} must be"):
        kind(1, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", [{"bursts": 2}, {"limit": 2}])
def test_a_misspelt_parameter(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="argument"):
        kind(3, **arguments)


@pytest.mark.parametrize("method", ["try_take", "take", "take_sync", "retry_after"])
@pytest.mark.parametrize(("value", "error", "shown"), NS)
def test_an_amount_that_cannot_be_changes_nothing(
    method: str, value: Any, error: type[Exception], shown: str
) -> None:
    bucket = TokenBucket(3, clock=ManualClock())
    before = bucket.snapshot()
    with pytest.raises(error) as raised:
        getattr(bucket, method)(value)
    names_all(raised, "n must be a number of tokens from 1e-9 to the burst", shown)
    assert bucket.snapshot() == before


@pytest.mark.parametrize("method", ["try_take", "retry_after"])
@pytest.mark.parametrize(("value", "error", "shown"), NS)
def test_an_amount_for_a_key_that_cannot_be_changes_nothing(
    method: str, value: Any, error: type[Exception], shown: str
) -> None:
    bucket = KeyedTokenBucket(3, clock=ManualClock())
    before = bucket.snapshot()
    with pytest.raises(error) as raised:
        getattr(bucket, method)("key", value)
    names_all(raised, "n must be a number of tokens from 1e-9 to the burst", shown)
    assert bucket.snapshot() == before


def test_an_amount_above_the_burst_names_the_burst() -> None:
    with pytest.raises(ValueError, match=r"got 7 with a burst of 2\.5"):
        TokenBucket(3, burst=2.5).try_take(7)
    with pytest.raises(ValueError, match=r"got 7 with a burst of 2\.5"):
        KeyedTokenBucket(3, burst=2.5).try_take("key", 7)


@pytest.mark.parametrize(("value", "error", "shown"), ADJUSTMENTS)
def test_an_adjustment_that_cannot_be_changes_nothing(
    value: Any, error: type[Exception], shown: str
) -> None:
    bucket = TokenBucket(3, clock=ManualClock())
    before = bucket.snapshot()
    with pytest.raises(error) as raised:
        bucket.adjust(value)
    names_all(raised, "n must be a number of tokens from -1e9 to 1e9", shown)
    assert bucket.snapshot() == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": "1"}, "rate"),
        ({"burst": 0}, "burst"),
        ({"burst": True}, "burst"),
        ({"rate": 5, "burst": NAN}, "burst"),
        ({"rate": INF, "burst": 5}, "rate"),
    ],
)
def test_an_update_that_cannot_be_changes_nothing(
    kind: Any, options: dict[str, Any], name: str
) -> None:
    bucket = kind(3, burst=2, clock=ManualClock())
    before = bucket.snapshot()
    with pytest.raises((ValueError, TypeError), match=f"{name} must be"):
        bucket.update(**options)
    assert bucket.snapshot() == before


@pytest.mark.parametrize("method", ["take", "take_sync"])
@pytest.mark.parametrize("value", [-1, NAN, INF, 3600.5, "1", True])
def test_a_timeout_that_cannot_be_changes_nothing(method: str, value: Any) -> None:
    bucket = TokenBucket(3, clock=ManualClock())
    before = bucket.snapshot()
    with pytest.raises((ValueError, TypeError), match="timeout must be a number of seconds"):
        getattr(bucket, method)(timeout=value)
    assert bucket.snapshot() == before


@pytest.mark.parametrize("value", [Decimal("0.5"), Fraction(1, 2), 0.5])
def test_any_real_number_will_do(value: Any) -> None:
    bucket = TokenBucket(value, per=value, burst=value, clock=ManualClock())
    assert (bucket.rate, bucket.per, bucket.burst) == (0.5, 0.5, 0.5)
    assert bucket.try_take(value)
    assert not bucket.try_take(value)
    bucket.adjust(value)
    assert bucket.tokens == 0.5


def test_the_default_burst_is_that_of_a_second_and_at_least_1() -> None:
    assert TokenBucket(4000).burst == 4000
    assert TokenBucket(0.1).burst == 1
    assert TokenBucket(200_000, per=60).burst == pytest.approx(200_000 / 60)
    assert KeyedTokenBucket(5, per=10).burst == 1


def test_it_starts_full_and_refills_at_its_rate() -> None:
    clock = ManualClock()
    bucket = TokenBucket(10, burst=3, clock=clock)
    assert [bucket.try_take() for _ in range(4)] == [True, True, True, False]
    assert bucket.retry_after() == 0.1
    clock.advance(0.099999999)
    assert not bucket.try_take()
    clock.advance(0.000000001)
    assert bucket.try_take()
    assert not bucket.try_take()
    clock.advance(1e9)
    assert bucket.tokens == 3
    assert bucket.try_take(3)
    assert not bucket.try_take(1e-9)


def test_decimals_are_what_they_say() -> None:
    for rate, per, tokens, seconds in [
        (0.3, 1, 3, 10),
        (0.1, 1, 1, 10),
        (100, 60, 100, 60),
        (200_000, 60, 3000, 0.9),
        (0.7, 0.1, 7, 1),
        (1e-6, 1, 1, 1e6),
    ]:
        clock = ManualClock()
        bucket = TokenBucket(rate, per=per, burst=tokens, clock=clock)
        assert bucket.try_take(tokens)
        assert bucket.retry_after(tokens) == seconds
        clock.advance(seconds - 1e-9)
        assert not bucket.try_take(tokens)
        clock.advance(1e-9)
        assert bucket.try_take(tokens)


def test_thirds_do_not_drift() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, per=3, burst=1, clock=clock)
    assert bucket.try_take()
    for _ in range(300):
        for _ in range(30):
            assert not bucket.try_take()
            clock.advance(0.1)
        assert bucket.try_take()
        assert not bucket.try_take(1e-9)


def test_retry_after_is_exact() -> None:
    clock = ManualClock()
    bucket = TokenBucket(7, per=3, burst=5, clock=clock)
    for n in (5, 0.1, 3.3, 1e-9, 4.999999999, 2):
        while bucket.try_take(0.7):
            pass
        span = bucket.retry_after(n)
        if span > 0:
            clock.advance(span - 1e-9)
            assert not bucket.try_take(n)
            clock.advance(1e-9)
        assert bucket.retry_after(n) == 0
        assert bucket.try_take(n)


def test_a_clock_that_stands_still_or_jumps_back_refills_nothing() -> None:
    class Jumping:
        value = 100.0

        def now(self) -> float:
            return self.value

    clock = Jumping()
    bucket, keyed = (
        TokenBucket(10, burst=1, clock=clock),
        KeyedTokenBucket(10, clock=clock, burst=1),
    )
    assert bucket.try_take()
    assert keyed.try_take("a")
    for clock.value in (100.0, 0.0, 99.0, 100.0):
        assert not bucket.try_take()
        assert not keyed.try_take("a")
        assert bucket.tokens == 0
        assert bucket.retry_after() == keyed.retry_after("a") == 0.1
    clock.value = 100.1
    assert bucket.try_take()
    assert keyed.try_take("a")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reading", [NAN, INF, "x", None])
def test_a_clock_that_fails_changes_nothing(kind: Any, reading: Any) -> None:
    class Failing:
        value: Any = 0.0

        def now(self) -> Any:
            return self.value

    clock = Failing()
    bucket = kind(1, burst=1, clock=clock)
    key = ["key"] if kind is KeyedTokenBucket else []
    clock.value = reading
    with pytest.raises((ValueError, TypeError)):
        bucket.try_take(*key)
    with pytest.raises((ValueError, TypeError)):
        bucket.update(rate=5)
    clock.value = 0.0
    assert bucket.rate == 1
    assert bucket.try_take(*key)
    assert not bucket.try_take(*key)


def test_adjust_gives_back_at_most_to_the_burst_and_charges_into_debt() -> None:
    clock = ManualClock()
    bucket = TokenBucket(10, burst=5, clock=clock)
    assert bucket.try_take(4)
    bucket.adjust(3)
    assert bucket.tokens == 4
    bucket.adjust(1e9)
    assert bucket.tokens == 5
    bucket.adjust(-25)
    assert bucket.tokens == -20
    assert bucket.retry_after() == 2.1
    bucket.adjust(0)
    bucket.adjust(-0.0)
    assert bucket.tokens == -20
    clock.advance(2.1)
    assert bucket.try_take()
    for _ in range(5):
        bucket.adjust(-1e9)
    assert bucket.tokens == -1e9
    bucket.adjust(1e9)
    assert bucket.tokens == 0


def test_an_update_keeps_the_tokens_that_fit() -> None:
    clock = ManualClock()
    bucket = TokenBucket(10, clock=clock)
    assert bucket.try_take(6)
    bucket.update(rate=100)
    assert (bucket.rate, bucket.burst, bucket.tokens) == (100, 100, 4)
    clock.advance(0.5)
    assert bucket.tokens == 54
    bucket.update(burst=20)
    assert (bucket.burst, bucket.tokens) == (20, 20)
    bucket.update(rate=1)
    assert (bucket.rate, bucket.burst, bucket.tokens) == (1, 20, 20)
    bucket.update()
    assert (bucket.rate, bucket.burst, bucket.tokens) == (1, 20, 20)
    with pytest.raises(ValueError, match="with a burst of 20"):
        bucket.try_take(21)
    # A rate is meant for the period that was given at the start.
    slow = TokenBucket(60, per=60, burst=60, clock=clock)
    slow.update(rate=30)
    assert slow.try_take(60)
    clock.advance(2)
    assert slow.try_take(1)
    assert not slow.try_take(1e-9)


def test_what_it_says() -> None:
    clock = ManualClock()
    bucket = TokenBucket(200_000, per=60, burst=5000, name="tokens", clock=clock)
    assert repr(bucket) == "<TokenBucket 'tokens': 200000 in 60 s, burst 5000, 0 waiting>"
    assert bucket.try_take(4000)
    assert not bucket.try_take(2000)
    snapshot = bucket.snapshot()
    assert (snapshot.name, snapshot.rate, snapshot.per) == ("tokens", 200_000, 60)
    assert (snapshot.burst, snapshot.tokens, snapshot.waiting) == (5000, 1000, 0)
    assert (snapshot.admitted, snapshot.rejected) == (1, {Reason.RATE: 1})
    assert str(snapshot) == (
        "tokens: 200000 in 60 s | 1000 of 5000 tokens | 0 waiting | 1 admitted, 1 rejected"
    )
    assert json.loads(json.dumps(dataclasses.asdict(snapshot)))["tokens"] == 1000
    first, second = TokenBucket(1), TokenBucket(1)
    assert first.name.startswith("bucket")
    assert first.name != second.name
    assert repr(first) == f"<TokenBucket {first.name!r}: 1 a second, burst 1, 0 waiting>"


def test_threads_share_one_bucket() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1000, burst=5000, clock=clock)
    taken = [0] * 8
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(3000):
            taken[number] += bucket.try_take()

    for expected in (5000, 1000):
        taken[:] = [0] * 8
        threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(taken) == expected
        clock.advance(1)
