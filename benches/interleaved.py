"""Compares cases in interleaved, shuffled rounds; the benches beside it use it.

A case does something so many times in a row. A round runs every case once, in a new order. A ratio
is formed within a round, where the machine is equally busy for both sides; what is printed is the
median over the rounds, with its 95 % interval. Nothing is subtracted, not even the `for` loop.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import platform
import random
import statistics
import sysconfig
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import uvloop

import sluicegate

#: Does what the case is about as many times as it is told.
Run: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
# Below 6 rounds, all of them together are no 95 % interval of their median.
MIN_ROUNDS = 6


class Estimate(NamedTuple):
    """A median and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, sample: Sequence[float]) -> Estimate:
        # Each value is above the true median as often as below it, so how many are
        # below is binomial, whatever the distribution of the noise.
        ordered = sorted(sample)
        cut, tail = 0, 2.0 ** -len(ordered)
        while tail <= 0.025:
            cut += 1
            tail += math.comb(len(ordered), cut) * 2.0 ** -len(ordered)
        return cls(statistics.median(ordered), ordered[cut - 1], ordered[-cut])


@dataclass(frozen=True, slots=True)
class Target:
    """What a case may cost at most, in one of three ways."""

    ratio: float = math.inf
    ns_over: float = math.inf
    ns: float = math.inf

    def __str__(self) -> str:
        if self.ratio < math.inf:
            return f"ratio ≤ {self.ratio:.2f}"
        if self.ns_over < math.inf:
            return f"≤ {self.ns_over:,.0f} over"
        return f"≤ {self.ns:,.0f} ns"

    def verdict(self, ns: Estimate, ratio: Estimate, over: Estimate) -> str:
        pairs = ((ns, self.ns), (ratio, self.ratio), (over, self.ns_over))
        if all(estimate.high <= bound for estimate, bound in pairs):
            return "met"
        return "missed" if any(estimate.low > bound for estimate, bound in pairs) else "open"


@dataclass(eq=False, slots=True)
class Case:
    name: str
    run: Run
    target: Target | None
    times: int = 0
    ns: list[float] = field(default_factory=list)

    async def calibrate(self, span_ns: float) -> None:
        # The first time may import, build and cache.
        await self.run(1)
        times = 1
        while (elapsed := await self._elapsed(times)) < span_ns / 2:
            times *= 2
        self.times = math.ceil(times * span_ns / elapsed)

    async def measure(self) -> None:
        self.ns.append(await self._elapsed(self.times) / self.times)

    async def _elapsed(self, times: int) -> int:
        start = time.thread_time_ns()
        await self.run(times)
        return time.thread_time_ns() - start


@dataclass(eq=False, slots=True)
class Group:
    """Cases that are compared with the first of them."""

    title: str
    times: int | None
    cases: list[Case] = field(default_factory=list)

    def case(self, name: str, target: Target | None = None) -> Callable[[Run], Run]:
        """Register a coroutine function as a case."""

        def register(run: Run) -> Run:
            self.cases.append(Case(name, run, target))
            return run

        return register

    def table(self) -> list[list[str]]:
        base = self.cases[0].ns
        rows = [["", "ns", "IQR", "ratio", "95 %", "ns over", "95 %", "target", ""]]
        for case in self.cases:
            ns = Estimate.of(case.ns)
            ratio = Estimate.of([a / b for a, b in zip(case.ns, base, strict=True)])
            over = Estimate.of([a - b for a, b in zip(case.ns, base, strict=True)])
            low, _, high = statistics.quantiles(case.ns, n=4)
            row = [case.name, f"{ns.value:,.0f}", f"{high - low:,.0f}"]
            if case is self.cases[0]:
                row += ["1", "", "", "", "", ""]
            else:
                row += [
                    f"{ratio.value:.2f}",
                    f"{ratio.low:.2f} … {ratio.high:.2f}",
                    f"{over.value:+,.0f}",
                    f"{over.low:+,.0f} … {over.high:+,.0f}",
                    str(case.target or ""),
                    case.target.verdict(ns, ratio, over) if case.target else "",
                ]
            rows.append(row)
        return rows


class Bench:
    """Groups of cases that share their rounds."""

    def __init__(self, title: str, *, loops: Sequence[str] = ("asyncio",)) -> None:
        self._title = title
        self._loops = loops
        self._groups: list[Group] = []

    def group(self, title: str, *, times: int | None = None) -> Group:
        """Make a group, whose cases run *times* times a round; default: for a few milliseconds."""
        group = Group(title, times)
        self._groups.append(group)
        return group

    def main(self) -> None:
        """Run as the command line says, and print."""
        parser = argparse.ArgumentParser(description=self._title)
        parser.add_argument("--rounds", type=int, metavar="N", help="default: 101")
        parser.add_argument("--quick", action="store_true", help="few and short rounds")
        options = parser.parse_args()
        rounds, span_ms = (9, 1.0) if options.quick else (101, 5.0)
        rounds = rounds if options.rounds is None else options.rounds
        if rounds < MIN_ROUNDS:
            parser.error(f"--rounds must be {MIN_ROUNDS} or more, got {rounds}")

        print(f"\n{self._title}\n{conditions(rounds)}")
        for name in self._loops:
            with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
                runner.run(self._measure(rounds, span_ms * 1e6))
            for group in self._groups:
                print(f"\n{group.title}, on {name}")
                print_aligned(group.table())

    async def _measure(self, rounds: int, span_ns: float) -> None:
        for group in self._groups:
            for case in group.cases:
                case.ns.clear()
                if group.times is None:
                    await case.calibrate(span_ns)
                else:
                    case.times = group.times
                    await case.run(case.times)
        cases = [case for group in self._groups for case in group.cases]
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            for _ in range(rounds):
                random.shuffle(cases)
                for case in cases:
                    # Else the loop stands still all the time, as none should.
                    await asyncio.sleep(0)
                    await case.measure()
                gc.collect()
        finally:
            gc.enable()
            gc.unfreeze()


def conditions(rounds: int, measured: str = "CPU time of the thread") -> str:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return (
        f"sluicegate {sluicegate.__version__}, {platform.python_implementation()} "
        f"{platform.python_version()} ({'with' if optimised else 'without'} PGO), "
        f"{measured}, median of {rounds} shuffled rounds"
    )


def print_aligned(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = (
            f"{cell:<{width}}" if column == 0 or column >= 7 else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip())
