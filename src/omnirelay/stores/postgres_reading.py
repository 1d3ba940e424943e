"""Reading one shard's journal on PostgreSQL, over a connection of the reader's own."""

import asyncio
from contextlib import aclosing

import psycopg

from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.model.errors import Corrupt, Unavailable
from omnirelay.stores.postgres_link import PostgresLink, PostgresTarget, Row, fetch
from omnirelay.stores.postgres_schema import NO_TABLES, SCHEMA_VERSION, Ground, channel
from omnirelay.stores.versions import refuse_later

AGAIN_S = 0.2
"""Between two tries to reach a server that one waits for."""


class PostgresReader:
    """Used on one loop. After a failure the next call connects again."""

    blocks = False

    def __init__(self, target: PostgresTarget, shard: str) -> None:
        self.target = target
        self.shard = shard
        self._link = PostgresLink(target)
        self._schema = target.schema
        self._ground: Ground | None = None
        self._ears = PostgresLink(target)
        """A second connection, opened by the first wait: one that waits can do nothing else."""
        self._told_on: psycopg.AsyncConnection[Row] | None = None
        """The connection that listens."""

    async def _head_row(self) -> Row | None:
        """last, epoch, checksum, written_at, pruned_through, segment_from, number, segment_events;
        None before the first writer has opened the shard."""
        if self._ground is None:
            await self._check_version()
        sql = (
            f"SELECT last, epoch, checksum, written_at, pruned_through, segment_from, number, "
            f"segment_events FROM {self._schema}.heads WHERE shard = %s"
        )
        rows = await self._rows_of(sql, (self.shard,))
        if not rows:
            return None
        self._ground = Ground(self._schema, rows[0][6], rows[0][7])
        return rows[0]

    async def _check_version(self) -> None:
        for (version,) in (
            await self._rows_of(f"SELECT version FROM {self._schema}.version", ()) or ()
        ):
            refuse_later(self.target.shown, version, SCHEMA_VERSION)

    async def head(self) -> Head:
        row = await self._head_row()
        return Head() if row is None else Head(*row[:4])

    async def first(self) -> int:
        row = await self._head_row()
        return 1 if row is None else int(row[4]) + 1

    async def read(self, after: int, limit: int) -> list[bytes]:
        row = await self._head_row()
        if row is None or after >= row[0]:
            return []
        if after < row[4]:
            raise Corrupt(
                self.shard, after + 1, f"it was pruned; the journal goes on at {row[4] + 1}"
            )
        rows = await self._read(after, limit, through=row[0], segment_from=row[5])
        if rows is None:  # a segment went while we read
            return await self._read_past_pruning(after, limit)
        if rows and rows[0][0] > after + 1:
            raise Corrupt(self.shard, after + 1, f"it is gone; the journal goes on at {rows[0][0]}")
        return [row[2] for row in rows]

    async def _read_past_pruning(self, after: int, limit: int) -> list[bytes]:
        row = await self._head_row()
        if row is not None and after < row[4]:
            return await self.read(after, limit)  # which says so
        raise Corrupt(self.shard, after + 1, "the table of its segment is gone")

    async def _read(
        self, after: int, limit: int, *, through: int, segment_from: int
    ) -> list[Row] | None:
        """Rows (first, last, body) from the one that holds `after + 1` on; None if a segment that
        must be there is not."""
        assert self._ground is not None
        segment, end = self._ground.at(after + 1), self._ground.at(through)
        found = await self._segment(segment, after, limit)
        if found is None:
            return None
        if not found or found[0][0] > after + 1:
            before = await self._straddling(after, segment - 1, segment_from)
            found = [*before, *found][:limit]
        while len(found) < limit and segment < end:
            segment += 1
            more = await self._segment(segment, after, limit - len(found))
            found += more or []
        return found

    async def _segment(self, segment: int, after: int, limit: int) -> list[Row] | None:
        assert self._ground is not None
        table = self._ground.table(segment)
        # The envelope that holds `after + 1` may begin before it.
        sql = (
            f"SELECT first, last, body FROM {table} WHERE last > %s AND first >= coalesce("
            f"(SELECT max(first) FROM {table} WHERE first <= %s), 0) ORDER BY first LIMIT %s"
        )
        return await self._rows_of(sql, (after, after + 1, limit))

    async def _straddling(self, after: int, segment: int, segment_from: int) -> list[Row]:
        """The envelope that holds `after + 1`, if it begins in an earlier segment."""
        assert self._ground is not None
        while segment >= segment_from:
            table = self._ground.table(segment)
            sql = f"SELECT first, last, body FROM {table} ORDER BY first DESC LIMIT 1"
            rows = await self._rows_of(sql, ())
            if rows:
                return [row for row in rows if row[1] > after]
            segment -= 1
        return []

    async def _rows_of(self, sql: str, values: tuple[object, ...]) -> list[Row] | None:
        """None if there is no such table: envelopes may pass over a whole segment, and a reader
        may come before the first writer."""
        async with self._link.session() as connection:
            try:
                return await fetch(connection, sql, values, prepare=True)
            except NO_TABLES:
                return None

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            try:
                if await self._is_longer(after, until - loop.time()):
                    return
            except Unavailable:
                await asyncio.sleep(min(AGAIN_S, max(0.0, until - loop.time())))
            if loop.time() >= until:
                return

    async def _is_longer(self, after: int, left_s: float) -> bool:
        """Listens first and looks then, so that nothing is missed between the two."""
        connection = await self._ears.connect()
        if self._told_on is not connection:
            await self._ears.rows(f"LISTEN {channel(self._schema, self.shard)}")
            self._told_on = connection
        if (await self.head()).last > after:
            return True
        try:
            told = connection.notifies(timeout=max(0.0, left_s), stop_after=1)
            async with aclosing(told) as notes:
                async for note in notes:
                    if int(note.payload) > after:
                        return True
        except psycopg.Error as error:
            self._ears.drop()
            raise self._ears.translated(error) from error
        return False

    async def snapshot(self) -> SnapshotRef | None:
        sql = (
            f"SELECT sequence, epoch, link, written_at, parts, checksum FROM "
            f"{self._schema}.snapshots WHERE shard = %s"
        )
        rows = await self._link.rows(sql, (self.shard,))
        return SnapshotRef(*rows[0]) if rows else None

    async def read_part(self, sequence: int, part: int) -> bytes:
        sql = (
            f"SELECT body FROM {self._schema}.snapshot_parts "
            f"WHERE shard = %s AND sequence = %s AND part = %s"
        )
        rows = await self._link.rows(sql, (self.shard, sequence, part))
        if not rows:
            raise Corrupt(self.shard, sequence, f"part {part} of its snapshot is missing")
        return bytes(rows[0][0])

    async def close(self) -> None:
        self._told_on = None
        await self._ears.close()
        await self._link.close()
