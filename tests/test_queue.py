"""The queue by itself: what it takes, in what order it gives, and its end."""

from __future__ import annotations

import asyncio
import pickle
import weakref
from typing import Any

import pytest

from queue_support import drained, learn, let_stand, made, watched
from sluicegate import (
    CoDelQueue,
    Criticality,
    ManualClock,
    QueueClosed,
    Reason,
    Rejected,
    Rejection,
    SluicegateError,
)

pytestmark = pytest.mark.timeout(20)

SHEDDABLE, SHEDDABLE_PLUS, CRITICAL, CRITICAL_PLUS = Criticality


# Order


def test_the_oldest_is_served_first() -> None:
    queue, _, told = made()
    for number in range(10):
        queue.put_nowait(number)
    assert drained(queue) == list(range(10))
    assert told == []


def test_the_more_critical_is_served_first() -> None:
    queue, _, _ = made(100)
    for number in range(20):
        queue.put_nowait((number % 4, number), criticality=Criticality(number % 4))
    queue.put_nowait("default")
    expected = [(level, number) for level in (3, 2, 1, 0) for number in range(20)]
    expected = [pair for pair in expected if pair[1] % 4 == pair[0]]
    assert drained(queue) == [*expected[:10], "default", *expected[10:]]


def test_while_it_is_standing_the_newest_is_served_first() -> None:
    queue, clock, told = made()
    let_stand(queue, clock, told)
    for number in range(6):
        queue.put_nowait(number, criticality=CRITICAL if number % 2 else SHEDDABLE)
    assert drained(queue) == [5, 3, 1, 4, 2, 0]


@pytest.mark.parametrize(
    "item", [None, (), (1,), [], "", 0, StopIteration(3), KeyError("x"), int, lambda: None]
)
def test_anything_is_an_item(item: Any) -> None:
    queue, _, _ = made()
    queue.put_nowait(item)
    assert queue.get_nowait() is item

    async def main() -> list[Any]:
        await queue.put(item)
        await queue.put(item)
        await queue.put(item)
        got = [await queue.get()]
        async with queue.take() as taken:
            got.append(taken)
        async for each in queue:
            got.append(each)
            break
        return got

    assert [id(got) for got in asyncio.run(main())] == [id(item)] * 3
    queue.put_sync(item)
    assert queue.get_sync() is item


def test_the_queue_can_be_its_own_item() -> None:
    queue, _, _ = made()
    queue.put_nowait(queue)
    assert queue.get_nowait() is queue


def test_an_empty_queue_says_so() -> None:
    queue, _, _ = made()
    with pytest.raises(asyncio.QueueEmpty):
        queue.get_nowait()
    with pytest.raises(TimeoutError, match=rf'no item of "{queue.name}" within 0 s'):
        queue.get_sync(timeout=0)
    with pytest.raises(TimeoutError), queue.take(timeout=0):
        pytest.fail("there is none")


# Room


def test_a_full_queue_rejects() -> None:
    queue, _, told = made(2)
    queue.put_nowait("a")
    queue.put_nowait("b")
    for _ in range(2):
        with pytest.raises(Rejected) as raised:
            queue.put_nowait("c")
        assert raised.value.reason is Reason.FULL
    assert drained(queue) == ["a", "b"]
    assert told == []
    assert queue.snapshot().rejected == {Reason.FULL: 2}


@pytest.mark.parametrize("is_standing", [False, True])
def test_the_less_critical_make_room_the_one_that_would_run_last_first(is_standing: bool) -> None:
    queue, clock, told = made(4)
    if is_standing:
        let_stand(queue, clock, told)
    for item, criticality in [("a", 1), ("b", 0), ("c", 0), ("d", 2)]:
        queue.put_nowait(item, criticality=Criticality(criticality))
    last, other = ("b", "c") if is_standing else ("c", "b")
    for item, victim in [("e", last), ("f", other), ("g", "a")]:
        queue.put_nowait(item, criticality=CRITICAL_PLUS)
        assert told == [(victim, Reason.EVICTED)]
        told.clear()
    assert queue.depth == 4
    assert drained(queue) == (["g", "f", "e", "d"] if is_standing else ["e", "f", "g", "d"])


def test_while_it_is_standing_the_oldest_makes_room_for_its_equal() -> None:
    queue, clock, told = made(2)
    let_stand(queue, clock, told)
    for number in range(5):
        queue.put_nowait(number)
    assert told == [(number, Reason.EVICTED) for number in range(3)]
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("less", criticality=SHEDDABLE_PLUS)
    assert raised.value.reason is Reason.FULL
    assert drained(queue) == [4, 3]


def test_nobody_makes_room_for_what_is_in_vain() -> None:
    queue, clock, told = made(2)
    learn(queue, clock, 0.1)
    queue.put_nowait("a", criticality=SHEDDABLE)
    queue.put_nowait("b", criticality=SHEDDABLE)
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("c", criticality=CRITICAL_PLUS, deadline=0.05)
    assert raised.value.reason is Reason.DEADLINE
    assert told == []


