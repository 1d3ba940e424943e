"""Checkpoints beside the journal: one hash a shard, one field a reader."""

from typing import Any

import msgspec

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.stores.redis_keys import Keys
from omnirelay.stores.redis_link import RedisLink, RedisTarget

# Compared and written on the server: two processes may store one reader's position at once.
_WRITE = """
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and cjson.decode(known).position > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


class RedisCheckpoints:
    """Used on one loop. After a failure the next call connects again."""

    def __init__(self, target: RedisTarget) -> None:
        self._link = RedisLink(target)
        self._prefix = target.prefix

    def _key(self, shard: str) -> str:
        return Keys(self._prefix, shard).positions

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        key = self._key(shard)
        found = await self._link.ask(lambda client: client.hget(key, name))
        return None if found is None else msgspec.json.decode(found, type=Checkpoint)

    async def write(self, checkpoint: Checkpoint) -> None:
        c = checkpoint
        values: tuple[Any, ...] = (c.name, c.position, msgspec.json.encode(c))
        await self._link.ask(lambda client: client.eval(_WRITE, 1, self._key(c.shard), *values))

    async def readers(self, shard: str) -> list[Checkpoint]:
        key = self._key(shard)
        stored = await self._link.ask(lambda client: client.hgetall(key))
        found = [msgspec.json.decode(one, type=Checkpoint) for one in stored.values()]
        found.sort(key=lambda one: one.name)
        return [Checkpoint(one.name, shard, one.position, {}, one.updated_at) for one in found]

    async def slowest(self, shard: str) -> int | None:
        return min((one.position for one in await self.readers(shard)), default=None)

    async def forget(self, name: str, shard: str) -> None:
        key = self._key(shard)
        await self._link.ask(lambda client: client.hdel(key, name))

    async def close(self) -> None:
        await self._link.close()
