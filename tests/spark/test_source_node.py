"""A live node as a journal's address. No Spark here."""

from collections.abc import Iterator

import pytest

import omnirelay
from omnirelay import KeepOptions, Payload
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.node.settings import NamespaceSettings, NodeSettings
from omnirelay.pipeline.address_node import NodeAddress
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import Span
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
    address = NodeAddress(url)
    assert address.shards() == [SHARD]
    assert (address.extent(SHARD).first, address.extent(SHARD).last) == (1, last)
    assert sequences(address, Span(SHARD, 2, 5)) == [3, 4, 5]
    assert list(address.damaged(SHARD, 0, last)) == []
    assert address.positions() is None


def test_a_node_that_ends_too_early_leaves_no_silent_gap(url: str) -> None:
    last = fill(url, 2)
    with pytest.raises(Unavailable, match="ended at"):
        sequences(NodeAddress(url), Span(SHARD, 0, last + 3))


def test_times_are_found(url: str) -> None:
    last = fill(url, 3)
    address = NodeAddress(url)
    assert address.sequence_before(SHARD, 0) == 0
    assert address.sequence_before(SHARD, 4_000_000_000_000) == last


def test_what_a_node_has_pruned_is_where_its_events_begin_later() -> None:
    with PruningNode() as node:
        last = fill(node.urls["http"], 70)
        address = NodeAddress(node.urls["http"])
        first = address.extent(SHARD).first
        assert 1 < first <= last
        assert sequences(address, Span(SHARD, first - 1, last)) == list(range(first, last + 1))


def test_an_unknown_namespace_and_a_silent_address_are_errors(url: str) -> None:
    with pytest.raises(OmniRelayError):
        NodeAddress(url, namespaces=("nobody",)).extent("nobody")
