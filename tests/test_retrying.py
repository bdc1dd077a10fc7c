"""Retry budgets with those who make the retries: stamina and tenacity."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import stamina
import tenacity

from sluicegate import ManualClock, Rejected, Rejection, RetryBudget, TokenRetryBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


class Backend:
    """Fails as it is told, and counts."""

    def __init__(self, *endings: BaseException | object) -> None:
        self.endings = list(endings)
        self.attempts = 0

    def __call__(self) -> object:
        ending = self.endings[min(self.attempts, len(self.endings) - 1)]
        self.attempts += 1
        if isinstance(ending, BaseException):
            raise ending
        return ending

    async def later(self) -> object:
        await asyncio.sleep(0)
        return self()


@pytest.fixture(autouse=True)
def without_backoff() -> Iterator[None]:
    stamina.set_testing(True, attempts=3, cap=True)
    yield
    stamina.set_testing(False)


def call(
    retry: Callable[[Callable[..., Any]], Callable[..., Any]], backend: Backend, kind: str
) -> object:
    if kind == "sync":
        return retry(backend.__call__)()

    async def later() -> object:
        return await backend.later()

    return asyncio.run(retry(later)())


def budget_for(requests: int, ratio: float = 0.1) -> RetryBudget:
    budget = RetryBudget(ratio, floor=0, clock=ManualClock())
    for _ in range(requests):
        budget.record_request()
    return budget


# stamina


@KINDS
def test_stamina_retries_what_the_budget_gives(kind: str) -> None:
    budget = budget_for(10)
    retry = stamina.retry(on=budget.on(OSError), attempts=3)
    backend = Backend(OSError(), "fine")
    assert call(retry, backend, kind) == "fine"
    failing = Backend(OSError("again"))
    with pytest.raises(OSError, match="again"):
        call(retry, failing, kind)
    assert (backend.attempts, failing.attempts) == (2, 1)
    snapshot = budget.snapshot()
    assert (snapshot.retries, snapshot.held, snapshot.rejected) == (1, 0, 1)


def test_stamina_at_a_backend_that_always_fails() -> None:
    clock = ManualClock()
    budget = RetryBudget(clock=clock)
    retry = stamina.retry(on=budget.on(OSError), attempts=3)
    backend, calls = Backend(OSError("down")), 500
    for _ in range(calls):
        budget.record_request()
        with pytest.raises(OSError, match="down"):
            call(retry, backend, "sync")
        clock.advance(0.1)
    assert 1.05 * calls < backend.attempts <= 1.11 * calls


@KINDS
def test_stamina_does_not_retry_what_is_not_retryable(kind: str) -> None:
    budget = budget_for(100)
    retry = stamina.retry(on=budget.on(ConnectionError, TimeoutError), attempts=3)
    backend = Backend(ValueError())
    with pytest.raises(ValueError):  # noqa: PT011  # it has no message
        call(retry, backend, kind)
    assert backend.attempts == 1
    assert budget.snapshot().admitted == budget.snapshot().rejected == 0


def test_a_predicate_says_what_is_retryable() -> None:
    budget = budget_for(100)
    retry = stamina.retry(on=budget.on(KeyError, lambda error: "again" in str(error)), attempts=3)
    for error, attempts in ((OSError("again"), 3), (OSError("no"), 1), (KeyError(), 3)):
        backend = Backend(error)
        with pytest.raises(type(error)):
            call(retry, backend, "sync")
        assert backend.attempts == attempts


def rejections() -> list[Exception]:
    class RequestRejected(Rejected, OSError):
        pass

    rejection = Rejection("below", "limit")
    wrapped = OSError()
    wrapped.__cause__ = Rejected(rejection)
    return [Rejected(rejection), RequestRejected(rejection), wrapped]


@KINDS
@pytest.mark.parametrize("error", rejections(), ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("make", [RetryBudget, TokenRetryBudget])
def test_our_own_rejections_are_never_retried(
    kind: str, error: Exception, make: type[RetryBudget | TokenRetryBudget]
) -> None:
    budget = make()
    for retry in (
        stamina.retry(on=budget.on(Exception), attempts=3),
        tenacity.retry(retry=budget.on(Exception), reraise=True),
        tenacity.retry(stop=budget.stop(), reraise=True),
    ):
        backend = Backend(error)
        with pytest.raises(type(error)):
            call(retry, backend, kind)
        assert backend.attempts == 1
    assert budget.snapshot().admitted == budget.snapshot().rejected == 0
    if isinstance(budget, TokenRetryBudget):
        assert budget.snapshot().tokens == 10


def test_stamina_and_tokens() -> None:
    budget = TokenRetryBudget()
    retry = stamina.retry(on=budget.on(OSError), attempts=3)
    backends = [Backend(OSError()) for _ in range(3)]
    for backend in backends:
        with pytest.raises(OSError):  # noqa: PT011  # it has no message
            call(retry, backend, "sync")
    # The fifth failure stops it; failures are counted beyond that.
    assert [backend.attempts for backend in backends] == [3, 2, 1]
    assert budget.snapshot().tokens == 4


# tenacity


WAYS = pytest.mark.parametrize("way", ["retry", "stop"])


def options(budget: RetryBudget | TokenRetryBudget, way: str) -> dict[str, Any]:
    """Say three attempts at most, and as many as the budget gives, to tenacity."""
    three = tenacity.stop_after_attempt(3)
    if way == "retry":
        return {"retry": budget.on(OSError), "stop": three, "reraise": True}
    retryable = tenacity.retry_if_exception_type(OSError)
    return {"retry": retryable, "stop": budget.stop(three), "reraise": True}


@KINDS
@WAYS
def test_tenacity_retries_what_the_budget_gives(kind: str, way: str) -> None:
    budget = budget_for(100)
    backend = Backend(OSError(), OSError(), "fine")
    assert call(tenacity.retry(**options(budget, way)), backend, kind) == "fine"
    snapshot = budget.snapshot()
    assert (snapshot.held, snapshot.admitted, snapshot.stray_releases) == (0, 2, 0)


@KINDS
@WAYS
def test_tenacity_stops_when_the_budget_is_used_up(kind: str, way: str) -> None:
    budget = budget_for(10)
    backend = Backend(OSError("down"))
    with pytest.raises(OSError, match="down"):
        call(tenacity.retry(**options(budget, way)), backend, kind)
    assert backend.attempts == 2
    assert (budget.snapshot().admitted, budget.snapshot().rejected) == (1, 1)


@KINDS
@WAYS
def test_tenacity_after_the_last_attempt(kind: str, way: str) -> None:
    budget = budget_for(100)
    backend = Backend(OSError("down"))
    with pytest.raises(OSError, match="down"):
        call(tenacity.retry(**options(budget, way)), backend, kind)
    assert backend.attempts == 3
    # As stop= it is asked only if there is a retry to be made.
    assert budget.snapshot().admitted == (2 if way == "stop" else 3)


@KINDS
@WAYS
@pytest.mark.parametrize("error", [asyncio.CancelledError, ValueError, GeneratorExit])
def test_tenacity_does_not_retry_what_is_not_retryable(
    kind: str, way: str, error: type[BaseException]
) -> None:
    budget = budget_for(100)
    backend = Backend(OSError(), error())
    with pytest.raises(error):
        call(tenacity.retry(**options(budget, way)), backend, kind)
    assert backend.attempts == 2
    assert budget.snapshot().admitted == 1


@WAYS
def test_tenacity_as_a_loop(way: str) -> None:
    budget = budget_for(10)
    backend = Backend(OSError(), "fine")

    def work() -> object:
        for attempt in tenacity.Retrying(**options(budget, way)):
            with attempt:
                return backend()
        return None

    assert work() == "fine"
    assert budget.snapshot().admitted == 1


def test_tenacity_at_a_backend_that_always_fails() -> None:
    clock = ManualClock()
    budget = RetryBudget(clock=clock)
    backend, calls = Backend(OSError("down")), 500
    for _ in range(calls):
        budget.record_request()
        with pytest.raises(OSError, match="down"):
            call(tenacity.retry(**options(budget, "stop")), backend, "sync")
        clock.advance(0.1)
    assert 1.05 * calls < backend.attempts <= 1.11 * calls


@WAYS
def test_tenacity_and_tokens(way: str) -> None:
    budget = TokenRetryBudget()
    backends = [Backend(OSError()) for _ in range(3)]
    for backend in backends:
        with pytest.raises(OSError):  # noqa: PT011  # it has no message
            call(tenacity.retry(**options(budget, way)), backend, "sync")
    # Each failure costs one, the last attempt's as well.
    assert [backend.attempts for backend in backends] == [3, 2, 1]
    assert budget.snapshot().tokens == 4
    assert call(tenacity.retry(**options(budget, way)), Backend("fine"), "sync") == "fine"
    assert budget.snapshot().tokens == (4 if way == "stop" else 4.1)


def test_a_result_can_be_retried_by_tenacity() -> None:
    budget = budget_for(10)
    retry = tenacity.retry(
        retry=tenacity.retry_if_result(lambda result: result == 503), stop=budget.stop()
    )
    backend = Backend(503, 200)
    assert call(retry, backend, "sync") == 200
    with pytest.raises(tenacity.RetryError):
        call(retry, Backend(503), "sync")


@pytest.mark.parametrize(
    ("retryable", "text"),
    [
        ((), "on\\(\\) must be told at least one"),
        ((5,), "retryable must be Exception classes or predicates, got 5"),
        ((int,), "retryable must be .*, got <class 'int'>"),
        ((KeyError, KeyboardInterrupt), "retryable must be .*KeyboardInterrupt"),
    ],
)
def test_what_cannot_be_retried_is_refused_at_once(retryable: Any, text: str) -> None:
    for budget in (RetryBudget(), TokenRetryBudget()):
        with pytest.raises(TypeError, match=text):
            budget.on(*retryable)
        with pytest.raises(TypeError, match=r"stop\(\) must be told .*, got 3"):
            budget.stop(3)  # type: ignore[arg-type]
