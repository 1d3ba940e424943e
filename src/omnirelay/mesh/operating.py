"""The verbs of operators and auditors: move, look, repair, follow."""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from omnirelay.journal.events import Event
from omnirelay.lease.answers import Count, DeadPage, DrainPage, ItemView, RestoreCount, Stats
from omnirelay.lease.commands import (
    Drain,
    Inspect,
    ListDead,
    Purge,
    ReadStats,
    Redrive,
    Restore,
)
from omnirelay.mesh import wire
from omnirelay.mesh.component import Component, peer_of
from omnirelay.mesh.translate import inspect_response, stats_response
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.items import ANONYMOUS
from omnirelay.rpc.meta import RequestMeta


class Operating:
    def __init__(self, component: Component) -> None:
        self._component = component

    async def drain(self, meta: RequestMeta, request: wire.DrainRequest) -> wire.DrainResponse:
        page = await self._component.one(
            Drain(
                max_items=request.max_items,
                include_active=request.include_active,
                include_dead=request.include_dead,
                principal=meta.principal,
                proof=meta.proof,
                peer_id=peer_of(meta),
            ),
            DrainPage,
        )
        return wire.DrainResponse(page.items, page.remaining)

    async def restore(
        self, meta: RequestMeta, request: wire.RestoreRequest
    ) -> wire.RestoreResponse:
        command = Restore(
            items=request.items,
            principal=meta.principal,
            proof=meta.proof,
            peer_id=peer_of(meta),
        )
        counts = await self._component.one(command, RestoreCount)
        return wire.RestoreResponse(counts.restored_count, counts.skipped_count)

    async def stats(self, meta: RequestMeta, request: wire.StatsRequest) -> wire.StatsResponse:
        return stats_response(await self._component.one(ReadStats(), Stats))

    async def inspect(
        self, meta: RequestMeta, request: wire.InspectRequest
    ) -> wire.InspectResponse:
        by_name = request.resource_type is not None and request.resource_id is not None
        if (request.sequence_id is None) != by_name:
            raise InvalidArgument("inspect by sequenceId, or by resourceType and resourceId")
        command = Inspect(
            sequence_id=request.sequence_id or 0,
            resource_type=request.resource_type,
            resource_id=request.resource_id,
        )
        view = await self._component.one(command, ItemView)
        last = (await self._component.one(ReadStats(), Stats)).last_sequence
        return inspect_response(view, await self._history(view.item.sequence_id, last))

    async def _history(self, sequence_id: int, last: int) -> tuple[Event, ...]:
        """The end of the journal is looked through, not all of it: an old item may show nothing."""
        found: deque[Event] = deque(maxlen=limits.HISTORY_TAIL_MAX)
        after = max(0, last - limits.HISTORY_EVENTS_MAX)
        async with aclosing(self._component.queue.events(after, follow=False)) as events:
            async for event in events:
                if event.sequence_id == sequence_id or any(
                    item.sequence_id == sequence_id for item in event.items or ()
                ):
                    found.append(event)
        return tuple(found)

    async def dead_letters(
        self, meta: RequestMeta, request: wire.DeadLettersRequest
    ) -> wire.DeadLettersResponse:
        command = ListDead(
            max_items=request.max_items,
            after=request.after,
            resource_type=request.resource_type,
            resource_id=request.resource_id,
        )
        page = await self._component.one(command, DeadPage)
        return wire.DeadLettersResponse(page.items, page.total)

    async def redrive(self, meta: RequestMeta, request: wire.DeadSelection) -> wire.CountResponse:
        return await self._dead(Redrive, meta, request)

    async def purge(self, meta: RequestMeta, request: wire.DeadSelection) -> wire.CountResponse:
        return await self._dead(Purge, meta, request)

    async def _dead(
        self, kind: type[Redrive | Purge], meta: RequestMeta, request: wire.DeadSelection
    ) -> wire.CountResponse:
        command = kind(
            max_items=request.max_items,
            sequence_ids=request.sequence_ids,
            resource_type=request.resource_type,
            resource_id=request.resource_id,
            principal=meta.principal,
            proof=meta.proof,
            peer_id=peer_of(meta),
        )
        return wire.CountResponse((await self._component.one(command, Count)).count)

    async def position(
        self, meta: RequestMeta, request: wire.PositionRequest
    ) -> wire.PositionResponse:
        """Where callers are proved a reader is its principal's own: nobody moves that of another
        ahead, so that what it has not read is pruned."""
        is_nobody = meta.principal == ANONYMOUS
        reader = request.reader if is_nobody else f"{request.reader}@{meta.principal}"
        found = await self._component.queue.position(
            reader, request.sequence, forget=request.forget
        )
        return wire.PositionResponse(found)

    def events(self, meta: RequestMeta, request: wire.EventsRequest) -> AsyncGenerator[Event]:
        after = max(0, request.from_ - 1)
        return self._component.queue.events(after, follow=request.follow)
