"""Nodes that are not there, not yet there, or not there any more."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnirelay
from omnirelay import Payload, Relay, Unavailable, Worker
from omnirelay.cli.free_ports import free_ports
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Request, RequestMeta
from omnirelay.testing.node_process import (
    WIRES,
    NodeProcess,
    node_process,
    node_thread,
    settings_of,
)
from omnirelay.transports.stream_frames import VERSION, Welcome, pack
from omnirelay.transports.stream_outbound import StreamOutbound
from tests.embedded.signals import committed, kinds
from tests.wire.proxies import proxied


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """Not started."""
    with node_process(tmp_path, lease_duration_ms=3000, requeue_delay_ms=0) as node:
        yield node


@pytest.mark.parametrize("wire", WIRES)
async def test_the_second_address_serves_when_the_first_is_dead(wire: str) -> None:
    (dead,) = free_ports(1)
    with node_thread(settings_of((wire,), "memory:")) as node:
        urls = f"{wire}://127.0.0.1:{dead},{node.urls[wire]}"
        async with omnirelay.connect(urls) as relay:
            await relay.enqueue("table", "a")
            async with relay.lease(duration=0.3) as lease:
                await committed(relay, "Heartbeat")  # these have their own connection
            assert lease.is_over
            assert (await kinds(relay))[-1] == "Completed"
        queue = await asyncio.to_thread(omnirelay.connect_sync, urls)
        assert (await asyncio.to_thread(queue.stats)).pending_count == 0
        await asyncio.to_thread(queue.close)


async def test_a_caller_moves_on_from_a_node_that_drains() -> None:
    with (
        node_thread(settings_of(("stream",), "memory:")) as first,
        node_thread(settings_of(("stream",), "memory:")) as second,
    ):
        urls = f"{first.urls['stream']},{second.urls['stream']}"
        async with omnirelay.connect(urls) as relay, omnirelay.connect(urls) as other:
            await relay.enqueue("table", "a")
            waiting = asyncio.create_task(other.lease(wait=10, types=["saga"]).take())
            await other.stats()
            first.drain()
            outcomes = await relay.enqueue_many([Payload("saga", "b"), Payload("table", "c")])
            assert [type(one).__name__ for one in outcomes] == ["Accepted", "Accepted"]
            assert (await waiting).resource_id == "b"
        async with omnirelay.connect(second.urls["stream"]) as direct:
            assert (await kinds(direct)).count("Enqueue") == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_a_node_may_come_up_after_its_callers(node: NodeProcess, wire: str) -> None:
    async with omnirelay.connect(node.url(wire)) as relay:
        worker = Worker(relay)

        @worker.handles("table")
        async def handle(lease: omnirelay.Lease) -> None:
            return None

        running = asyncio.create_task(worker.run())
        enqueued = asyncio.create_task(relay.enqueue("table", "a"))
        event = asyncio.create_task(committed(relay, "Completed"))
        await node.start_soon()
        assert (await enqueued).sequence_id == 1
        assert (await event).sequence_id == 1
        worker.stop()
        await running
        assert worker.completed == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_node_that_stays_away_is_named_when_patience_ends(wire: str) -> None:
    (dead,) = free_ports(1)
    async with omnirelay.connect(f"{wire}://127.0.0.1:{dead}", retry=0.2) as relay:
        for call in (relay.enqueue("table", "a"), relay.stats(), relay.lease_many(1, wait=0.1)):
            with pytest.raises(Unavailable, match=str(dead)):
                await call
        with pytest.raises(Unavailable):
            await anext(relay.events(0, follow=False))


@pytest.mark.parametrize("wire", WIRES)
async def test_closing_does_not_wait_for_a_node_that_is_gone(wire: str) -> None:
    (dead,) = free_ports(1)
    relay = await omnirelay.connect(f"{wire}://127.0.0.1:{dead}")
    calls = [
        asyncio.create_task(call)
        for call in (relay.enqueue("table", "a"), relay.lease_many(1, wait=60), relay.stats())
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await relay.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Closed"] * 3


async def test_a_connection_lost_right_after_its_welcome_leaves_nobody_waiting() -> None:
    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(pack(Welcome(VERSION)))
        writer.close()

    server = await asyncio.start_server(welcome, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outbound = StreamOutbound(f"stream://127.0.0.1:{port}", clock=SystemClock())
    request = Request(RequestMeta(procedure="resourcelease::stats", transport="stream"))
    for _ in range(20):
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable):
                await outbound(request)
    await outbound.stop()
    server.close()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_held_lease_outlives_a_restart_of_its_node(node: NodeProcess, wire: str) -> None:
    """The new term gives every lease its full time, and heartbeats find their way back."""
    await node.start_soon()
    async with omnirelay.connect(node.url(wire)) as relay:
        await relay.enqueue("table", "a")
        async with relay.lease() as lease:
            node.kill()
            await node.start_soon()
            await committed(relay, "Heartbeat", count=2)
            assert not lease.lost.is_set()
        assert (await kinds(relay))[-1] == "Completed"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_reader_and_a_follower_go_on_over_a_restart(
    node: NodeProcess, wire: str, tmp_path: Path
) -> None:
    await node.start_soon()
    seen: list[int] = []

    async def apply(events: object) -> None:
        seen.extend(event.sequence_number for event in events)  # type: ignore[attr-defined]

    async with omnirelay.connect(node.url(wire), positions=str(tmp_path / "positions.db")) as relay:
        relay.follow("lake", apply)
        events = relay.events(0)
        numbers = [(await anext(events)).sequence_number]
        for _ in range(2):
            await relay.enqueue("table", "a")
            node.kill()
            await node.start_soon()
            numbers += [(await anext(events)).sequence_number for _ in range(2)]
        assert numbers == [1, 2, 3, 4, 5]
        await until_seen(relay, seen, 5)
    assert seen == numbers


async def until_seen(relay: Relay, seen: list[int], last: int) -> None:
    async with asyncio.timeout(10):
        while seen[-1:] != [last]:
            await relay.stats()


async def test_a_relay_behind_a_broken_line_comes_back_by_itself() -> None:
    with node_thread(settings_of(("stream",), "memory:")) as node:
        async with proxied(node.urls["stream"]) as proxy, omnirelay.connect(proxy.url) as relay:
            for number in range(10):
                calls = [asyncio.create_task(relay.enqueue("table", f"{number}")) for _ in range(5)]
                await asyncio.sleep(0)
                proxy.cut()
                await asyncio.gather(*calls)
            assert (await relay.stats()).pending_count == 50
