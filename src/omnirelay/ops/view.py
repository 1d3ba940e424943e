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
    journal: str
    """What it is kept in, without secrets."""
    durability: str
    """What that survives, in words."""
    trouble: str | None = None
    oldest_pending_age_ms: int | None = None
    pending_high: int | None = None
    pending_low: int | None = None


class ShardView(Protocol):
    def status(self) -> ShardStatus: ...

    def followers(self) -> Sequence[FollowerStatus]: ...

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

    def drain(self) -> None:
        """Take no new work; calls under way go on. `resume` takes it back."""

    def resume(self) -> None: ...