def test_a_rejection_says_what_was_rejected_and_how_full_it_was() -> None:
    clock = ManualClock()
    told: list[tuple[str, Rejection]] = []
    queue: CoDelQueue[str] = CoDelQueue(
        3, name="jobs", clock=clock, on_reject=lambda item, why: told.append((item, why))
    )
    queue.put_nowait("work")
    with queue.take():
        queue.put_nowait("a", criticality=SHEDDABLE_PLUS)
        queue.put_nowait("b")
        queue.put_nowait("c")
        with pytest.raises(Rejected) as raised:
            queue.put_nowait("d", criticality=SHEDDABLE)
        rejection = raised.value.rejection
        assert (rejection.gate, rejection.reason, rejection.status) == ("jobs", Reason.FULL, 503)
        assert rejection.criticality is SHEDDABLE
        assert (rejection.limit, rejection.in_flight, rejection.waiting) == (3.0, 1, 3)
        assert (rejection.retry_after, raised.value.retry_after) == (None, None)
        text = "queue 'jobs' rejected SHEDDABLE work: full (3 of 3 waiting, 1 in flight)"
        assert str(raised.value) == text
        queue.put_nowait("e", criticality=CRITICAL_PLUS)
    [(item, evicted)] = told
    assert item == "a"
    assert not evicted
    assert (evicted.gate, evicted.reason) == ("jobs", Reason.EVICTED)
    assert evicted.criticality is SHEDDABLE_PLUS
    assert (evicted.limit, evicted.in_flight) == (3.0, 1)


def test_its_refusals_can_be_pickled() -> None:
    queue, _, _ = made(0)
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("a")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert type(copy) is Rejected
    assert (copy.rejection, str(copy)) == (raised.value.rejection, str(raised.value))
    queue.close()
    with pytest.raises(QueueClosed) as closed:
        queue.put_nowait("a")
    assert isinstance(closed.value, SluicegateError)
    again = pickle.loads(pickle.dumps(closed.value))
    assert (type(again), str(again)) == (QueueClosed, str(closed.value))


def test_nothing_waits_where_there_is_no_room_at_all() -> None:
    queue, _, _ = made(0)
    assert (queue.saturation, queue.depth) == (1.0, 0)
    with pytest.raises(Rejected) as raised:
        queue.put_nowait("a")
    assert raised.value.reason is Reason.FULL
    with pytest.raises(TimeoutError, match=rf'no room in "{queue.name}" within 0 s'):
        queue.put_sync("a", timeout=0)
    with pytest.raises(asyncio.QueueEmpty):
        queue.get_nowait()


def test_with_room_for_one() -> None:
    queue, clock, told = made(1)
    queue.put_nowait("a")
    assert (queue.saturation, queue.depth) == (1.0, 1)
    with pytest.raises(Rejected):
        queue.put_nowait("b")
    assert queue.get_nowait() == "a"
    queue.put_nowait("b")
    clock.advance(1)
    queue.put_nowait("c")
    assert told == [("b", Reason.WAIT)]


# The end


def test_a_closed_queue_gives_what_it_has_and_takes_nothing() -> None:
    queue, _, told = made()
    queue.put_nowait("a")
    queue.put_nowait("b")
    assert queue.closed is False
    queue.close()
    queue.close()
    assert queue.snapshot().closed
    for put in (queue.put_nowait, queue.put_sync):
        with pytest.raises(QueueClosed, match=rf'queue "{queue.name}" is closed'):
            put("c")
    with pytest.raises(QueueClosed):
        asyncio.run(close_to_coroutine(queue))
    assert queue.get_nowait() == "a"
    with queue.take() as item:
        assert item == "b"
    for get in (queue.get_nowait, queue.get_sync, queue.take().__enter__):
        with pytest.raises(QueueClosed):
            get()
    assert told == []
    assert queue.snapshot().rejected == {Reason.CLOSED: 3}


async def close_to_coroutine(queue: CoDelQueue[Any]) -> None:
    await queue.put("c")


def test_what_is_inside_a_closed_queue_still_has_its_time() -> None:
    queue, clock, told = made()
    queue.put_nowait("a")
    queue.put_nowait("b", deadline=0.5)
    queue.close()
    clock.advance(0.5)
    assert told == [("b", Reason.DEADLINE)]
    clock.advance(0.5)
    assert told == [("b", Reason.DEADLINE), ("a", Reason.WAIT)]
    with pytest.raises(QueueClosed):
        queue.get_nowait()


def test_closed_at_once_it_rejects_what_it_has() -> None:
    queue, _, told = made()
    for number in range(4):
        queue.put_nowait(number, criticality=Criticality(number))
    queue.close(immediate=True)
    assert told == [(number, Reason.CLOSED) for number in range(4)]
    with pytest.raises(QueueClosed):
        queue.get_nowait()
    queue.close(immediate=True)
    assert len(told) == 4


