"""The limiters, and the permits that they give."""

from __future__ import annotations

import math
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, cast

from scenario_player.checks import ScenarioError, check
from scenario_player.kinds import (
    are_counts,
    are_names,
    are_numbers,
    is_integer,
    is_number,
    is_text,
    is_truth,
)
from scenario_player.loops import OnLoops, run_at_once, timeout_of
from scenario_player.words import EXCEPTIONS, OUTCOMES
from sluicegate import Acquire, Rejection, SemaphoreLimiter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock, Permit
    from sluicegate._limiter import BaseLimiter


class Limiter(OnLoops):
    """Any limiter; those who know which one make it."""

    ACTIONS: ClassVar[list[Keys]] = [
        {"try_acquire": is_text, "cost": is_integer, "loop": is_text},
        {
            "acquire": is_text,
            "cost": is_integer,
            "loop": is_text,
            "timeout": is_number,
            "cancelled": is_truth,
        },
        {"release": is_text, "outcome": OUTCOMES.__contains__, "loop": is_text},
        {"release": is_text, "raises": EXCEPTIONS.__contains__, "loop": is_text},
        {"forget": is_text},
        *OnLoops.LOOP_ACTIONS,
    ]
    THEN: ClassVar[Keys] = {
        "in_flight": is_integer,
        "waiting": is_integer,
        "limit": is_number,
        "saturation": is_number,
        "oldest_wait": is_number,
        "next_expiry": is_number,
        "admitted": are_names,
        "timed_out": are_names,
        "waited": are_numbers,
        "outcomes": are_counts,
        "rejected": are_counts,
        "revoked": is_integer,
        "stray_releases": is_integer,
    }

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.limiter = self.make(config)
        # Kept, so that it is not their collection that takes them out of the line.
        self.wishes: dict[str, Acquire] = {}
        self.permits: dict[str, Permit] = {}
        self.held: set[str] = set()

    def make(self, config: dict[str, Any]) -> BaseLimiter:
        raise NotImplementedError

    def update(self, update: Any) -> None:
        """Change the limiter.

        Raises:
            ValueError: If a value is out of its range.
        """
        raise NotImplementedError

    def act(self, step: Step) -> str:
        match step:
            case {"try_acquire": name}:
                return self.try_acquire(name, step)
            case {"acquire": name}:
                return self.acquire(name, step)
            case {"release": name}:
                return self.release(name, step)
            case {"forget": name}:
                self.forget(name)
            case {"update": update}:
                try:
                    self.update(update)
                except ValueError:
                    return "error"
            case _:
                return self.act_on_loops(step)
        return "done"

    def state(self) -> object:
        return self.limiter._snapshot()

    def got(self) -> Mapping[str, object]:
        snapshot = self.limiter.snapshot()
        next_expiry = self.limiter._snapshot()["next_expiry"]
        return {
            "in_flight": snapshot.in_flight,
            "waiting": snapshot.waiting,
            "limit": snapshot.limit,
            "saturation": snapshot.saturation,
            "oldest_wait": snapshot.oldest_wait,
            "next_expiry": math.inf if next_expiry is None else next_expiry,
            "admitted": self.answered("admitted"),
            "timed_out": self.answered("timed_out"),
            "outcomes": {str(outcome): count for outcome, count in snapshot.outcomes.items()},
            "rejected": {str(reason): count for reason, count in snapshot.rejected.items()},
            "revoked": snapshot.revoked,
            "stray_releases": snapshot.stray_releases,
        }

    def look(self, then: Mapping[str, Any]) -> None:
        super().look({key: value for key, value in then.items() if key != "waited"})
        for name, expected in then.get("waited", {}).items():
            if name not in self.held:
                raise ScenarioError(f"waited: {name} holds no permit")
            check(f"waited of {name}", expected, self.permits[name].waited)

    def is_taken(self, name: str) -> bool:
        return name in self.held

    def hold(self, name: str, permit: Permit) -> str:
        self.permits[name] = permit
        self.held.add(name)
        return "admitted"

    def try_acquire(self, name: str, step: Step) -> str:
        self.check_free(name)
        with self.inside(step.get("loop")):
            try:
                answer = self.limiter.try_acquire(step.get("cost", 1))
            except ValueError:
                return "error"
        if isinstance(answer, Rejection):
            return str(answer.reason)
        return self.hold(name, answer)

    def acquire(self, name: str, step: Step) -> str:
        timeout = timeout_of(step)

        async def work() -> str:
            try:
                wish = self.limiter.acquire(step.get("cost", 1), timeout=timeout)
                self.wishes[name] = wish
                permit = await wish
            except ValueError:
                return "error"
            except TimeoutError:
                return "timed_out"
            del self.wishes[name]
            return self.hold(name, permit)

        return self.start(name, step, work)

    def release(self, name: str, step: Step) -> str:
        permit = self.permits.get(name)
        if permit is None:
            raise ScenarioError(f"{name} holds no permit")
        before = self.limiter.snapshot().stray_releases
        with self.inside(step.get("loop")):
            if "outcome" in step:
                permit.release(OUTCOMES[step["outcome"]])
            elif "raises" in step:
                leave(permit, EXCEPTIONS[step["raises"]]())
            else:
                leave(permit, None)
        self.held.discard(name)
        return "done" if self.limiter.snapshot().stray_releases == before else "ignored"

    def forget(self, name: str) -> None:
        if name not in self.held:
            raise ScenarioError(f"{name} holds no permit")
        self.held.remove(name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del self.permits[name]
        if [warning.category for warning in caught] != [ResourceWarning]:
            raise ScenarioError(f"expected one ResourceWarning, got {caught}")

    def give_back(self) -> None:
        for name in sorted(self.held):
            self.permits[name].release()
        self.held.clear()
        left = self.limiter.in_flight, self.limiter.waiting
        if left != (0, 0):
            raise ScenarioError(f"after the last step: in flight and waiting are {left}")

    def close(self) -> None:
        super().close()
        for name in self.held:
            self.permits[name].release()


def leave(permit: Permit, exception: BaseException | None) -> None:
    """End the block of a permit: of `async with` if it was acquired, else of `with`."""
    caught: BaseException | None = None
    try:
        # A wish that came true is its permit.
        if isinstance(cast("object", permit), Acquire):
            run_at_once(end_block_async(permit, exception))
        else:
            end_block(permit, exception)
    except BaseException as error:
        caught = error
    if caught is not exception:
        raise ScenarioError(f"the block ended by {caught!r}, not by {exception!r}")


def end_block(permit: Permit, exception: BaseException | None) -> None:
    with ExitStack() as stack:
        stack.push(permit)  # which was entered when it was admitted
        if exception is not None:
            raise exception


async def end_block_async(permit: Permit, exception: BaseException | None) -> None:
    async with Entered(cast("Acquire", permit)):
        if exception is not None:
            raise exception


class Entered:
    """An `async with` that another task has begun."""

    def __init__(self, acquire: Acquire) -> None:
        self.acquire = acquire

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self,
        class_: type[BaseException] | None,
        exception: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return await self.acquire.__aexit__(class_, exception, trace)


class Semaphore(Limiter):
    CONFIG: ClassVar[Keys] = {"kind": {"semaphore"}.__contains__, "limit": is_number}
    ACTIONS: ClassVar[list[Keys]] = [{"update": is_number}, *Limiter.ACTIONS]
    limiter: SemaphoreLimiter

    def make(self, config: dict[str, Any]) -> SemaphoreLimiter:
        return SemaphoreLimiter(config["limit"], clock=self.clock)

    def update(self, update: float) -> None:
        self.limiter.update(limit=update)
