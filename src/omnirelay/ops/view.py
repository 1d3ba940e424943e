"""What the windows look at. The node satisfies these; nothing here reaches into it further."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

import msgspec

from omnirelay.journal.follower import FollowerStatus


class Transition(msgspec.Struct, frozen=True, rename="camel"):
    """Backpressure began or ended. `number` counts the transitions of one shard since it opened."""

    shard: str
    number: int
    state: str
    """`active` or `inactive`."""
    pending_count: int
    at_ms: int


class Holder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Whoever holds leases in one shard."""

    peer_id: str
    principal: str
    active_leases: int
    oldest_grant_ms: int
    """Age of its oldest lease."""
    next_expiry_ms: int
    """Until the first of its leases runs out unless it is renewed; below 0: overdue."""
    overdue_leases: int = 0


class ShardStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One shard as of now, read without disturbing it."""

    shard: str
    is_ready: bool
    leader: str
    epoch: int
    last_sequence: int
    pending_count: int
    active_lease_count: int
    delayed_count: int
    dead_letter_count: int
    backpressure: bool
    role: str
    """`owner` or `follower`; blank while it is neither."""
    journal: str
    """What it is kept in, without secrets."""
    durability: str
    """What that survives, in words."""
    trouble: str | None = None
    oldest_pending_age_ms: int | None = None
    pending_high: int | None = None
    pending_low: int | None = None


class NodeRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Another node, as this one knows it."""

    node_id: str
    """Blank until it has answered once."""
    url: str
    version: str
    is_answering: bool
    owns: list[str]
    """Queues that it says it owns."""
    is_leaving: bool = False
    heard_ms: int | None = None
    """How long ago it last answered."""
    sequence: int | None = None
    """Of one queue, where it is about one: what it has of the journal."""
    sequence_lag: int | None = None
    lag_ms: int | None = None


class ShardView(Protocol):
    @property
    def tells_depth(self) -> bool:
        """Whether the metrics of this node say how full the queue is. Of several nodes that serve
        it only the owner's do, so that a sum over all nodes counts nothing twice."""

    def status(self) -> ShardStatus: ...

    def followers(self) -> Sequence[FollowerStatus]: ...

    def nodes(self) -> Sequence[NodeRow]:
        """Other nodes that serve it too, and how far behind they are."""

    def holders(self) -> Sequence[Holder]: ...

    def counts(self) -> Mapping[str, int]:
        """Committed since it opened, by metric name: enqueued, granted, completed, failed, expired,
        released, dead_lettered, heartbeats, commits, events."""

    def transitions(self) -> AsyncGenerator[Transition]:
        """The latest one if there was any, then each as it happens."""

    @property
    def last_transition(self) -> Transition | None: ...


class NodeView(Protocol):
    node_id: str
    is_draining: bool

    @property
    def urls(self) -> Mapping[str, str]: ...

    @property
    def trouble(self) -> str | None:
        """Why it is not ready, if it is not."""

    @property
    def shards(self) -> Mapping[str, ShardView]:
        """By namespace."""

    @property
    def procedures(self) -> Sequence[str]: ...

    @property
    def others(self) -> Sequence[NodeRow]:
        """The other nodes of the mesh."""

    async def hand_over(self) -> None:
        """Give queues that others can own to them."""

    def drain(self) -> None:
        """Take no new work; calls under way go on. `resume` takes it back."""

    def resume(self) -> None: ...
