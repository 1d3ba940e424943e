"""What an operator sees and moves: stats, single items, dead letters, drain and restore."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

import omnirelay
from omnirelay import InvalidArgument, Payload, PendingItem, QueueOptions, Relay, UnknownToken
from omnirelay.model.errors import InvalidRestore, SequenceConflict
from tests.embedded.places import EVERYWHERE, Place
from tests.embedded.signals import QUICK, counts, kinds

pytestmark = pytest.mark.places(*EVERYWHERE)


async def fill(relay: Relay, *names: str) -> None:
    for name in names:
        await relay.enqueue("table", name)


async def bury(relay: Relay, *names: str) -> None:
    """Dead letters of these names."""
    await fill(relay, *names)
    for lease in await relay.lease_many(len(names)):
        await lease.fail("broken", requeue=False)


async def test_stats_count_what_is_pending_delayed_leased_and_dead(relay: Relay) -> None:
    await bury(relay, "dead")
    await fill(relay, "a", "b", "c")
    await relay.enqueue("table", "later", delay=60)
    await relay.lease()
    stats = await relay.stats()
    assert stats.pending_count == 3
    assert stats.active_lease_count == 1
    assert stats.delayed_count == 1
    assert stats.dead_letter_count == 1
    assert stats.epoch == 1
    assert stats.last_sequence == len(await kinds(relay)) + 1
    assert not stats.backpressure
    assert stats.oldest_pending_age_ms is not None


async def test_an_item_can_be_inspected_through_its_life(relay: Relay) -> None:
    await fill(relay, "a")
    assert (await relay.inspect(1)).state == "ready"
    lease = await relay.lease(peer_id="w-1")
    held = await relay.inspect(1)
    assert (held.state, held.owner_peer_id, held.token) == ("leased", "w-1", lease.token)
    await lease.fail("again", delay=60)
    assert (await relay.inspect(1)).state == "delayed"
    await bury(relay, "b")
    dead = await relay.inspect(2)
    assert dead.state == "dead"
    assert dead.item.last_error is not None


async def test_an_item_nobody_knows_is_refused_by_name(relay: Relay) -> None:
    with pytest.raises(UnknownToken, match="77"):
        await relay.inspect(77)


async def test_dead_letters_come_in_pages_and_by_filter(relay: Relay) -> None:
    await bury(relay, "a", "b", "c")
    first = await relay.dead_letters(2)
    assert ([item.payload.resource_id for item in first.items], first.total) == (["a", "b"], 3)
    rest = await relay.dead_letters(2, after=first.items[-1].sequence_id)
    assert [item.payload.resource_id for item in rest.items] == ["c"]
    only = await relay.dead_letters(resource_type="table", resource_id="b")
    assert [item.sequence_id for item in only.items] == [2]
    assert (await relay.dead_letters(resource_type="saga")).items == ()


async def test_redriven_dead_letters_are_work_again(relay: Relay) -> None:
    await bury(relay, "a", "b", "c")
    assert await relay.redrive(2) == 1
    assert await relay.redrive(2) == 0
    assert await relay.redrive(resource_id="c") == 1
    assert await counts(relay) == (2, 0)
    leases = await relay.lease_many(5)
    assert sorted(lease.resource_id for lease in leases) == ["b", "c"]
    assert all(lease.attempt == 2 for lease in leases)
    assert await relay.redrive() == 1


async def test_purged_dead_letters_are_gone_for_good(relay: Relay) -> None:
    await bury(relay, "a", "b", "c")
    assert await relay.purge(1, 99) == 1
    assert await relay.purge(max_items=1) == 1
    assert [item.payload.resource_id for item in (await relay.dead_letters()).items] == ["c"]
    assert await relay.redrive(1) == 0


# -- drain and restore --------------------------------------------------------------------------


@pytest.fixture
async def other(place: Place) -> AsyncIterator[Relay]:
    """A second queue of the same kind, elsewhere."""
    async with place.connect("other", options=QUICK) as relay:
        yield relay


async def test_a_drain_leaves_held_items_alone_unless_asked(relay: Relay) -> None:
    await fill(relay, "a", "b", "c")
    lease = await relay.lease()
    page = await relay.drain(1)
    assert ([item.payload.resource_id for item in page.items], page.remaining) == (["b"], 1)
    await lease.complete()
    await relay.drain()
    assert await counts(relay) == (0, 0)


async def test_drained_work_goes_on_elsewhere_as_it_was(relay: Relay, other: Relay) -> None:
    await relay.enqueue("table", "a", priority=3, attributes={"k": "v"}, max_attempts=9)
    await fill(relay, "b")
    failed = await relay.lease(types=["table"])
    await failed.fail("first try", delay=0)
    page = await relay.drain()
    restored = await other.restore(page.items)
    assert (restored.restored_count, restored.skipped_count) == (2, 0)
    lease = await other.lease()
    assert (lease.resource_id, lease.attempt) == ("a", 2)
    assert lease.payload.attributes == {"k": "v"}
    assert lease.last_error is not None
    assert lease.last_error.message == "first try"
    assert lease.fence > failed.fence
    assert (await other.lease()).last_error is None


async def test_the_same_file_twice_changes_nothing(relay: Relay, other: Relay) -> None:
    await fill(relay, "a", "b")
    page = await relay.drain()
    await other.restore(page.items)
    again = await other.restore(page.items)
    assert (again.restored_count, again.skipped_count) == (0, 2)
    assert await counts(other) == (2, 0)


async def test_work_finished_elsewhere_does_not_come_back_there(relay: Relay, other: Relay) -> None:
    await fill(relay, "a")
    page = await relay.drain()
    await other.restore(page.items)
    async with other.lease():
        pass
    assert (await other.restore(page.items)).skipped_count == 1
    assert await counts(other) == (0, 0)


async def test_a_round_trip_over_another_queue_and_a_file_keeps_every_item(
    relay: Relay, other: Relay, tmp_path: Path
) -> None:
    await relay.enqueue_many([Payload("table", f"t{n}", body=bytes([n])) for n in range(50)])
    moved: list[PendingItem] = []
    while (page := await relay.drain(20)).items:
        file = tmp_path / "page.json"
        file.write_bytes(msgspec.json.encode(page.items))
        moved += msgspec.json.decode(file.read_bytes(), type=list[PendingItem])
    await other.restore(moved)
    back = await other.drain(100)
    assert (await relay.restore(back.items)).restored_count == 50
    leases = await relay.lease_many(100)
    assert [lease.resource_id for lease in leases] == [f"t{n}" for n in range(50)]
    assert [lease.body for lease in leases] == [bytes([n]) for n in range(50)]


async def test_dead_letters_travel_too_when_asked(relay: Relay, other: Relay) -> None:
    await bury(relay, "a")
    assert (await relay.drain()).items == ()
    page = await relay.drain(include_dead=True)
    assert page.items[0].dead_letter
    await other.restore(page.items)
    assert (await other.stats()).dead_letter_count == 1


async def test_a_foreign_item_never_takes_the_place_of_our_own(relay: Relay, other: Relay) -> None:
    await fill(relay, "ours")
    await fill(other, "theirs")
    page = await other.drain()
    with pytest.raises(SequenceConflict):
        await relay.restore(page.items)
    assert [lease.resource_id for lease in await relay.lease_many(5)] == ["ours"]


async def test_a_restore_is_all_or_nothing(relay: Relay, other: Relay) -> None:
    await fill(relay, "a", "b")
    page = await relay.drain()
    broken = msgspec.structs.replace(page.items[1], attempt=0)
    with pytest.raises(InvalidRestore):
        await other.restore([page.items[0], broken])
    assert await counts(other) == (0, 0)
    assert (await relay.restore(page.items)).restored_count == 2


async def test_a_restore_that_would_pass_the_capacity_is_refused(relay: Relay) -> None:
    await fill(relay, "a", "b")
    page = await relay.drain()
    async with omnirelay.connect("memory:", options=QueueOptions(capacity=1)) as small:
        with pytest.raises(omnirelay.QueueFull):
            await small.restore(page.items)


@pytest.mark.parametrize("most", [0, -1, 1001])
async def test_a_page_has_bounds(relay: Relay, most: int) -> None:
    for call in (relay.drain, relay.lease_many):
        with pytest.raises(InvalidArgument, match="maxItems"):
            await call(most)
    for verb in (relay.redrive, relay.purge):
        with pytest.raises(InvalidArgument, match="maxItems"):
            await verb(max_items=most)
