"""`postgres://user@host/database?schema=…` — several shards in one schema, each with a head row.

An append is one statement, and so one transaction and one round trip: it moves the head from the
expected sequence, under an epoch that is not higher, and inserts the envelope only if it could.
Whoever comes at the same time waits for the row and then finds that the head has moved.
"""

from collections.abc import Sequence
from itertools import takewhile

import psycopg

from omnirelay.journal.backend import Durability, Head, JournalSource, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.model.errors import Corrupt, Fenced, OmniRelayError, OutcomeUnknown, SequenceTaken
from omnirelay.model.ports import failpoint
from omnirelay.stores.postgres_durability import durability
from omnirelay.stores.postgres_link import PostgresTarget, Row, fetch
from omnirelay.stores.postgres_reading import PostgresReader
from omnirelay.stores.postgres_schema import SEGMENT_EVENTS, channel, create_segment, prepare

_APPEND = """
WITH turn AS (
  UPDATE {s}.heads SET last = %s, epoch = %s, checksum = %s, written_at = %s
  WHERE shard = %s AND last = %s AND epoch <= %s RETURNING shard),
put AS (
  INSERT INTO {t} (shard, first, last, epoch, written_at, body)
  SELECT shard, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %b::bytea FROM turn)
SELECT pg_notify(%s, %s) FROM turn
"""
_PUT = """
INSERT INTO {t} (shard, first, last, epoch, written_at, body) VALUES (%s, %s, %s, %s, %s, %b)
"""
_DROP_WAIT_MS = 200
"""A reader that is in a segment keeps it a little longer: it is dropped the next time."""


