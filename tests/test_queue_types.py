"""What a type checker sees of a queue; `make lint` checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from sluicegate import CoDelQueue, Criticality, QueueSnapshot, Rejection, Take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


class Job:
    pass


def on_reject(job: Job, rejection: Rejection) -> None:
    """Is called."""


def by_name(name: str, rejection: Rejection) -> int:
    return len(name)


jobs = CoDelQueue[Job](10, on_reject=on_reject)
untold: CoDelQueue[Job] = CoDelQueue(10)


async def check() -> None:
    """Never runs."""
    assert_type(jobs, CoDelQueue[Job])
    assert_type(CoDelQueue(10, on_reject=by_name), CoDelQueue[str])

    assert_type(await jobs.get(), Job)
    assert_type(await jobs.get(timeout=1), Job)
    assert_type(jobs.get_nowait(), Job)
    assert_type(jobs.get_sync(), Job)
    assert_type(jobs.take(), Take[Job])
    async with jobs.take() as job:
        assert_type(job, Job)
    with jobs.take(timeout=1) as job:
        assert_type(job, Job)
    async for job in jobs:
        assert_type(job, Job)
    assert_type(await anext(jobs), Job)
    later: Coroutine[Any, Any, int] = jobs.put(Job(), cancellable=True)
    await later
    assert_type(await jobs.put(Job(), cancellable=True), int)
    assert_type(jobs.put_nowait(Job(), cancellable=True), int)
    assert_type(jobs.put_sync(Job(), cancellable=True, timeout=1), int)
    assert_type(jobs.cancel(1), bool)
    assert_type(jobs.snapshot(), QueueSnapshot)
    iterated: AsyncIterator[Job] = jobs
    assert iterated is jobs

    jobs.put_nowait(Job(), criticality=Criticality.SHEDDABLE, deadline=1.5, operation="read")
    jobs.put_nowait("job")  # type: ignore[call-overload]
    await jobs.put("job")  # type: ignore[call-overload]
    jobs.put_sync("job")  # type: ignore[call-overload]
    jobs.put_nowait(Job(), criticality=2)  # type: ignore[call-overload]
    jobs.put_nowait(Job(), timeout=1)  # type: ignore[call-overload]
    await jobs.get(1)  # type: ignore[call-arg]
    jobs.depth = 5  # type: ignore[misc]
    CoDelQueue[Job](10, on_reject=by_name)  # type: ignore[arg-type]
    CoDelQueue[Job](10, on_high=on_reject)  # type: ignore[arg-type]
    CoDelQueue[Job]()  # type: ignore[call-arg]

    def use(queue: CoDelQueue[Any]) -> None:
        queue.put_nowait("job")

    use(jobs)


def test_the_file_is_what_a_type_checker_reads() -> None:
    assert type(jobs) is type(untold) is CoDelQueue
