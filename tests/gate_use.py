"""How the tests use a gate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sluicegate import Permit, Rejection

if TYPE_CHECKING:
    from sluicegate import Gate


def take(gate: Gate, cost: int = 1, **ask: Any) -> Permit:
    permit = gate.try_acquire(cost, **ask)
    assert isinstance(permit, Permit), permit
    return permit


def refuse(gate: Gate, cost: int = 1, **ask: Any) -> Rejection:
    rejection = gate.try_acquire(cost, **ask)
    assert isinstance(rejection, Rejection), rejection
    return rejection


async def turns(count: int = 10) -> None:
    """Let whoever can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)
