"""Random programs against the naive rules: the same items go the same way at the same moment."""

from __future__ import annotations

import asyncio
import functools
from asyncio import events
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from naive_queue import MS, Line, NaiveQueue, Wait
from sluicegate import CoDelQueue, Criticality, ManualClock, QueueClosed, Reason, Rejected, Take

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(1800)

SPANS = st.one_of(
    st.sampled_from([0, 0, 1, 1 * MS, 5 * MS, 10 * MS, 50 * MS, 100 * MS, 101 * MS]),
    st.integers(0, 30 * MS),
    st.integers(0, 150).map(lambda ms: ms * MS),
)
LONG = st.one_of(SPANS, st.sampled_from([1000 * MS, 3000 * MS, 15_000 * MS]))
MAYBE = st.one_of(st.none(), SPANS)
LEVELS = st.one_of(st.just(2), st.integers(0, 3))
CAPACITIES = st.sampled_from([0, 1, 1, 2, 3, 5, 10, 100])
# Target and interval.
BOUNDS = st.sampled_from([(5, 100), (5, 100), (10, 20), (1, 2), (50, 60), (3, 1000)])
MARKS = st.sampled_from([(0.3, 0.7), (0.3, 0.7), (0.0, 1.0), (0.5, 0.50001), (0.0, 0.01)])
INDEX = st.integers(0, 10**6)


@dataclass(eq=False)
class Waiting:
    """A wait that is stepped by hand, and what the rules know of it."""

    line: Line
    known: Wait
    steps: Any
    future: Any
    # What a getter works with, if it does.
    take: Take[int] | None = None


@dataclass
class Work:
    take: Take[int]
    began: int


def seconds(nanos: int) -> float:
    return nanos / 1e9


