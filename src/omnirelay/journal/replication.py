"""What travels between a node and the hub that keeps its journals, as `replication.proto` has it.

A body larger than a message travels in pieces; what names it comes with the first of them.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from omnirelay.model import limits
from omnirelay.model.items import Wire

NAMESPACE: Final = "hub"
"""Its procedures are `hub::append` and so on. No queue of a hub may be called that."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=limits.WIRE_NUMBER_MAX)]


def pieces_of(body: bytes) -> Iterator[bytes]:
    """At least one, be it empty."""
    size = limits.HUB_PIECE_BYTES_MAX
    return (body[at : at + size] for at in range(0, max(1, len(body)), size))


class Done(Wire, frozen=True):
    pass


class OpenRequest(Wire, frozen=True):
    shard: Name


class HeadRequest(Wire, frozen=True):
    shard: Name


class HeadResponse(Wire, frozen=True):
    last: int
    epoch: int
    checksum: str
    time: int
    first: int


class DescribeRequest(Wire, frozen=True):
    shard: Name


class Snapshot(Wire, frozen=True):
    """The fields of a SnapshotRef."""

    sequence: Count
    epoch: Count
    link: str
    time: int
    parts: Count
    checksum: str


class DescribeResponse(Wire, frozen=True):
    """`store` is what keeps the journal; what an append survives, it has stated itself."""

    store: str
    survives_process_kill: bool
    survives_power_loss: bool
    survives_node_loss: bool
    condition: str
    snapshot: Snapshot | None = None


class AppendRequest(Wire, frozen=True, gc=False):
    shard: str = ""
    expected: Count = 0
    body: bytes = b""
    is_first: bool = False


class AppendResponse(Wire, frozen=True, gc=False):
    last: int


class SubscribeRequest(Wire, frozen=True):
    """`bodies` false: only how far the journal is, whenever it grows."""

    shard: Name
    from_sequence: Annotated[int, msgspec.Meta(ge=1, le=limits.WIRE_NUMBER_MAX)]
    follow: bool = True
    bodies: bool = True
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.WIRE_NUMBER_MAX)] | None = None


class SubscribeResponse(Wire, frozen=True):
    """`is_cut`: the last envelope goes on with the first of the next message."""

    envelopes: tuple[bytes, ...] = ()
    is_cut: bool = False
    last_sequence: int = 0


class CheckpointRequest(Wire, frozen=True):
    """Without a sequence it only asks."""

    shard: Name
    follower: Name
    sequence: Count | None = None
    peers: dict[str, int] = msgspec.field(default_factory=dict)
    updated_at: Count | None = None


class CheckpointResponse(Wire, frozen=True):
    """Without a sequence: nobody knows this follower."""

    sequence: int | None = None
    peers: dict[str, int] = msgspec.field(default_factory=dict)
    updated_at: int = 0


class FollowersRequest(Wire, frozen=True):
    shard: Name


class FollowerPosition(Wire, frozen=True):
    follower: str
    sequence: int
    updated_at: int


class FollowersResponse(Wire, frozen=True):
    followers: tuple[FollowerPosition, ...] = ()


class ForgetRequest(Wire, frozen=True):
    shard: Name
    follower: Name


class WritePartRequest(Wire, frozen=True):
    shard: str = ""
    sequence: Count = 0
    part: Count = 0
    piece: bytes = b""


class FinishSnapshotRequest(Wire, frozen=True):
    shard: Name
    snapshot: Snapshot


class ReadPartRequest(Wire, frozen=True):
    shard: Name
    sequence: Count
    part: Count


class ReadPartResponse(Wire, frozen=True):
    piece: bytes = b""


class PruneRequest(Wire, frozen=True):
    shard: Name
    through: Count
    before_ms: int
    limit: Count


class PruneResponse(Wire, frozen=True):
    gone: int
