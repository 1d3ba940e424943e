"""Nodes whose journals a hub keeps: what they lose when it dies, and who sees their events."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

import omnirelay
from omnirelay.journal.follower import tail
from omnirelay.model.errors import OmniRelayError
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite_look import look
from omnirelay.testing.servers_hub import HubHost, HubServer, hub_server
from tests.cli.nodes import running

QUEUE = "orders"
T = TypeVar("T")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


async def _insist(work: Callable[[], Awaitable[T]]) -> T:
    """Until somebody takes it."""
    while True:
        try:
            return await work()
        except omnirelay.Unavailable:
            await asyncio.sleep(0.02)


@pytest.mark.timeout(60)
async def test_a_hub_killed_in_the_middle_of_traffic_loses_and_doubles_nothing(
    hub: HubServer, tmp_path: Path
) -> None:
    count = 240
    flags = ("--journal", hub.url(), "--namespace", QUEUE)
    with running(tmp_path, *flags) as node:
        async with omnirelay.connect(node.urls["stream"], namespace=QUEUE) as relay:
            done: set[str] = set()
            reached = {at: asyncio.Event() for at in (count // 8, count // 2)}

            async def produce(first: int) -> None:
                for number in range(first, count, 8):
                    name = f"t{number}"
                    await _insist(partial(relay.enqueue, "table", name, request_id=name))

            async def consume() -> None:
                while len(done) < count:
                    found = await _insist(partial(relay.lease_many, 8, wait=0.2, renew=False))
                    for lease in found:
                        await _insist(lease.complete)
                        assert lease.resource_id not in done, "completed twice"
                        done.add(lease.resource_id)
                        if (at := reached.get(len(done))) is not None:
                            at.set()

            work = [produce(first) for first in range(8)] + [consume()]
            traffic = asyncio.gather(*work)
            for at in reached:
                await reached[at].wait()
                hub.kill()
                await asyncio.to_thread(hub.start_serving)
            async with asyncio.timeout(40):
                await traffic
            stats = await relay.stats()
            events = [event async for event in relay.events(follow=False)]
    assert (stats.pending_count, stats.active_lease_count) == (0, 0)
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
    kinds = Counter(event.event_type for event in events)
    assert (kinds["Enqueue"], kinds["Completed"]) == (count, count)
    assert kinds["EpochStarted"] >= 3


async def test_of_two_writers_of_one_shard_the_later_epoch_shuts_the_other_out(
    hubs: HubHost,
) -> None:
    url = hubs.fresh()
    async with omnirelay.connect(url, namespace=QUEUE) as one:
        await one.enqueue("table", "first")
        async with omnirelay.connect(url, namespace=QUEUE) as two:
            with pytest.raises(omnirelay.Unavailable, match="epoch 1 is over"):
                await one.enqueue("table", "shut-out", request_id="x")
            for relay in (two, one, two):  # each takes it back, and nothing is there twice
                await _insist(partial(relay.enqueue, "table", "shut-out", request_id="x"))
            events = [event async for event in two.events(follow=False)]
    assert [e.sequence_number for e in events] == list(range(1, len(events) + 1))
    assert [e.payload.resource_id for e in events if e.payload] == ["first", "shut-out"]
    epochs = [event.epoch for event in events]
    assert epochs == sorted(epochs)
    assert epochs[-1] >= 2


async def test_sinks_at_the_node_and_at_the_hub_see_the_same_events(
    hubs: HubHost, tmp_path: Path
) -> None:
    """The node follows its own journal; at the hub a reader of the stored file does."""
    url = hubs.open(tmp_path)
    here: list[int] = []
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def apply(events: Sequence[omnirelay.Event]) -> None:
        here.extend(event.sequence_number for event in events)
        loop.call_soon_threadsafe(told.set)

    there: list[int] = []
    async with omnirelay.connect(url, namespace=QUEUE) as relay, asyncio.timeout(15):
        relay.follow("lake", apply)
        for number in range(20):
            await relay.enqueue("table", f"t{number}")
        async with relay.lease(wait=5):
            pass
        last = (await relay.stats()).last_sequence
        while len(here) < last:
            told.clear()
            if len(here) < last:
                await told.wait()
        reader = look(str(tmp_path / "hub" / f"{QUEUE}.db"), QUEUE).reader
        async for events in tail(reader, QUEUE, 0, follow=False):
            there += [event.sequence_number for event in events]
        await reader.close()
        positions = open_address(url, QUEUE).checkpoints
        while (stored := await positions.readers(QUEUE))[0].position < last:
            continue
        await positions.close()
    assert here == there == list(range(1, last + 1))
    assert [one.name for one in stored] == ["lake"]
    with closing(sqlite3.connect(tmp_path / "hub" / f"{QUEUE}.db")) as file:
        rows = file.execute("SELECT count(*) FROM lease_events").fetchone()
    assert rows == (last,)
    hubs.close(url)


async def test_what_survives_is_what_the_store_behind_the_hub_says(
    hubs: HubHost, tmp_path: Path
) -> None:
    kept, lost = hubs.fresh(), hubs.open(tmp_path, "memory:")
    async with omnirelay.connect(kept, require="process_kill") as relay:
        await relay.enqueue("table", "a")
    with pytest.raises(OmniRelayError, match=r"does not survive process_kill \(memory behind hub"):
        async with omnirelay.connect(lost, require="process_kill"):
            pass
    hubs.close(lost)
