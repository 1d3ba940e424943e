"""Callers of a journal on a server that have fallen out of step with one another."""

import asyncio
from collections.abc import Sequence

import pytest

from omnirelay.journal.format import Sealed
from omnirelay.lease.commands import Enqueue
from omnirelay.mesh import shard as shards
from omnirelay.mesh.gathering import SOONEST
from omnirelay.model.items import Payload
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.loop import run_simulated, sim_loop
from tests.unit.served import Served, serving

WORK = Enqueue(payload=Payload("table", "orders"))
APPEND_S = 0.0015
BACK_S = 0.0004
"""After which a caller that was answered calls again."""
CALLERS = 2
CALLS = 4 * SOONEST


class Server(MemoryJournal):
    def __init__(self) -> None:
        super().__init__("resourcelease")
        self.sizes: list[int] = []

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        await asyncio.sleep(APPEND_S)
        await super().append(sealed, expected=expected)
        self.sizes.append(sealed.last - sealed.first + 1)


async def _call(served: Served, start_s: float) -> list[float]:
    """How long each of its calls took."""
    await asyncio.sleep(start_s)
    took = []
    for _ in range(CALLS):
        began = sim_loop().time()
        await served.ask(WORK)
        took.append(sim_loop().time() - began)
        await asyncio.sleep(BACK_S)
    return took


def _played(starts: Sequence[float]) -> tuple[Server, list[list[float]], float]:
    async def main() -> tuple[Server, list[list[float]], float]:
        server = Server()
        async with serving(server) as served:
            began = sim_loop().time()
            took = await asyncio.gather(*(_call(served, start_s) for start_s in starts))
            return server, took, sim_loop().time() - began

    value = run_simulated(main, seed=1).value
    assert value is not None
    return value


def test_they_are_brought_into_step_and_share_their_commits() -> None:
    server, _, took_s = _played([0.0, APPEND_S / 2])
    assert server.sizes[SOONEST // 2] == 1, "they began out of step"
    assert server.sizes[-SOONEST // 2 :].count(CALLERS) > SOONEST // 4
    assert took_s < 0.75 * CALLERS * CALLS * APPEND_S, "one commit for each would take longer"


def test_one_alone_is_held_back_now_and_then_and_never_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, (took,), _ = _played([0.0])
    held = [one for one in took if one > APPEND_S + 1e-6]
    assert 1 <= len(held) <= CALLS // SOONEST
    assert max(held) <= APPEND_S + shards.HOLD_S + 1e-6
    monkeypatch.setattr(shards, "HOLD_S", 0.0)
    _, (without,), _ = _played([0.0])
    assert max(without) <= APPEND_S + 1e-6
