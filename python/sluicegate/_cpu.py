"""How busy the processors are that this process may use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluicegate._clock import Clock

Counters = Callable[[], tuple[float, float]]
"""What was used and what there was to use, both since any moment."""

_ERRORS = (OSError, ValueError, IndexError)
_ROOT = Path("/")


class Cpu:
    """See `sluicegate.pressure.cpu`."""

    __slots__ = ("_counters", "_target", "_usage", "name")

    def __init__(
        self, target: float, counters: Counters | None = None, clock: Clock | None = None
    ) -> None:
        self._target = _core.target(target, 1)
        self._counters = counters or find_counters()
        self._usage = _core.CpuUsage(clock=clock)
        self.name = "cpu"

    def __call__(self) -> float:
        if self._usage.is_due():
            try:
                counters = self._counters()
            except _ERRORS:
                pass  # a control group may be taken away; it stays as it was
            else:
                self._usage.record(*counters)
        return self._usage.pressure(self._target)

    def __repr__(self) -> str:
        return f"cpu(target={self._target:g})"


def find_counters(root: Path = _ROOT, cpus: frozenset[int] | None = None) -> Counters:
    """Return the counters of the narrowest that bounds this process.

    That is a control group with a quota, else the processors it may run on, else (where there is
    no `/proc`) the same with only what this process uses of them.

    Args:
        root: Where `proc` and `sys` are.
        cpus: The numbers of the processors; default: those that the process may run on.
    """
    cpus = cpus or _cpus()
    quotas = [*_quotas_v2(root), *_quotas_v1(root)]
    quota, used = min(quotas, key=lambda found: found[0], default=(float("inf"), None))
    candidates: list[Counters] = []
    if used is not None and quota < len(cpus):
        candidates.append(partial(_with_quota, used, quota))
    candidates.append(partial(_host, root / "proc/stat", cpus))
    for counters in candidates:
        try:
            counters()
        except _ERRORS:
            continue
        return counters
    return partial(_with_quota, time.process_time, len(cpus))


def _cpus() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return frozenset(range(os.cpu_count() or 1))


def _with_quota(used: Callable[[], float], cpus: float) -> tuple[float, float]:
    return used(), time.monotonic() * cpus


def _host(stat: Path, cpus: frozenset[int]) -> tuple[float, float]:
    names = {f"cpu{number}" for number in cpus}
    idle = total = 0
    with stat.open("rb") as lines:
        for line in lines:
            name, *ticks = line.split()
            if not name.startswith(b"cpu"):
                break
            if name.decode() in names:
                # user nice system idle iowait irq softirq steal; those of guests are in user.
                counts = [int(tick) for tick in ticks[:8]]
                idle += counts[3] + counts[4]
                total += sum(counts)
    if not total:
        raise ValueError
    return total - idle, total


def _quotas_v2(root: Path) -> Iterator[tuple[float, Callable[[], float]]]:
    """Yield how many processors the groups of this process have, and what counts their use."""
    path = _groups(root).get("", "/")
    for base in (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"):
        for group in _with_parents(base, path):
            try:
                quota, period = (group / "cpu.max").read_text().split()
                yield int(quota) / int(period), partial(_microseconds, group / "cpu.stat")
            except (*_ERRORS, ZeroDivisionError):
                continue  # none, or "max"


def _quotas_v1(root: Path) -> Iterator[tuple[float, Callable[[], float]]]:
    groups, base = _groups(root), root / "sys/fs/cgroup"
    bounded = _with_parents(base / "cpu", groups.get("cpu", "/"))
    counted = _with_parents(base / "cpuacct", groups.get("cpuacct", "/"))
    for group, counting in zip(bounded, counted, strict=False):
        try:
            quota = int((group / "cpu.cfs_quota_us").read_text())
            period = int((group / "cpu.cfs_period_us").read_text())
            if quota > 0:  # -1 is none
                yield quota / period, partial(_nanoseconds, counting / "cpuacct.usage")
        except (*_ERRORS, ZeroDivisionError):
            continue


def _groups(root: Path) -> dict[str, str]:
    """Return the path of the group of this process by controller; that of version 2 by ""."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        found = [line.split(":", 2) for line in lines]
        return {name: path for _, names, path in found for name in names.split(",")}
    except _ERRORS:
        return {}


def _with_parents(base: Path, path: str) -> Iterator[Path]:
    """Yield the group and those that it is in; a container may only see the outermost."""
    group = base / path.strip("/")
    while group != base and base in group.parents:
        yield group
        group = group.parent
    yield base


def _microseconds(stat: Path) -> float:
    for line in stat.read_text().splitlines():
        if line.startswith("usage_usec "):
            return int(line.split()[1]) / 1e6
    raise ValueError


def _nanoseconds(usage: Path) -> float:
    return int(usage.read_text()) / 1e9
