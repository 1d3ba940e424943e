"""A hub: journals kept for other nodes, one for each shard they name.

It checks what it is given, bounds what it holds, and passes the rest to a store. Whoever may
append, the store's own conditional append decides.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from omnirelay.journal import replication as wire
from omnirelay.journal.backend import Head, JournalReader, JournalTarget, SnapshotRef
from omnirelay.journal.checkpoint import Checkpoint, CheckpointStore
from omnirelay.journal.format import Sealed, sealed_of
from omnirelay.mesh.hub_bodies import Held, gathered
from omnirelay.mesh.hub_feed import Feed
from omnirelay.mesh.hub_shard import HubShard
from omnirelay.model import limits
from omnirelay.model.errors import (
    Corrupt,
    InvalidArgument,
    InvalidOption,
    ResourceExhausted,
    Unavailable,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import RequestMeta

log = logging.getLogger(__name__)

T = TypeVar("T")

OpenShard = Callable[[str], tuple[JournalTarget, CheckpointStore]]
"""Where a shard is kept; nothing is opened or reached yet."""
May = Callable[[str, str, str], None]
"""Principal, shard, verb. Raises PermissionDenied."""


class Hub:
    def __init__(
        self, open_shard: OpenShard, *, own: Collection[str], may: May, clock: Clock
    ) -> None:
        """`own` are shards that the same store keeps for this node's own queues."""
        self._open_shard = open_shard
        self._own = frozenset(own)
        self._may = may
        self._clock = clock
        self._shards: dict[str, HubShard] = {}
        self._is_over = False
        self._held = Held()
        self.feed = Feed()
        self._threads = ThreadPoolExecutor(limits.HUB_THREADS_MAX, "omnirelay-hub")

    def _shard(self, meta: RequestMeta, name: str) -> HubShard:
        if not 0 < len(name) <= limits.NAME_CHARS_MAX:
            raise InvalidArgument(f"a shard's name has 1 to {limits.NAME_CHARS_MAX} characters")
        self._may(meta.principal, name, meta.verb)
        if self._is_over:
            raise Unavailable("the hub is stopping: call again")
        found = self._shards.get(name)
        return found if found is not None else self._new_shard(name)

    def _new_shard(self, name: str) -> HubShard:
        if name in self._own:
            raise InvalidOption(
                f"{name!r} is a queue of the hub itself: name another, or start the hub without it"
            )
        if len(self._shards) >= limits.HUB_SHARDS_MAX:
            raise ResourceExhausted(f"this hub keeps {limits.HUB_SHARDS_MAX} shards, and no more")
        shard = self._shards[name] = HubShard(*self._open_shard(name), self._threads)
        return shard

    # -- the writer -----------------------------------------------------------------------------

    async def open(self, meta: RequestMeta, request: wire.OpenRequest) -> wire.HeadResponse:
        head, first = await self._shard(meta, request.shard).open()
        return _head(head, first)

    async def append(self, meta: RequestMeta, request: wire.AppendRequest) -> wire.AppendResponse:
        shard = self._shard(meta, request.shard)
        with self._held.room_for(len(request.body)):
            return await self._append(shard, request, request.body)

    async def append_pieces(
        self, meta: RequestMeta, requests: AsyncIterator[wire.AppendRequest]
    ) -> wire.AppendResponse:
        gathering = gathered(
            requests, lambda one: one.body, self._held, lambda one: self._shard(meta, one.shard)
        )
        async with gathering as (first, body):
            return await self._append(self._shard(meta, first.shard), first, body)

    async def _append(
        self, shard: HubShard, named: wire.AppendRequest, body: bytes
    ) -> wire.AppendResponse:
        sealed = await self._sealed(body, shard.name, named.expected)
        if named.is_first:
            await shard.begin(sealed)
        else:
            await shard.append(sealed, expected=named.expected)
        return wire.AppendResponse(sealed.last)

    async def _sealed(self, body: bytes, shard: str, expected: int) -> Sealed:
        if len(body) <= limits.HUB_PIECE_BYTES_MAX:
            return _checked(body, shard, expected)
        loop = asyncio.get_running_loop()  # which a large one would hold up
        return await loop.run_in_executor(self._threads, _checked, body, shard, expected)

    async def describe(
        self, meta: RequestMeta, request: wire.DescribeRequest
    ) -> wire.DescribeResponse:
        shard = self._shard(meta, request.shard)
        stated = await shard.write(lambda journal: journal.durability())
        ref = await shard.write(lambda journal: journal.snapshot())
        return wire.DescribeResponse(
            shard.store,
            stated.survives_process_kill,
            stated.survives_power_loss,
            stated.survives_node_loss,
            stated.condition,
            None if ref is None else wire.Snapshot(**msgspec.structs.asdict(ref)),
        )

    async def write_part(
        self, meta: RequestMeta, requests: AsyncIterator[wire.WritePartRequest]
    ) -> wire.Done:
        gathering = gathered(
            requests, lambda one: one.piece, self._held, lambda one: self._shard(meta, one.shard)
        )
        async with gathering as (named, body):
            shard = self._shard(meta, named.shard)
            await shard.write(lambda journal: journal.write_part(named.sequence, named.part, body))
        return wire.Done()

    async def finish_snapshot(
        self, meta: RequestMeta, request: wire.FinishSnapshotRequest
    ) -> wire.Done:
        ref = SnapshotRef(**msgspec.structs.asdict(request.snapshot))
        shard = self._shard(meta, request.shard)
        await shard.write(lambda journal: journal.finish_snapshot(ref))
        return wire.Done()

    async def read_part(
        self, meta: RequestMeta, request: wire.ReadPartRequest
    ) -> AsyncGenerator[wire.ReadPartResponse]:
        shard = self._shard(meta, request.shard)
        at = (request.sequence, request.part)
        body = await shard.write(lambda journal: journal.read_part(*at))
        for piece in wire.pieces_of(body):
            yield wire.ReadPartResponse(piece)

    async def prune(self, meta: RequestMeta, request: wire.PruneRequest) -> wire.PruneResponse:
        before_ms, limit = request.before_ms, min(request.limit, limits.PRUNE_ENVELOPES_MAX)
        shard = self._shard(meta, request.shard)
        gone = await shard.write(
            lambda journal: journal.prune(request.through, before_ms=before_ms, limit=limit)
        )
        return wire.PruneResponse(gone)

    # -- readers --------------------------------------------------------------------------------

    async def head(self, meta: RequestMeta, request: wire.HeadRequest) -> wire.HeadResponse:
        shard = self._shard(meta, request.shard)
        return await shard.read(_ends)

    def subscribe(
        self, meta: RequestMeta, request: wire.SubscribeRequest
    ) -> AsyncGenerator[wire.SubscribeResponse]:
        return self.feed.messages(self._shard(meta, request.shard), request)

    # -- positions ------------------------------------------------------------------------------

    async def checkpoint(
        self, meta: RequestMeta, request: wire.CheckpointRequest
    ) -> wire.CheckpointResponse:
        name, shard = request.follower, request.shard

        async def ask(store: CheckpointStore) -> Checkpoint | None:
            if request.sequence is not None:
                at = self._clock.wall_ms() if request.updated_at is None else request.updated_at
                new = Checkpoint(name, shard, request.sequence, request.peers, at)
                await store.write(new)
            return await store.read(name, shard)

        if len(request.peers) > limits.PEER_POSITIONS_MAX:
            raise InvalidArgument(f"at most {limits.PEER_POSITIONS_MAX} peers have a position")
        found = await self._noted(meta, shard, ask)
        if found is None:
            return wire.CheckpointResponse()
        return wire.CheckpointResponse(found.position, found.peers, found.updated_at)

    async def followers(
        self, meta: RequestMeta, request: wire.FollowersRequest
    ) -> wire.FollowersResponse:
        found = await self._noted(meta, request.shard, lambda store: store.readers(request.shard))
        return wire.FollowersResponse(
            tuple(wire.FollowerPosition(one.name, one.position, one.updated_at) for one in found)
        )

    async def forget(self, meta: RequestMeta, request: wire.ForgetRequest) -> wire.Done:
        name, shard = request.follower, request.shard
        await self._noted(meta, shard, lambda store: store.forget(name, shard))
        return wire.Done()

    async def _noted(
        self,
        meta: RequestMeta,
        shard: str,
        ask: Callable[[CheckpointStore], Coroutine[Any, Any, T]],
    ) -> T:
        return await self._shard(meta, shard).note(ask)

    # -- the end --------------------------------------------------------------------------------

    def turn_away(self) -> None:
        """Whoever follows has seen the last of it here, and resumes elsewhere or later."""
        self._is_over = True
        for shard in self._shards.values():
            shard.end_waiting()

    async def close(self) -> None:
        """When no call is under way any more."""
        self.turn_away()
        closing = (shard.close() for shard in self._shards.values())
        for failure in await asyncio.gather(*closing, return_exceptions=True):
            if failure is not None:
                log.warning("a journal did not close well: %s", failure)
        self._threads.shutdown(wait=False)


async def _ends(reader: JournalReader) -> wire.HeadResponse:
    return _head(await reader.head(), await reader.first())


def _head(head: Head, first: int) -> wire.HeadResponse:
    return wire.HeadResponse(head.last, head.epoch, head.checksum, head.time, first)


def _checked(body: bytes, shard: str, expected: int) -> Sealed:
    try:
        return sealed_of(body, shard=shard, at=expected + 1)
    except Corrupt as error:
        raise InvalidArgument(f"nothing was stored: {error.message}") from None
