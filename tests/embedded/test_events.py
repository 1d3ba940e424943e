"""Every committed mutation can be read back in order, now and as it happens."""

import asyncio

import msgspec
import pytest

import omnirelay
from omnirelay import Event, KeepOptions, Payload, QueueOptions, Relay
from omnirelay.journal.events import decode_event, encode_event
from tests.embedded.places import EVERYWHERE, Place
from tests.embedded.signals import QUICK, a_turn_of_the_loop, committed, next_item

pytestmark = pytest.mark.places(*EVERYWHERE)


async def read_all(relay: Relay, after: int = 0) -> list[Event]:
    return [event async for event in relay.events(after, follow=False)]


async def test_events_are_numbered_from_one_without_a_gap(relay: Relay) -> None:
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(5)])
    await relay.complete_many(await relay.lease_many(5))
    events = await read_all(relay)
    assert [event.sequence_number for event in events] == list(range(1, 17))


async def test_reading_goes_on_after_any_sequence_even_inside_a_commit(relay: Relay) -> None:
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(5)])
    assert [event.sequence_number for event in await read_all(relay, after=3)] == [4, 5, 6]
    assert await read_all(relay, after=6) == []
    assert await read_all(relay, after=1000) == []


async def test_every_event_says_how_deep_the_queue_was_after_it(relay: Relay) -> None:
    await relay.enqueue_many([Payload("table", "a"), Payload("table", "b")])
    await (await relay.lease()).complete()
    depths = [
        (event.metadata["queue.pending"], event.metadata["queue.active"])
        for event in await read_all(relay)
    ]
    assert depths == [("0", "0"), ("1", "0"), ("2", "0"), ("1", "1"), ("1", "0")]
    assert all(e.metadata["shard.id"] == "resourcelease" for e in await read_all(relay))


async def test_an_event_read_from_its_json_is_the_same_event(relay: Relay) -> None:
    await relay.enqueue("table", "a", body=b"\x00\x01", attributes={"k": "v"})
    await (await relay.lease(peer_id="w")).fail("broken", requeue=False)
    await relay.redrive()
    await relay.drain()
    for event in await read_all(relay):
        assert decode_event(encode_event(event)) == event
        body = msgspec.json.decode(encode_event(event))
        assert {"sequenceNumber", "eventType", "timestamp", "shard", "epoch", "node"} <= set(body)


async def test_a_grant_and_its_end_carry_the_same_token(relay: Relay) -> None:
    await relay.enqueue("table", "a")
    lease = await relay.lease()
    await lease.complete()
    granted = await committed(relay, "LeaseGranted")
    completed = await committed(relay, "Completed")
    assert granted.ownership == completed.ownership == lease.token
    assert granted.fence == granted.sequence_number == lease.fence
    assert granted.expires_at is not None


async def test_following_delivers_what_is_committed_later(relay: Relay) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def watch() -> None:
        async for event in relay.events(1):
            seen.put_nowait(event.event_type)

    watching = asyncio.create_task(watch())
    for _ in range(3):
        await relay.enqueue("table", "a")
        assert await seen.get() == "Enqueue"
    watching.cancel()


async def test_several_readers_follow_each_at_its_own_pace(relay: Relay) -> None:
    quick = asyncio.create_task(committed(relay, "Enqueue", count=3))
    slow = relay.events(0)
    await anext(slow)
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(3)])
    assert (await quick).sequence_number == 4
    assert [(await anext(slow)).sequence_number for _ in range(3)] == [2, 3, 4]


async def test_a_reader_that_follows_ends_with_its_relay(place: Place) -> None:
    relay = await place.connect()
    seen: list[str] = []

    async def watch() -> None:
        async for event in relay.events(0):
            seen.append(event.event_type)  # noqa: PERF401

    watching = asyncio.create_task(watch())
    await a_turn_of_the_loop()
    await relay.enqueue("table", "a")
    while place.is_remote and len(seen) < 2:  # what is on a wire when its reader leaves is not read
        await a_turn_of_the_loop()
    await relay.close()
    await watching
    assert seen == ["EpochStarted", "Enqueue"]


async def test_two_namespaces_in_one_file_have_their_own_journals(file_url: str) -> None:
    async with omnirelay.connect(file_url, namespace="users") as relay:
        await relay.enqueue("table", "a")
    async with omnirelay.connect(file_url, namespace="orders.eu") as relay:
        assert [event.event_type for event in await read_all(relay)] == ["EpochStarted"]
        assert (await relay.stats()).pending_count == 0


async def test_a_restart_starts_an_epoch_and_keeps_everything(file_url: str) -> None:
    async with omnirelay.connect(file_url, options=QUICK) as relay:
        await relay.enqueue_many([Payload("table", f"t{n}") for n in range(3)])
        await (await relay.lease()).complete()
        held = await relay.lease()
    async with omnirelay.connect(file_url, options=QUICK) as relay:
        assert (await relay.stats()).epoch == 2
        assert (await relay.inspect(held.sequence_id)).token == held.token
        assert (await next_item(relay)).resource_id == "t2"
        events = await read_all(relay)
        assert [e.sequence_number for e in events] == list(range(1, len(events) + 1))
        assert [e.epoch for e in events if e.event_type == "EpochStarted"] == [1, 2]


async def test_events_that_were_pruned_are_missed_loudly(file_url: str) -> None:
    keep = KeepOptions(snapshot_every=10, retain_ms=0)
    async with omnirelay.connect(file_url, keep=keep, options=QueueOptions()) as relay:
        for number in range(40):
            await relay.enqueue("table", f"t{number}")
        with pytest.raises(omnirelay.Corrupt, match="gone"):
            await read_all(relay)
        last = (await relay.stats()).last_sequence
        assert [e.sequence_number for e in await read_all(relay, after=last - 1)] == [last]
