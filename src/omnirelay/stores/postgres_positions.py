"""Checkpoints in the journal's own schema, over a connection of their own."""

import msgspec

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.stores.postgres_link import PostgresLink, PostgresTarget, Row
from omnirelay.stores.postgres_schema import prepare


class PostgresCheckpoints:
    """Used on one loop. After a failure the next call connects again."""

    def __init__(self, target: PostgresTarget) -> None:
        self._link = PostgresLink(target)
        self._table = f"{target.schema}.positions"
        self._is_prepared = False

    async def _rows(self, sql: str, *values: object) -> list[Row]:
        if not self._is_prepared:
            await prepare(self._link)
            self._is_prepared = True
        return await self._link.rows(sql, values)

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        sql = (
            f"SELECT position, peers, updated_at FROM {self._table} WHERE name = %s AND shard = %s"
        )
        rows = await self._rows(sql, name, shard)
        if not rows:
            return None
        position, peers, at = rows[0]
        return Checkpoint(
            name, shard, position, msgspec.json.decode(peers, type=dict[str, int]), at
        )

    async def write(self, checkpoint: Checkpoint) -> None:
        c = checkpoint
        await self._rows(
            f"INSERT INTO {self._table} AS known (name, shard, position, peers, updated_at) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (shard, name) DO UPDATE SET "
            "position = excluded.position, peers = excluded.peers, "
            "updated_at = excluded.updated_at WHERE excluded.position >= known.position",
            c.name,
            c.shard,
            c.position,
            msgspec.json.encode(c.peers).decode(),
            c.updated_at,
        )

    async def readers(self, shard: str) -> list[Checkpoint]:
        sql = f"SELECT name, position, updated_at FROM {self._table} WHERE shard = %s ORDER BY name"
        rows = await self._rows(sql, shard)
        return [Checkpoint(name, shard, position, {}, at) for name, position, at in rows]

    async def slowest(self, shard: str) -> int | None:
        rows = await self._rows(
            f"SELECT min(position) FROM {self._table} WHERE shard = %s",
            shard,
        )
        return None if rows[0][0] is None else int(rows[0][0])

    async def forget(self, name: str, shard: str) -> None:
        sql = f"DELETE FROM {self._table} WHERE name = %s AND shard = %s"
        await self._rows(sql, name, shard)

    async def close(self) -> None:
        await self._link.close()
