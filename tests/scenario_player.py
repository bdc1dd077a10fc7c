"""Plays step scenarios through the extension, on event loops that run only when told to.

The format is described in `scenarios/README.md`; `scenario/` has the same player in Rust.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import tomllib
import traceback
import warnings
from asyncio import events
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sluicegate import Acquire, ManualClock, Outcome, Permit, Rejected, Rejection, SemaphoreLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from types import TracebackType

    Scenario = dict[str, Any]
    Step = dict[str, Any]
    NewLoop = Callable[[], asyncio.AbstractEventLoop]

LONGEST_WAIT = 3600.0
# A signal needs two turns of a loop to reach its task and let it run.
TURNS = 4

OUTCOMES = {str(outcome): outcome for outcome in Outcome}
EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "Rejected": lambda: Rejected(Rejection("downstream", "limit")),
    "TimeoutError": TimeoutError,
    "ValueError": ValueError,
}


class ScenarioError(Exception):
    """Something is wrong with the scenario, or did not come as it expects."""


def is_integer(value: object) -> bool:
    return type(value) is int


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def is_text(value: object) -> bool:
    return type(value) is str


def is_truth(value: object) -> bool:
    return type(value) is bool


def is_true(value: object) -> bool:
    return value is True


def are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def are_counts(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_integer, value.values()))


def are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


Keys = dict[str, "Callable[[object], bool]"]

# What a step does is told by its keys: the first of each is needed, the others are not.
ACTIONS: list[Keys] = [
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
    {"cancel": is_text},
    {"update": is_number},
    {"at": is_number},
    {"tick": is_text},
    {"settle": is_text},
    {"close_loop": is_text},
    {"fork": is_true},
]
THEN: Keys = {
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


def load(text: str) -> Scenario:
    """Read a scenario.

    Raises:
        ScenarioError: If it is not of the format.
    """
    try:
        scenario = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(str(error)) from error
    check_all_keys(scenario, {"about": is_text, "limiter": is_table, "step": are_tables})
    if not scenario["about"].strip():
        raise ScenarioError("it says nothing about itself")
    check_all_keys(scenario["limiter"], {"kind": {"semaphore"}.__contains__, "limit": is_number})
    for number, step in enumerate(scenario["step"], 1):
        with naming_step(number):
            check_step(step)
    return scenario


def play(scenario: Scenario, new_loop: NewLoop = asyncio.new_event_loop) -> None:
    """Play a scenario.

    Raises:
        ScenarioError: If something does not come as it expects: the first such thing, and in
            which step.
    """
    try:
        player = Player(scenario["limiter"]["limit"], new_loop)
    except ValueError as error:
        raise ScenarioError(str(error)) from error
    player.play(scenario["step"])


def is_table(value: object) -> bool:
    return isinstance(value, dict)


def are_tables(value: object) -> bool:
    return isinstance(value, list) and all(map(is_table, value))


def check_keys(table: Mapping[str, object], keys: Keys) -> None:
    for key, value in table.items():
        if key not in keys:
            raise ScenarioError(f"unknown key: {key}")
        if not keys[key](value):
            raise ScenarioError(f"{key} cannot be {value!r}")


def check_all_keys(table: Mapping[str, object], keys: Keys) -> None:
    check_keys(table, keys)
    if missing := sorted(keys.keys() - table.keys()):
        raise ScenarioError(f"missing keys: {missing}")


def check_step(step: Step) -> None:
    if not is_text(step.get("expect", "")):
        raise ScenarioError("expect is a string")
    then = step.get("then", {})
    if not is_table(then):
        raise ScenarioError("then is a table")
    check_keys(then, THEN)
    given = step.keys() - {"expect", "then"}
    fitting = [keys for keys in ACTIONS if next(iter(keys)) in given and given <= keys.keys()]
    if given and not fitting:
        raise ScenarioError(f"no action has just these keys: {sorted(given)}")
    if given:
        check_keys({key: step[key] for key in given}, fitting[0])


@contextmanager
def naming_step(number: int) -> Iterator[None]:
    try:
        yield
    except ScenarioError as error:
        raise ScenarioError(f"step {number}: {error}") from error


class Player:
    """One run of one scenario."""

    def __init__(self, limit: float, new_loop: NewLoop) -> None:
        self.clock = ManualClock()
        self.limiter = SemaphoreLimiter(limit, clock=self.clock)
        self.new_loop = new_loop
        self.loops: dict[str, asyncio.AbstractEventLoop] = {}
        self.tasks: dict[str, tuple[asyncio.Task[None], str]] = {}
        # Kept, so that it is not their collection that takes them out of the line.
        self.wishes: dict[str, Acquire] = {}
        self.permits: dict[str, Permit] = {}
        self.held: set[str] = set()
        # What belongs to the parent process, kept from being collected in the child.
        self.of_parent: list[object] = []
        self.admitted: set[str] = set()
        self.timed_out: set[str] = set()
        self.errors: list[str] = []

    def play(self, steps: list[Step]) -> None:
        try:
            self.play_from(0, steps)
            self.give_all_back()
        finally:
            self.close()

    def play_from(self, first: int, steps: list[Step]) -> None:
        for index in range(first, len(steps)):
            step = steps[index]
            if "fork" in step:
                self.play_in_child(index, steps)
                break
            with naming_step(index + 1):
                self.admitted.clear()
                self.timed_out.clear()
                answer = self.act(step)
                self.look(step, answer)

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
            case {"cancel": name}:
                self.cancel(name)
            case {"update": limit}:
                try:
                    self.limiter.update(limit=limit)
                except ValueError:
                    return "error"
            case {"at": at}:
                self.advance(at)
            case {"tick": name}:
                turn(self.known(name))
            case {"settle": "all"}:
                self.settle_all()
            case {"settle": name}:
                self.settle(self.known(name))
            case {"close_loop": name}:
                self.known(name).close()
        return "done"

    def look(self, step: Step, answer: str) -> None:
        self.reap()
        if answer != step.get("expect", answer):
            raise ScenarioError(f"expected {step['expect']!r}, got {answer!r}")
        snapshot = self.limiter.snapshot()
        next_expiry = self.limiter._snapshot()["next_expiry"]
        got: dict[str, object] = {
            "in_flight": snapshot.in_flight,
            "waiting": snapshot.waiting,
            "limit": snapshot.limit,
            "saturation": snapshot.saturation,
            "oldest_wait": snapshot.oldest_wait,
            "next_expiry": math.inf if next_expiry is None else next_expiry,
            "admitted": self.admitted,
            "timed_out": self.timed_out,
            "outcomes": {str(outcome): count for outcome, count in snapshot.outcomes.items()},
            "rejected": {str(reason): count for reason, count in snapshot.rejected.items()},
            "revoked": snapshot.revoked,
            "stray_releases": snapshot.stray_releases,
        }
        then = step.get("then", {})
        for what, expected in then.items():
            if what in got and not is_as(expected, got[what]):
                raise ScenarioError(f"{what}: expected {expected}, got {got[what]}")
        for name, expected in then.get("waited", {}).items():
            if name not in self.held:
                raise ScenarioError(f"waited: {name} holds no permit")
            waited = self.permits[name].waited
            if not is_as(expected, waited):
                raise ScenarioError(f"waited of {name}: expected {expected}, got {waited}")

    def try_acquire(self, name: str, step: Step) -> str:
        self.check_free(name)
        with self.inside(step.get("loop")):
            try:
                answer = self.limiter.try_acquire(step.get("cost", 1))
            except ValueError:
                return "error"
        if isinstance(answer, Rejection):
            return str(answer.reason)
        self.hold(name, answer)
        return "admitted"

    def acquire(self, name: str, step: Step) -> str:
        where = step.get("loop", "main")
        timeout = step.get("timeout")
        loop = self.open(where)
        if timeout is not None and not 0 <= timeout <= LONGEST_WAIT:
            raise ScenarioError(f"no such timeout: {timeout}")
        self.check_free(name)
        answer = ""

        async def work() -> None:
            nonlocal answer
            if step.get("cancelled", False):
                task.cancel()
            try:
                wish = self.limiter.acquire(step.get("cost", 1), timeout=timeout)
                self.wishes[name] = wish
                permit = await wish
            except ValueError:
                answer = "error"
            except TimeoutError:
                if answer:
                    self.timed_out.add(name)
                else:
                    answer = "timed_out"
            else:
                del self.wishes[name]
                self.hold(name, permit)
                if answer:
                    self.admitted.add(name)
                else:
                    answer = "admitted"

        def after_first_step() -> None:
            nonlocal answer
            answer = answer or "waiting"

        task = loop.create_task(work())
        loop.call_soon(after_first_step)
        self.tasks[name] = task, where
        self.settle(loop)
        if answer == "waiting" and task.cancelled():
            return "cancelled"
        return answer

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

    def cancel(self, name: str) -> None:
        if name not in self.tasks:
            raise ScenarioError(f"{name} does not wait")
        task, where = self.tasks[name]
        loop = self.known(where)
        task.cancel()
        self.settle(loop)
        if not task.cancelled():
            raise ScenarioError(f"{name} was cancelled, and became {task}")

    def advance(self, to: float) -> None:
        if not 0 <= to < math.inf:
            raise ScenarioError(f"no such time: {to}")
        if to < self.clock.now():
            raise ScenarioError("the clock does not go back")
        self.clock.advance(to - self.clock.now())

    def settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a loop run until it is idle."""
        before: object = None
        while before != (before := self.limiter._snapshot()):
            for _ in range(TURNS):
                turn(loop)

    def settle_all(self) -> None:
        before: object = None
        while before != (before := self.limiter._snapshot()):
            for loop in self.loops.values():
                if not loop.is_closed():
                    self.settle(loop)

    def reap(self) -> None:
        for name, (task, _) in list(self.tasks.items()):
            if task.done():
                del self.tasks[name]
                if not task.cancelled():
                    task.result()
        if self.errors:
            raise ScenarioError(f"the event loop reported {self.errors}")

    def hold(self, name: str, permit: Permit) -> None:
        self.permits[name] = permit
        self.held.add(name)

    def check_free(self, name: str) -> None:
        if name in self.held or name in self.tasks:
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

    def give_all_back(self) -> None:
        """See that nothing is left when all is cancelled and given back."""
        for name in sorted(self.tasks):
            if name in self.tasks and not self.loops[self.tasks[name][1]].is_closed():
                self.cancel(name)
                self.reap()
        self.close_tasks()
        for name in sorted(self.held):
            self.permits[name].release()
        self.held.clear()
        left = self.limiter.in_flight, self.limiter.waiting
        if left != (0, 0) or self.clock._has_unclaimed():
            raise ScenarioError(f"after the last step: in flight and waiting are {left}")

    def close_tasks(self) -> None:
        """End the tasks that are left as their collection would."""
        for task, _ in self.tasks.values():
            cast("Coroutine[Any, Any, None]", task.get_coro()).close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.clear()

    def close(self) -> None:
        """End what a failure left."""
        for task, where in self.tasks.values():
            if not self.loops[where].is_closed():
                task.cancel()
        self.settle_all()
        self.close_tasks()
        for name in self.held:
            self.permits[name].release()
        for loop in self.loops.values():
            loop.close()

    def play_in_child(self, index: int, steps: list[Step]) -> None:
        """Play the rest in a forked process, which changes nothing in this one."""
        before = self.limiter._snapshot()
        receiver, sender = os.pipe()
        with warnings.catch_warnings():
            # That the runner of the tests has threads does not matter to this child.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            self.be_the_child(index, steps, sender)
        os.close(sender)
        try:
            with open(receiver, encoding="utf-8") as pipe:
                report = pipe.read()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
        if status != 0:
            raise ScenarioError(report or f"the child ended with {status}")
        if self.limiter._snapshot() != before:
            raise ScenarioError(f"{before} became {self.limiter._snapshot()} by a fork")

    def be_the_child(self, index: int, steps: list[Step], sender: int) -> NoReturn:
        report = ""
        sys.unraisablehook = lambda unraisable: self.errors.append(str(unraisable))
        try:
            # Nobody runs the loops of the parent here.
            self.of_parent += [self.loops, self.tasks]
            self.loops, self.tasks = {}, {}
            with naming_step(index + 1):
                self.admitted.clear()
                self.timed_out.clear()
                self.look(steps[index], "done")
            self.play_from(index + 1, steps)
            self.give_all_back()
            self.reap()
        except ScenarioError as error:
            report = str(error)
        except BaseException:
            report = traceback.format_exc()
        finally:
            with open(sender, "w", encoding="utf-8") as pipe:
                pipe.write(report)
            os._exit(bool(report))


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Let a loop run all that is ready, and not what becomes ready by it."""
    loop.call_soon(loop.stop)
    loop.run_forever()


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


def run_at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise ScenarioError("leaving the block suspends")


def end_block(permit: Permit, exception: BaseException | None) -> None:
    with permit:
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


def is_as(expected: object, got: object) -> bool:
    """Compare; decimal fractions of a file are not those of a sum."""
    match expected, got:
        case list(), set():
            return sorted(expected) == sorted(got)
        case ((int() | float()), (int() | float())):
            return math.isclose(expected, got, rel_tol=1e-12, abs_tol=1e-12)
    return expected == got
