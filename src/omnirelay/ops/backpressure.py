"""Backpressure as it is now, and every change of it as it happens."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from omnirelay.model.errors import Overloaded
from omnirelay.ops.view import NodeView, ShardView, Transition
from omnirelay.transports.http_pages import PageReply, PageRequest

WATCHERS = 64
"""Streams at once; each costs a task a shard."""
_AHEAD = 256
"""Transitions read ahead of a slow watcher; further ones wait in the shard's own stream."""


class Level(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    shard: str
    is_active: bool
    pending_count: int
    pending_high: int | None = None
    pending_low: int | None = None


class Levels(msgspec.Struct, frozen=True, rename="camel"):
    latest: Transition
    shards: list[Level]


def _level_of(shard: ShardView) -> Level:
    status = shard.status()
    return Level(
        shard=status.shard,
        is_active=status.backpressure,
        pending_count=status.pending_count,
        pending_high=status.pending_high,
        pending_low=status.pending_low,
    )


class Backpressure:
    def __init__(self, node: NodeView, *, watchers: int = WATCHERS) -> None:
        self._node = node
        self._room = watchers

    async def show(self, request: PageRequest) -> PageReply | Levels:
        """204 as long as there was no transition."""
        shards = [shard for _, shard in sorted(self._node.shards.items())]
        seen = [shard.last_transition for shard in shards]
        latest = max((one for one in seen if one is not None), key=_at, default=None)
        if latest is None:
            return PageReply(status=204)
        return Levels(latest, await asyncio.to_thread(lambda: [_level_of(s) for s in shards]))

    async def stream(self, request: PageRequest) -> PageReply:
        """The latest transition of every shard first, then each as it happens."""
        return PageReply(stream=self._watched())

    async def _watched(self) -> AsyncGenerator[bytes]:
        if self._room <= 0:
            raise Overloaded("too many are watching backpressure already: try again later")
        self._room -= 1
        try:
            async with aclosing(_merged(self._node)) as transitions:
                async for transition in transitions:
                    yield _event_of(transition)
        finally:
            self._room += 1


def _at(transition: Transition) -> int:
    return transition.at_ms


def _event_of(transition: Transition) -> bytes:
    body = msgspec.json.encode(transition)
    return b"event: backpressure\ndata: %b\n\n" % body


async def _merged(node: NodeView) -> AsyncGenerator[Transition]:
    """All shards of the node in one stream, each in its own order. Raises what one of them ends
    with."""
    ready: asyncio.Queue[Transition | None] = asyncio.Queue()
    room = asyncio.Semaphore(_AHEAD)
    tasks = [asyncio.create_task(_pump(shard, ready, room)) for shard in node.shards.values()]
    for task in tasks:
        task.add_done_callback(lambda _: ready.put_nowait(None))
    try:
        for _ in tasks:
            while (transition := await ready.get()) is not None:
                room.release()
                yield transition
            if ended := next((one for one in tasks if one.done() and one.exception()), None):
                ended.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    shard: ShardView, ready: asyncio.Queue[Transition | None], room: asyncio.Semaphore
) -> None:
    async with aclosing(shard.transitions()) as transitions:
        async for transition in transitions:
            await room.acquire()
            ready.put_nowait(transition)
