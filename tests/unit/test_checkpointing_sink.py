"""The checkpointing sink: each event applied once and in order, however it is delivered."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from omnirelay.journal.checkpoint import Checkpoint, CheckpointingSink, CheckpointStore
from omnirelay.journal.events import Event
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.testing.clock import HandClock

SHARD = "s"


class Applied:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.fails = False

    async def __call__(self, events: Sequence[Event]) -> None:
        if self.fails:
            raise ConnectionError("the lake is closed")
        self.batches.append([event.sequence_number for event in events])

    @property
    def all(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


def event(number: int, peer: str | None = None) -> Event:
    return Event(
        sequence_number=number,
        event_type="Enqueue",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        shard=SHARD,
        epoch=1,
        node="n",
        peer_id=peer,
        metadata={},
    )


def events(*numbers: int) -> list[Event]:
    return [event(number) for number in numbers]


@pytest.fixture
def applied() -> Applied:
    return Applied()


@pytest.fixture
def store() -> CheckpointStore:
    return MemoryCheckpoints()


async def sink_at(store: CheckpointStore, applied: Applied) -> CheckpointingSink:
    return await CheckpointingSink.open(
        "lake", SHARD, store=store, apply=applied, clock=HandClock(7)
    )


async def test_events_in_order_are_applied_as_they_come(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    assert await sink.deliver(events(1, 2)) == 2
    assert await sink.deliver(events(3)) == 1
    assert applied.batches == [[1, 2], [3]]
    assert sink.position == 3


async def test_an_event_that_comes_early_waits_for_those_before_it(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    assert await sink.deliver(events(3, 2)) == 0
    assert applied.batches == []
    assert await sink.deliver(events(1)) == 3
    assert applied.batches == [[1, 2, 3]]


async def test_an_event_delivered_again_is_not_applied_again(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    await sink.deliver(events(1, 2, 2, 1))
    assert await sink.deliver(events(1, 2)) == 0
    await sink.deliver(events(2, 3))
    assert applied.all == [1, 2, 3]


async def test_an_apply_that_fails_moves_nothing_and_is_tried_with_the_same_events(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    applied.fails = True
    with pytest.raises(ConnectionError):
        await sink.deliver(events(1, 2))
    assert sink.position == 0
    assert await store.read("lake", SHARD) is None
    applied.fails = False
    assert await sink.deliver(events(1, 2)) == 2
    assert applied.all == [1, 2]


async def test_the_position_is_durable_after_each_delivery(
    store: CheckpointStore, applied: Applied
) -> None:
    await (await sink_at(store, applied)).deliver(events(1, 2))
    again = await sink_at(store, applied)
    assert again.position == 2
    await again.deliver(events(1, 2, 3))
    assert applied.all == [1, 2, 3]


async def test_a_store_that_fails_leaves_the_sink_where_it_was(applied: Applied) -> None:
    class Failing(MemoryCheckpoints):
        async def write(self, checkpoint: Checkpoint) -> None:
            raise OSError("no room")

    sink = await sink_at(Failing(), applied)
    with pytest.raises(OSError, match="no room"):
        await sink.deliver(events(1))
    assert sink.position == 0, "delivered again rather than never"


async def test_each_peer_has_its_own_position(store: CheckpointStore, applied: Applied) -> None:
    sink = await sink_at(store, applied)
    await sink.deliver([event(1, "a"), event(2, "b"), event(3, "a"), event(4)])
    assert sink.checkpoint.peers == {"a": 3, "b": 2, "default": 4}
    assert sink.checkpoint.updated_at == 7


def test_positions_only_grow_whatever_order_events_are_named_in() -> None:
    checkpoint = Checkpoint("lake", SHARD).advanced([event(5, "a"), event(3, "a")], 1)
    assert (checkpoint.position, checkpoint.peers) == (5, {"a": 5})
    assert checkpoint.advanced([event(2, "a")], 2).peers == {"a": 5}
    assert checkpoint.advanced([event(2, "b")], 2).position == 5


def test_the_peer_that_was_silent_longest_is_forgotten_first() -> None:
    most = limits.PEER_POSITIONS_MAX
    checkpoint = Checkpoint("lake", SHARD, 1, {f"p{n}": n for n in range(most)})
    advanced = checkpoint.advanced([event(9, "p0"), event(10, "new")], 1)
    assert len(advanced.peers) == most
    assert "p1" not in advanced.peers
    assert {"p0", "new", "p2"} <= set(advanced.peers)


async def test_an_event_that_never_comes_is_missed_loudly(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    late = events(*range(2, limits.SINK_HELD_EVENTS_MAX + 3))
    with pytest.raises(Corrupt, match="sequence 1: it never came"):
        await sink.deliver(late)
    assert applied.batches == []


async def test_a_long_run_in_one_delivery_is_applied_and_not_taken_for_a_gap(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    most = limits.SINK_HELD_EVENTS_MAX
    assert await sink.deliver(events(*range(1, most + 2))) == most + 1


async def test_a_sink_that_waits_for_a_missing_event_holds_no_more_than_it_may(
    store: CheckpointStore, applied: Applied
) -> None:
    sink = await sink_at(store, applied)
    most = limits.SINK_HELD_EVENTS_MAX
    await sink.deliver(events(*range(2, most + 2)))
    for number in range(most + 2, most + 5):
        with pytest.raises(Corrupt):
            await sink.deliver(events(number))
    assert len(sink._held) == most
    assert await sink.deliver(events(1)) == most + 1
