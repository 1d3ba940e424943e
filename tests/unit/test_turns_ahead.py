"""Turns that are played while the one before is still on its way to the journal."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from omnirelay.journal.format import Sealed
from omnirelay.lease.answers import Accepted
from omnirelay.lease.commands import Enqueue, Inspect
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.model.items import Payload
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.clock import HandClock
from tests.unit.served import Served, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnirelay.mesh.calls import Outcome

WORK = Enqueue(payload=Payload("table", "orders"))
POISON: Any = Inspect(sequence_id=[])  # type: ignore[arg-type]


class Server(MemoryJournal):
    """Answers when it is let, or fails."""

    def __init__(self) -> None:
        super().__init__("resourcelease")
        self.lets = asyncio.Event()
        self.lets.set()
        self.failure: OmniRelayError | None = None
        self.part_failure: OmniRelayError | None = None
        self.ends: list[int] = []
        self.parts = 0
        self.part_comes = asyncio.Event()

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        await self.lets.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        await super().append(sealed, expected=expected)
        self.ends.append(sealed.last)

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        self.part_comes.set()
        if self.part_failure is not None:
            failure, self.part_failure = self.part_failure, None
            raise failure
        await super().write_part(sequence, part, body)
        self.parts += 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call is worth a turn of its own."""
    monkeypatch.setattr(limits, "AHEAD_COMMANDS_MIN", 1)


async def _both(
    served: Served, server: Server, second: Any = WORK
) -> "list[asyncio.Task[Sequence[Outcome]]]":
    """The second call is decided before the first is durable. Any: a command, or not quite."""
    server.lets.clear()
    first = asyncio.create_task(served.ask(WORK))
    async with asyncio.timeout(10):
        await _until(served, 2)
        then = asyncio.create_task(served.ask(second))
        if second is WORK:
            await _until(served, 3)
        else:
            await asyncio.wait([then])
    assert not first.done()
    return [first, then]


async def _until(served: Served, sequence: int) -> None:
    while served.shard.state.sequence < sequence:  # noqa: ASYNC110 - a shard tells nobody
        await asyncio.sleep(0.001)


@pytest.mark.usefixtures("few")
async def test_what_is_played_ahead_is_appended_and_answered_after_what_was_before() -> None:
    server = Server()
    async with serving(server) as served:
        asked = await _both(served, server)
        assert not asked[1].done()
        server.lets.set()
        outcomes = [(await one)[0] for one in asked]
    assert [one.sequence_id for one in outcomes if isinstance(one, Accepted)] == [1, 2]
    assert server.ends == [1, 2, 3]


@pytest.mark.usefixtures("few")
async def test_what_was_played_ahead_of_a_failure_has_changed_nothing() -> None:
    server, clock = Server(), HandClock()
    async with serving(server, clock=clock) as served:
        asked = await _both(served, server)
        server.failure = OutcomeUnknown("the server went away")
        server.lets.set()
        (first,), (then,) = [await one for one in asked]
        assert isinstance(first, OutcomeUnknown)
        assert type(then) is Unavailable
        assert "nothing was changed" in then.message
        clock.now_ms += 60_000  # it pauses before it tries again
        await asyncio.wait_for(served.shard.ready.wait(), 10)
        (again,) = await served.ask(WORK)
        assert isinstance(again, Accepted)
        assert again.sequence_id == 1


@pytest.mark.usefixtures("few")
async def test_a_bug_in_a_turn_played_ahead_takes_nothing_from_the_one_before() -> None:
    server = Server()
    async with serving(server) as served:
        first, then = await _both(served, server, POISON)
        assert "nothing was changed" in str((await then)[0])
        server.lets.set()
        (outcome,) = await first
    assert isinstance(outcome, Accepted)
    assert server.ends[:2] == [1, 2]


OFTEN = ShardOptions(node="n", keep=KeepOptions(snapshot_every=1))


async def _snapshot_begins(served: Served, server: Server) -> None:
    """Some items are in, and a snapshot of them has begun."""
    await served.ask(*[WORK] * 5)
    async with asyncio.timeout(10):
        while not server.parts:
            await served.ask(WORK)


@pytest.mark.usefixtures("few")
async def test_a_snapshot_goes_on_while_turns_are_played_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_PART_ITEMS_MAX", 1)
    server = Server()
    async with serving(server, OFTEN) as served:
        await _snapshot_begins(served, server)
        server.lets.clear()
        before = served.shard.state.sequence
        asked = [asyncio.create_task(served.ask(WORK))]
        try:
            async with asyncio.timeout(5):
                await _until(served, before + 1)
                asked += [asyncio.create_task(served.ask(WORK))]
                await _until(served, before + 2)  # ahead, with the snapshot still on its way
            assert not asked[0].done()
        finally:
            server.lets.set()
        await asyncio.gather(*asked)
        async with asyncio.timeout(10):
            while await server.snapshot() is None:
                await served.ask(WORK)
        kept = served.shard.state.sequence
    found = await recover(server)
    assert found.snapshot_sequence > 0
    assert len(found.state.pending) == kept - 1, "all but the epoch"


@pytest.mark.usefixtures("few")
async def test_a_part_that_fails_ends_the_term_and_takes_nothing_that_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_PART_ITEMS_MAX", 1)
    server, clock = Server(), HandClock()
    async with serving(server, OFTEN, clock=clock) as served:
        await _snapshot_begins(served, server)
        server.part_failure = OutcomeUnknown("no room for parts")
        server.part_comes.clear()
        accepted = 0
        async with asyncio.timeout(10):
            while not server.part_comes.is_set():
                (outcome,) = await served.ask(WORK)
                accepted += isinstance(outcome, Accepted)
        pending = len(served.shard.state.pending)
        clock.now_ms += 60_000
        await asyncio.wait_for(served.shard.ready.wait(), 10)
        (again,) = await served.ask(WORK)
        assert isinstance(again, Accepted)
        assert len(served.shard.state.pending) == pending + 1
    assert accepted > 0


async def test_a_few_calls_wait_and_share_a_commit() -> None:
    server = Server()
    async with serving(server) as served:
        server.lets.clear()
        asked = [asyncio.create_task(served.ask(WORK))]
        async with asyncio.timeout(10):
            await _until(served, 2)
        asked += [asyncio.create_task(served.ask(WORK)) for _ in range(5)]
        await asyncio.sleep(0.02)
        assert served.shard.state.sequence == 2
        server.lets.set()
        await asyncio.gather(*asked)
    assert server.ends == [1, 2, 7]
