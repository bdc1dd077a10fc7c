"""What a call waits for before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sluicegate import _core, context
from sluicegate._bucket import TokenBucket
from sluicegate._calls import give_back
from sluicegate._enums import Criticality, Outcome, Reason
from sluicegate._errors import DeadlineExceeded, TimedOut

if TYPE_CHECKING:
    from sluicegate._calls import Work
    from sluicegate._clock import Clock
    from sluicegate._core import Permit
    from sluicegate._limiter import Limiter
    from sluicegate._throttle import AdaptiveThrottle
    from sluicegate._waits import Waits

# A bucket from which everybody takes next to nothing holds nobody up, until it is paused.
_FAST: Final = 1e5
_NEXT_TO_NOTHING: Final = 1e-9


class Admission:
    """The throttle, the pushback, the limiter and the rates of a destination, in this order."""

    __slots__ = ("_limiter", "_name", "_pushback", "_rate", "_throttle", "_token_rate")

    def __init__(
        self,
        name: str,
        throttle: AdaptiveThrottle,
        limiter: Limiter,
        rate: TokenBucket | None,
        token_rate: TokenBucket | None,
        clock: Clock | None,
    ) -> None:
        self._name = name
        self._throttle = throttle
        self._limiter = limiter
        self._rate = rate
        self._token_rate = token_rate
        self._pushback = TokenBucket(_FAST, burst=1, name=f"{name} pushback", clock=clock)

    @property
    def pushback(self) -> float:
        """For how many seconds nothing is sent yet, since the backend has said so."""
        return self._pushback.retry_after(_NEXT_TO_NOTHING)

    @property
    def waiting(self) -> int:
        """How many wait for that to end."""
        return self._pushback.waiting

    def push_back(self, seconds: float) -> None:
        """Let nobody send for so many seconds."""
        self._pushback.pause(seconds)

    async def wait(self, waits: Waits, work: Work[Any]) -> Permit:
        """Wait until an attempt may be made, and take what it takes.

        Raises:
            Rejected: If it is throttled, or a gate that is the limiter refuses it.
            DeadlineExceeded: If it would be sent too late.
        """
        self._throttle._admit(context.current().criticality)  # noqa: SLF001
        try:
            while True:
                await self._take(waits, self._pushback, _NEXT_TO_NOTHING)
                permit = await self._admitted(waits, work)
                if permit is not None:
                    return permit
        except BaseException:
            self._throttle.withdraw()
            raise

    async def _admitted(self, waits: Waits, work: Work[Any]) -> Permit | None:
        """Take a permit and tokens; `None` if meanwhile the backend has said to come back later."""
        permit: Permit | None = await self._permitted(waits, work)
        taken: list[tuple[TokenBucket, float]] = []
        try:
            # After the permit: tokens that were gathered in a line would be sent all at once.
            for bucket, cost in ((self._rate, 1.0), (self._token_rate, work.tokens)):
                if bucket is not None and cost:
                    await self._take(waits, bucket, cost)
                    taken.append((bucket, cost))
            if self.pushback > 0:
                return None
            self._left()
            if taken and isinstance(permit, _core.Permit):
                # To wait for them was no latency.
                permit.begun()
            admitted, permit = permit, None
            taken = []
            return admitted
        finally:
            if permit is not None:
                give_back(permit, Outcome.IGNORED)
            for bucket, cost in taken:
                bucket.adjust(cost)

    async def _permitted(self, waits: Waits, work: Work[Any]) -> Permit:
        try:
            return await waits.permit(self._limiter, work.operation, self._left())
        except TimedOut as error:
            raise self._too_late(0.0, None) from error

    async def _take(self, waits: Waits, bucket: TokenBucket, cost: float) -> None:
        left = self._left()
        if left is not None and (wait := bucket.retry_after(cost)) >= left:
            raise self._too_late(left, wait)
        try:
            await waits.take(bucket, cost, left)
        except TimedOut as error:
            raise self._too_late(0.0, bucket.retry_after(cost)) from error

    def _left(self) -> float | None:
        left = context.remaining()
        if left is not None and left <= 0:
            raise self._too_late(left, self.pushback)
        return left

    def _too_late(self, left: float, retry_after: float | None) -> DeadlineExceeded:
        level = context.current().criticality
        return DeadlineExceeded(
            _core.Rejection(
                self._name,
                Reason.DEADLINE,
                retry_after=retry_after or None,
                kind="destination",
                time_left=max(left, 0.0),
                criticality=Criticality.CRITICAL if level is None else level,
            )
        )
