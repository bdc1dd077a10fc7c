"""The event loops, which run only when told to, and the tasks that wait on them."""

from __future__ import annotations

from asyncio import events
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

from scenario_player.checks import ScenarioError
from scenario_player.kinds import is_text
from scenario_player.subject import Subject

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator

    from scenario_player.kinds import Keys
    from scenario_player.subject import NewLoop, Step
    from sluicegate import ManualClock

LONGEST_WAIT = 3600.0
# A signal needs two turns of a loop to reach its task and let it run.
TURNS = 4


class OnLoops(Subject):
    """Something that tasks wait at."""

    LOOP_ACTIONS: ClassVar[list[Keys]] = [
        {"cancel": is_text},
        {"tick": is_text},
        {"settle": is_text},
        {"close_loop": is_text},
    ]

    def __init__(self, config: dict[str, Any], clock: ManualClock, new_loop: NewLoop) -> None:
        super().__init__(config, clock, new_loop)
        self.loops: dict[str, asyncio.AbstractEventLoop] = {}
        self.tasks: dict[str, tuple[asyncio.Task[None], str]] = {}
        # Who had waited and was answered so during this step, in order.
        self.answers: list[tuple[str, str]] = []
        # What belongs to the parent process, kept from being collected in the child.
        self.of_parent: list[object] = []

    def is_taken(self, name: str) -> bool:
        """Whether the name of a task is still in use although it does not wait."""
        return False

    def give_back(self) -> None:
        """Give back all that is held, when nobody waits any more."""

    def act_on_loops(self, step: Step) -> str:
        match step:
            case {"cancel": name}:
                self.cancel(name)
            case {"tick": name}:
                turn(self.known(name))
            case {"settle": "all"}:
                self.settle_all()
            case {"settle": name}:
                self.settle(self.known(name))
            case {"close_loop": name}:
                self.known(name).close()
        return "done"

    def answered(self, answer: str) -> set[str]:
        return {name for name, given in self.answers if given == answer}

    def start(self, name: str, step: Step, work: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Let a new task work on a loop, which runs until it is idle.

        What the work returns is the answer to the task.
        """
        where = step.get("loop", "main")
        loop = self.open(where)
        self.check_free(name)
        answer = ""

        async def run() -> None:
            nonlocal answer
            if step.get("cancelled", False):
                task.cancel()
            given = await work()
            if answer:
                self.answers.append((name, given))
            else:
                answer = given

        def after_first_step() -> None:
            nonlocal answer
            answer = answer or "waiting"

        task = loop.create_task(run())
        loop.call_soon(after_first_step)
        self.tasks[name] = task, where
        self.settle(loop)
        if answer == "waiting" and task.cancelled():
            return "cancelled"
        return answer

    def cancel(self, name: str) -> None:
        if name not in self.tasks:
            raise ScenarioError(f"{name} does not wait")
        task, where = self.tasks[name]
        loop = self.known(where)
        task.cancel()
        self.settle(loop)
        if not task.cancelled():
            raise ScenarioError(f"{name} was cancelled, and became {task}")

    def settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a loop run until it is idle."""
        before: object = None
        while before != (before := self.state()):
            for _ in range(TURNS):
                turn(loop)

    def settle_all(self) -> None:
        before: object = None
        while before != (before := self.state()):
            for loop in self.loops.values():
                if not loop.is_closed():
                    self.settle(loop)

    def check_free(self, name: str) -> None:
        if name in self.tasks or self.is_taken(name):
            raise ScenarioError(f"{name} is taken")

    def open(self, name: str) -> asyncio.AbstractEventLoop:
        """Return the loop of that name, made if need be."""
        if name == "all":
            raise ScenarioError("no loop is called all")
        if name not in self.loops:
            loop = self.new_loop()
            loop.set_exception_handler(lambda _, context: self.errors.append(str(context)))
            self.loops[name] = loop
        return self.known(name)

    def known(self, name: str) -> asyncio.AbstractEventLoop:
        """Return the open loop of that name."""
        loop = self.loops.get(name)
        if loop is None or loop.is_closed():
            raise ScenarioError(f"no open loop is called {name}")
        return loop

    @contextmanager
    def inside(self, name: str | None) -> Iterator[None]:
        """Be a callback of a loop, which lets none of its tasks run meanwhile."""
        if name is None:
            yield
            return
        events._set_running_loop(self.open(name))
        try:
            yield
        finally:
            events._set_running_loop(None)

    def begin_step(self) -> None:
        self.answers.clear()

    def finish_step(self) -> None:
        for name, (task, _) in list(self.tasks.items()):
            if task.done():
                del self.tasks[name]
                if not task.cancelled():
                    task.result()
        if self.errors:
            raise ScenarioError(f"the event loop reported {self.errors}")

    def become_child(self) -> None:
        # Nobody runs the loops of the parent here.
        self.of_parent += [self.loops, self.tasks]
        self.loops, self.tasks = {}, {}

    def end(self) -> None:
        for name in sorted(self.tasks):
            if name in self.tasks and not self.loops[self.tasks[name][1]].is_closed():
                self.cancel(name)
                self.finish_step()
        self.close_tasks()
        self.give_back()
        if self.clock._has_unclaimed(here=False):
            raise ScenarioError("after the last step somebody has not heard what came")

    def close(self) -> None:
        for task, where in self.tasks.values():
            if not self.loops[where].is_closed():
                task.cancel()
        self.settle_all()
        self.close_tasks()
        for loop in self.loops.values():
            loop.close()

    def close_tasks(self) -> None:
        """End the tasks that are left as their collection would."""
        for task, _ in self.tasks.values():
            cast("Coroutine[Any, Any, None]", task.get_coro()).close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.clear()


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let a loop run all that is ready, and not what becomes ready by it."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def timeout_of(step: Step) -> float | None:
    timeout: float | None = step.get("timeout")
    if timeout is not None and not 0 <= timeout <= LONGEST_WAIT:
        raise ScenarioError(f"no such timeout: {timeout}")
    return timeout


def run_at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise ScenarioError("leaving the block suspends")
