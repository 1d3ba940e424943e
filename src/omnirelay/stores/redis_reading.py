"""Reading one shard's journal on Redis, over connections of the reader's own."""

import asyncio
from typing import Any

from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.model.errors import Corrupt, Unavailable
from omnirelay.stores.redis_keys import Keys, entry
from omnirelay.stores.redis_link import RedisLink, RedisTarget, sleep_until
from omnirelay.stores.versions import refuse_later

LAYOUT_VERSION = 1
BLOCK_S = 2.0
"""One blocking read; well below what the client takes for a dead line."""
AGAIN_S = 0.2
"""Between two tries to reach a server that one waits for."""
_SNAPSHOT = ("sequence", "epoch", "link", "time", "parts", "checksum")


class RedisReader:
    """Used on one loop. After a failure the next call connects again."""

    blocks = False

    def __init__(self, target: RedisTarget, shard: str) -> None:
        self.target = target
        self.shard = shard
        self._link = RedisLink(target)
        self._keys = Keys(target.prefix, shard)

    async def head(self) -> Head:
        wanted = ("last", "epoch", "checksum", "time", "version")
        row = await self._link.ask(lambda client: client.hmget(self._keys.head, wanted))
        refuse_later(self.target.shown, int(row[4] or 1), LAYOUT_VERSION)
        if row[0] is None:
            return Head()
        return Head(int(row[0]), int(row[1]), row[2].decode(), int(row[3]))

    async def first(self) -> int:
        pruned = await self._link.ask(lambda client: client.hget(self._keys.head, "pruned"))
        return int(pruned or 0) + 1

    async def read(self, after: int, limit: int) -> list[bytes]:
        # Any: fields by name, as bytes.
        found: list[tuple[bytes, dict[bytes, Any]]] = await self._link.ask(
            lambda client: client.xrange(self._keys.log, min=entry(after + 1), count=limit)
        )
        if found and int(found[0][1][b"first"]) > after + 1:
            goes_on = int(found[0][1][b"first"])
            raise Corrupt(self.shard, after + 1, f"it is gone; the journal goes on at {goes_on}")
        return [fields[b"body"] for _, fields in found]

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while (left_s := until - loop.time()) > 0:
            block_ms = max(1, round(1000 * min(left_s, BLOCK_S)))  # 0 would be for ever
            try:
                streams = {self._keys.index: entry(after)}
                if await self._link.ask(
                    lambda client: client.xread(streams, count=1, block=block_ms)  # noqa: B023
                ):
                    return
            except Unavailable:
                await sleep_until(until, AGAIN_S)

    async def snapshot(self) -> SnapshotRef | None:
        row = await self._link.ask(lambda client: client.hmget(self._keys.snapshot, _SNAPSHOT))
        if row[0] is None:
            return None
        return SnapshotRef(
            int(row[0]), int(row[1]), row[2].decode(), int(row[3]), int(row[4]), row[5].decode()
        )

    async def read_part(self, sequence: int, part: int) -> bytes:
        key = self._keys.parts(sequence)
        body = await self._link.ask(lambda client: client.hget(key, str(part)))
        if body is None:
            raise Corrupt(self.shard, sequence, f"part {part} of its snapshot is missing")
        return bytes(body)

    async def close(self) -> None:
        await self._link.close()
