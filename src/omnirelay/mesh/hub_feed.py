"""What a hub's subscribers are sent: envelopes as they were stored, or how far the journal is."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from omnirelay.journal import replication as wire
from omnirelay.journal.format import last_of
from omnirelay.mesh.hub_shard import HubShard
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, Overloaded, Unavailable

ALIVE_S = 15.0
"""A subscriber that has nothing to hear is told at least so often that the hub lives."""
_FEW = 16
"""Envelopes of the first read; while they are small, each later one may bring more."""


class Feed:
    """Each subscriber is sent no more than the wire takes, so that a slow one holds one message of
    the hub's memory and nobody up."""

    def __init__(self) -> None:
        self.subscriptions = 0

    async def messages(
        self, shard: HubShard, request: wire.SubscribeRequest
    ) -> AsyncGenerator[wire.SubscribeResponse]:
        if self.subscriptions >= limits.HUB_SUBSCRIPTIONS_MAX:
            raise Overloaded(
                f"this hub serves {limits.HUB_SUBSCRIPTIONS_MAX} subscriptions already"
            )
        self.subscriptions += 1
        try:
            told = _envelopes(shard, request) if request.bodies else _ends(shard, request)
            async with aclosing(told):
                async for message in told:
                    yield message
        finally:
            self.subscriptions -= 1


async def _ends(
    shard: HubShard, request: wire.SubscribeRequest
) -> AsyncGenerator[wire.SubscribeResponse]:
    try:
        last = await shard.listen()
        yield wire.SubscribeResponse(last_sequence=last)
        while request.follow:
            await _wait(shard, last)
            last = shard.bell.sequence
            yield wire.SubscribeResponse(last_sequence=last)
    finally:
        shard.leave()


async def _wait(shard: HubShard, after: int) -> None:
    await shard.bell.wait(after, ALIVE_S)
    if shard.bell.is_over:
        raise Unavailable("the hub is stopping: subscribe again")


async def _envelopes(
    shard: HubShard, request: wire.SubscribeRequest
) -> AsyncGenerator[wire.SubscribeResponse]:
    after, left, most = request.from_sequence - 1, request.limit, _FEW
    is_told = request.follow
    """False: a read that finds nothing is worth a word."""
    try:
        if request.follow:
            await shard.listen()
        while left is None or left > 0:
            wanted = most if left is None else min(most, left)
            bodies = await _read(shard, after, wanted)
            for message in _packed(bodies, shard.bell.sequence, is_told=is_told):
                yield message
            if bodies:
                after, most = _end_of(shard, bodies[-1], after), _next_count(bodies)
                left = None if left is None else left - len(bodies)
            elif request.follow:
                await _wait(shard, after)
            else:
                return
            is_told = bool(bodies) and request.follow
    finally:
        if request.follow:
            shard.leave()


def _end_of(shard: HubShard, body: bytes, after: int) -> int:
    """Bytes that changed behind the store's back are sent as they are, for their reader to name;
    but what comes after them nobody can tell."""
    end = last_of(body)
    if end <= after:
        raise Corrupt(shard.name, after + 1, "what is stored there is no envelope")
    return end


async def _read(shard: HubShard, after: int, limit: int) -> list[bytes]:
    return await shard.read(lambda reader: reader.read(after, limit))


def _next_count(bodies: list[bytes]) -> int:
    """As many as fit one message, going by the last ones; at most twice as many, since the next
    ones may be larger."""
    size = max(1, sum(map(len, bodies)) // len(bodies))
    fit = min(limits.HUB_PIECE_BYTES_MAX // size, limits.READ_ENVELOPES_MAX, 2 * len(bodies))
    return max(1, fit)


def _packed(bodies: list[bytes], last: int, *, is_told: bool) -> list[wire.SubscribeResponse]:
    """Envelopes that fit together share a message; one that fits none comes in several. Where there
    are none, it says at least how far the journal is, unless that is told already."""
    messages: list[wire.SubscribeResponse] = []
    if not bodies and not is_told:
        return [wire.SubscribeResponse(last_sequence=last)]
    batch: list[bytes] = []
    size = 0
    for body in bodies:
        *whole, end = wire.pieces_of(body)
        if batch and size + len(body) > limits.HUB_PIECE_BYTES_MAX:
            messages.append(wire.SubscribeResponse(tuple(batch), last_sequence=last))
            batch, size = [], 0
        messages.extend(wire.SubscribeResponse((piece,), True, last) for piece in whole)
        batch.append(end)
        size += len(end)
    if batch:
        messages.append(wire.SubscribeResponse(tuple(batch), last_sequence=last))
    return messages
