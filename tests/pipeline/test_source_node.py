"""A live node as a journal's address. No Spark here."""

from collections.abc import Iterator
from contextlib import closing

import pytest

import omnirelay
from omnirelay import KeepOptions, Payload
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.node.settings import NamespaceSettings, NodeSettings
from omnirelay.pipeline.address_node import NodeAddress
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import Span, forget, held
from omnirelay.pipeline.source_options import parse
from omnirelay.pipeline.source_stream import JournalStream
from tests.wire.node_apart import NodeApart

SHARD = "resourcelease"


class PruningNode(NodeApart):
    """Keeps next to nothing."""

    def __init__(self) -> None:
        super().__init__(http="127.0.0.1:0")
        keep = KeepOptions(snapshot_every=20, retain_ms=0)
        self._settings = NodeSettings(
            http="127.0.0.1:0",
            grpc="",
            stream="",
            journal="memory:",
            node_id="apart",
            grace_s=0.2,
            namespace=(),
            namespaces={SHARD: NamespaceSettings(keep=keep)},
        )


@pytest.fixture
def url() -> Iterator[str]:
    with NodeApart(http="127.0.0.1:0") as node:
        yield node.urls["http"]


def fill(url: str, count: int) -> int:
    with omnirelay.connect_sync(url) as relay:
        for n in range(count):
            relay.enqueue_many([Payload("table", f"t{n}")])
        return relay.stats().last_sequence


def sequences(address: NodeAddress, span: Span) -> list[int]:
    part = Part(names=("sequence",), after=span.after, through=span.through)
    return [row["sequence"] for b in address.read(span.shard, part) for row in b.to_pylist()]


def test_a_part_of_a_nodes_events_is_exact(url: str) -> None:
    last = fill(url, 6)
    with closing(NodeAddress(url)) as address:
        assert address.shards() == [SHARD]
        assert (address.extent(SHARD).first, address.extent(SHARD).last) == (1, last)
        assert sequences(address, Span(SHARD, 2, 5)) == [3, 4, 5]
        assert list(address.damaged(SHARD, 0, last)) == []


def test_only_the_types_that_are_asked_for_are_read(url: str) -> None:
    last = fill(url, 3)
    part = Part(names=("event_type", "resource_id"), through=last, event_types={"Enqueue"})
    with closing(NodeAddress(url)) as address:
        rows = [row for batch in address.read(SHARD, part) for row in batch.to_pylist()]
    assert rows == [{"event_type": "Enqueue", "resource_id": f"t{n}"} for n in range(3)]


@pytest.mark.parametrize("wire", ["http", "stream", "grpc"])
def test_a_named_reader_keeps_its_place_at_the_node(wire: str) -> None:
    with NodeApart(http="127.0.0.1:0", stream="127.0.0.1:0", grpc="127.0.0.1:0") as node:
        fill(node.urls[wire], 6)
        options = parse({"url": node.urls[wire], "consumer": "lake"})
        stream = JournalStream(options, ("sequence",))
        assert stream.initialOffset() == {SHARD: 0}
        stream.commit({SHARD: 4})
        assert JournalStream(options, ("sequence",)).initialOffset() == {SHARD: 4}
        with closing(NodeAddress(node.urls[wire])) as address:
            assert held(address.positions(), "lake", [SHARD]) == {SHARD: 4}
            forget(address.positions(), "lake", [SHARD])
            assert held(address.positions(), "lake", [SHARD]) == {}


def test_pruning_waits_for_a_reader_of_the_node() -> None:
    with PruningNode() as node:
        url = node.urls["http"]
        fill(url, 5)
        stream = JournalStream(parse({"url": url, "consumer": "lake"}), ("sequence",))
        stream.commit({SHARD: 4})
        fill(url, 70)
        with closing(NodeAddress(url)) as address:
            assert 1 < address.extent(SHARD).first <= 5


def test_a_node_that_ends_too_early_leaves_no_silent_gap(url: str) -> None:
    last = fill(url, 2)
    with closing(NodeAddress(url)) as address, pytest.raises(Unavailable, match="ended at"):
        sequences(address, Span(SHARD, 0, last + 3))


def test_times_are_found(url: str) -> None:
    last = fill(url, 3)
    with closing(NodeAddress(url)) as address:
        assert address.sequence_before(SHARD, 0) == 0
        assert address.sequence_before(SHARD, 4_000_000_000_000) == last


def test_what_a_node_has_pruned_is_where_its_events_begin_later() -> None:
    with PruningNode() as node:
        last = fill(node.urls["http"], 70)
        with closing(NodeAddress(node.urls["http"])) as address:
            first = address.extent(SHARD).first
            assert 1 < first <= last
            assert sequences(address, Span(SHARD, first - 1, last)) == list(range(first, last + 1))


def test_an_unknown_namespace_and_a_silent_address_are_errors(url: str) -> None:
    nobody = NodeAddress(url, namespaces=("nobody",))
    with closing(nobody), pytest.raises(OmniRelayError):
        nobody.extent("nobody")
