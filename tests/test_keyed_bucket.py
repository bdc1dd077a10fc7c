"""Buckets by key: independent, bounded in number, and of no use to those who make keys up."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

import pytest

from sluicegate import KeyedTokenBucket, ManualClock

pytestmark = pytest.mark.timeout(30)


def test_keys_are_independent() -> None:
    clock = ManualClock()
    bucket = KeyedTokenBucket(1, burst=2, clock=clock)
    for key in ("a", "b", "", "ä", "🦀", "a\0", "a\0b", "\ud800", "\udcff"):
        assert [bucket.try_take(key) for _ in range(3)] == [True, True, False]
        assert bucket.retry_after(key) == 1
    assert bucket.keys == 9
    clock.advance(1)
    assert bucket.try_take("a")
    assert not bucket.try_take("a")
    assert bucket.try_take("b", 0.5)
    assert bucket.retry_after("never seen", 2) == 0


def test_what_a_key_has_is_told_without_taking_any() -> None:
    clock = ManualClock()
    bucket = KeyedTokenBucket(0.5, burst=2.5, max_keys=1, clock=clock)
    assert bucket.tokens("a") == 2.5
    assert bucket.keys == 0
    assert bucket.try_take("a", 2)
    assert bucket.tokens("a") == 0.5
    clock.advance(1.5)
    assert bucket.tokens("a") == 1.25
    # Who has no bucket of his own has a share in that of those like him.
    assert bucket.try_take("b")
    assert bucket.tokens("b") == bucket.tokens("c") == 1.5
    clock.advance(100)
    assert [bucket.tokens(key) for key in "abc"] == [2.5] * 3


def test_a_string_that_looks_the_same_is_the_same_key() -> None:
    bucket = KeyedTokenBucket(1, burst=1, clock=ManualClock())

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            raise OSError

        def __eq__(self, other: object) -> bool:
            raise OSError

    assert bucket.try_take("".join(["ke", "y"]))
    assert not bucket.try_take("key")
    assert not bucket.try_take(Key("key"))


@pytest.mark.parametrize("key", [None, 5, b"key", ["key"], object()])
def test_a_key_that_cannot_be(key: Any) -> None:
    bucket = KeyedTokenBucket(1)
    for method in (bucket.try_take, bucket.retry_after, bucket.tokens):
        with pytest.raises(TypeError, match="key must be a string, got"):
            method(key)
    assert bucket.keys == 0


def test_only_a_full_bucket_is_forgotten() -> None:
    clock = ManualClock()
    bucket = KeyedTokenBucket(1, burst=2, max_keys=2, clock=clock)
    assert bucket.try_take("light", 1)
    assert bucket.try_take("heavy", 2)
    # Neither is full: the newcomers share what there is for all of them.
    assert bucket.try_take("x")
    assert bucket.try_take("y")
    assert not bucket.try_take("z")
    assert bucket.snapshot().overflowed == 3
    clock.advance(1.125)
    # One is full by now. Its place is taken by one who has what the others left.
    assert bucket.try_take("z")
    assert not bucket.try_take("z")
    assert bucket.keys == 2
    assert bucket.snapshot().overflowed == 3
    # The one who lost it comes back to no more than others.
    assert bucket.try_take("light")
    assert not bucket.try_take("light")
    assert not bucket.try_take("heavy", 2)
    assert bucket.retry_after("heavy", 2) == 0.875


def test_nobody_pushes_his_own_empty_bucket_out() -> None:
    clock = ManualClock()
    bucket = KeyedTokenBucket(1, burst=5, max_keys=50, clock=clock)
    assert bucket.try_take("me", 5)
    taken = 0
    for number in range(5000):
        taken += bucket.try_take(f"made up {number}")
        assert not bucket.try_take("me")
    assert taken == 49 + 5
    assert (bucket.keys, bucket.snapshot().overflowed) == (50, 5000 - 49)
    clock.advance(3)
    assert bucket.try_take("me", 3)
    assert not bucket.try_take("me")


def test_one_key_gets_its_rate_whatever_others_do() -> None:
    clock = ManualClock()
    bucket = KeyedTokenBucket(2, burst=3, max_keys=3, clock=clock)
    taken: list[float] = []
    for step in range(400):
        for number in range(step % 5):
            bucket.try_take(f"{(step * 7 + number) % 11}", 1 + step % 3)
        while bucket.try_take("me"):
            taken.append(clock.now())
        clock.advance(0.13 * (step % 4))
    assert len(taken) > 20
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= 3 + 2 * (taken[last] - taken[first]) + 1e-9


def test_long_keys_are_not_kept() -> None:
    bucket = KeyedTokenBucket(1, burst=1, clock=ManualClock())
    key = "x" * 1_000_000
    assert bucket.try_take(key + "a")
    assert bucket.try_take(key + "b")
    assert not bucket.try_take(key + "a")
    assert bucket.keys == 2


def test_an_update_is_for_all() -> None:
    clock = ManualClock()
    bucket = KeyedTokenBucket(1, burst=4, clock=clock)
    assert bucket.try_take("a", 4)
    assert bucket.try_take("b", 1)
    bucket.update(rate=10, burst=2)
    assert (bucket.rate, bucket.burst) == (10, 2)
    assert bucket.retry_after("a") == 0.1
    assert bucket.retry_after("b", 2) == 0
    clock.advance(0.1)
    assert bucket.try_take("a")
    assert bucket.try_take("c", 2)
    with pytest.raises(ValueError, match="with a burst of 2"):
        bucket.try_take("d", 3)


def test_what_it_says() -> None:
    bucket = KeyedTokenBucket(10, per=60, burst=1, max_keys=5, name="users")
    assert repr(bucket) == "<KeyedTokenBucket 'users': 10 in 60 s a key, burst 1, 0 of 5 keys>"
    assert bucket.try_take("a")
    assert not bucket.try_take("a")
    snapshot = bucket.snapshot()
    assert dataclasses.asdict(snapshot) == {
        "name": "users",
        "rate": 10,
        "per": 60,
        "burst": 1,
        "keys": 1,
        "max_keys": 5,
        "admitted": 1,
        "rejected": 1,
        "overflowed": 0,
    }
    assert json.dumps(dataclasses.asdict(snapshot))
    assert str(snapshot) == (
        "users: 10 in 60 s a key | 1 of 5 keys, 0 takes without one | 1 admitted, 1 rejected"
    )
    assert KeyedTokenBucket(1).name.startswith("keyed-bucket")
    assert (KeyedTokenBucket(1).per, KeyedTokenBucket(1).max_keys) == (1, 10_000)


def test_threads_share_the_buckets() -> None:
    bucket = KeyedTokenBucket(1, burst=500, max_keys=4, clock=ManualClock())
    taken: dict[str, list[bool]] = {f"key {number}": [] for number in range(4)}
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(300):
            for key, answers in taken.items():
                answers.append(bucket.try_take(key))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sum(answers) for answers in taken.values()] == [500] * 4
