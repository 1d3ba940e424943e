"""The kit that judges meshes can be trusted: it finds what is planted, and its links are cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from omnirelay.journal.events import events_of
from omnirelay.journal.format import Chain, Envelope, seal
from omnirelay.lease import image
from omnirelay.lease.options import Rules
from omnirelay.lease.records import Completed, Enqueued, EpochStarted, Granted, Record
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import replay
from omnirelay.model.items import Payload
from omnirelay.testing.checker import Op
from omnirelay.testing.cluster_links import Link, links
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.cluster_verdict import Held, Read, breaches
from omnirelay.testing.host import HERE

SHARD = "resourcelease"
LEASE_ID = "00000000-0000-0000-0000-000000000001"
EPOCH = [EpochStarted(1, "a", LEASE_ID, Rules())]
STORY: list[Record] = [
    Enqueued(1, Payload("table", "p0-0", request_id="p0-0")),
    Granted(1, 1, LEASE_ID, 3, 9_000, 8_000, peer_id="w0"),
    Completed(1, 1, LEASE_ID, 3),
]


def journal(*parts: tuple[int, str, list[Record]]) -> Read:
    """Of (epoch, node, records) for each envelope."""
    chain, envelopes = Chain(SHARD), list[Envelope]()
    for epoch, node, records in parts:
        sealed = seal(
            records,
            ([0] * len(records), [0] * len(records)),
            head=(SHARD, epoch, node),
            first=chain.last + 1,
            time=1_000,
            prev=chain.link or "",
        )
        envelopes.append(chain.accept(sealed.body))
    return Read(envelopes, [event for one in envelopes for event in events_of(one)])


def told(*accepted: int) -> Traffic:
    traffic = Traffic(["stream://127.0.0.1:1"])
    for number, item in enumerate(accepted):
        name = f"p0-{number}"
        traffic.accepted[name] = item
        traffic.history.append(
            Op(
                kind="enqueue",
                worker="p0",
                called=0.0,
                returned=0.1,
                ok=True,
                sequence_id=item,
                request_id=name,
            )
        )
    return traffic


def rules(read: Read, traffic: Traffic, **held: Held) -> set[str]:
    return {line.partition(":")[0] for line in breaches(read, traffic, held)}


async def test_what_is_planted_is_found() -> None:
    good = journal((1, "a", [*EPOCH]), (1, "a", STORY))
    assert rules(good, told(1)) == set()
    both = journal((1, "a", [*EPOCH]), (1, "b", STORY))
    assert rules(both, told(1)) == {"E1"}
    sneaked = journal((1, "a", [*EPOCH]), (2, "b", STORY))
    assert rules(sneaked, told(1)) == {"E2"}
    assert "A1" in rules(good, told(1, 2))
    unfinished = journal((1, "a", [*EPOCH]), (1, "a", STORY[:2]))
    assert rules(unfinished, told(1)) == {"A1"}


async def test_a_reader_who_was_told_something_else_is_found() -> None:
    read, other = journal((1, "a", [*EPOCH, *STORY])), journal((1, "b", [*EPOCH, *STORY]))
    traffic = told(1)
    for url, events, found in (
        ("behind", read.events[:2], set()),
        ("level", read.events, set()),
        ("ahead", [*read.events, other.events[0]], {"J1"}),
        ("astray", [read.events[0], other.events[1]], {"J1"}),
    ):
        traffic.seen = {url: events}
        assert rules(read, traffic) == found, url


async def test_a_node_that_holds_something_else_than_the_journal_is_found() -> None:
    read = journal((1, "a", [*EPOCH]), (1, "a", STORY))
    state = QueueState()
    replay(state, read.envelopes[0])
    early = image.facts(state).decode()
    replay(state, read.envelopes[1])
    late = image.facts(state).decode()
    assert rules(read, told(1), a=(4, late), b=(1, early)) == set()
    assert rules(read, told(1), a=(4, early)) == {"J4"}
    assert rules(read, told(1), a=(3, late)) == {"J4"}, "no append ends there"
    assert rules(read, told(1), a=(5, late)) == {"J4"}, "the journal ends before"


@asynccontextmanager
async def echoed() -> AsyncIterator[tuple[Link, asyncio.StreamReader, asyncio.StreamWriter]]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        while data := await reader.read(100):
            asked.append(data)
            writer.write(data)
        writer.close()

    heard, server = asyncio.Event(), await asyncio.start_server(echo, "127.0.0.1", 0)
    with links() as between:
        link = between.road(HERE, HERE, server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_connection(*link.place.split(":"))
        await heard.wait()
        yield link, reader, writer
        writer.close()
    server.close()


asked: list[bytes] = []


@pytest.mark.parametrize(("there", "back", "arrives"), [(True, True, False), (False, True, True)])
async def test_a_link_is_cut_one_way_or_both_and_nothing_is_lost(
    there: bool, back: bool, arrives: bool
) -> None:
    asked.clear()
    async with echoed() as (link, reader, writer), asyncio.timeout(10):
        writer.write(b"one")
        assert await reader.read(100) == b"one"
        link.cut(there=there, back=back)
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(100)
        assert (b"two" in asked) is arrives
        link.heal()
        assert await reader.read(100) == b"two"