class PostgresJournal(PostgresReader):
    name = "postgres"

    def __init__(
        self, target: PostgresTarget, shard: str, *, segment_events: int = SEGMENT_EVENTS
    ) -> None:
        """`segment_events` counts for a shard that is new."""
        super().__init__(target, shard)
        self._channel = channel(target.schema, shard)
        self._segment_events = segment_events
        self._entered: int | None = None
        """The one that is known to be there for the next envelope."""

    async def open(self) -> None:
        await self.close()
        self._entered = None
        await prepare(self._link)
        await self._link.rows(
            f"INSERT INTO {self._schema}.heads (shard, segment_events) VALUES (%s, %s) "
            f"ON CONFLICT DO NOTHING",
            (self.shard, self._segment_events),
        )
        await self._check_end()

    async def _check_end(self) -> None:
        """The head is kept apart from the envelopes, so that a lost tail is noticed."""
        while True:
            row = await self._head_row()
            assert row is not None
            try:
                return await self._check_envelope(Head(*row[:4]), segment_from=row[5])
            except Corrupt:
                if (await self.head()).last == row[0]:
                    raise
            # Another writer has gone on since, and perhaps pruned what was looked for.

    async def _check_envelope(self, head: Head, *, segment_from: int) -> None:
        if head.last == 0:
            return
        assert self._ground is not None
        segment = self._ground.at(head.last)
        rows: list[Row] = []
        while not rows and segment >= segment_from:
            sql = (
                f"SELECT last, substr(body, greatest(1, length(body) - 33)) "
                f"FROM {self._ground.table(segment)} WHERE first <= %s ORDER BY first DESC LIMIT 1"
            )
            rows = await self._rows_of(sql, (head.last,)) or []
            segment -= 1
        last = int(rows[0][0]) if rows else 0
        if last < head.last:
            why = f"the journal ends at {last} but {head.last} was acknowledged"
            raise Corrupt(self.shard, last + 1, why)
        if rows[0][1] != f'{head.checksum}"}}'.encode():
            raise Corrupt(self.shard, head.last, "its end is not the one that was acknowledged")

    async def durability(self) -> Durability:
        return await durability(self._link)

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        assert sealed.first == expected + 1
        assert self._ground is not None, "the journal is not open"
        segment = self._ground.at(sealed.first)
        if segment != self._entered:
            await self._enter(segment, sealed, expected)
        sql = _APPEND.format(s=self._schema, t=self._ground.table(segment))
        end = (sealed.last, sealed.epoch)
        values = (
            *(*end, sealed.checksum, sealed.time, self.shard, expected, sealed.epoch),
            *(sealed.first, *end, sealed.time, sealed.body),
            *(self._channel, str(sealed.last)),
        )
        self._link.warning = None
        failpoint("postgres.before_append")
        rows = await self._link.rows(sql, values)
        failpoint("postgres.after_append")
        if not rows:
            raise await self._refusal(sealed, expected)
        if self._link.warning is not None:
            # Somebody ended its wait for the standby: it is committed here, and perhaps only here.
            raise OutcomeUnknown(f"{self.target.shown}: {self._link.warning}")

    async def begin(self, sealed: Sealed) -> None:
        await self._put((sealed,), 0, pruned=sealed.first - 1)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        if envelopes:
            await self._put(envelopes, expected)

    async def _put(
        self, envelopes: Sequence[Sealed], expected: int, *, pruned: int | None = None
    ) -> None:
        """In one transaction, which holds the head from its check to its move."""
        assert self._ground is not None, "the journal is not open"
        ground, last = self._ground, envelopes[-1]
        segments = sorted({ground.at(sealed.first) for sealed in envelopes})
        self._link.warning = None
        failpoint("postgres.before_extend")
        async with self._link.session() as connection, connection.transaction():
            row = await self._locked(connection)
            if row is None or row[0] != expected or row[1] > envelopes[0].epoch:
                raise self._refused(row, envelopes[0], expected)
            for segment in segments:
                await create_segment(connection, ground, segment)
            async with connection.cursor() as cursor:
                for segment in segments:
                    rows = [
                        (self.shard, one.first, one.last, one.epoch, one.time, one.body)
                        for one in envelopes
                        if ground.at(one.first) == segment
                    ]
                    await cursor.executemany(_PUT.format(t=ground.table(segment)), rows)
            moved = [last.last, last.epoch, last.checksum, last.time]
            more = "" if pruned is None else ", pruned_through = %s, segment_from = %s"
            moved += [] if pruned is None else [pruned, segments[0]]
            await fetch(
                connection,
                f"UPDATE {self._schema}.heads SET last = %s, epoch = %s, checksum = %s, "
                f"written_at = %s{more} WHERE shard = %s",
                (*moved, self.shard),
            )
            await fetch(connection, "SELECT pg_notify(%s, %s)", (self._channel, str(last.last)))
        failpoint("postgres.after_extend")
        self._entered = segments[-1]
        if self._link.warning is not None:
            raise OutcomeUnknown(f"{self.target.shown}: {self._link.warning}")

    async def _enter(self, segment: int, sealed: Sealed, expected: int) -> None:
        """Make sure that there is a segment for the next envelope, and that it is ours to write:
        a writer whose term is over must not bring back what was dropped."""
        assert self._ground is not None
        async with self._link.session() as connection, connection.transaction():
            row = await self._locked(connection)
            if row is None or row[0] != expected or row[1] > sealed.epoch:
                raise self._refused(row, sealed, expected)
            await create_segment(connection, self._ground, segment)
        self._entered = segment

    async def _locked(self, connection: psycopg.AsyncConnection[Row]) -> Row | None:
        sql = f"SELECT last, epoch FROM {self._schema}.heads WHERE shard = %s FOR UPDATE"
        rows = await fetch(connection, sql, (self.shard,))
        return rows[0] if rows else None

    async def _refusal(self, sealed: Sealed, expected: int) -> OmniRelayError:
        return self._refused(await self._head_row(), sealed, expected)

    def _refused(self, row: Row | None, sealed: Sealed, expected: int) -> OmniRelayError:
        if row is None:
            return Corrupt(self.shard, 1, "its head is gone")
        if row[1] > sealed.epoch:
            return Fenced(self.shard, sealed.epoch, row[1])
        return SequenceTaken(self.shard, expected, row[0])

    def reader(self) -> JournalSource:
        return PostgresReader(self.target, self.shard)

    # -- keeping it bounded ---------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        parts = f"{self._schema}.snapshot_parts"
        if part == 0:
            await self._link.rows(
                f"DELETE FROM {parts} WHERE shard = %s AND sequence <= %s AND sequence != coalesce("
                f"(SELECT sequence FROM {self._schema}.snapshots WHERE shard = %s), 0)",
                (self.shard, sequence, self.shard),
            )
        await self._link.rows(
            f"INSERT INTO {parts} VALUES (%s, %s, %s, %b) ON CONFLICT (shard, sequence, part) "
            f"DO UPDATE SET body = excluded.body",
            (self.shard, sequence, part, body),
        )
        failpoint("postgres.after_part")

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        row = (ref.sequence, ref.epoch, ref.link, ref.time, ref.parts, ref.checksum)
        await self._link.rows(
            f"INSERT INTO {self._schema}.snapshots "
            f"(shard, sequence, epoch, link, written_at, parts, checksum) "
            f"VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (shard) DO UPDATE SET "
            f"sequence = excluded.sequence, epoch = excluded.epoch, link = excluded.link, "
            f"written_at = excluded.written_at, parts = excluded.parts, "
            f"checksum = excluded.checksum WHERE snapshots.sequence <= excluded.sequence",
            (self.shard, *row),
        )
        failpoint("postgres.after_finish")
        # Only what is older: what is newer may be a rival's that is still being written.
        sql = f"DELETE FROM {self._schema}.snapshot_parts WHERE shard = %s AND sequence < %s"
        await self._link.rows(sql, (self.shard, ref.sequence))

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        head = await self._head_row()
        if head is None:
            return 0
        rows = await self._oldest(head, limit + 1)
        # Up to the first that must stay and never past it: a hole would be damage. One more than
        # the limit was read, so that the last one stays.
        old = takewhile(lambda row: row[1] <= through and row[2] <= before_ms, rows[:-1])
        gone = list(old)
        if not gone:
            return 0
        sql = f"UPDATE {self._schema}.heads SET pruned_through = %s WHERE shard = %s"
        await self._link.rows(sql, (gone[-1][1], self.shard))
        failpoint("postgres.after_prune")
        await self._drop_segments(head[5], gone[-1][1])
        return len(gone)

    async def _oldest(self, head: Row, count: int) -> list[Row]:
        """Rows (first, last, written_at) that are not pruned yet."""
        assert self._ground is not None
        found: list[Row] = []
        segment = max(head[5], self._ground.at(head[4]))
        while len(found) < count and segment <= self._ground.at(head[0]):
            sql = (
                f"SELECT first, last, written_at FROM {self._ground.table(segment)} "
                f"WHERE first > %s ORDER BY first LIMIT %s"
            )
            found += await self._rows_of(sql, (head[4], count - len(found))) or []
            segment += 1
        return found

    async def _drop_segments(self, first: int, pruned_through: int) -> None:
        """Those that lie before the mark whole. What is not dropped today is tomorrow."""
        assert self._ground is not None
        end = self._ground.at(pruned_through + 1)
        for segment in range(first, end):
            if not await self._drop(segment):
                return

    async def _drop(self, segment: int) -> bool:
        assert self._ground is not None
        async with self._link.session() as connection:
            try:
                async with connection.transaction():
                    await fetch(connection, f"SET LOCAL lock_timeout = {_DROP_WAIT_MS}")
                    table = self._ground.table(segment)
                    await fetch(connection, f"DROP TABLE IF EXISTS {table}")
                    sql = f"UPDATE {self._schema}.heads SET segment_from = %s WHERE shard = %s"
                    await fetch(connection, sql, (segment + 1, self.shard))
            except psycopg.errors.LockNotAvailable:
                return False
        return True
