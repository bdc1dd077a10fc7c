"""The rules of a queue, with lists and no cleverness, to hold the real one to.

Time is in nanoseconds. It goes from one moment at which something could happen to the next, and
looks at everything there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluicegate import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

MS = 1_000_000
# So many of those that were over the target already go at once, and after a pause the next.
AT_ONCE = 32
PAUSE = MS
AGEING = 10_000 * MS


@dataclass(eq=False)
class Item:
    name: int
    criticality: int
    joined: int
    deadline: int | None
    # Whether its deadline is judged by how long the service takes.
    is_judged: bool
    # Came with no time to wait: it is taken at that moment, or not at all.
    is_urgent: bool
    # Was over the target when that began to count.
    is_late: bool = False


@dataclass(eq=False)
class Wait:
    """Somebody in a line."""

    serial: int
    criticality: int
    until: int | None
    why: Reason
    item: int | None = None
    deadline: int | None = None


@dataclass
class Line:
    """Who waits, who was granted a turn, and who was refused and why."""

    waiting: list[Wait] = field(default_factory=list)
    granted: list[Wait] = field(default_factory=list)
    refused: dict[Wait, Reason] = field(default_factory=dict)

    def join(self, wait: Wait) -> None:
        """Stand in line: by criticality, then by age."""
        self.waiting.append(wait)
        self.waiting.sort(key=lambda wait: (-wait.criticality, wait.serial))

    def grant(self) -> None:
        self.granted.append(self.waiting.pop(0))

    def take_back(self, wait: Wait) -> None:
        self.granted.remove(wait)
        self.join(wait)

    def refuse(self, wait: Wait, why: Reason) -> None:
        self.waiting.remove(wait)
        self.refused[wait] = why

    def expire(self, now: int) -> None:
        for wait in [each for each in self.waiting if each.until is not None]:
            if wait.until is not None and wait.until <= now:
                self.refuse(wait, wait.why)

    def leave(self, wait: Wait) -> None:
        if wait in self.waiting:
            self.waiting.remove(wait)
        elif wait in self.granted:
            self.granted.remove(wait)
        else:
            del self.refused[wait]

    def is_answered(self, wait: Wait) -> bool:
        return wait not in self.waiting


@dataclass
class NaiveQueue:
    capacity: int
    target: int
    interval: int
    low: float
    high: float
    now: int = 0
    # The 95th percentile and the estimate of the service time at its last sample, and when
    # that was.
    p95: int = 0
    service: int = 0
    learnt_at: int = 0
    items: list[Item] = field(default_factory=list)
    getters: Line = field(default_factory=Line)
    putters: Line = field(default_factory=Line)
    is_standing: bool = False
    is_high: bool = False
    is_closed: bool = False
    last_good: int = 0
    last_bad: int = 0
    may_go: int = 0
    pause_ends: int = 0
    serial: int = 0
    # What happened: when, to what or which level, and why.
    told: list[tuple[int, int | str, Reason | None]] = field(default_factory=list)
    accepted: int = 0
    taken: int = 0
    cancelled: int = 0
    rejected: dict[Reason, int] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """How many wait, without those for which a worker is on its way."""
        return max(0, len(self.items) - len(self.getters.granted))

    @property
    def oldest_wait(self) -> int:
        return self.now - self.items[0].joined if self.items else 0

    @property
    def free(self) -> int:
        """How many more may come: those for whom a worker waits need no room."""
        return max(0, self.capacity - self.depth) + len(self.getters.waiting)

    # What can be done, each at the present moment

    def put(
        self, name: int, criticality: int, deadline: int | None, for_equals: bool
    ) -> Reason | bool:
        """Put now if that can be: True. False if there is no room, or else why not."""
        self.refresh()
        answer = self.try_put(name, criticality, deadline, for_equals)
        self.serve()
        return answer

    def put_or_reject(self, name: int, criticality: int, deadline: int | None) -> Reason | None:
        answer = self.put(name, criticality, deadline, for_equals=True)
        if answer is False:
            self.last_bad = max(self.last_bad, self.now)
            answer = self.count(Reason.FULL)
        return None if answer is True else answer

    def wait_for_room(
        self, name: int, criticality: int, deadline: int | None, until: int | None
    ) -> Wait | Reason:
        """Wait after a put in vain."""
        if until is not None and until <= self.now:
            return self.count(Reason.WAIT)
        bound, why = until, Reason.WAIT
        if deadline is not None and (until is None or deadline < until):
            bound, why = deadline, Reason.DEADLINE
        self.serial += 1
        wait = Wait(self.serial, criticality, bound, why, name, deadline)
        self.putters.join(wait)
        return wait

    def come_for_room(self, wait: Wait) -> Reason | bool:
        """Put after the wait. False if it has to go on waiting."""
        self.refresh()
        if wait in self.putters.granted and len(self.putters.granted) > self.free:
            # What it was granted is not there any more.
            self.putters.take_back(wait)
            self.serve_putters()
        answer: Reason | bool = False
        if wait in self.putters.refused:
            answer = self.count(self.putters.refused.pop(wait))
        elif wait in self.putters.granted:
            self.putters.granted.remove(wait)
            assert wait.item is not None
            objection = self.objection(wait.deadline)
            if objection is None:
                self.let_in(wait.item, wait.criticality, wait.deadline)
            answer = True if objection is None else self.count(objection)
        self.serve()
        return answer

    def get(self) -> int | Reason | None:
        """Take what is next, if it is for nobody who waits; else why, or None if there is none."""
        self.refresh()
        answer: int | Reason | None = None
        if self.is_closed and not self.items:
            answer = Reason.CLOSED
        elif not self.getters.waiting and self.depth > 0:
            answer = self.take_next()
        self.serve()
        return answer

    def wait_for_item(self, until: int | None) -> Wait | Reason:
        if until is not None and until <= self.now:
            return Reason.WAIT
        self.serial += 1
        wait = Wait(self.serial, 2, until, Reason.WAIT)
        self.getters.join(wait)
        self.serve()
        return wait

    def come_for_item(self, wait: Wait) -> int | Reason | None:
        """Take after the wait. None if it has to go on waiting."""
        self.refresh()
        if wait in self.getters.granted and not self.items:
            self.getters.take_back(wait)
        answer: int | Reason | None = None
        if wait in self.getters.refused:
            answer = self.getters.refused.pop(wait)
        elif wait in self.getters.granted:
            self.getters.granted.remove(wait)
            answer = self.take_next()
        elif self.is_closed and not self.items:
            self.getters.waiting.remove(wait)
            answer = Reason.CLOSED
        self.serve()
        return answer

    def leave(self, line: Line, wait: Wait) -> None:
        self.refresh()
        line.leave(wait)
        self.serve()

    def cancel(self, name: int) -> bool:
        self.refresh()
        found = [item for item in self.items if item.name == name]
        for item in found:
            self.remove(item)
            self.cancelled += 1
            self.check_level()
        self.serve()
        return bool(found)

    def close(self, immediate: bool) -> None:
        self.refresh()
        self.is_closed = True
        while immediate and self.items:
            self.reject(self.items[0], Reason.CLOSED)
        self.serve()

    def update(self, capacity: int, target: int, interval: int, low: float, high: float) -> None:
        self.settle()
        is_shorter = target < self.target
        self.capacity, self.target, self.interval = capacity, target, interval
        self.low, self.high = low, high
        if self.is_standing and is_shorter:
            self.mark_the_late()
        self.settle()
        self.check_level()
        self.serve()

    def learn(self, p95: int, service: int) -> None:
        """Take over an estimate that has just been made."""
        self.p95, self.service, self.learnt_at = p95, service, self.now
        self.refresh()

    def advance(self, to: int) -> None:
        """Let time pass."""
        self.sweep()
        while True:
            at = min((moment for moment in self.moments() if self.now < moment <= to), default=to)
            self.glide(at)
            self.sweep()
            if at == to:
                return

    def sweep(self) -> None:
        self.refresh()
        self.getters.expire(self.now)
        self.serve()
        self.putters.expire(self.now)
        self.serve()

    # The lines

    def refresh(self) -> None:
        self.settle()
        self.serve()

    def serve(self) -> None:
        while self.getters.waiting and self.depth > 0:
            self.getters.grant()
        if self.is_closed and not self.items:
            for wait in list(self.getters.waiting):
                self.getters.refuse(wait, Reason.CLOSED)
        self.serve_putters()
        self.check_level()

    def serve_putters(self) -> None:
        while self.putters.waiting and not self.is_closed and len(self.putters.granted) < self.free:
            self.putters.grant()
        while self.is_closed and self.putters.waiting:
            self.putters.refuse(self.putters.waiting[0], Reason.CLOSED)

    def objection(self, deadline: int | None) -> Reason | None:
        if self.is_closed:
            return Reason.CLOSED
        if deadline is None:
            return None
        has_to_wait = self.depth > 0 and not self.getters.waiting
        if deadline <= self.now or (has_to_wait and self.is_too_late(deadline, self.now)):
            return Reason.DEADLINE
        return None

    def try_put(
        self, name: int, criticality: int, deadline: int | None, for_equals: bool
    ) -> Reason | bool:
        objection = self.objection(deadline)
        if objection is not None:
            return self.count(objection)
        is_overtaking = any(wait.criticality >= criticality for wait in self.putters.waiting)
        if is_overtaking:
            return False
        if len(self.putters.granted) >= self.free and not self.evict(criticality, for_equals):
            return False
        self.let_in(name, criticality, deadline)
        return True

    def evict(self, criticality: int, for_equals: bool) -> bool:
        if self.depth == 0:
            return False
        least = min(item.criticality for item in self.items)
        if not (least < criticality or (for_equals and self.is_standing and least == criticality)):
            return False
        candidates = [item for item in self.items if item.criticality == least]
        self.last_bad = max(self.last_bad, self.now)
        victim = candidates[0] if self.is_standing else candidates[-1]
        self.remove(victim)
        self.tell(victim, Reason.EVICTED)
        return True

    # The items

    def let_in(self, name: int, criticality: int, deadline: int | None) -> None:
        is_awaited = bool(self.getters.waiting)
        is_urgent = not is_awaited and deadline is not None and self.is_too_late(deadline, self.now)
        self.note_if_good()
        is_judged = not is_awaited and not is_urgent
        self.items.append(Item(name, criticality, self.now, deadline, is_judged, is_urgent))
        self.accepted += 1

    def take_next(self) -> int:
        most = max(item.criticality for item in self.items)
        candidates = [item for item in self.items if item.criticality == most]
        item = candidates[-1] if self.is_standing else candidates[0]
        self.remove(item)
        self.taken += 1
        return item.name

    def remove(self, item: Item) -> None:
        self.note_if_good()
        self.items.remove(item)
        self.note_if_good()

    def reject(self, item: Item, why: Reason) -> None:
        self.remove(item)
        self.tell(item, why)
        self.check_level()

    def tell(self, item: Item, why: Reason) -> None:
        self.count(why)
        self.told.append((self.now, item.name, why))

    def count(self, why: Reason) -> Reason:
        self.rejected[why] = self.rejected.get(why, 0) + 1
        return why

    def check_level(self) -> None:
        if self.capacity == 0:
            return
        share = self.depth / self.capacity
        if self.is_high and share <= self.low:
            self.is_high = False
            self.told.append((self.now, "low", None))
        elif not self.is_high and share >= self.high:
            self.is_high = True
            self.told.append((self.now, "high", None))

    # Time

    def estimate(self, at: int) -> int:
        idle, ageing = max(0, at - self.learnt_at), max(AGEING, 4 * self.p95)
        return 0 if idle >= ageing else self.service - self.service * idle // ageing

    def is_too_late(self, deadline: int, at: int) -> bool:
        """Whether less is left than the service takes."""
        left = max(0, deadline - at)
        return left == 0 or left < self.estimate(at)

    def is_hopeless(self, item: Item) -> bool:
        if item.is_urgent:
            return self.now > item.joined
        if item.deadline is None:
            return False
        if not item.is_judged:
            return item.deadline <= self.now
        return self.is_too_late(item.deadline, self.now)

    def turns_hopeless(self, item: Item) -> int | None:
        """Return the first moment to come at which it is."""
        if item.deadline is None or item.is_urgent:
            return self.now + 1 if item.is_urgent else None
        if not item.is_judged:
            return item.deadline
        before, after = self.now, item.deadline
        while after - before > 1:
            middle = (before + after) // 2
            if self.is_too_late(item.deadline, middle):
                after = middle
            else:
                before = middle
        return after

    def moments(self) -> Iterator[int]:
        """Yield when something could happen."""
        yield self.pause_ends
        yield self.last_bad + self.interval
        yield self.last_good + self.interval
        for wait in [*self.getters.waiting, *self.putters.waiting]:
            if wait.until is not None:
                yield wait.until
        for item in self.items:
            yield item.joined + self.target
            yield item.joined + self.interval
            hopeless = self.turns_hopeless(item)
            if hopeless is not None:
                yield hopeless

    def glide(self, at: int) -> None:
        """Go to a moment before which nothing happens: it was good until the target is reached."""
        passes = at > self.now
        if passes and (not self.items or self.items[0].joined + self.target >= at):
            self.last_good = at
        self.now = at

    def note_if_good(self) -> None:
        if not self.items or self.oldest_wait < self.target:
            self.last_good = self.now
        elif self.is_standing:
            self.last_bad = self.now

    def settle(self) -> None:
        """Do all that has to happen now."""
        while True:
            self.note_if_good()
            hopeless = [item for item in self.items if self.is_hopeless(item)]
            is_bad = bool(self.items) and self.now - self.last_good >= self.interval
            if not self.is_standing and is_bad:
                self.is_standing = True
                self.last_bad, self.may_go = self.now, AT_ONCE
                self.mark_the_late()
            elif (item := self.waited_too_long()) is not None:
                self.last_bad = self.now
                self.reject(item, Reason.WAIT)
            elif hopeless:
                self.reject(hopeless[0], Reason.DEADLINE)
            elif self.is_standing and self.now - self.last_bad >= self.interval:
                self.is_standing = False
                self.last_good = self.now
                for item in self.items:
                    item.is_late = False
            else:
                return

    def mark_the_late(self) -> None:
        for item in self.items:
            item.is_late |= self.now - item.joined > self.target

    def waited_too_long(self) -> Item | None:
        for item in self.items:
            is_short = self.is_standing and not item.is_late
            if self.now - item.joined >= (self.target if is_short else self.interval):
                return item
        late = [item for item in self.items if item.is_late]
        if not self.is_standing or not late or self.now - late[0].joined < self.target:
            return None
        if self.may_go == 0:
            if self.now < self.pause_ends:
                return None
            self.may_go = AT_ONCE
        self.may_go -= 1
        if self.may_go == 0:
            self.pause_ends = self.now + PAUSE
        return late[0]
