"""Limits on a rate: how much in how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate import _core
from sluicegate._enums import Reason


class TokenBucket(_core.TokenBucket):
    """A limit on a rate, with a waiting line: tokens come at a rate, and work takes them.

    In any span of W seconds at most `burst + rate / per * W` tokens are taken, exactly: amounts are
    whole billionths of a token, and the rate is the number that was written, so that nothing is
    rounded and no error grows.

    One object is one limit, wherever it is used: it may be made at import time, and be shared by
    tasks of several event loops and by plain threads.

    - `try_take()` answers now, with True or False; `retry_after()` says when to come again.
    - `await take()` waits in line.
    - `take_sync()` waits in line in a thread.

    The line is served in order of arrival, and its head is not overtaken by those behind it, so
    that a large `n` is not starved by small ones. Tokens that were granted to a task or thread that
    gives up, or does not come for them within 50 ms while somebody elsewhere waits, go back.

    Size it to what the work behind it can take: a burst that takes as long to be served as it took
    to come is a queue.

    Args:
        rate: How many tokens come in every `per` seconds; 1e-6 to 1e9 in a second.
        per: How many seconds the rate is meant for, from 1e-9 to 1e9: `TokenBucket(200_000,
            per=60)`.
        burst: How many tokens it holds at most, from 1e-9 to 1e9; it starts full. What comes while
            it is full is lost, also in the moment before somebody is woken: with the tokens of a
            few milliseconds those who wait get the whole rate. Default: what comes in one second,
            and at least 1.
        name: What it is called in errors, snapshots and metrics; default: "bucket", "bucket-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If a number is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def snapshot(self) -> BucketSnapshot:
        """Return the state at this moment."""
        values = self._snapshot()
        del values["next_expiry"]
        return BucketSnapshot(name=self.name, **values)

    def __repr__(self) -> str:
        return (
            f"<TokenBucket {self.name!r}: {_rate(self.rate, self.per)}, burst {self.burst:g}, "
            f"{self.waiting} waiting>"
        )


class KeyedTokenBucket(_core.KeyedTokenBucket):
    """One token bucket for each key, such as a user, for a bounded number of keys.

    A key gets a bucket of its own at its first take. If there are `max_keys` of them, it gets that
    of a key whose bucket is full, which loses nothing by it; that it is full is known later by an
    eighth of the time it took to fill, at most. If none is full, it shares one more bucket with all
    others that come too late, and starts with what is in that one when it gets its own. So nobody
    gets more than `burst + rate / per * W` tokens in any span of W seconds for one key, however
    many others somebody makes up.

    Nobody waits here: `try_take()` answers now, and `retry_after()` says when to come again.

    Args:
        rate: How many tokens come for each key in every `per` seconds; 1e-6 to 1e9 in a second.
        per: How many seconds the rate is meant for, from 1e-9 to 1e9.
        burst: How many tokens a key can have at most, from 1e-9 to 1e9; it starts with them.
            Default: what comes in one second, and at least 1.
        max_keys: How many keys can have a bucket of their own, from 1 to 1e7. One takes less
            than 200 bytes, whatever the length of the key.
        name: What it is called in snapshots and metrics; default: "keyed-bucket",
            "keyed-bucket-2", …
        clock: Where time comes from: an object with `now()` in seconds, such as a
            `ManualClock`; default: the monotonic clock of the system.

    Raises:
        ValueError: If a number is out of its range.
        TypeError: If an argument is of a wrong type.
    """

    __slots__ = ()

    def snapshot(self) -> KeyedBucketSnapshot:
        """Return the state at this moment."""
        return KeyedBucketSnapshot(name=self.name, **self._snapshot())

    def __repr__(self) -> str:
        return (
            f"<KeyedTokenBucket {self.name!r}: {_rate(self.rate, self.per)} a key, "
            f"burst {self.burst:g}, {self.keys} of {self.max_keys} keys>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSnapshot:
    """The state of a bucket at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the bucket.
        rate: How many tokens come in every `per` seconds.
        per: How many seconds the rate is meant for.
        burst: How many tokens it holds at most.
        tokens: How many tokens are in it; negative in debt.
        waiting: How many wait in line.
        oldest_wait: How long the oldest of them has waited, in seconds.
        admitted: How many takes were granted since the start.
        rejected: How many were rejected: with RATE by `try_take()`, with WAIT after a time-out.
        revoked: How many grants went to somebody else because nobody came to claim them: their
            event loop was blocked for more than 50 ms, or gone.
    """

    name: str
    rate: float
    per: float
    burst: float
    tokens: float
    waiting: int
    oldest_wait: float
    admitted: int
    rejected: Mapping[Reason, int]
    revoked: int

    def __str__(self) -> str:
        waiting = f"{self.waiting} waiting"
        if self.waiting:
            waiting += f", oldest {self.oldest_wait:.2f} s"
        return (
            f"{self.name}: {_rate(self.rate, self.per)} | "
            f"{self.tokens:.6g} of {self.burst:g} tokens | {waiting} | "
            f"{self.admitted} admitted, {sum(self.rejected.values())} rejected"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedBucketSnapshot:
    """The state of a keyed bucket at one moment; `dataclasses.asdict()` of it is JSON.

    Attributes:
        name: The name of the bucket.
        rate: How many tokens come for each key in every `per` seconds.
        per: How many seconds the rate is meant for.
        burst: How many tokens a key can have at most.
        keys: How many keys have a bucket of their own.
        max_keys: How many keys can have one.
        admitted: How many takes were granted since the start.
        rejected: How many were rejected.
        overflowed: How many takes, granted or rejected, went to the bucket that is shared by those
            without one. If it grows, `max_keys` is too low, or somebody makes keys up.
    """

    name: str
    rate: float
    per: float
    burst: float
    keys: int
    max_keys: int
    admitted: int
    rejected: int
    overflowed: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {_rate(self.rate, self.per)} a key | "
            f"{self.keys} of {self.max_keys} keys, {self.overflowed} takes without one | "
            f"{self.admitted} admitted, {self.rejected} rejected"
        )


def _rate(rate: float, per: float) -> str:
    return f"{rate:g} a second" if per == 1 else f"{rate:g} in {per:g} s"
