"""A permit is given back exactly once, with the outcome that its work had."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import re
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import (
    Acquire,
    Criticality,
    Outcome,
    Permit,
    Reason,
    Rejected,
    Rejection,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from limiters import Limiter, New

pytestmark = pytest.mark.timeout(20)


class RejectedInTime(Rejected, TimeoutError):
    pass


class SlowError(TimeoutError):
    pass


def take(limiter: Limiter, cost: int = 1) -> Permit:
    permit = limiter.try_acquire(cost)
    assert isinstance(permit, Permit)
    return permit


def refuse(limiter: Limiter, cost: int = 1) -> Rejection:
    rejection = limiter.try_acquire(cost)
    assert isinstance(rejection, Rejection)
    return rejection


REJECTION = Rejection("api", "limit")
ENDINGS: list[tuple[BaseException | None, Outcome]] = [
    (None, Outcome.SUCCESS),
    (TimeoutError(), Outcome.OVERLOAD),
    (SlowError(), Outcome.OVERLOAD),
    (asyncio.CancelledError(), Outcome.IGNORED),
    (KeyboardInterrupt(), Outcome.IGNORED),
    (GeneratorExit(), Outcome.IGNORED),
    (SystemExit(), Outcome.IGNORED),
    (ValueError(), Outcome.IGNORED),
    (ConnectionRefusedError(), Outcome.IGNORED),
    (ExceptionGroup("both", [TimeoutError(), ValueError()]), Outcome.IGNORED),
    (Rejected(REJECTION), Outcome.IGNORED),
    (RejectedInTime(REJECTION), Outcome.IGNORED),
]
NAMES = [type(error).__name__ for error, _ in ENDINGS]


@pytest.mark.parametrize("way", ["permit", "with", "async with"])
@pytest.mark.parametrize(("error", "outcome"), ENDINGS, ids=NAMES)
def test_the_end_of_a_block_is_classified(
    new: New, way: str, error: BaseException | None, outcome: Outcome
) -> None:
    limiter = new(1)

    def work() -> None:
        assert limiter.in_flight == 1
        if error is not None:
            raise error

    async def in_task() -> None:
        async with limiter.acquire():
            work()

    def run() -> None:
        if way == "async with":
            # By hand, since a loop has its own mind about some of these.
            in_task().send(None)
        else:
            with take(limiter) if way == "permit" else limiter.acquire():
                work()

    if error is None and way != "async with":
        run()
    else:
        with pytest.raises(StopIteration if error is None else type(error)) as raised:
            run()
        assert error is None or raised.value is error
    assert limiter.in_flight == 0
    assert limiter.snapshot().outcomes == {outcome: 1}


@pytest.mark.parametrize("chosen", list(Outcome))
@pytest.mark.parametrize("error", [None, TimeoutError(), ValueError()])
def test_an_outcome_that_is_set_overrules(
    new: New, chosen: Outcome, error: Exception | None
) -> None:
    limiter = new(1)
    with contextlib.suppress(TimeoutError, ValueError), limiter.acquire() as permit:
        assert permit.outcome is None
        permit.outcome = chosen
        assert permit.outcome is chosen
        if error is not None:
            raise error
    assert limiter.snapshot().outcomes == {chosen: 1}


def test_an_outcome_can_be_unset_again(new: New) -> None:
    limiter = new(1)
    with contextlib.suppress(TimeoutError), take(limiter) as permit:
        permit.outcome = Outcome.SUCCESS
        permit.outcome = None
        raise TimeoutError
    assert limiter.snapshot().outcomes == {Outcome.OVERLOAD: 1}


@pytest.mark.parametrize("outcome", list(Outcome))
def test_release_says_how_it_ended(new: New, outcome: Outcome) -> None:
    limiter = new(1)
    take(limiter).release(outcome)
    assert limiter.snapshot().outcomes == {outcome: 1}


def test_release_is_a_success_unless_told(new: New) -> None:
    limiter = new(2)
    take(limiter).release()
    permit = take(limiter)
    permit.outcome = Outcome.OVERLOAD
    permit.release()
    assert limiter.snapshot().outcomes == {Outcome.SUCCESS: 1, Outcome.OVERLOAD: 1}


@pytest.mark.parametrize(
    "bad", ["bad", "success", "SUCCESS", 0, True, object(), Reason.LIMIT, Criticality, Outcome]
)
def test_a_release_with_no_outcome_keeps_the_permit(new: New, bad: Any) -> None:
    limiter = new(1)
    permit = take(limiter)
    text = "^outcome must be Outcome.*, got " + re.escape(repr(bad))
    with pytest.raises(TypeError, match=text):
        permit.release(bad)
    with pytest.raises(TypeError, match=text):
        permit.outcome = bad
    with pytest.raises(TypeError, match=r"^outcome must be Outcome.*, got None"):
        permit.release(None)  # type: ignore[arg-type]
    assert permit.outcome is None
    assert limiter.in_flight == 1
    permit.release()
    assert limiter.in_flight == 0
    assert limiter.snapshot().stray_releases == 0


@pytest.mark.parametrize("cost", [1, 3])
def test_a_second_release_does_nothing_and_is_counted(new: New, cost: int) -> None:
    limiter = new(7)
    other = take(limiter)
    permit = take(limiter, cost)
    permit.release()
    for _ in range(5):
        permit.release(Outcome.OVERLOAD)
    assert limiter.in_flight == 1
    assert limiter.snapshot().stray_releases == 5
    assert limiter.snapshot().outcomes == {Outcome.SUCCESS: 1}
    other.release()


def test_a_release_inside_the_block_is_enough(new: New) -> None:
    limiter = new(1)
    with limiter.acquire() as permit:
        permit.release(Outcome.OVERLOAD)
        assert limiter.in_flight == 0
        other = take(limiter)
    assert limiter.in_flight == 1
    assert limiter.snapshot().stray_releases == 1
    other.release()
    assert limiter.snapshot().outcomes == {Outcome.OVERLOAD: 1, Outcome.SUCCESS: 1}


def acquired_sync(limiter: Limiter) -> Permit:
    return limiter.acquire_sync()


def acquired(limiter: Limiter) -> Permit:
    async def main() -> Permit:
        return await limiter.acquire()

    return asyncio.run(main())


@pytest.mark.parametrize("get", [take, acquired_sync, acquired])
def test_a_permit_that_was_given_back_cannot_be_entered(
    new: New, get: Callable[[Limiter], Permit]
) -> None:
    limiter = new(1, name="api")
    permit = get(limiter)
    with permit:
        assert limiter.in_flight == 1

    def enter() -> None:
        with pytest.raises(RuntimeError, match='this permit of "api" was released already'), permit:
            pytest.fail("it must not run")

    async def enter_in_a_task() -> None:
        enter()

    enter()
    asyncio.run(enter_in_a_task())
    # Nor is it, by whoever holds the only one, given back a second time.
    with take(limiter):
        enter()
        assert limiter.in_flight == 1
    assert limiter.snapshot().stray_releases == 0


def test_a_permit_can_be_entered_for_as_long_as_it_is_held(new: New) -> None:
    limiter = new(1)
    permit = take(limiter)
    with permit:
        with permit:
            assert limiter.in_flight == 1
        assert limiter.in_flight == 0
    assert limiter.snapshot().stray_releases == 1


def test_a_permit_knows_its_operation_and_its_limiter(new: New) -> None:
    limiter = new(2, name="api")
    with limiter.acquire(operation="GET /a") as first:
        assert first.operation == "GET /a"
        first.operation = None
        assert first.operation is None
        assert "'api'" in repr(first)
        assert "held" in repr(first)
        second = limiter.acquire_sync(operation="POST /b")
        assert second.operation == "POST /b"
        assert first
        assert second
        second.release()
    assert "released" in repr(first)


def test_a_permit_is_a_permit_however_it_came(new: New) -> None:
    limiter = new(4)

    async def main() -> None:
        permits = [take(limiter), await limiter.acquire()]
        async with limiter.acquire() as third:
            permits.append(third)
            assert all(isinstance(permit, Permit) for permit in permits)
            assert all(permits)
            with permits[0], permits[1]:
                assert limiter.in_flight == 3
        assert limiter.in_flight == 0

    asyncio.run(main())


def test_an_acquire_that_was_not_used_has_nothing_to_release(new: New) -> None:
    limiter = new(1)
    wish: Any = limiter.acquire()
    with pytest.raises(RuntimeError, match="nothing to release"):
        wish.release()
    wish.close()
    assert limiter.snapshot().stray_releases == 0
    assert limiter.in_flight == 0


def test_a_permit_that_is_collected_goes_back_and_warns(new: New) -> None:
    limiter = new(1, name="api")
    held = [take(limiter)]
    with pytest.warns(ResourceWarning, match='"api" was never released'):
        held.clear()
    assert limiter.in_flight == 0
    assert limiter.snapshot().outcomes == {Outcome.IGNORED: 1}


def test_an_acquire_that_is_never_used_warns(new: New) -> None:
    limiter = new(1, name="api")
    with pytest.warns(RuntimeWarning, match="never used"):
        limiter.acquire()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wish = limiter.acquire()
        wish.close()
        del wish
    assert limiter.in_flight == 0
    limiter.acquire_sync().release()


def test_a_snapshot_is_json_and_one_line(new: New) -> None:
    limiter = new(2.5, name="api")
    with take(limiter, 2):
        refuse(limiter)
        snapshot = limiter.snapshot()
    assert (snapshot.name, snapshot.limit, snapshot.in_flight) == ("api", 2.5, 2)
    assert (snapshot.waiting, snapshot.oldest_wait, snapshot.saturation) == (0, 0.0, 0.8)
    assert (snapshot.admitted, snapshot.rejected, snapshot.outcomes) == (1, {Reason.LIMIT: 1}, {})
    assert json.loads(json.dumps(asdict(snapshot)))["rejected"] == {"limit": 1}
    assert "\n" not in str(snapshot)
    assert "2 in flight" in str(snapshot)


@pytest.mark.parametrize("kind", [Acquire, Permit])
def test_rights_are_not_copied(new: New, kind: type[Any]) -> None:
    limiter = new(1)
    with limiter.acquire() if kind is Acquire else take(limiter) as permit:
        with pytest.raises(TypeError):
            pickle.dumps(permit)
        with pytest.raises(TypeError):
            kind()
    assert limiter.in_flight == 0
