"""Every verb of CONTRACT §1 under a component's namespace."""

from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.mesh.component import Component
from omnirelay.mesh.operating import Operating
from omnirelay.mesh.verbs import Verbs
from omnirelay.mesh.work import Work
from omnirelay.rpc.procedure import Registry


def register(registry: Registry, component: Component) -> None:
    """`urgent` verbs make room or keep a promise: no limiter slows them. `idempotent` ones change
    nothing, or the same thing, when they are repeated. Raises InvalidOption if the namespace is
    served already."""
    _register_work(registry, component)
    _register_operating(registry, component)


def _register_work(registry: Registry, component: Component) -> None:
    verbs = Verbs(component)
    name = component.namespace

    registry.unary(
        f"{name}::enqueue",
        verbs.enqueue,
        wire.EnqueueRequest,
        wire.EnqueueResponse,
        summary="Hand in one item. The same requestId again gives the first item's sequenceId.",
    )
    registry.unary(
        f"{name}::enqueueBatch",
        verbs.enqueue_batch,
        wire.EnqueueBatchRequest,
        wire.EnqueueBatchResponse,
        summary="Hand in many items in one commit; each is taken or refused by itself.",
    )
    registry.unary(
        f"{name}::lease",
        verbs.lease,
        wire.LeaseRequest,
        wire.LeaseResponse,
        summary="Take one item, waiting up to waitMs for it; nothing (204) if none came.",
    )
    registry.unary(
        f"{name}::leaseBatch",
        verbs.lease_batch,
        wire.LeaseBatchRequest,
        wire.LeaseBatchResponse,
        summary="Take up to maxItems; waits only while there is none at all.",
    )
    for verb, function in (("complete", verbs.complete), ("release", verbs.release)):
        registry.unary(
            f"{name}::{verb}",
            function,
            wire.TokenRequest,
            wire.TokenResponse,
            urgent=True,
            idempotent=verb == "complete",
            summary=_ENDING[verb],
        )
    registry.unary(
        f"{name}::completeBatch",
        verbs.complete_batch,
        wire.TokenBatchRequest,
        wire.TokenBatchResponse,
        urgent=True,
        idempotent=True,
        summary="Finish many leases in one commit, one result each.",
    )
    registry.unary(
        f"{name}::fail",
        verbs.fail,
        wire.FailRequest,
        wire.FailResponse,
        urgent=True,
        summary="Say that the work failed: tried again later, or dead-lettered.",
    )
    registry.unary(
        f"{name}::heartbeat",
        verbs.heartbeat,
        wire.TokenRequest,
        wire.HeartbeatResponse,
        urgent=True,
        idempotent=True,
        summary="Keep a lease: its time starts anew.",
    )
    registry.unary(
        f"{name}::heartbeatBatch",
        verbs.heartbeat_batch,
        wire.TokenBatchRequest,
        wire.TokenBatchResponse,
        urgent=True,
        idempotent=True,
        summary="Keep many leases, one result each.",
    )
    registry.duplex(
        f"{name}::work",
        Work(component),
        wire.WorkRequest,
        wire.WorkResponse,
        urgent=True,
        summary="Credits and acknowledgements up, leases and results down.",
    )


_ENDING = {
    "complete": "Finish a lease: its item is done for good. To say it again does no harm.",
    "release": "Hand an item back untried: the attempt does not count.",
}


def _register_operating(registry: Registry, component: Component) -> None:
    operating = Operating(component)
    name = component.namespace

    registry.unary(
        f"{name}::drain",
        operating.drain,
        wire.DrainRequest,
        wire.DrainResponse,
        summary="Take pending items out of the queue, to be restored here or elsewhere.",
    )
    registry.unary(
        f"{name}::restore",
        operating.restore,
        wire.RestoreRequest,
        wire.RestoreResponse,
        idempotent=True,
        summary="Bring drained items back. The same items twice change nothing.",
    )
    registry.unary(
        f"{name}::stats",
        operating.stats,
        wire.StatsRequest,
        wire.StatsResponse,
        idempotent=True,
        urgent=True,
        summary="How much waits, is leased, delayed and dead, and who leads.",
    )
    registry.unary(
        f"{name}::inspect",
        operating.inspect,
        wire.InspectRequest,
        wire.InspectResponse,
        idempotent=True,
        summary="One item: its state, its holder, its fence, its last events.",
    )
    registry.unary(
        f"{name}::deadLetters",
        operating.dead_letters,
        wire.DeadLettersRequest,
        wire.DeadLettersResponse,
        idempotent=True,
        summary="Items that were given up, a page at a time.",
    )
    registry.unary(
        f"{name}::redrive",
        operating.redrive,
        wire.DeadSelection,
        wire.CountResponse,
        summary="Bring dead letters back to the queue.",
    )
    registry.unary(
        f"{name}::purge",
        operating.purge,
        wire.DeadSelection,
        wire.CountResponse,
        summary="Drop dead letters for good.",
    )
    registry.server_stream(
        f"{name}::events",
        operating.events,
        wire.EventsRequest,
        Event,
        idempotent=True,
        urgent=True,
        summary="Committed events in order, from any sequence on.",
    )
