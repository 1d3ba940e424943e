"""What the node shows, read from its shards and put together for JSON."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.records import Followed
from omnirelay.ops.recent import RecentHolders
from omnirelay.ops.view import Holder, NodeView, ShardStatus, ShardView, Transition


class Peer(msgspec.Struct, frozen=True, rename="camel"):
    """One holder over all shards."""

    peer_id: str
    principal: str
    active_leases: int
    oldest_grant_ms: int
    next_expiry_ms: int
    overdue: int
    """Shards in which one of its leases has run out and is not taken back yet."""
    shards: list[str]

    @property
    def is_healthy(self) -> bool:
        return not self.overdue


class PeerHealth(msgspec.Struct, frozen=True, rename="camel"):
    peer_id: str
    principal: str
    is_healthy: bool
    active_leases: int
    oldest_grant_ms: int
    next_expiry_ms: int
    shards: list[str]


class HealthSummary(msgspec.Struct, frozen=True, rename="camel"):
    eligible_peers: int
    unhealthy_peers: int
    pending_reassignments: int


class LeaseHealth(msgspec.Struct, frozen=True, rename="camel"):
    peers: list[PeerHealth]
    summary: HealthSummary


class SinkPosition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    sequence: int
    lag_ms: int
    sequence_lag: int
    failures: int
    last_error: str | None = None


class ShardCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    shard: str
    last_sequence: int
    epoch: int
    leader: str
    sinks: list[SinkPosition]


class ShardReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All of one shard, for the dashboard."""

    status: ShardStatus
    counts: dict[str, int]
    holders: list[Holder]
    """Those with the most leases."""
    holder_count: int
    followers: list[FollowerStatus]
    last_transition: Transition | None = None


def _any(shard: ShardView) -> bool:
    return True


def peers_of(
    node: NodeView, recent: RecentHolders, *, is_wanted: Callable[[ShardView], bool] = _any
) -> list[Peer]:
    """Most leases first; of the shards that are wanted."""
    found: dict[tuple[str, str], Peer] = {}
    for shard, holder in _holders(node, recent, is_wanted):
        who = (holder.peer_id, holder.principal)
        found[who] = _merged(found.get(who), shard, holder)
    return sorted(found.values(), key=lambda peer: (-peer.active_leases, peer.peer_id))


def _holders(
    node: NodeView, recent: RecentHolders, is_wanted: Callable[[ShardView], bool]
) -> Iterator[tuple[str, Holder]]:
    for name, shard in sorted(node.shards.items()):
        for holder in recent.of(name, shard) if is_wanted(shard) else ():
            yield name, holder


def _merged(peer: Peer | None, shard: str, holder: Holder) -> Peer:
    overdue = holder.overdue_leases
    if peer is None:
        return Peer(
            peer_id=holder.peer_id,
            principal=holder.principal,
            active_leases=holder.active_leases,
            oldest_grant_ms=holder.oldest_grant_ms,
            next_expiry_ms=holder.next_expiry_ms,
            overdue=overdue,
            shards=[shard],
        )
    return Peer(
        peer_id=peer.peer_id,
        principal=peer.principal,
        active_leases=peer.active_leases + holder.active_leases,
        oldest_grant_ms=max(peer.oldest_grant_ms, holder.oldest_grant_ms),
        next_expiry_ms=min(peer.next_expiry_ms, holder.next_expiry_ms),
        overdue=peer.overdue + overdue,
        shards=[*peer.shards, shard],
    )


def summary_of(peers: Iterable[Peer]) -> HealthSummary:
    overdue = [peer.overdue for peer in peers]
    unhealthy = sum(1 for count in overdue if count)
    return HealthSummary(len(overdue) - unhealthy, unhealthy, sum(overdue))


def lease_health_of(node: NodeView, recent: RecentHolders, *, limit: int) -> LeaseHealth:
    """The summary counts all; of the peers, the unhealthy ones are listed first."""
    peers = peers_of(node, recent)
    listed = sorted(peers, key=lambda peer: peer.is_healthy)[:limit]
    shown = [
        PeerHealth(
            peer_id=peer.peer_id,
            principal=peer.principal,
            is_healthy=peer.is_healthy,
            active_leases=peer.active_leases,
            oldest_grant_ms=peer.oldest_grant_ms,
            next_expiry_ms=peer.next_expiry_ms,
            shards=peer.shards,
        )
        for peer in listed
    ]
    return LeaseHealth(shown, summary_of(peers))


def checkpoint_of(shard: ShardView) -> ShardCheckpoint:
    status = shard.status()
    sinks = [
        SinkPosition(
            name=follower.name,
            sequence=follower.position,
            lag_ms=follower.lag_ms,
            sequence_lag=follower.sequence_lag,
            failures=follower.failures,
            last_error=follower.last_error,
        )
        for follower in shard.followers()
    ]
    sinks += [
        SinkPosition(
            name=f"node:{node.node_id}",
            sequence=node.sequence or 0,
            lag_ms=node.lag_ms or 0,
            sequence_lag=node.sequence_lag or 0,
            failures=0,
        )
        for node in shard.nodes()
    ]
    return ShardCheckpoint(status.shard, status.last_sequence, status.epoch, status.leader, sinks)


def lags_of(shard: ShardView) -> tuple[Followed, ...]:
    """Of each sink, furthest behind first, for the journal. Every journal begins with an event, so
    one that has read nothing and lacks nothing has not been looked at yet."""
    sinks = {
        one.name: one for one in checkpoint_of(shard).sinks if one.sequence or one.sequence_lag
    }
    told = [
        Followed(one.name, one.sequence, one.sequence_lag, one.lag_ms) for one in sinks.values()
    ]
    return tuple(sorted(told, key=lambda one: (-one.lag_ms, -one.sequence_lag)))


def counts_of(shard: ShardView) -> dict[str, int]:
    return {_camel(name): count for name, count in shard.counts().items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def row_of(shard: ShardView) -> dict[str, Any]:
    """The status with its counts beside it. Any: JSON."""
    row: dict[str, Any] = msgspec.to_builtins(shard.status())
    return {**row, "counts": counts_of(shard)}


def report_of(name: str, shard: ShardView, recent: RecentHolders, *, holders: int) -> ShardReport:
    found = recent.of(name, shard)
    most = sorted(found, key=lambda holder: (-holder.active_leases, holder.peer_id))
    return ShardReport(
        status=shard.status(),
        counts=counts_of(shard),
        holders=most[:holders],
        holder_count=len(found),
        followers=list(shard.followers()),
        last_transition=shard.last_transition,
    )
