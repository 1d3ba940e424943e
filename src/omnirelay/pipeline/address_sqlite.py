"""The journals in one SQLite file, read beside its owner. Every page is a transaction of its own,
so that the owner's write-ahead log can be folded back however long the whole reading takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import apsw

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.address import Damage, Extent, Seen, Stored
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import Places
from omnirelay.pipeline.quarantine import Inspector, damages, link_in, whole_batches
from omnirelay.stores.sqlite_file import connect, scalar, translate
from omnirelay.stores.sqlite_look import shards_of
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.stores.sqlite_wal import WalConnection

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST = "SELECT min(first) FROM journal WHERE shard = ?"
_LAST = "SELECT last FROM journal WHERE shard = ? ORDER BY first DESC LIMIT 1"
_AT = (
    "SELECT first, last, {} FROM journal WHERE shard = ? AND first <= ? ORDER BY first DESC LIMIT 1"
)
_PAGE = (
    "SELECT first, last, CAST(body AS BLOB) FROM journal "
    "WHERE shard = ? AND first > ? AND first <= ? ORDER BY first LIMIT 512"
)
_NEXT = "SELECT min(first) FROM journal WHERE shard = ? AND first > ?"
_PAGE_BYTES = 8 << 20


class SqliteAddress:
    def __init__(self, path: str) -> None:
        self.url = path
        self._shards = shards_of(path)
        self._connection: WalConnection | None = None

    @contextmanager
    def _db(self) -> Iterator[WalConnection]:
        try:
            if self._connection is None:
                self._connection = connect(self.url, read_only=True)
            yield self._connection
        except apsw.Error as error:
            if self._connection is not None:
                self._connection.failure = error
            raise translate(error, self.url) from error

    def shards(self) -> list[str]:
        self._shards = shards_of(self.url)
        return self._shards

    def extent(self, shard: str) -> Extent:
        with self._db() as db:
            first, last = scalar(db, _FIRST, shard), scalar(db, _LAST, shard)
        if first is None:
            raise InvalidOption(
                f"shards: {self.url} has no journal of {shard!r}; it has: "
                f"{', '.join(self.shards()) or 'none'}"
            )
        return Extent(first, last)

    def sequence_before(self, shard: str, time_ms: int) -> int:
        kept = self.extent(shard)
        low, high = kept.first, kept.last + 1
        while low < high:
            row = self._row(shard, (low + high) // 2, "written_at")
            if row is None:
                break
            first, last, written_at = row
            if written_at < time_ms:
                low = max(last, (low + high) // 2) + 1
            else:
                high = min(first, (low + high) // 2)
        return low - 1

    def _row(self, shard: str, sequence: int, column: str) -> tuple[int, int, Any] | None:
        """The envelope that holds the sequence, or the last one before it. Any: the column's."""
        with self._db() as db:
            found = db.execute(_AT.format(column), (shard, sequence)).fetchone()
        return None if found is None else (found[0], found[1], found[2])

    def read(self, shard: str, part: Part) -> "Iterator[pa.RecordBatch]":
        return whole_batches(self.seen(shard, part.after, part.through), part)

    def damaged(self, shard: str, after: int, through: int) -> Iterator[Damage]:
        found = damages(self.seen(shard, after, through))
        behind = self._behind(shard, through)
        yield from (one for one in chain(found, behind) if after < one.sequence <= through)

    def _behind(self, shard: str, through: int) -> Iterator[Damage]:
        """A stretch may be missing up to the first envelope behind the part."""
        with self._db() as db:
            first = scalar(db, _NEXT, shard, through)
        before = None if first is None else self._stored(shard, first - 1)
        if before is not None:
            seen = Inspector(shard, before).look(Stored(first, first, b""))
            yield from (one for _, one in seen if isinstance(one, Damage) and one.body is None)

    def seen(self, shard: str, after: int, through: int) -> Iterator[Seen]:
        start = self._stored(shard, after + 1)
        before = None if start is None else self._stored(shard, start.first - 1)
        inspector = Inspector(shard, before)
        for stored in self._pages(shard, 0 if start is None else start.first - 1, through):
            if stored.last > after or stored.first > after:
                yield from inspector.look(stored)
            else:
                inspector = Inspector(shard, stored)

    def _stored(self, shard: str, sequence: int) -> Stored | None:
        row = self._row(shard, sequence, "CAST(body AS BLOB)")
        return None if row is None else Stored(row[0], row[1], bytes(row[2]))

    def _pages(self, shard: str, after: int, through: int) -> Iterator[Stored]:
        while True:
            page, size = [], 0
            with self._db() as db:
                cursor = db.execute(_PAGE, (shard, after, through))
                for first, last, body in cursor:
                    page.append(Stored(first, last, body))
                    size += len(body)
                    if size >= _PAGE_BYTES:
                        break
                cursor.close()
            if not page:
                return
            yield from page
            after = page[-1].first

    def link(self, shard: str, sequence: int) -> str | None:
        return link_in(self.seen(shard, sequence - 1, sequence), sequence)

    def positions(self) -> Places:
        return SqliteCheckpoints(f"{self.url}-positions")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.leave()
            self._connection = None