def test_it_can_be_closed_at_once_after_it_was_closed() -> None:
    queue, _, told = made()
    queue.put_nowait("a")
    queue.close()
    queue.close(immediate=True)
    assert told == [("a", Reason.CLOSED)]


def test_iteration_ends_with_the_queue() -> None:
    queue, _, _ = made()

    async def main() -> list[int]:
        for number in range(5):
            queue.put_nowait(number)
        queue.close()
        got = [number async for number in queue]
        assert [number async for number in queue] == []
        assert await anext(queue, "end") == "end"
        with pytest.raises(StopAsyncIteration):
            await anext(queue)
        return got

    assert asyncio.run(main()) == list(range(5))


# Tickets


def test_what_is_cancelled_is_gone() -> None:
    queue, _, told = made()
    tickets = {item: queue.put_nowait(item, cancellable=True) for item in "abcd"}
    assert len(set(tickets.values())) == 4
    for item in "bd":
        assert queue.cancel(tickets[item]) is True
        assert queue.cancel(tickets[item]) is False
    assert queue.depth == 2
    assert drained(queue) == ["a", "c"]
    assert not any(queue.cancel(ticket) for ticket in tickets.values())
    assert told == []
    snapshot = queue.snapshot()
    assert (snapshot.accepted, snapshot.taken, snapshot.cancelled) == (4, 2, 2)


def test_an_old_ticket_is_of_nobody_else() -> None:
    queue, clock, told = made(3)
    old = [queue.put_nowait(number, cancellable=True) for number in range(3)]
    clock.advance(1)
    assert len(told) == 3
    new = [queue.put_nowait(number, cancellable=True) for number in range(3)]
    assert not set(new) & set(old)
    assert not any(queue.cancel(ticket) for ticket in old)
    assert queue.depth == 3
    assert all(queue.cancel(ticket) for ticket in new)


@pytest.mark.parametrize("ticket", [0, 1, 2**31, 2**64, 2**127])
def test_a_made_up_ticket_is_of_nobody(ticket: int) -> None:
    queue, _, _ = made()
    queue.put_nowait("a")
    assert queue.cancel(ticket) is False
    assert drained(queue) == ["a"]


def test_a_ticket_is_given_only_to_who_asks() -> None:
    queue, _, _ = made()

    async def main() -> None:
        put: Any = queue.put_nowait
        assert put("a") is None
        assert await queue.put("b") is None  # type: ignore[func-returns-value]
        ticket = await queue.put("c", cancellable=True)
        assert queue.cancel(ticket)

    asyncio.run(main())
    sync: Any = queue.put_sync
    assert sync("d") is None
    assert queue.cancel(queue.put_sync("e", cancellable=True))
    assert drained(queue) == ["a", "b", "d"]


def test_a_cancelled_item_lives_no_longer() -> None:
    class Item:
        pass

    queue, _, _ = made()
    item = Item()
    alive = weakref.ref(item)
    ticket = queue.put_nowait(item, cancellable=True)
    del item
    assert alive() is not None
    queue.cancel(ticket)
    assert alive() is None


# Changes


def test_a_change_of_capacity_rejects_nobody() -> None:
    queue, _, told = made(3)
    for number in range(3):
        queue.put_nowait(number)
    queue.update(capacity=1)
    assert (queue.capacity, queue.depth, queue.saturation) == (1, 3, 3.0)
    with pytest.raises(Rejected):
        queue.put_nowait("x")
    assert queue.get_nowait() == 0
    with pytest.raises(Rejected):
        queue.put_nowait("x")
    queue.update(capacity=3)
    queue.put_nowait(3)
    assert drained(queue) == [1, 2, 3]
    assert told == []


def test_new_spans_are_those_of_who_waits_already() -> None:
    queue, clock, told = made()
    queue.put_nowait("a")
    clock.advance(0.5)
    queue.update(interval=2)
    clock.advance(1.4999)
    assert told == []
    queue.put_nowait("b")
    queue.update(target=0.01, interval=0.02)
    assert told == [("a", Reason.WAIT)]
    clock.advance(0.02)
    assert told == [("a", Reason.WAIT), ("b", Reason.WAIT)]


def test_an_update_of_nothing_changes_nothing() -> None:
    queue, _, _ = made()
    before = queue.snapshot()
    queue.update()
    queue.update(capacity=None, target=None, interval=None, low=None, high=None)
    assert queue.snapshot() == before


def test_marks_hold_from_now_on() -> None:
    queue, _, levels = watched(10)
    for _ in range(5):
        queue.put_nowait("x")
    queue.update(high=0.5)
    assert levels == ["high"]
    queue.update(low=0.6, high=0.7)
    assert levels == ["high", "low"]
