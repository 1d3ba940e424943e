"""A shard's state comes back from its journal whole, or the shard says what is missing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from omnirelay.journal.backend import Head, JournalBackend, SnapshotRef
from omnirelay.journal.format import Sealed, seal, unseal
from omnirelay.lease.answers import Stats
from omnirelay.lease.commands import Enqueue, ReadStats
from omnirelay.lease.image import facts
from omnirelay.lease.invariants import violations
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import Completed, Enqueued, Granted, Purged, Record
from omnirelay.lease.state import QueueState
from omnirelay.mesh.keeper import Keeper, KeepOptions, nobody
from omnirelay.mesh.recovery import Recovered, recover, replay
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import Corrupt, DiskFull, InvalidOption, OmniRelayError
from omnirelay.model.items import Payload
from omnirelay.stores.memory import MemoryJournal, MemoryMedium
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import Scribe, scan
from tests.unit.served import Traffic, serving

SHARD = "orders"


@pytest.fixture
def medium() -> MemoryMedium:
    return MemoryMedium()


@pytest.fixture
async def journal(medium: MemoryMedium) -> MemoryJournal:
    return MemoryJournal(SHARD, medium)


async def fold(backend: JournalBackend) -> QueueState:
    """From the first record, without any snapshot."""
    state = QueueState()
    for envelope in await scan(backend, SHARD):
        replay(state, envelope)
    return state


async def write(journal: JournalBackend, scribe: Scribe, *counts: int) -> None:
    for count in counts:
        sealed = scribe.seal(count)
        await journal.append(sealed, expected=sealed.first - 1)


async def take_snapshot(journal: JournalBackend, state: QueueState, link: str) -> SnapshotRef:
    keeper = Keeper(journal, KeepOptions(), nobody)
    keeper.start(state, link)
    while keeper.snapshot_sequence == 0:
        await keeper.step(0)
    ref = await journal.snapshot()
    assert ref is not None
    return ref


async def with_snapshot(journal: MemoryJournal, *, before: int = 3, after: int = 2) -> SnapshotRef:
    """Envelopes of two records, a snapshot, and some more envelopes."""
    scribe = Scribe(SHARD)
    await write(journal, scribe, *[2] * before)
    ref = await take_snapshot(journal, await fold(journal), scribe.link)
    await write(journal, scribe, *[2] * after)
    return ref


async def corrupt(journal: JournalBackend) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        await recover(journal)
    return caught.value


# -- snapshot and tail are the fold -------------------------------------------------------------


@pytest.fixture(params=[1, 2, 3])
async def history(request: pytest.FixtureRequest, journal: MemoryJournal) -> MemoryJournal:
    """Three terms under different rules, with every kind of record in them."""
    clock = HandClock()
    for term, queue in enumerate(
        (
            QueueOptions(lease_duration_ms=1_000),
            QueueOptions(serialize_by=SerializeBy.RESOURCE, pending_high=30, lease_duration_ms=500),
            QueueOptions(dedupe_entries=3, finished_entries=2),
        )
    ):
        options = ShardOptions(node=f"node-{term}", queue=queue)
        async with serving(journal, options, clock=clock) as served:
            await Traffic(served, clock, seed=10 * request.param + term).run(70)
    return journal


async def test_recovery_from_the_journal_alone_is_its_fold(history: MemoryJournal) -> None:
    found = await recover(history)
    assert facts(found.state) == facts(await fold(history))
    assert found.records == found.state.sequence == (await history.head()).last
    assert violations(found.state) == []


async def test_a_snapshot_anywhere_and_the_tail_after_it_are_the_fold(
    history: MemoryJournal,
) -> None:
    wanted = facts(await fold(history))
    state = QueueState()
    for envelope in await scan(history, SHARD):
        replay(state, envelope)
        await take_snapshot(history, state, envelope.checksum)
        found = await recover(history)
        assert found.snapshot_sequence == envelope.last
        assert facts(found.state) == wanted, f"snapshot of {envelope.last}"
        assert violations(found.state) == []


async def test_a_snapshot_is_the_state_it_was_taken_of(
    history: MemoryJournal, medium: MemoryMedium
) -> None:
    envelopes, lasts = medium.envelopes[:], medium.lasts[:]
    medium.envelopes.clear()
    medium.lasts.clear()
    state = QueueState()
    for sealed, last in zip(envelopes, lasts, strict=True):
        medium.envelopes.append(sealed)
        medium.lasts.append(last)
        replay(state, unseal(sealed.body, shard=SHARD, at=sealed.first))
        await take_snapshot(history, state, sealed.checksum)
        found = await recover(history)
        assert (found.snapshot_sequence, found.records) == (last, 0)
        assert facts(found.state) == facts(state), f"snapshot of {last}"


async def test_two_runs_of_one_journal_write_the_same_snapshot(history: MemoryJournal) -> None:
    first = await take_snapshot(history, await fold(history), "link")
    again = await take_snapshot(history, await fold(history), "link")
    assert first == again


# -- damage -------------------------------------------------------------------------------------


async def damage_part(medium: MemoryMedium, journal: MemoryJournal) -> AsyncIterator[Recovered]:
    for (sequence, part), body in list(medium.parts.items()):
        for place in range(0, len(body), 3):
            bad = bytearray(body)
            bad[place] ^= 0x80
            medium.parts[sequence, part] = bytes(bad)
            yield await recover(journal)
        medium.parts[sequence, part] = body


async def test_a_damaged_snapshot_is_passed_over_while_the_whole_journal_is_there(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    await with_snapshot(journal)
    wanted = facts(await fold(journal))
    async for found in damage_part(medium, journal):
        assert found.snapshot_sequence == 0
        assert facts(found.state) == wanted


async def test_a_missing_part_is_passed_over_while_the_whole_journal_is_there(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    await with_snapshot(journal)
    del medium.parts[6, 1]
    found = await recover(journal)
    assert found.snapshot_sequence == 0
    assert facts(found.state) == facts(await fold(journal))


async def test_a_damaged_snapshot_of_a_pruned_journal_is_named(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    await with_snapshot(journal)
    assert await journal.prune(6, before_ms=1 << 50, limit=9) == 3
    await recover(journal)
    medium.parts[6, 0] = medium.parts[6, 0].replace(b"node-1", b"node-7")
    error = await corrupt(journal)
    assert error.sequence == 6
    assert "snapshot cannot be read" in error.message


@pytest.mark.parametrize("kept", range(3))
async def test_a_damaged_snapshot_is_no_leave_to_forget_what_it_covered(
    medium: MemoryMedium, journal: MemoryJournal, kept: int
) -> None:
    """It cannot be read, but it proves that the journal once went at least that far."""
    await with_snapshot(journal)
    del medium.parts[6, 0]
    del medium.envelopes[kept:], medium.lasts[kept:]
    error = await corrupt(journal)
    assert error.sequence == 2 * kept + 1


@pytest.mark.parametrize("kept", range(3))
async def test_a_journal_that_ends_before_its_snapshot_is_named_where_it_ends(
    medium: MemoryMedium, journal: MemoryJournal, kept: int
) -> None:
    await with_snapshot(journal)
    del medium.envelopes[kept:], medium.lasts[kept:]
    assert (await corrupt(journal)).sequence == 2 * kept + 1


async def test_a_snapshot_that_does_not_belong_to_the_journal_s_end_is_refused(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    """No tail follows whose link could be wrong, so the end itself must be the snapshot's."""
    await with_snapshot(journal, after=0)
    other = Scribe(SHARD, time=9_000)
    medium.envelopes[:] = [other.seal(2) for _ in range(3)]
    error = await corrupt(journal)
    assert error.sequence == 6


