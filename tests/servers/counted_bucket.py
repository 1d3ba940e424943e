"""A bucket that counts the requests it passes on."""

from collections import Counter
from collections.abc import Sequence

from omnirelay.journal.backend import Durability
from omnirelay.stores.objects_bucket import Bucket


class CountedBucket:
    def __init__(self, bucket: Bucket) -> None:
        self.name, self.shown = bucket.name, bucket.shown
        self.requests: Counter[str] = Counter()
        self._bucket = bucket

    async def prepare(self, shard: str) -> None:
        await self._bucket.prepare(shard)

    async def create(self, key: str, body: bytes) -> bool:
        self.requests["create"] += 1
        return await self._bucket.create(key, body)

    async def put(self, key: str, body: bytes) -> None:
        self.requests["put"] += 1
        await self._bucket.put(key, body)

    async def get(self, key: str) -> bytes | None:
        self.requests["get"] += 1
        return await self._bucket.get(key)

    async def keys(self, prefix: str, after: str = "") -> list[str]:
        self.requests["keys"] += 1
        return await self._bucket.keys(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        self.requests["delete"] += len(keys)
        await self._bucket.delete(keys)

    async def durability(self) -> Durability:
        return await self._bucket.durability()
