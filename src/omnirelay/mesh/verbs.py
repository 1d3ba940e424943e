"""Producing and working: the verbs every program calls, one at a time and in batches."""

from collections.abc import Sequence

from omnirelay.lease.answers import Accepted, Beat, Beats, Done, LeaseResponse, Returned, Stats
from omnirelay.lease.commands import (
    Complete,
    Completes,
    Enqueue,
    Enqueues,
    Fail,
    Heartbeat,
    ReadStats,
    Release,
)
from omnirelay.mesh import wire
from omnirelay.mesh.calls import Outcome
from omnirelay.mesh.component import Component, peer_of
from omnirelay.mesh.desk import or_none
from omnirelay.mesh.translate import (
    depths_after,
    enqueue_results,
    token_results,
)
from omnirelay.model.errors import InvalidArgument, InvalidPayload, OmniRelayError, Unavailable
from omnirelay.model.items import to_time
from omnirelay.rpc.meta import RequestMeta

_SUCCESS = wire.TokenResponse(True)


class Verbs:
    def __init__(self, component: Component) -> None:
        self._component = component

    async def enqueue(
        self, meta: RequestMeta, request: wire.EnqueueRequest
    ) -> wire.EnqueueResponse:
        if request.payload is None:
            raise _no_payload()
        accepted = await self._component.one(enqueue_of(meta, request), Accepted)
        stats = wire.Depths(accepted.pending_count, accepted.active_lease_count)
        return wire.EnqueueResponse(stats, accepted.sequence_id, accepted.duplicate)

    async def enqueue_batch(
        self, meta: RequestMeta, request: wire.EnqueueBatchRequest
    ) -> wire.EnqueueBatchResponse:
        items = [item for item in request.items if item.payload is not None]
        commands = Enqueues(items, meta.principal, meta.proof, peer_of(meta))  # type: ignore[arg-type]
        outcomes = _taken(await self._component.all(commands) if items else ())
        if len(items) < len(request.items):
            taken = iter(outcomes)
            outcomes = [
                _no_payload() if item.payload is None else next(taken) for item in request.items
            ]
        stats = depths_after(outcomes)
        if stats is None:
            read = await self._component.one(ReadStats(), Stats)
            stats = wire.Depths(read.pending_count, read.active_lease_count)
        return wire.EnqueueBatchResponse(stats, enqueue_results(outcomes))

    async def lease(self, meta: RequestMeta, request: wire.LeaseRequest) -> LeaseResponse | None:
        leases = await self._component.lease(
            meta, request, max_items=1, wait_ms=request.wait_ms, request_id=request.request_id
        )
        return leases[0] if leases else None

    async def lease_batch(
        self, meta: RequestMeta, request: wire.LeaseBatchRequest
    ) -> wire.LeaseBatchResponse:
        leases = await self._component.lease(
            meta,
            request,
            max_items=request.max_items,
            wait_ms=request.wait_ms,
            request_id=request.request_id,
        )
        return wire.LeaseBatchResponse(leases)

    async def heartbeat(
        self, meta: RequestMeta, request: wire.TokenRequest
    ) -> wire.HeartbeatResponse:
        command = Heartbeat(
            tokens=(request.ownership_token,), principal=meta.principal, proof=meta.proof
        )
        beat = (await self._component.one(command, Beats)).outcomes[0]
        if isinstance(beat, OmniRelayError):
            raise beat
        assert isinstance(beat, Beat)
        return wire.HeartbeatResponse(True, to_time(beat.expires_at), beat.remaining_ms)

    async def heartbeat_batch(
        self, meta: RequestMeta, request: wire.TokenBatchRequest
    ) -> wire.TokenBatchResponse:
        principal, proof = meta.principal, meta.proof
        outcomes = await self._component.all(
            [
                Heartbeat(tokens=(token,), principal=principal, proof=proof)
                for token in request.ownership_tokens
            ]
        )
        return wire.TokenBatchResponse(token_results(_taken(outcomes)))

    async def complete(self, meta: RequestMeta, request: wire.TokenRequest) -> wire.TokenResponse:
        token = request.ownership_token
        await self._component.one(
            Complete(token=token, principal=meta.principal, proof=meta.proof), Done
        )
        return _SUCCESS

    async def complete_batch(
        self, meta: RequestMeta, request: wire.TokenBatchRequest
    ) -> wire.TokenBatchResponse:
        commands = Completes(request.ownership_tokens, meta.principal, meta.proof)
        return wire.TokenBatchResponse(token_results(_taken(await self._component.all(commands))))

    async def complete_and_lease(
        self, meta: RequestMeta, request: wire.CompleteAndLeaseRequest
    ) -> wire.CompleteAndLeaseResponse:
        if not request.ownership_tokens:
            # It would be a lease call that no limiter slows.
            raise InvalidArgument("ownershipTokens is empty: leaseBatch leases without a report")
        # Both are handed in before either is awaited, so one turn decides them and one commit
        # holds them; what is completed is out of the way by the time the rest is granted.
        commands = Completes(request.ownership_tokens, meta.principal, meta.proof)
        completing = self._component.all(commands)
        leasing = self._component.lease(
            meta, request, max_items=request.max_items, wait_ms=0, request_id=request.request_id
        )
        leases = await or_none(leasing)
        return wire.CompleteAndLeaseResponse(token_results(_taken(await completing)), leases)

    async def fail(self, meta: RequestMeta, request: wire.FailRequest) -> wire.FailResponse:
        returned = await self._component.one(fail_of(meta, request), Returned)
        return wire.FailResponse(True, returned.disposition, returned.attempt)

    async def release(self, meta: RequestMeta, request: wire.TokenRequest) -> wire.TokenResponse:
        token = request.ownership_token
        await self._component.one(
            Release(token=token, principal=meta.principal, proof=meta.proof), Done
        )
        return _SUCCESS


def _no_payload() -> InvalidPayload:
    return InvalidPayload("required", "a payload is required")


def _taken(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """A node that could take nothing of a batch says so once, so that its caller turns to another
    or tries again. Raises Unavailable."""
    first = outcomes[0] if outcomes else None
    if isinstance(first, Unavailable) and all(isinstance(one, Unavailable) for one in outcomes):
        raise first
    return outcomes


def enqueue_of(meta: RequestMeta, request: wire.EnqueueRequest) -> Enqueue:
    assert request.payload is not None
    return Enqueue(
        payload=request.payload,
        delay_ms=request.delay_ms,
        priority=request.priority,
        max_attempts=request.max_attempts,
        lease_duration_ms=request.lease_duration_ms,
        principal=meta.principal,
        proof=meta.proof,
        peer_id=peer_of(meta),
    )


def fail_of(meta: RequestMeta, request: wire.FailRequest) -> Fail:
    return Fail(
        token=request.ownership_token,
        reason=request.reason,
        error_code=request.error_code,
        requeue=request.requeue,
        metadata=request.metadata,
        delay_ms=request.delay_ms,
        principal=meta.principal,
        proof=meta.proof,
    )