class Program(RuleBasedStateMachine):
    """Does things to a queue and to the rules, and looks whether the same comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        events._set_running_loop(self.loop)
        self.clock = ManualClock()
        self.told: list[tuple[int, int | str, Reason | None]] = []
        self.waits: list[Waiting] = []
        self.works: list[Work] = []
        self.tickets: list[tuple[int, int]] = []
        self.made = 0

    @initialize(capacity=CAPACITIES, bounds=BOUNDS, marks=MARKS, start=LONG)
    def make(
        self, capacity: int, bounds: tuple[int, int], marks: tuple[float, float], start: int
    ) -> None:
        target, interval = (bound * MS for bound in bounds)
        self.naive = NaiveQueue(capacity, target, interval, *marks)
        self.queue: CoDelQueue[int] = CoDelQueue(
            capacity,
            target=seconds(target),
            interval=seconds(interval),
            low=marks[0],
            high=marks[1],
            on_reject=lambda item, rejection: self.hear(item, rejection.reason),
            on_high=lambda: self.hear("high", None),
            on_low=lambda: self.hear("low", None),
            clock=self.clock,
        )
        self.pass_time(start)

    def hear(self, what: int | str, why: Reason | None) -> None:
        self.told.append((self.now, what, why))

    @property
    def now(self) -> int:
        return round(self.clock.now() * 1e9)

    @contextmanager
    def beside_the_loop(self) -> Iterator[None]:
        events._set_running_loop(None)
        try:
            yield
        finally:
            events._set_running_loop(self.loop)

    def new_item(self, deadline: int | None) -> tuple[int, int | None]:
        self.made += 1
        return self.made, None if deadline is None else self.now + deadline

    def terms(self, level: int, deadline: int | None) -> dict[str, Any]:
        span = None if deadline is None else seconds(deadline)
        return {"criticality": Criticality(level), "deadline": span, "cancellable": True}

    @staticmethod
    def refused(error: BaseException, why: Reason) -> None:
        """Check that an error tells of this reason."""
        if why is Reason.CLOSED:
            assert isinstance(error, QueueClosed), (error, why)
        elif why is Reason.WAIT:
            assert isinstance(error, TimeoutError), (error, why)
        else:
            assert isinstance(error, Rejected), (error, why)
            assert error.reason is why

    # Without waiting

    @rule(level=LEVELS, deadline=MAYBE)
    def put_nowait(self, level: int, deadline: int | None) -> None:
        name, until = self.new_item(deadline)
        why = self.naive.put_or_reject(name, level, until)
        if why is None:
            ticket = self.queue.put_nowait(name, **self.terms(level, deadline))
            self.tickets.append((name, ticket))
        else:
            with pytest.raises((Rejected, QueueClosed)) as raised:
                self.queue.put_nowait(name, **self.terms(level, deadline))
            self.refused(raised.value, why)

    @rule(
        level=LEVELS,
        many=st.one_of(st.integers(2, 5), st.integers(2, 70)),
        gap=st.sampled_from([0, 0, MS // 2, 2 * MS]),
    )
    def put_many(self, level: int, many: int, gap: int) -> None:
        for _ in range(many):
            self.put_nowait(level, None)
            if gap:
                self.pass_time(gap)

    @precondition(lambda self: not self.waits)
    @rule(
        many=st.integers(20, 60),
        gap=st.sampled_from([MS // 2, 2 * MS, 7 * MS]),
        every=st.integers(2, 4),
    )
    def put_more_than_is_taken(self, many: int, gap: int, every: int) -> None:
        for number in range(many):
            self.put_nowait(2, None)
            self.pass_time(gap)
            if number % every == 0:
                self.get_nowait()

    @rule()
    def get_nowait(self) -> None:
        answer = self.naive.get()
        try:
            assert self.queue.get_nowait() == answer
        except asyncio.QueueEmpty:
            assert answer is None
        except QueueClosed:
            assert answer is Reason.CLOSED

    @precondition(lambda self: not self.waits)
    @rule(level=LEVELS, deadline=MAYBE)
    def put_sync(self, level: int, deadline: int | None) -> None:
        name, until = self.new_item(deadline)
        answer = self.naive.put(name, level, until, for_equals=False)
        if answer is False:
            waits = self.naive.wait_for_room(name, level, until, self.now)
            assert isinstance(waits, Reason)
            answer = waits
        with self.beside_the_loop():
            if isinstance(answer, Reason):
                with pytest.raises((Rejected, QueueClosed, TimeoutError)) as raised:
                    self.queue.put_sync(name, timeout=0, **self.terms(level, deadline))
                self.refused(raised.value, answer)
            else:
                ticket = self.queue.put_sync(name, timeout=0, **self.terms(level, deadline))
                self.tickets.append((name, ticket))

    @precondition(lambda self: not self.waits)
    @rule(is_timed=st.booleans())
    def get_sync(self, is_timed: bool) -> None:
        answer = self.naive.get()
        take = self.queue.take(timeout=0)
        get = take.__enter__ if is_timed else functools.partial(self.queue.get_sync, timeout=0)
        with self.beside_the_loop():
            if answer is None or isinstance(answer, Reason):
                with pytest.raises((QueueClosed, TimeoutError)) as raised:
                    get()
                self.refused(raised.value, answer or Reason.WAIT)
            else:
                assert get() == answer
                if is_timed:
                    self.works.append(Work(take, self.now))

    # By waiting

    def step(self, wait: Any) -> tuple[str, Any]:
        try:
            return "waits", next(wait)
        except StopIteration as done:
            return "done", done.value
        except (Rejected, QueueClosed, TimeoutError, StopAsyncIteration) as error:
            # Its traceback would keep others alive that are to be dropped.
            return "refused", error.with_traceback(None)

    @rule(many=st.integers(2, 8), timeout=MAYBE)
    def get_many(self, many: int, timeout: int | None) -> None:
        for _ in range(many):
            self.get("get", timeout)

    @rule(level=LEVELS, many=st.integers(2, 8), timeout=MAYBE)
    def put_more(self, level: int, many: int, timeout: int | None) -> None:
        for _ in range(many):
            self.put(level, None, timeout)

    @rule(level=LEVELS, deadline=MAYBE, timeout=MAYBE)
    def put(self, level: int, deadline: int | None, timeout: int | None) -> None:
        name, until = self.new_item(deadline)
        answer: Wait | Reason | bool = self.naive.put(name, level, until, for_equals=False)
        if answer is False:
            bound = None if timeout is None else self.now + timeout
            answer = self.naive.wait_for_room(name, level, until, bound)
        span = None if timeout is None else seconds(timeout)
        steps: Any = self.queue.put(name, timeout=span, **self.terms(level, deadline)).__await__()
        self.compare_put(steps, name, answer)

    def compare_put(self, steps: Any, name: int, answer: Wait | Reason | bool) -> None:
        kind, value = self.step(steps)
        if isinstance(answer, Wait):
            assert kind == "waits", value
            self.waits.append(Waiting(self.naive.putters, answer, steps, value))
        elif answer is True:
            assert kind == "done", value
            self.tickets.append((name, value))
        else:
            assert kind == "refused"
            assert isinstance(answer, Reason)
            self.refused(value, answer)

    @rule(way=st.sampled_from(["get", "take", "anext"]), timeout=MAYBE)
    def get(self, way: str, timeout: int | None) -> None:
        if way == "anext":
            timeout = None
        answer: int | Wait | Reason | None = self.naive.get()
        if answer is None:
            answer = self.naive.wait_for_item(None if timeout is None else self.now + timeout)
        span = None if timeout is None else seconds(timeout)
        take: Take[int] | None = None
        if way == "take":
            take = self.queue.take(timeout=span)
            steps: Any = take.__aenter__().__await__()
        elif way == "anext":
            steps = self.queue.__anext__().__await__()
        else:
            steps = self.queue.get(timeout=span).__await__()
        self.compare_get(steps, take, answer)

    def compare_get(
        self, steps: Any, take: Take[int] | None, answer: int | Wait | Reason | None
    ) -> None:
        kind, value = self.step(steps)
        if isinstance(answer, Wait):
            assert kind == "waits", value
            self.waits.append(Waiting(self.naive.getters, answer, steps, value, take))
        elif isinstance(answer, Reason):
            assert kind == "refused", value
            if not (isinstance(value, StopAsyncIteration) and answer is Reason.CLOSED):
                self.refused(value, answer)
        else:
            assert (kind, value) == ("done", answer)
            if take is not None:
                self.works.append(Work(take, self.now))

    def resume(self, wait: Waiting) -> None:
        self.waits.remove(wait)
        if wait.line is self.naive.putters:
            put = self.naive.come_for_room(wait.known)
            assert wait.known.item is not None
            self.compare_put(wait.steps, wait.known.item, put or wait.known)
        else:
            got = self.naive.come_for_item(wait.known)
            self.compare_get(wait.steps, wait.take, wait.known if got is None else got)

    @precondition(lambda self: any(wait.future.done() for wait in self.waits))
    @rule(index=INDEX)
    def come(self, index: int) -> None:
        """Run one of those that were answered."""
        answered = [wait for wait in self.waits if wait.future.done()]
        self.resume(answered[index % len(answered)])

    @precondition(lambda self: any(wait.future.done() for wait in self.waits))
    @rule()
    def come_all(self) -> None:
        while answered := [wait for wait in self.waits if wait.future.done()]:
            self.resume(answered[0])

    @precondition(lambda self: any(not wait.future.done() for wait in self.waits))
    @rule(index=INDEX)
    def come_for_nothing(self, index: int) -> None:
        waiting = [wait for wait in self.waits if not wait.future.done()]
        wait = waiting[index % len(waiting)]
        wait.future.set_result(None)
        self.resume(wait)

    @precondition(lambda self: self.waits)
    @rule(index=INDEX, way=st.sampled_from(["close", "throw", "drop"]))
    def give_up(self, index: int, way: str) -> None:
        wait = self.waits.pop(index % len(self.waits))
        self.naive.leave(wait.line, wait.known)
        if way == "close":
            wait.steps.close()
        elif way == "throw":
            with pytest.raises(asyncio.CancelledError):
                wait.steps.throw(asyncio.CancelledError())
        # Else it is collected, as by a loop that is closed under it.
        wait.steps = wait.future = None

    # Work

    @precondition(lambda self: self.works)
    @rule(index=INDEX, is_success=st.booleans())
    def finish(self, index: int, is_success: bool) -> None:
        work = self.works.pop(index % len(self.works))
        self.naive.refresh()
        service = self.now - work.began
        is_lesson = is_success or service > round(self.queue.snapshot().service_mean * 1e9)
        if is_success:
            _ = work.take.__aexit__(None, None, None)
        else:
            _ = work.take.__aexit__(KeyError, KeyError(), None)
        if is_lesson:
            known = self.queue.snapshot()
            self.naive.learn(round(known.service_p95 * 1e9), round(known.service_estimate * 1e9))

    @precondition(lambda self: not self.waits and not self.naive.is_closed)
    @rule(many=st.integers(1, 25), service=SPANS)
    def work(self, many: int, service: int) -> None:
        for _ in range(many):
            self.put_nowait(2, None)
            works = len(self.works)
            self.get_sync(True)
            self.pass_time(service)
            if len(self.works) > works:
                self.finish(works, True)

    # The rest

    @precondition(lambda self: self.tickets)
    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        name, ticket = self.tickets[-1 - index % min(20, len(self.tickets))]
        assert self.queue.cancel(ticket) is self.naive.cancel(name)

    @rule(span=LONG)
    def pass_time(self, span: int) -> None:
        self.naive.advance(self.now + span)
        self.clock.advance(seconds(span))
        assert self.now == self.naive.now

    @rule(capacity=CAPACITIES, bounds=BOUNDS, marks=MARKS)
    def update(self, capacity: int, bounds: tuple[int, int], marks: tuple[float, float]) -> None:
        target, interval = (bound * MS for bound in bounds)
        self.naive.update(capacity, target, interval, *marks)
        self.queue.update(
            capacity=capacity,
            target=seconds(target),
            interval=seconds(interval),
            low=marks[0],
            high=marks[1],
        )

    @rule(dice=st.integers(0, 60), immediate=st.booleans())
    def close(self, dice: int, immediate: bool) -> None:
        if dice == 0:
            self.naive.close(immediate)
            self.queue.close(immediate=immediate)

    @invariant()
    def is_as_the_rules_say(self) -> None:
        self.naive.sweep()
        snapshot, naive = self.queue.snapshot(), self.naive
        # What happens at one moment happens in any order.
        assert sorted(self.told, key=str) == sorted(naive.told, key=str)
        assert snapshot.depth == naive.depth
        assert snapshot.standing is naive.is_standing
        assert round(snapshot.oldest_wait * 1e9) == naive.oldest_wait
        assert (snapshot.getting, snapshot.putting) == (
            len(naive.getters.waiting),
            len(naive.putters.waiting),
        )
        assert snapshot.working == len(self.works)
        assert (snapshot.accepted, snapshot.taken) == (naive.accepted, naive.taken)
        assert snapshot.cancelled == naive.cancelled
        assert snapshot.rejected == naive.rejected
        assert snapshot.closed is naive.is_closed
        for wait in self.waits:
            assert wait.future.done() is wait.line.is_answered(wait.known)

    def teardown(self) -> None:
        try:
            if hasattr(self, "queue"):
                self.end()
        finally:
            self.waits.clear()
            self.works.clear()
            events._set_running_loop(None)
            self.loop.close()

    def end(self) -> None:
        """Let everything come to an end, and see that nothing is left."""
        self.naive.close(immediate=False)
        self.queue.close()
        self.is_as_the_rules_say()
        while self.waits:
            answered = [wait for wait in self.waits if wait.future.done()]
            if answered:
                self.resume(answered[0])
            elif self.queue.depth:
                self.get_nowait()
            else:
                pytest.fail("somebody is not answered")
            self.is_as_the_rules_say()
        while self.queue.depth:
            self.get_nowait()
        while self.works:
            self.finish(0, True)
        self.is_as_the_rules_say()
        assert self.queue.snapshot().depth == 0


def test_a_random_program_goes_as_the_rules_say(scale: float) -> None:
    run_state_machine_as_test(
        Program,
        settings=settings(
            max_examples=int(1000 * scale),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
