"""How far readers are is written down with what is written anyway, and changes nothing."""

from itertools import chain

import pytest

from omnirelay.cli.event_words import event_in_words
from omnirelay.journal.events import events_of
from omnirelay.journal.format import Envelope
from omnirelay.lease.commands import Enqueue, ReadStats, TellFollowed
from omnirelay.lease.image import facts
from omnirelay.lease.records import Followed
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.items import Payload
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.envelopes import scan
from omnirelay.testing.folded import FoldedQueue, fold
from tests.unit.served import serving

SHARD = "resourcelease"
WORK = Enqueue(payload=Payload("table", "orders"))
SLOW, QUICK = Followed("lakehouse", 1, 4, 2_500), Followed("node:b", 5, 0, 0)


async def followed(journal: MemoryJournal) -> list[Followed]:
    records = chain.from_iterable(one.records for one in await scan(journal, SHARD))
    return [record for record in records if isinstance(record, Followed)]


async def test_a_lag_is_written_down_once_with_the_next_commit() -> None:
    journal = MemoryJournal(SHARD)
    async with serving(journal) as served:
        served.shard.tally.followed = (SLOW, QUICK)
        await served.ask(ReadStats())
        assert await followed(journal) == [], "no commit of its own"
        await served.ask(WORK)
        await served.ask(WORK)
        before, told, after = await scan(journal, SHARD)
        assert list(told.records[1:]) == [SLOW, QUICK]
        assert told.pending == [1, 1, 1]
        assert (len(before.records), len(after.records)) == (1, 1)
        found = await recover(journal)
        assert facts(found.state) == facts(served.shard.state)


async def test_of_several_looks_at_the_readers_the_newest_is_written() -> None:
    journal = MemoryJournal(SHARD)
    async with serving(journal) as served:
        for lag in (900, 800, 700):
            served.shard.tally.followed = (Followed("mirror", 1, 1, lag),)
        await served.ask(WORK)
        assert [one.lag_ms for one in await followed(journal)] == [700]


async def test_of_many_readers_those_furthest_behind_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FOLLOWED_MAX", 2)
    journal = MemoryJournal(SHARD)
    async with serving(journal) as served:
        lags = (Followed(f"r{lag}", 1, 1, lag) for lag in (9, 8, 7))
        served.shard.tally.followed = tuple(lags)
        await served.ask(WORK)
        await served.ask(WORK)
        assert [one.reader for one in await followed(journal)] == ["r9", "r8"]


async def test_a_shard_without_readers_writes_nothing_of_them() -> None:
    journal = MemoryJournal(SHARD)
    async with serving(journal) as served:
        await served.ask(WORK)
        assert await followed(journal) == []


async def test_an_old_format_s_epoch_holds_no_lags() -> None:
    journal = MemoryJournal(SHARD)
    async with serving(journal, ShardOptions(node="n", format=1)) as served:
        served.shard.tally.followed = (SLOW,)
        await served.ask(WORK)
        await served.ask(WORK)
        assert await followed(journal) == []


def test_the_state_is_the_same_with_and_without_a_lag() -> None:
    queue = FoldedQueue()
    queue.submit(WORK, 10)
    records, _ = queue.submit(TellFollowed(followed=(SLOW,)), 10)
    assert records == (SLOW,)
    without = fold(one for one in queue.journal if not isinstance(one[1], Followed))
    without.sequence += 1
    assert facts(queue.state) == facts(without)
    queue.refold()
    queue.through_snapshot()


def test_an_event_says_a_lag_in_words() -> None:
    envelope = Envelope(1, SHARD, 1, "n", 7, 7, 1000, "", [SLOW], [0], [0])
    (event,) = events_of(envelope)
    assert (event.event_type, event.sequence_id, event.principal) == ("Followed", None, None)
    told = {name: event.metadata[name] for name in Followed.__struct_fields__}
    assert told == {
        "reader": "lakehouse",
        "position": "1",
        "sequence_lag": "4",
        "lag_ms": "2500",
    }
    assert event_in_words(event).endswith(
        "Followed         lakehouse is 4 events and 2500 ms behind"
    )
