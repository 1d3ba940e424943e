"""What only a caller of a node can meet: its addresses, its batches, its own positions."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnirelay
from omnirelay import Accepted, Event, InvalidArgument, Payload, QueueOptions, Relay, connect
from omnirelay.lease.commands import Enqueue
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption
from omnirelay.node.node import Node
from omnirelay.testing.node_process import WIRES, node_thread, settings_of
from tests.embedded.signals import a_turn_of_the_loop, counts, kinds


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def node(wire: str) -> Iterator[Node]:
    with node_thread(settings_of((wire,), "memory:")) as node:
        yield node


@pytest.fixture
async def relay(node: Node, wire: str) -> AsyncIterator[Relay]:
    async with connect(node.urls[wire]) as relay:
        yield relay


# -- batches ------------------------------------------------------------------------------------


async def test_one_callers_mistake_is_no_other_callers_refusal(relay: Relay) -> None:
    """They know nothing of one another, and travel in one message."""
    wrong = [
        relay.enqueue("table", "a", delay=-1),
        relay.enqueue("table", "b", max_attempts=-7),
        relay.enqueue("table", "c", lease_duration=-3),
        relay.enqueue(" ", "d"),
    ]
    right = [relay.enqueue("table", f"t{n}") for n in range(20)]
    outcomes = await asyncio.gather(*right[:10], *wrong, *right[10:], return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, InvalidArgument)]
    assert len(refused) == 4
    assert all(isinstance(one, Accepted) for one in outcomes[:10] + outcomes[14:])
    assert await counts(relay) == (20, 0)
    assert (await kinds(relay)) == ["Enqueue"] * 20


async def test_a_wrong_item_of_a_batch_is_refused_by_itself(relay: Relay) -> None:
    items = [Enqueue(payload=Payload("table", f"t{n}"), delay_ms=-(n == 3)) for n in range(6)]
    outcomes = await relay.enqueue_many(items)
    assert [isinstance(one, Accepted) for one in outcomes] == [n != 3 for n in range(6)]


async def test_more_leases_than_one_message_may_name_are_completed(relay: Relay) -> None:
    count = limits.BATCH_MAX + 10
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(count)])
    leases = await relay.lease_many(limits.BATCH_MAX) + await relay.lease_many(limits.BATCH_MAX)
    outcomes = await relay.complete_many(leases)
    assert len(outcomes) == count
    assert await counts(relay) == (0, 0)


async def test_a_thousand_callers_at_once_share_a_few_messages(relay: Relay, node: Node) -> None:
    await relay.stats()
    before = _commits(node)
    await asyncio.gather(*(relay.enqueue("table", f"t{n}") for n in range(1500)))
    leases = await asyncio.gather(*(relay.lease(wait=5).take() for _ in range(1500)))
    await asyncio.gather(*(lease.complete() for lease in leases))
    assert await counts(relay) == (0, 0)
    assert _commits(node) - before < 60


def _commits(node: Node) -> int:
    return node._engines["resourcelease"].shard.tally.commits


async def test_items_that_fill_a_message_are_leased_and_drained_in_parts(relay: Relay) -> None:
    """Whatever they are made of: what a message cannot carry must not leave the queue."""
    attributes = {f"k{n}": "größer" * 600 for n in range(limits.ATTRIBUTES_MAX)}
    names = [f"t{n}" for n in range(24)]
    await relay.enqueue_many([Payload("table", name, attributes=attributes) for name in names])
    taken: list[omnirelay.Lease] = []
    while leases := await relay.lease_many(100):
        taken += leases
    assert [lease.resource_id for lease in taken] == names
    assert taken[0].payload.attributes == attributes
    for lease in taken:
        await lease.release()
    drained: list[str] = []
    while (page := await relay.drain(100)).items:
        drained += [item.payload.resource_id for item in page.items]
    assert sorted(drained) == sorted(names)


async def test_a_body_beyond_the_limit_is_refused_as_everywhere(relay: Relay) -> None:
    """Even one that no message could carry."""
    for size in (limits.BODY_BYTES_MAX + 1, limits.MESSAGE_BYTES_MAX * 2):
        with pytest.raises(InvalidArgument, match="body") as refused:
            await relay.enqueue("table", "a", body=bytes(size))
        assert refused.value.code == "resourcelease.payload.body_too_large"


async def test_refusals_carry_their_facts_in_company_too(wire: str) -> None:
    few = QueueOptions(capacity=1)
    with node_thread(settings_of((wire,), "memory:", few)) as node:
        async with connect(node.urls[wire]) as relay:
            await relay.enqueue("table", "a")
            with pytest.raises(omnirelay.QueueFull) as alone:
                await relay.enqueue("table", "b")
            together = await relay.enqueue_many([Payload("table", "c"), Payload("table", "d")])
            for refused in (alone.value, *together):
                assert isinstance(refused, omnirelay.QueueFull)
                assert refused.details == {"pending": 1, "capacity": 1}
            lease = await relay.lease()
            await lease.release()
            stale = await relay.complete_many([lease, lease])
            assert all(isinstance(one, omnirelay.StaleToken) for one in stale)
            assert [one.details["sequenceId"] for one in stale] == [1, 1]  # type: ignore[union-attr]


# -- positions ----------------------------------------------------------------------------------


class Sink:
    def __init__(self) -> None:
        self.seen: list[int] = []

    async def __call__(self, events: Sequence[Event]) -> None:
        self.seen += [event.sequence_number for event in events]

    async def reached(self, last: int) -> None:
        async with asyncio.timeout(10):
            while self.seen[-1:] != [last]:
                await a_turn_of_the_loop()


async def test_a_follower_with_positions_goes_on_where_it_was(
    node: Node, wire: str, tmp_path: Path
) -> None:
    first, second, third = Sink(), Sink(), Sink()
    positions = str(tmp_path / "positions.db")
    for sink, name in ((first, "lake"), (second, "lake"), (third, "other")):
        async with connect(node.urls[wire], positions=positions) as relay:
            await relay.enqueue("table", "a")
            relay.follow(name, sink)
            last = (await relay.stats()).last_sequence
            await sink.reached(last)
            async with asyncio.timeout(10):
                while (await asyncio.to_thread(relay.followers))[0].sequence_lag:
                    await a_turn_of_the_loop()
    assert first.seen + second.seen == [1, 2, 3]
    assert third.seen == [1, 2, 3, 4]


async def test_without_positions_a_follower_starts_anew(node: Node, wire: str) -> None:
    for _ in range(2):
        async with connect(node.urls[wire]) as relay:
            sink = Sink()
            relay.follow("lake", sink)
            await sink.reached(1)


async def test_a_slow_follower_takes_larger_steps(relay: Relay) -> None:
    steps: list[int] = []
    may_go = asyncio.Event()
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    async def slow(events: Sequence[Event]) -> None:
        steps.append(len(events))
        loop.call_soon_threadsafe(begun.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_passed(may_go), loop))

    relay.follow("lake", slow)
    await begun.wait()
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(500)])
    async with asyncio.timeout(10):
        while (await asyncio.to_thread(relay.followers))[0].sequence_lag < 500:
            await a_turn_of_the_loop()
    may_go.set()
    async with asyncio.timeout(10):
        while sum(steps) < 501:
            await a_turn_of_the_loop()
    assert max(steps) > 1, "positions are stored once a step, not once an event"


async def _passed(event: asyncio.Event) -> None:
    await event.wait()


# -- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "stream://h:99999",
        "http://h:x",
        "grpc://h:-1",
        "http://",
        "stream://",
        "grpc://",
        "http://h:1,grpc://h:2",
        "http://h:1,",
        "stream://h:1,memory:",
    ],
)
async def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidOption):
        await connect(url)
    with pytest.raises(InvalidOption):
        omnirelay.connect_sync(url)


@pytest.mark.parametrize(
    "settings",
    [
        {"options": QueueOptions()},
        {"require": "power_loss"},
        {"peer_id": "größe"},
        {"peer_id": "a\r\nx-principal: root"},
        {"token": "a b\n"},
        {"token": "größe"},
        {"token": 7},
        {"retry": float("nan")},
        {"retry": "long"},
        {"namespace": " "},
        {"positions": ""},
        {"positions": 7},
    ],
)
async def test_settings_that_do_not_go_with_a_node_are_refused_at_once(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(InvalidArgument):
        await connect("stream://127.0.0.1:1", **settings)
    with pytest.raises(InvalidArgument):
        omnirelay.connect_sync("stream://127.0.0.1:1", **settings)


async def test_settings_of_a_node_do_not_go_with_a_file(tmp_path: Path) -> None:
    for settings in ({"token": "x"}, {"positions": "x.db"}):
        with pytest.raises(InvalidOption, match="does not go with"):
            await connect(f"sqlite:///{tmp_path}/leases.db", **settings)  # type: ignore[arg-type]


async def test_a_namespace_nobody_serves_is_refused_by_name(node: Node, wire: str) -> None:
    async with connect(node.urls[wire], namespace="nobody") as relay:
        for call in (relay.stats(), relay.enqueue("table", "a"), relay.lease_many(1, wait=1)):
            with pytest.raises(omnirelay.OmniRelayError, match="nobody") as refused:
                await call
            assert refused.value.status == "UNIMPLEMENTED"


async def test_a_namespace_that_is_served_has_its_own_queue() -> None:
    from omnirelay.node.settings import NodeSettings

    settings = NodeSettings(
        stream="127.0.0.1:0",
        http="",
        grpc="",
        journal="memory:",
        namespace=("users", "orders.eu"),
        grace_s=0.2,
    )
    with node_thread(settings) as node:
        url = node.urls["stream"]
        async with connect(url, namespace="users") as users:
            await users.enqueue("table", "a")
            async with connect(url, namespace="orders.eu") as orders:
                assert await counts(orders) == (0, 0)
            assert await counts(users) == (1, 0)
