"""The procedures of a hub, as `replication.proto` declares them."""

from omnirelay.journal import replication as wire
from omnirelay.mesh.hub import Hub
from omnirelay.rpc.procedure import Registry


def register_hub(registry: Registry, hub: Hub) -> None:
    """All are urgent: behind one append wait the heartbeats and completions of a whole node."""
    _writing(registry, hub)
    _snapshots(registry, hub)
    _following(registry, hub)


def _named(verb: str) -> str:
    return f"{wire.NAMESPACE}::{verb}"


def _writing(registry: Registry, hub: Hub) -> None:
    registry.unary(
        _named("open"),
        hub.open,
        wire.OpenRequest,
        wire.HeadResponse,
        urgent=True,
        idempotent=True,
        summary="Start from what is stored: before the first append, and after one that failed.",
    )
    registry.unary(
        _named("describe"),
        hub.describe,
        wire.DescribeRequest,
        wire.DescribeResponse,
        urgent=True,
        idempotent=True,
        summary="What keeps the shard's journal, what an append survives, the latest snapshot.",
    )
    registry.unary(
        _named("append"),
        hub.append,
        wire.AppendRequest,
        wire.AppendResponse,
        urgent=True,
        summary="Store one envelope behind the expected sequence, or change nothing.",
    )
    registry.client_stream(
        _named("appendPieces"),
        hub.append_pieces,
        wire.AppendRequest,
        wire.AppendResponse,
        urgent=True,
        summary="The same for an envelope larger than a message.",
    )


def _snapshots(registry: Registry, hub: Hub) -> None:
    registry.client_stream(
        _named("writePart"),
        hub.write_part,
        wire.WritePartRequest,
        wire.Done,
        urgent=True,
        summary="Store one part of a snapshot that is not finished.",
    )
    registry.unary(
        _named("finishSnapshot"),
        hub.finish_snapshot,
        wire.FinishSnapshotRequest,
        wire.Done,
        urgent=True,
        summary="All parts are there: this is the latest snapshot.",
    )
    registry.server_stream(
        _named("readPart"),
        hub.read_part,
        wire.ReadPartRequest,
        wire.ReadPartResponse,
        urgent=True,
        idempotent=True,
        summary="One part of the latest snapshot.",
    )
    registry.unary(
        _named("prune"),
        hub.prune,
        wire.PruneRequest,
        wire.PruneResponse,
        urgent=True,
        idempotent=True,
        summary="Drop envelopes that a snapshot has replaced.",
    )


def _following(registry: Registry, hub: Hub) -> None:
    registry.unary(
        _named("head"),
        hub.head,
        wire.HeadRequest,
        wire.HeadResponse,
        urgent=True,
        idempotent=True,
        summary="Where the shard's journal ends and begins.",
    )
    registry.server_stream(
        _named("subscribe"),
        hub.subscribe,
        wire.SubscribeRequest,
        wire.SubscribeResponse,
        urgent=True,
        idempotent=True,
        summary="Envelopes from a sequence on, in order, and each new one as it is committed.",
    )
    registry.unary(
        _named("checkpoint"),
        hub.checkpoint,
        wire.CheckpointRequest,
        wire.CheckpointResponse,
        urgent=True,
        idempotent=True,
        summary="Where a follower stands; with a sequence, where it stands from now on.",
    )
    registry.unary(
        _named("followers"),
        hub.followers,
        wire.FollowersRequest,
        wire.FollowersResponse,
        urgent=True,
        idempotent=True,
        summary="Every follower of the shard, and where it stands.",
    )
    registry.unary(
        _named("forget"),
        hub.forget,
        wire.ForgetRequest,
        wire.Done,
        urgent=True,
        idempotent=True,
        summary="A follower is gone for good, and holds back pruning no more.",
    )
