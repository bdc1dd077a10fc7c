"""The queue and those who wait at it."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, ClassVar

from scenario_player.checks import ScenarioError
from scenario_player.kinds import (
    are_counts,
    are_names,
    are_words,
    is_integer,
    is_number,
    is_table_of,
    is_text,
    is_true,
    is_truth,
)
from scenario_player.loops import OnLoops, run_at_once, timeout_of
from scenario_player.words import CRITICALITIES, EXCEPTIONS, numbered, same_answer
from sluicegate import CoDelQueue, QueueClosed, Reason, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock, Rejection
    from sluicegate._core import Take

OFFER: Keys = {
    "criticality": CRITICALITIES.__contains__,
    "deadline": is_number,
    "operation": is_text,
    "cancellable": is_truth,
    "loop": is_text,
}
TASK: Keys = {"cancelled": is_truth, "loop": is_text}


class Queue(OnLoops):
    CONFIG: ClassVar[Keys] = {"capacity": is_integer}
    OPTIONS: ClassVar[Keys] = {
        "target": is_number,
        "interval": is_number,
        "low": is_number,
        "high": is_number,
    }
    ACTIONS: ClassVar[list[Keys]] = [
        {"put_nowait": is_text, "times": is_integer, **OFFER},
        {"put": is_text, "timeout": is_number, **OFFER, **TASK},
        {"get_nowait": is_true, "loop": is_text},
        {"get": is_text, "timeout": is_number, **TASK},
        {"take": is_text, "times": is_integer, **TASK},
        {"done": is_text, "times": is_integer, "raises": EXCEPTIONS.__contains__},
        {"cancel_item": is_text},
        {"update": is_table_of(CONFIG | OPTIONS)},
        {"close": {"drain", "immediate"}.__contains__},
        *OnLoops.LOOP_ACTIONS,
    ]
    THEN: ClassVar[Keys] = {
        "depth": is_integer,
        "depth_at_least": is_integer,
        "saturation": is_number,
        "oldest_wait": is_number,
        "standing": is_truth,
        "target": is_number,
        "interval": is_number,
        "next_expiry": is_number,
        "getting": is_integer,
        "putting": is_integer,
        "working": is_integer,
        "accepted": is_integer,
        "taken": is_integer,
        "rejected": are_counts,
        "got": are_words,
        "put": are_names,
        "refused": are_words,
        "timed_out": are_names,
        "closed": are_names,
        "on_reject": are_names,
        "watermarks": are_names,
    }

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        # What the callbacks were told during this step.
        self.on_reject: list[str] = []
        self.watermarks: list[str] = []
        self.queue: CoDelQueue[str] = CoDelQueue(
            clock=clock,
            on_reject=self.note_rejection,
            on_high=lambda: self.watermarks.append("high"),
            on_low=lambda: self.watermarks.append("low"),
            **config,
        )
        self.tickets: dict[str, int] = {}
        self.works: dict[str, Take[str]] = {}
        # Who got what, and who was refused and why, during this step and after a wait.
        self.items: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def note_rejection(self, item: str, rejection: Rejection) -> None:
        self.on_reject.append(f"{item}: {rejection.reason}")

    def begin_step(self) -> None:
        super().begin_step()
        for of_step in (self.on_reject, self.watermarks, self.items, self.refused):
            of_step.clear()

    def act(self, step: Step) -> str:
        match step:
            case {"put_nowait": item}:
                with self.inside(step.get("loop")):
                    return same_answer([self.put_nowait(one, step) for one in numbered(item, step)])
            case {"put": item}:
                return self.put(item, step)
            case {"get_nowait": True}:
                with self.inside(step.get("loop")):
                    return self.get_nowait()
            case {"get": worker}:
                return self.get(worker, step)
            case {"take": worker}:
                return [self.take(one, step) for one in numbered(worker, step)][-1]
            case {"done": worker}:
                for one in numbered(worker, step):
                    self.finish(one, step)
            case {"cancel_item": item}:
                return self.cancel_item(item)
            case {"update": update}:
                try:
                    self.queue.update(**update)
                except ValueError:
                    return "error"
            case {"close": how}:
                self.queue.close(immediate=how == "immediate")
            case _:
                return self.act_on_loops(step)
        return "done"

    def state(self) -> object:
        return self.queue._snapshot()

    def got(self) -> Mapping[str, object]:
        values = self.queue._snapshot()
        next_expiry = values["next_expiry"]
        return {
            **values,
            "depth_at_least": values["depth"],
            "next_expiry": math.inf if next_expiry is None else next_expiry,
            "rejected": {str(reason): count for reason, count in values["rejected"].items()},
            "got": self.items,
            "put": self.answered("put"),
            "refused": self.refused,
            "timed_out": self.answered("timed_out"),
            "closed": self.answered("closed"),
            "on_reject": self.on_reject,
            "watermarks": self.watermarks,
        }

    def is_taken(self, name: str) -> bool:
        return name in self.works

    def keep(self, item: str, ticket: int | None) -> None:
        if ticket is not None:
            self.tickets[item] = ticket

    def put_nowait(self, item: str, step: Step) -> str:
        try:
            self.keep(item, self.queue.put_nowait(item, **offer_of(step)))
        except QueueClosed:
            return "closed"
        except Rejected as rejected:
            return str(rejected.reason)
        return "accepted"

    def put(self, item: str, step: Step) -> str:
        timeout, offer = timeout_of(step), offer_of(step)
        has_waited = False

        async def work() -> str:
            try:
                self.keep(item, await self.queue.put(item, timeout=timeout, **offer))
            except TimeoutError as error:
                if not isinstance(error, Rejected):
                    return "timed_out"
                reason = error.reason
            except Rejected as error:
                reason = error.reason
            except QueueClosed:
                reason = Reason.CLOSED
            else:
                return "put" if has_waited else "accepted"
            if not has_waited:
                return str(reason)
            self.refused[item] = str(reason)
            return "refused"

        answer = self.start(item, step, work)
        has_waited = answer == "waiting"
        return answer

    def get_nowait(self) -> str:
        try:
            return self.queue.get_nowait()
        except asyncio.QueueEmpty:
            return "empty"
        except QueueClosed:
            return "closed"

    def get(self, worker: str, step: Step) -> str:
        timeout = timeout_of(step)
        has_waited = False

        async def work() -> str:
            try:
                item = await self.queue.get(timeout=timeout)
            except TimeoutError:
                return "timed_out"
            except QueueClosed:
                return "closed"
            if has_waited:
                self.items[worker] = item
            return item

        answer = self.start(worker, step, work)
        has_waited = answer == "waiting"
        return answer

    def take(self, worker: str, step: Step) -> str:
        has_waited = False

        async def work() -> str:
            block = self.queue.take()
            try:
                item = await block.__aenter__()
            except QueueClosed:
                return "closed"
            self.works[worker] = block
            if has_waited:
                self.items[worker] = item
            return item

        answer = self.start(worker, step, work)
        has_waited = answer == "waiting"
        return answer

    def finish(self, worker: str, step: Step) -> None:
        if worker not in self.works:
            raise ScenarioError(f"{worker} does not work")
        error = EXCEPTIONS[step["raises"]]() if "raises" in step else None
        run_at_once(end_work(self.works.pop(worker), error))

    def cancel_item(self, item: str) -> str:
        if item not in self.tickets:
            raise ScenarioError(f"{item} has no ticket")
        return "done" if self.queue.cancel(self.tickets[item]) else "gone"

    def become_child(self) -> None:
        super().become_child()
        self.of_parent.append(self.works)
        self.works = {}

    def give_back(self) -> None:
        for worker in sorted(self.works):
            self.finish(worker, {})
        snapshot = self.queue.snapshot()
        left = snapshot.getting, snapshot.putting
        if left != (0, 0):
            raise ScenarioError(f"after the last step: getting and putting are {left}")


async def end_work(work: Take[str], error: BaseException | None) -> None:
    await work.__aexit__(None if error is None else type(error), error, None)


def offer_of(step: Step) -> dict[str, Any]:
    offer: dict[str, Any] = {
        key: step[key] for key in ("deadline", "operation", "cancellable") if key in step
    }
    if "criticality" in step:
        offer["criticality"] = CRITICALITIES[step["criticality"]]
    return offer
