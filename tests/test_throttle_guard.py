"""A throttle as a decorator: every call is recorded, and ends as it would have."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import (
    AdaptiveThrottle,
    Criticality,
    Outcome,
    Reason,
    Rejected,
    Rejection,
    TimedOut,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

pytestmark = pytest.mark.timeout(20)

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


class NotFoundError(Exception):
    pass


class NoSuchUserError(NotFoundError):
    pass


class WrappedError(Exception):
    pass


class TooLateError(Rejected, TimeoutError):
    pass


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def in_a_circle() -> BaseException:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    return first


def call(
    guard: Callable[[Callable[..., Any]], Callable[..., Any]],
    kind: str,
    *,
    result: object = None,
    error: BaseException | None = None,
) -> Any:
    """Call a guarded function that ends so."""

    def work() -> object:
        if error is not None:
            raise error
        return result

    async def work_later() -> object:
        await asyncio.sleep(0)
        return work()

    if kind == "sync":
        return guard(work)()
    return asyncio.run(guard(work_later)())


ENDINGS: list[tuple[BaseException, Outcome]] = [
    (TimeoutError(), Outcome.OVERLOAD),
    (ConnectionRefusedError(), Outcome.OVERLOAD),
    (raised_from(WrappedError(), TimeoutError()), Outcome.OVERLOAD),
    (raised_from(raised_from(WrappedError(), OSError()), TimeoutError()), Outcome.OVERLOAD),
    (ConnectionResetError(), Outcome.IGNORED),
    (ValueError(), Outcome.IGNORED),
    (raised_from(ValueError(), KeyError()), Outcome.IGNORED),
    (in_a_circle(), Outcome.IGNORED),
    (KeyboardInterrupt(), Outcome.IGNORED),
    (SystemExit(), Outcome.IGNORED),
    (asyncio.CancelledError(), Outcome.IGNORED),
    (GeneratorExit(), Outcome.IGNORED),
    (Rejected(Rejection("below", "limit")), Outcome.IGNORED),
    (TooLateError(Rejection("below", "deadline")), Outcome.IGNORED),
    (raised_from(TimeoutError(), Rejected(Rejection("below", "limit"))), Outcome.IGNORED),
]


@KINDS
@pytest.mark.parametrize(
    ("error", "outcome"), ENDINGS, ids=[type(error).__name__ for error, _ in ENDINGS]
)
def test_an_exception_is_classified_and_goes_through(
    kind: str, error: BaseException, outcome: Outcome
) -> None:
    throttle = AdaptiveThrottle()
    if kind == "async" and isinstance(error, (KeyboardInterrupt, SystemExit)):
        # Such a one ends the loop before the task does.
        coroutine = throttle.guard()(_raises(error))()
        with pytest.raises(type(error)) as raised:
            coroutine.send(None)
    else:
        with pytest.raises(type(error)) as raised:
            call(throttle.guard(), kind, error=error)
    assert raised.value is error
    assert throttle.snapshot().outcomes == {outcome: 1}
    assert throttle.snapshot().in_flight == 0


def _raises(error: BaseException) -> Callable[[], Any]:
    async def work() -> None:
        raise error

    return work


@KINDS
@pytest.mark.parametrize("result", [None, 5, ValueError("returned"), TimeoutError("returned")])
def test_a_result_is_a_success(kind: str, result: object) -> None:
    throttle = AdaptiveThrottle()
    assert call(throttle.guard(), kind, result=result) is result
    assert throttle.snapshot().outcomes == {Outcome.SUCCESS: 1}


class Response:
    """What looks like one of httpx, requests or aiohttp."""

    def __init__(self, name: str, status: object) -> None:
        setattr(self, name, status)


class StatusError(Exception):
    def __init__(self, response: Response) -> None:
        self.response = response


STATUSES = [
    (200, Outcome.SUCCESS),
    (302, Outcome.SUCCESS),
    (404, Outcome.IGNORED),
    (429, Outcome.OVERLOAD),
    (500, Outcome.IGNORED),
    (503, Outcome.OVERLOAD),
    (504, Outcome.OVERLOAD),
    (7, Outcome.SUCCESS),
    ("503", Outcome.SUCCESS),
    (True, Outcome.SUCCESS),
]


@KINDS
@pytest.mark.parametrize("name", ["status", "status_code"])
@pytest.mark.parametrize(("status", "outcome"), STATUSES)
def test_a_response_says_it_by_its_status(
    kind: str, name: str, status: object, outcome: Outcome
) -> None:
    throttle, response = AdaptiveThrottle(), Response(name, status)
    assert call(throttle.guard(), kind, result=response) is response
    assert throttle.snapshot().outcomes == {outcome: 1}


@KINDS
@pytest.mark.parametrize(("status", "outcome"), STATUSES)
def test_an_exception_says_it_by_its_response(kind: str, status: object, outcome: Outcome) -> None:
    throttle, error = AdaptiveThrottle(), StatusError(Response("status_code", status))
    with pytest.raises(StatusError):
        call(throttle.guard(), kind, error=error)
    expected = Outcome.OVERLOAD if outcome is Outcome.OVERLOAD else Outcome.IGNORED
    assert throttle.snapshot().outcomes == {expected: 1}


@KINDS
def test_what_was_handled_counts_where_the_cause_is_cut_off(kind: str) -> None:
    """As httpcore does it."""

    def refused() -> None:
        raise ConnectionRefusedError

    def work() -> None:
        try:
            refused()
        except ConnectionRefusedError:
            raise WrappedError from None

    async def work_later() -> None:
        work()

    throttle = AdaptiveThrottle()
    guarded = throttle.guard()(work)

    def run() -> None:
        asyncio.run(throttle.guard()(work_later)())

    with pytest.raises(WrappedError):
        run() if kind == "async" else guarded()
    assert throttle.snapshot().outcomes == {Outcome.OVERLOAD: 1}


@KINDS
def test_our_own_time_outs_say_nothing(kind: str) -> None:
    throttle = AdaptiveThrottle()
    with pytest.raises(TimeoutError):
        call(throttle.guard(), kind, error=TimedOut("no tokens"))
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 1}


@KINDS
def test_a_refusal_is_raised_before_the_call(kind: str) -> None:
    throttle = AdaptiveThrottle(name="search", max_rejection=1)
    for _ in range(10**6):
        throttle.record(Outcome.OVERLOAD)

    def never() -> None:
        pytest.fail("it must not run")

    async def never_later() -> None:
        pytest.fail("it must not run")

    work = never if kind == "sync" else never_later
    guarded: Callable[[], Any] = throttle.guard(criticality=Criticality.SHEDDABLE)(work)
    with pytest.raises(Rejected) as raised:
        guarded() if kind == "sync" else asyncio.run(guarded())
    rejection = raised.value.rejection
    assert (rejection.gate, rejection.reason) == ("search", Reason.THROTTLED)
    assert rejection.criticality is Criticality.SHEDDABLE
    assert rejection.status == 503
    assert str(raised.value) == "throttle 'search' rejected SHEDDABLE work: throttled"
    assert throttle.snapshot().rejected == {Criticality.SHEDDABLE: 1}


@KINDS
@pytest.mark.parametrize(
    "error",
    [
        NotFoundError(),
        NoSuchUserError(),
        raised_from(WrappedError(), NotFoundError()),
        raised_from(TimeoutError(), NoSuchUserError()),
        raised_from(raised_from(TimeoutError(), NotFoundError()), NoSuchUserError()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("accept", [NotFoundError, (KeyError, NotFoundError)])
def test_an_accepted_error_is_accepted_however_it_comes(
    kind: str, error: BaseException, accept: Any
) -> None:
    def classify(_: object) -> Outcome:
        return Outcome.OVERLOAD

    throttle = AdaptiveThrottle()
    for guard in (throttle.guard(accept=accept), throttle.guard(accept=accept, classify=classify)):
        with pytest.raises(type(error)) as raised:
            call(guard, kind, error=error)
        assert raised.value is error
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 2}
    with pytest.raises(TimeoutError):
        call(throttle.guard(accept=accept), kind, error=TimeoutError())
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 2, Outcome.OVERLOAD: 1}


@KINDS
def test_a_classifier_gets_results_and_exceptions(kind: str) -> None:
    seen: list[object] = []

    def classify(ending: object) -> Outcome:
        seen.append(ending)
        return Outcome.OVERLOAD if ending == 503 else Outcome.SUCCESS

    throttle = AdaptiveThrottle()
    guard = throttle.guard(classify=classify)
    error = TimeoutError()
    assert call(guard, kind, result=200) == 200
    assert call(guard, kind, result=503) == 503
    with pytest.raises(TimeoutError):
        call(guard, kind, error=error)
    assert seen == [200, 503, error]
    assert throttle.snapshot().outcomes == {Outcome.SUCCESS: 2, Outcome.OVERLOAD: 1}


def fails(_: object) -> Outcome:
    raise OSError("no idea")


def says_nonsense(_: object) -> Any:
    return "fine"


def says_nothing(_: object) -> Any:
    return None


def takes_nothing() -> Outcome:
    return Outcome.SUCCESS


@KINDS
@pytest.mark.parametrize("classify", [fails, says_nonsense, says_nothing, takes_nothing])
def test_a_classifier_that_fails_changes_no_ending(
    kind: str, classify: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    throttle = AdaptiveThrottle()
    guard = throttle.guard(classify=classify)
    result, error = object(), TimeoutError()
    assert call(guard, kind, result=result) is result
    with pytest.raises(TimeoutError) as raised:
        call(guard, kind, error=error)
    assert raised.value is error
    assert error.__context__ is None
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 2}
    kinds = {fails: OSError}.get(classify, TypeError)
    assert [(type(one.exc_value), one.object) for one in reported] == [(kinds, classify)] * 2


@KINDS
def test_an_interrupt_in_a_classifier_is_not_swallowed(kind: str) -> None:
    def interrupted(_: object) -> Outcome:
        raise KeyboardInterrupt

    throttle = AdaptiveThrottle()
    guard = throttle.guard(classify=interrupted)
    run = {"sync": guard(list), "async": lambda: guard(_returns)().send(None)}[kind]
    with pytest.raises(KeyboardInterrupt):
        run()
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 1}


async def _returns() -> None:
    pass


def test_a_cancelled_call_is_recorded() -> None:
    throttle = AdaptiveThrottle()

    @throttle.guard()
    async def hangs() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(hangs())
        await asyncio.sleep(0)
        assert throttle.snapshot().in_flight == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await hangs()

    asyncio.run(main())
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 2}
    assert throttle.snapshot().in_flight == 0


def test_a_coroutine_that_is_dropped_is_recorded_if_it_began() -> None:
    throttle = AdaptiveThrottle()

    class Forever:
        def __await__(self) -> Generator[None, None, None]:
            yield

    @throttle.guard()
    async def hangs() -> None:
        await Forever()

    begun, never = hangs(), hangs()
    begun.send(None)
    begun.close()
    never.close()
    assert throttle.snapshot().admitted == 1
    assert throttle.snapshot().outcomes == {Outcome.IGNORED: 1}


def test_a_guarded_function_looks_like_itself() -> None:
    throttle = AdaptiveThrottle()

    @throttle.guard()
    def work(a: int, /, b: int = 2, *, c: str = "c") -> tuple[int, int, str]:
        """Work."""
        return a, b, c

    @throttle.guard(criticality=Criticality.CRITICAL_PLUS)
    async def work_later(number: int) -> int:
        return number

    assert work(1, c="d") == (1, 2, "d")
    assert (work.__name__, work.__doc__) == ("work", "Work.")
    assert str(inspect.signature(work)).startswith("(a: 'int', /, b: 'int' = 2, *, c:")
    assert not inspect.iscoroutinefunction(work)
    assert inspect.iscoroutinefunction(work_later)
    assert asyncio.run(work_later(5)) == 5
    assert throttle.snapshot().outcomes == {Outcome.SUCCESS: 2}


def test_a_guard_takes_methods_and_whatever_is_awaited() -> None:
    throttle = AdaptiveThrottle()

    class Service:
        @throttle.guard()
        def plain(self) -> Service:
            return self

        @classmethod
        @throttle.guard()
        async def of_class(cls) -> type[Service]:
            return cls

        async def __call__(self) -> None:
            raise TimeoutError

    service = Service()
    assert service.plain() is service
    assert asyncio.run(Service.of_class()) is Service
    later = throttle.guard()(functools.partial(_returns))
    asyncio.run(later())
    with pytest.raises(TimeoutError):
        asyncio.run(throttle.guard()(service)())
    assert throttle.snapshot().outcomes == {Outcome.SUCCESS: 3, Outcome.OVERLOAD: 1}


def test_a_guard_takes_no_generator_functions() -> None:
    def items() -> Iterator[int]:
        yield 1

    async def items_later() -> AsyncIterator[int]:
        yield 1

    functions: list[Callable[[], Any]] = [items, items_later]
    for function in functions:
        with pytest.raises(TypeError, match=f"generator function .*{function.__name__}"):
            AdaptiveThrottle().guard()(function)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"classify": 5}, "classify must be callable, or None, got 5"),
        ({"criticality": 2}, "criticality must be a Criticality, or None, got 2"),
        ({"criticality": "CRITICAL"}, "criticality must be a Criticality, or None"),
        ({"accept": 5}, "accept must be exception classes, got 5"),
        ({"accept": (KeyError, int)}, "accept must be exception classes, got <class 'int'>"),
        ({"accept": KeyError()}, "accept must be exception classes, got KeyError"),
    ],
)
def test_a_guard_that_cannot_be_is_refused_where_it_is_made(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        AdaptiveThrottle().guard(**options)
