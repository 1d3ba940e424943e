"""A queue whose journal is on a server: embedded, for threads, and served by a node."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnirelay
from tests.cli.nodes import Running, running
from tests.servers.served import SERVED, lone_server

if TYPE_CHECKING:
    from omnirelay.testing.servers_nats import NatsServers
    from omnirelay.testing.servers_objects import ObjectServer

_numbers = count()


@pytest.fixture(params=[*sorted(SERVED), "nats", "file", "s3", "gs", "az"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in SERVED:
        return SERVED[request.param](request.getfixturevalue)
    if request.param == "nats":
        nats: NatsServers = request.getfixturevalue("nats_one")
        return nats.url(f"E{next(_numbers)}")
    if request.param == "file":
        return f"file://{tmp_path}/journals"
    objects: ObjectServer = request.getfixturevalue(request.param)
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    return f"{objects.url(f'e{next(_numbers)}')}?survives=power_loss"


async def test_an_embedded_queue_goes_on_where_it_was(url: str) -> None:
    async with omnirelay.connect(url, require="power_loss") as relay:
        await relay.enqueue("table", "orders", body=b"one")
        await relay.enqueue("table", "users", body=b"two")
        async with relay.lease(wait=5) as lease:
            assert (lease.resource_id, lease.body) == ("orders", b"one")
    async with omnirelay.connect(url) as relay:
        assert (await relay.stats()).pending_count == 1
        async with relay.lease(wait=5) as lease:
            assert lease.resource_id == "users"
        kinds = [event.event_type async for event in relay.events(follow=False)]
    assert kinds.count("Completed") == 2
    assert kinds.count("EpochStarted") == 2


async def test_many_callers_share_commits(url: str) -> None:
    async with omnirelay.connect(url) as relay:
        await asyncio.gather(*(relay.enqueue("table", f"t{n}") for n in range(300)))
        taken = await relay.lease_many(300, wait=5)
        await asyncio.gather(*(lease.complete() for lease in taken))
        stats = await relay.stats()
    assert (len(taken), stats.pending_count, stats.active_lease_count) == (300, 0, 0)


def test_threads_use_it_too(url: str) -> None:
    with omnirelay.connect_sync(url) as relay:
        relay.enqueue("table", "orders")
        with relay.lease(wait=5) as lease:
            assert lease.resource_id == "orders"
        assert [event.event_type for event in relay.events()][-1] == "Completed"


async def test_a_follower_keeps_its_place_beside_the_journal(url: str) -> None:
    seen: set[int] = set()  # one that was stopped before it noted its place sees a batch again
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def apply(events: Sequence[omnirelay.Event]) -> None:
        seen.update(event.sequence_number for event in events)
        loop.call_soon_threadsafe(told.set)

    async def until(count: int) -> None:
        while len(seen) < count:
            told.clear()
            if len(seen) < count:
                await told.wait()

    async with asyncio.timeout(15):
        for _ in range(2):
            async with omnirelay.connect(url) as relay:
                already = len(seen)
                relay.follow("lake", apply)
                await relay.enqueue("table", "orders")
                await until(already + 2)
    # A follower that was stopped between its effect and its note of it sees that batch again.
    assert sorted(set(seen)) == [1, 2, 3, 4]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("product", sorted(SERVED))
async def test_a_queue_outlives_its_server(product: str) -> None:
    with lone_server(product) as server:
        async with omnirelay.connect(server.url("outlives")) as relay:
            await relay.enqueue("table", "before")
            server.kill()
            with pytest.raises(omnirelay.Unavailable):
                await relay.enqueue("table", "between", request_id="once")
            await asyncio.to_thread(server.start_serving)
            async with asyncio.timeout(20):
                while not await _is_taken(relay, "between"):
                    continue
            assert (await relay.stats()).pending_count == 2


async def _is_taken(relay: omnirelay.Relay, name: str) -> bool:
    try:
        await relay.enqueue("table", name, request_id="once")
    except omnirelay.Unavailable:
        await asyncio.sleep(0.05)  # it answers at once that it is recovering
        return False
    return True


@pytest.mark.timeout(60)
def test_a_node_that_is_killed_comes_back_with_its_queues(url: str, tmp_path: Path) -> None:
    shared = ("--journal", url, "--namespace", "orders", "--namespace", "users")
    with running(tmp_path, *shared) as node, _queues(node) as (orders, users):
        for name in ("one", "two", "three"):
            orders.enqueue("table", name)
        users.enqueue("table", "other")
        done, held = orders.lease_many(2, wait=5, renew=False)
        done.complete()
        node.stop(signal.SIGKILL)
    with running(tmp_path, *shared) as node, _queues(node) as (orders, users):
        stats = orders.stats()
        assert (stats.pending_count, stats.active_lease_count) == (1, 1)
        assert users.stats().pending_count == 1
        shown = orders.inspect(held.sequence_id)
        assert shown is not None
        with orders.lease(wait=5) as lease:
            assert lease.resource_id == "three"
            assert lease.fence > held.fence


@contextmanager
def _queues(node: Running) -> Iterator[tuple[omnirelay.SyncRelay, omnirelay.SyncRelay]]:
    stream = node.urls["stream"]
    with (
        omnirelay.connect_sync(stream, namespace="orders") as orders,
        omnirelay.connect_sync(stream, namespace="users") as users,
    ):
        yield orders, users