async def test_a_tail_that_does_not_follow_from_the_snapshot_is_named(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    ref = await with_snapshot(journal)
    medium.snapshot = msgspec.structs.replace(ref, link="0" * 32)
    assert (await corrupt(journal)).sequence == 7


async def test_a_snapshot_of_another_sequence_than_it_says_is_refused(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    ref = await with_snapshot(journal)
    await journal.prune(4, before_ms=1 << 50, limit=9)
    medium.parts = {(4, part): body for (_, part), body in medium.parts.items()}
    medium.snapshot = msgspec.structs.replace(ref, sequence=4)
    assert (await corrupt(journal)).sequence == 4


FOLLOWING: list[tuple[str, list[Record]]] = [
    ("an item out of line", [Enqueued(9, Payload("t", "x"))]),
    ("a lease of nothing", [Granted(9, 1, "lease", 5, 10, 10)]),
    ("a fence out of line", [Granted(1, 1, "lease", 99, 10, 10)]),
    ("the end of no lease", [Completed(1, 1, "lease", 4)]),
    ("a purge of nothing", [Purged((1,))]),
]


@pytest.mark.parametrize("records", [r for _, r in FOLLOWING], ids=[name for name, _ in FOLLOWING])
async def test_a_record_that_does_not_follow_from_those_before_is_named(
    journal: MemoryJournal, records: list[Record]
) -> None:
    scribe = Scribe(SHARD)
    await write(journal, scribe, 3)
    good = Enqueued(3, Payload("t", "good"))
    sealed = sealed_after(scribe, [good, *records], pending=[3] * (1 + len(records)))
    await journal.append(sealed, expected=3)
    error = await corrupt(journal)
    assert error.sequence == 5
    assert "does not follow" in error.message


async def test_depths_that_the_fold_does_not_reach_are_named(journal: MemoryJournal) -> None:
    scribe = Scribe(SHARD)
    await write(journal, scribe, 3)
    sealed = sealed_after(scribe, [Enqueued(3, Payload("t", "good"))], pending=[7])
    await journal.append(sealed, expected=3)
    error = await corrupt(journal)
    assert error.sequence == 4
    assert "depth" in error.message


def sealed_after(scribe: Scribe, records: list[Record], *, pending: list[int]) -> Sealed:
    head = (SHARD, scribe.epoch, "node-1")
    depths = (pending, [0] * len(records))
    return seal(
        records, depths, head=head, first=scribe.last + 1, time=scribe.time, prev=scribe.link
    )


# -- rivals -------------------------------------------------------------------------------------


class RivalDuringHead(MemoryJournal):
    """Another node appends right after this one has asked where the journal ends."""

    def __init__(self, shard: str, medium: MemoryMedium, rival: Scribe) -> None:
        super().__init__(shard, medium)
        self.rival: Scribe | None = rival
        self.answers_first = True

    async def head(self) -> Head:
        head = await super().head()
        if self.rival is None:
            return head
        rival, self.rival = self.rival, None
        await write(MemoryJournal(self.shard, self.medium), rival, 2)
        return head if self.answers_first else await super().head()


async def test_a_journal_that_grows_during_recovery_is_read_to_its_new_end(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    scribe = Scribe(SHARD)
    await write(journal, scribe, 2, 2)
    racing = RivalDuringHead(SHARD, medium, scribe.rival())
    racing.answers_first = False
    assert (await recover(racing)).state.sequence == 6


async def test_a_rival_that_appends_after_the_recovery_is_not_written_over(
    medium: MemoryMedium, journal: MemoryJournal
) -> None:
    """The new writer must continue what it has folded, not what it finds when it starts."""
    scribe = Scribe(SHARD)
    await write(journal, scribe, 2, 2)
    racing = RivalDuringHead(SHARD, medium, scribe.rival(epoch=2))
    options = ShardOptions(node="node-3", retry_min_s=0.0)
    async with serving(racing, options) as served:
        assert served.shard.state.sequence == 7
        assert served.shard.state.epoch == 3
        assert facts(served.shard.state) == facts(await fold(journal))


# -- a shard that cannot serve ------------------------------------------------------------------


async def test_a_journal_that_cannot_be_opened_ends_the_shard_with_the_reason(
    tmp_path: Path,
) -> None:
    missing = SqliteJournal(str(tmp_path / "missing" / "leases.db"), SHARD)
    with pytest.raises(InvalidOption, match="does not exist"):
        async with serving(missing):
            pytest.fail("it serves")


class FullJournal(MemoryJournal):
    is_full = False

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        if self.is_full:
            raise DiskFull("no room")
        await super().append(sealed, expected=expected)


async def test_what_was_not_made_durable_is_not_read_either(medium: MemoryMedium) -> None:
    backend = FullJournal(SHARD, medium)
    async with serving(backend) as served:
        await served.ask(Enqueue(payload=Payload("t", "kept")))
        backend.is_full = True
        refused, stats = await asyncio.gather(
            served.ask(Enqueue(payload=Payload("t", "refused"))), served.ask(ReadStats())
        )
        assert isinstance(refused[0], DiskFull)
        (again,) = await served.ask(ReadStats())
        for answer in (*stats, again):
            assert isinstance(answer, OmniRelayError | Stats)
            assert isinstance(answer, OmniRelayError) or answer.pending_count == 1
        backend.is_full = False
