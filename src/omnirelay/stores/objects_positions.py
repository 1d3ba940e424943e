"""Checkpoints as objects: the position is in the key, and the highest counts, so that none goes
back whoever writes."""

from collections import defaultdict

import msgspec

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.model.errors import Corrupt
from omnirelay.stores.objects_bucket import Bucket
from omnirelay.stores.objects_layout import numbers, word


class ObjectCheckpoints:
    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        for key in reversed(await self._bucket.keys(_place(name, shard))):
            body = await self._bucket.get(key)
            if body is not None:
                return _decoded(body, shard)
        return None

    async def write(self, checkpoint: Checkpoint) -> None:
        place = _place(checkpoint.name, checkpoint.shard)
        own = f"{place}{checkpoint.position:020d}.json"
        there = await self._bucket.keys(place)
        if there and there[-1] > own:
            return
        await self._bucket.put(own, msgspec.json.encode(checkpoint))
        await self._bucket.delete([key for key in there if key < own])

    async def readers(self, shard: str) -> list[Checkpoint]:
        found: list[Checkpoint] = []
        for key in (await self._highest(shard)).values():
            body = await self._bucket.get(key)
            if body is not None:
                found.append(_decoded(body, shard))
        return [
            Checkpoint(one.name, shard, one.position, {}, one.updated_at)
            for one in sorted(found, key=lambda one: one.name)
        ]

    async def slowest(self, shard: str) -> int | None:
        keys = (await self._highest(shard)).values()
        return min((numbers(key)[0] for key in keys), default=None)

    async def _highest(self, shard: str) -> dict[str, str]:
        """The last key of each reader."""
        found: dict[str, str] = defaultdict(str)
        for key in await self._bucket.keys(f"_positions/{word(shard)}/"):
            reader = key.rpartition("/")[0]
            found[reader] = max(found[reader], key)
        return found

    async def forget(self, name: str, shard: str) -> None:
        await self._bucket.delete(await self._bucket.keys(_place(name, shard)))

    async def close(self) -> None:
        return None


def _place(name: str, shard: str) -> str:
    return f"_positions/{word(shard)}/{word(name)}/"


def _decoded(body: bytes, shard: str) -> Checkpoint:
    try:
        return msgspec.json.decode(body, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(shard, 0, f"a follower's position cannot be read: {error}") from None
