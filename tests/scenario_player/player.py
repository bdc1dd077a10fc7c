"""Plays a scenario, step by step."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import traceback
import warnings
from typing import TYPE_CHECKING, NoReturn

from scenario_player.checks import ScenarioError, check_answer, naming_step
from scenario_player.format import subject_of
from sluicegate import ManualClock

if TYPE_CHECKING:
    from scenario_player.format import Scenario
    from scenario_player.subject import NewLoop, Step, Subject


def play(scenario: Scenario, new_loop: NewLoop = asyncio.new_event_loop) -> None:
    """Play a scenario.

    Raises:
        ScenarioError: If something does not come as it expects: the first such thing, and in
            which step.
    """
    table, subject = subject_of(scenario)
    clock = ManualClock()
    try:
        played = subject(scenario[table], clock, new_loop)
    except (TypeError, ValueError) as error:
        raise ScenarioError(str(error)) from error
    Player(played, clock).play(scenario["step"])


class Player:
    """One run of one scenario."""

    def __init__(self, subject: Subject, clock: ManualClock) -> None:
        self.subject = subject
        self.clock = clock

    def play(self, steps: list[Step]) -> None:
        try:
            self.play_from(0, steps)
            self.subject.end()
        finally:
            self.subject.close()

    def play_from(self, first: int, steps: list[Step]) -> None:
        for index in range(first, len(steps)):
            step = steps[index]
            if "fork" in step:
                self.play_in_child(index, steps)
                break
            with naming_step(index + 1):
                self.subject.begin_step()
                answer = self.act(step)
                self.look(step, answer)

    def act(self, step: Step) -> object:
        match step:
            case {"at": at}:
                self.advance(at)
            case _ if step.keys() - {"expect", "then"}:
                return self.subject.act(step)
        return "done"

    def look(self, step: Step, answer: object) -> None:
        self.subject.finish_step()
        check_answer(step.get("expect", answer), answer)
        self.subject.look(step.get("then", {}))

    def advance(self, to: float) -> None:
        if not 0 <= to < math.inf:
            raise ScenarioError(f"no such time: {to}")
        if to < self.clock.now():
            raise ScenarioError("the clock does not go back")
        self.clock.advance(to - self.clock.now())

    def play_in_child(self, index: int, steps: list[Step]) -> None:
        """Play the rest in a forked process, which changes nothing in this one."""
        before = self.subject.state()
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
        if self.subject.state() != before:
            raise ScenarioError(f"{before} became {self.subject.state()} by a fork")

    def be_the_child(self, index: int, steps: list[Step], sender: int) -> NoReturn:
        report = ""
        errors = self.subject.errors
        sys.unraisablehook = lambda unraisable: errors.append(str(unraisable))
        try:
            self.subject.become_child()
            with naming_step(index + 1):
                self.subject.begin_step()
                self.look(steps[index], "done")
            self.play_from(index + 1, steps)
            self.subject.end()
            self.subject.finish_step()
        except ScenarioError as error:
            report = str(error)
        except BaseException:
            report = traceback.format_exc()
        finally:
            with open(sender, "w", encoding="utf-8") as pipe:
                pipe.write(report)
            os._exit(bool(report))
