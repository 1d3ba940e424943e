"""Every verb of CONTRACT §1 under a component's namespace, as one table."""

from collections.abc import Callable
from typing import Any, NamedTuple

from omnirelay.journal.events import Event
from omnirelay.lease.answers import LeaseResponse
from omnirelay.mesh import wire
from omnirelay.mesh.component import Component
from omnirelay.mesh.operating import Operating
from omnirelay.mesh.verbs import Verbs
from omnirelay.mesh.work import Work
from omnirelay.rpc.procedure import Registry


class _Verb(NamedTuple):
    name: str
    request: type
    response: type
    function: Callable[[Verbs, Operating], Callable[..., Any]]
    # Any: each takes its own request; the two columns before say which.
    summary: str
    is_urgent: bool = False
    """It makes room or keeps a promise: no limiter slows it."""
    is_idempotent: bool = False
    """To repeat it changes nothing, or the same thing again."""
    is_prompt: bool = False
    """All it waits for is the shard's answer."""


_VERBS = (
    _Verb(
        "enqueue",
        wire.EnqueueRequest,
        wire.EnqueueResponse,
        lambda verbs, _: verbs.enqueue,
        "Hand in one item. The same requestId again gives the first item's sequenceId.",
        is_prompt=True,
    ),
    _Verb(
        "enqueueBatch",
        wire.EnqueueBatchRequest,
        wire.EnqueueBatchResponse,
        lambda verbs, _: verbs.enqueue_batch,
        "Hand in many items in one commit; each is taken or refused by itself.",
        is_prompt=True,
    ),
    _Verb(
        "lease",
        wire.LeaseRequest,
        LeaseResponse,
        lambda verbs, _: verbs.lease,
        "Take one item, waiting up to waitMs for it; nothing (204) if none came. Without waitMs it "
        "waits until just before the call's deadline, and not at all if it has none.",
        is_prompt=True,
    ),
    _Verb(
        "leaseBatch",
        wire.LeaseBatchRequest,
        wire.LeaseBatchResponse,
        lambda verbs, _: verbs.lease_batch,
        "Take up to maxItems; waits, as lease does, only while there is none at all.",
        is_prompt=True,
    ),
    _Verb(
        "heartbeat",
        wire.TokenRequest,
        wire.HeartbeatResponse,
        lambda verbs, _: verbs.heartbeat,
        "Keep a lease: its time starts anew.",
        is_urgent=True,
        is_idempotent=True,
        is_prompt=True,
    ),
    _Verb(
        "heartbeatBatch",
        wire.TokenBatchRequest,
        wire.TokenBatchResponse,
        lambda verbs, _: verbs.heartbeat_batch,
        "Keep many leases, one result each.",
        is_urgent=True,
        is_idempotent=True,
        is_prompt=True,
    ),
    _Verb(
        "complete",
        wire.TokenRequest,
        wire.TokenResponse,
        lambda verbs, _: verbs.complete,
        "Finish a lease: its item is done for good. To say it again does no harm.",
        is_urgent=True,
        is_idempotent=True,
        is_prompt=True,
    ),
    _Verb(
        "completeBatch",
        wire.TokenBatchRequest,
        wire.TokenBatchResponse,
        lambda verbs, _: verbs.complete_batch,
        "Finish many leases in one commit, one result each.",
        is_urgent=True,
        is_idempotent=True,
        is_prompt=True,
    ),
    _Verb(
        "completeAndLease",
        wire.CompleteAndLeaseRequest,
        wire.CompleteAndLeaseResponse,
        lambda verbs, _: verbs.complete_and_lease,
        "Finish leases and take the next up to maxItems in the same commit, without waiting.",
        is_urgent=True,
        is_prompt=True,
    ),
    _Verb(
        "fail",
        wire.FailRequest,
        wire.FailResponse,
        lambda verbs, _: verbs.fail,
        "Say that the work failed: tried again later, or dead-lettered.",
        is_urgent=True,
        is_prompt=True,
    ),
    _Verb(
        "release",
        wire.TokenRequest,
        wire.TokenResponse,
        lambda verbs, _: verbs.release,
        "Hand an item back untried: the attempt does not count.",
        is_urgent=True,
        is_prompt=True,
    ),
    _Verb(
        "drain",
        wire.DrainRequest,
        wire.DrainResponse,
        lambda _, operating: operating.drain,
        "Take pending items out of the queue, to be restored here or elsewhere.",
    ),
    _Verb(
        "restore",
        wire.RestoreRequest,
        wire.RestoreResponse,
        lambda _, operating: operating.restore,
        "Bring drained items back. The same items twice change nothing.",
        is_idempotent=True,
    ),
    _Verb(
        "stats",
        wire.StatsRequest,
        wire.StatsResponse,
        lambda _, operating: operating.stats,
        "How much waits, is leased, delayed and dead, and who leads.",
        is_urgent=True,
        is_idempotent=True,
        is_prompt=True,
    ),
    _Verb(
        "inspect",
        wire.InspectRequest,
        wire.InspectResponse,
        lambda _, operating: operating.inspect,
        "One item: its state, its holder, its fence, its last events.",
        is_idempotent=True,
    ),
    _Verb(
        "deadLetters",
        wire.DeadLettersRequest,
        wire.DeadLettersResponse,
        lambda _, operating: operating.dead_letters,
        "Items that were given up, a page at a time.",
        is_idempotent=True,
    ),
    _Verb(
        "redrive",
        wire.DeadSelection,
        wire.CountResponse,
        lambda _, operating: operating.redrive,
        "Bring dead letters back to the queue.",
    ),
    _Verb(
        "purge",
        wire.DeadSelection,
        wire.CountResponse,
        lambda _, operating: operating.purge,
        "Drop dead letters for good.",
    ),
    _Verb(
        "position",
        wire.PositionRequest,
        wire.PositionResponse,
        lambda _, operating: operating.position,
        "How far a reader of the events is: with a sequence, kept, so that pruning waits for it.",
        is_idempotent=True,
    ),
)


def register(registry: Registry, component: Component) -> None:
    """Raises InvalidOption if the namespace is served already."""
    verbs, operating = Verbs(component), Operating(component)
    namespace = component.namespace
    for verb in _VERBS:
        registry.unary(
            f"{namespace}::{verb.name}",
            verb.function(verbs, operating),
            verb.request,
            verb.response,
            urgent=verb.is_urgent,
            idempotent=verb.is_idempotent,
            summary=verb.summary,
            prompt=verb.is_prompt,
        )
    registry.server_stream(
        f"{namespace}::events",
        operating.events,
        wire.EventsRequest,
        Event,
        urgent=True,
        idempotent=True,
        summary="Committed events in order, from any sequence on.",
    )
    registry.duplex(
        f"{namespace}::work",
        Work(component),
        wire.WorkRequest,
        wire.WorkResponse,
        urgent=True,
        summary="Credits and acknowledgements up, leases and results down.",
    )
