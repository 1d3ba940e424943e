"""`sqlite:///path` — one file, WAL, synced on every commit.

The methods are async by contract but block: the writer that calls them runs on a thread of its own
(docs/adr/0002), and readers run on another.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import cast

import apsw

from omnirelay.journal.backend import Durability, Head, JournalSource, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.model.errors import Corrupt, Fenced, OmniRelayError, SequenceTaken, Unavailable
from omnirelay.model.ports import failpoint
from omnirelay.stores.file_systems import file_system
from omnirelay.stores.highwater import HighWater, Mark
from omnirelay.stores.sqlite_file import (
    OwnerLock,
    check_ours,
    connect,
    migrate,
    refuse_folder,
    scalar,
    translate,
    translate_os,
)
from omnirelay.stores.sqlite_wal import WalConnection

SAFE_SQLITE = 3051003
"""From here on, two connections that checkpoint at once cannot corrupt the WAL."""

POLL_MIN_S = 0.002
POLL_LATEST_S = 0.05

_HEAD = (
    "SELECT last, epoch, written_at, first FROM journal WHERE shard = ? ORDER BY first DESC LIMIT 1"
)
_INSERT = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))"
# The envelope that holds `after + 1` may begin before it, so the last one that begins at or before
# it counts too; the filter on `last` drops it if it ended earlier.
_READ = (
    "SELECT first, CAST(body AS BLOB) FROM journal WHERE shard = ?1 AND last > ?2 AND first >= "
    "coalesce((SELECT max(first) FROM journal WHERE shard = ?1 AND first <= ?2 + 1), 0) "
    "ORDER BY first LIMIT ?3"
)
_OLDEST = "SELECT first, last, written_at FROM journal WHERE shard = ? ORDER BY first LIMIT ?"


class SqliteReader:
    blocks = True

    def __init__(self, path: str, shard: str, *, vfs: str | None = None) -> None:
        self.path = path
        self.shard = shard
        self._vfs = vfs
        self._connection: WalConnection | None = None

    @property
    def _db(self) -> WalConnection:
        if self._connection is None:
            check = partial(check_ours, path=self.path)
            self._connection = connect(self.path, read_only=True, vfs=self._vfs, check=check)
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: apsw.Error | OSError) -> OmniRelayError:
        if isinstance(error, OSError):
            return translate_os(error, self.path)
        if self._connection is not None:
            self._connection.failure = error
        return translate(error, f"{self.path} ({self.shard})")

    async def head(self) -> Head:
        with self._errors():
            row = self._db.execute(_HEAD, (self.shard,)).fetchone()
            if row is None:
                return Head()
            tail = scalar(
                self._db,
                "SELECT substr(body, -34, 32) FROM journal WHERE shard = ? AND first = ?",
                self.shard,
                row[3],
            )
            return Head(row[0], row[1], tail, row[2])

    async def first(self) -> int:
        with self._errors():
            sql = "SELECT min(first) FROM journal WHERE shard = ?"
            return scalar(self._db, sql, self.shard) or 1

    async def read(self, after: int, limit: int) -> list[bytes]:
        with self._errors():
            rows = self._db.execute(_READ, (self.shard, after, limit)).fetchall()
        if rows and int(rows[0][0]) > after + 1:  # type: ignore[arg-type]
            raise Corrupt(self.shard, after + 1, f"it is gone; the journal goes on at {rows[0][0]}")
        return [bytes(row[1]) for row in rows]  # type: ignore[arg-type]

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        """Nothing tells a process of another one's commit but the file, so it is looked at: at
        first often, for a follower that is close behind, then less so."""
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + timeout_s, POLL_MIN_S
        while (left_s := until - loop.time()) > 0:
            try:
                if (await self.head()).last > after:
                    return
            except Unavailable:
                pause_s = POLL_LATEST_S  # whoever reads next is told
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(1.5 * pause_s, POLL_LATEST_S)

    async def snapshot(self) -> SnapshotRef | None:
        with self._errors():
            sql = (
                "SELECT sequence, epoch, link, written_at, parts, checksum FROM snapshots "
                "WHERE shard = ?"
            )
            row = self._db.execute(sql, (self.shard,)).fetchone()
        return None if row is None else SnapshotRef(*row)

    async def read_part(self, sequence: int, part: int) -> bytes:
        with self._errors():
            sql = "SELECT body FROM snapshot_parts WHERE shard = ? AND sequence = ? AND part = ?"
            body = scalar(self._db, sql, self.shard, sequence, part)
        if body is None:
            raise Corrupt(self.shard, sequence, f"part {part} of its snapshot is missing")
        return bytes(body)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.leave()
            self._connection = None


class SqliteJournal(SqliteReader):
    """The writer's handle. `owner=False` leaves out the owner's lock: the conditional append alone
    then keeps two writers apart, as on any other store."""

    name = "sqlite"

    def __init__(
        self,
        path: str,
        shard: str,
        *,
        vfs: str | None = None,
        owner: bool = True,
        log_bytes: int = 0,
    ) -> None:
        super().__init__(path, shard, vfs=vfs)
        self._lock = OwnerLock(f"{path}-owner") if owner else None
        self._high_water = HighWater(mark_path(path, shard))
        self._log_bytes = log_bytes
        self._left: tuple[int, int, int] | None = None
        """SQLite's data version after our last append, and where that append ended."""

    @property
    def _db(self) -> WalConnection:
        assert self._connection is not None, "the journal is not open"
        self._connection.check()
        return self._connection

    async def open(self) -> None:
        self._left = None
        await self._disconnect()
        with self._errors():
            refuse_folder(self.path)
            if self._lock is not None and not self._lock.is_taken:
                self._lock.take(self.path)
            check = partial(check_ours, path=self.path)
            self._connection = connect(
                self.path, vfs=self._vfs, log_bytes=self._log_bytes, check=check
            )
            migrate(self._connection)
            mark = self._high_water.open()
        self._check_mark(mark, await self.head())

    def _check_mark(self, mark: Mark | None, head: Head) -> None:
        if mark is None:
            return
        hint = f"if that loss is accepted, remove {self._high_water.path}"
        if head.last < mark.last:
            raise Corrupt(
                self.shard,
                head.last + 1,
                f"the journal ends at {head.last} but {mark.last} was acknowledged; {hint}",
            )
        if head.last == mark.last and head.checksum != mark.checksum:
            raise Corrupt(
                self.shard, head.last, f"its end is not the one that was acknowledged; {hint}"
            )

    async def close(self) -> None:
        await self._disconnect()
        self._high_water.close()
        if self._lock is not None:
            self._lock.drop()

    async def _disconnect(self) -> None:
        """A new connection starts from what is really on the disk, so whatever the old one says
        on its way out does not matter."""
        try:
            await super().close()
        except apsw.Error:
            self._connection = None

    async def durability(self) -> Durability:
        level = scalar(self._db, "PRAGMA synchronous")
        # A VFS of the caller's own stands on what only the caller knows.
        loss = file_system(self.path).loss if self._vfs is None else None
        safe = level == 2 and apsw.SQLITE_VERSION_NUMBER >= SAFE_SQLITE and loss is None
        condition = (
            f"WAL, synchronous={level}, SQLite {apsw.sqlite_lib_version()}, "
            f"{loss or 'a local file system'}, one process"
        )
        return Durability(True, safe, False, condition)

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        assert sealed.first == expected + 1
        self._put((sealed,), expected)

    async def begin(self, sealed: Sealed) -> None:
        self._put((sealed,), 0)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        if envelopes:
            self._put(envelopes, expected)

    def _put(self, envelopes: Sequence[Sealed], expected: int) -> None:
        """In one transaction."""
        db = self._db
        # `_errors`, spelled out, and one cursor for all three: every commit comes this way.
        try:
            execute = db.cursor().execute
            execute("BEGIN IMMEDIATE")
            try:
                self._check_turn(db, envelopes[0], expected)
                for sealed in envelopes:
                    row = (sealed.shard, sealed.first, sealed.last, sealed.epoch, sealed.time)
                    execute(_INSERT, (*row, sealed.body))
                failpoint("sqlite.before_commit")
                execute("COMMIT")
            except BaseException:
                if not db.get_autocommit():
                    _roll_back(db)
                raise
        except (apsw.Error, OSError) as error:
            raise self._failed(error) from error
        self._left = (db.data_version(), sealed.last, sealed.epoch)
        failpoint("sqlite.after_commit")
        self._high_water.write(sealed.last, sealed.epoch, sealed.checksum)

    def _check_turn(self, db: WalConnection, sealed: Sealed, expected: int) -> None:
        """Asked inside the write transaction: if no connection has committed since our own last
        append, the journal ends where that append left it."""
        if self._left is not None and self._left[0] == db.data_version():
            _, last, epoch = self._left
        else:
            last, epoch = self._end(db)
        if epoch > sealed.epoch:
            raise Fenced(self.shard, sealed.epoch, epoch)
        if last != expected:
            raise SequenceTaken(self.shard, expected, last)

    def _end(self, db: WalConnection) -> tuple[int, int]:
        """Last sequence and epoch."""
        row = db.execute(_HEAD, (self.shard,)).fetchone()
        return (0, 0) if row is None else (row[0], row[1])

    def reader(self) -> JournalSource:
        return SqliteReader(self.path, self.shard, vfs=self._vfs)

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        with self._errors():
            if part == 0:
                self._drop_parts(sequence, kept=self._snapshot_sequence())
            row = (self.shard, sequence, part, body)
            self._db.execute("INSERT OR REPLACE INTO snapshot_parts VALUES (?, ?, ?, ?)", row)
        failpoint("snapshot.after_part")

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        row = (self.shard, ref.sequence, ref.epoch, ref.link, ref.time, ref.parts, ref.checksum)
        with self._errors():
            if self._snapshot_sequence() > ref.sequence:
                return
            sql = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?, ?)"
            self._db.execute(sql, row)
            failpoint("snapshot.after_finish")
            self._drop_parts(ref.sequence, kept=ref.sequence)

    def _snapshot_sequence(self) -> int:
        return scalar(self._db, "SELECT sequence FROM snapshots WHERE shard = ?", self.shard) or 0

    def _drop_parts(self, through: int, *, kept: int) -> None:
        """Drop parts no snapshot needs, a few at a time to keep each commit short."""
        while True:
            self._db.execute(
                "DELETE FROM snapshot_parts WHERE rowid IN (SELECT rowid FROM snapshot_parts "
                "WHERE shard = ? AND sequence <= ? AND sequence != ? LIMIT 8)",
                (self.shard, through, kept),
            )
            if self._db.changes() == 0:
                return

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        with self._errors():
            found = self._db.execute(_OLDEST, (self.shard, limit + 1)).fetchall()
            rows = cast("list[tuple[int, int, int]]", found)
            # Up to the first that must stay and never past it, whatever the times behind it say: a
            # hole would be damage. One row more than the limit, so that the last one stays.
            old = takewhile(lambda row: row[1] <= through and row[2] <= before_ms, rows[:-1])
            gone = [row[0] for row in old]
            if not gone:
                return 0
            sql = "DELETE FROM journal WHERE shard = ? AND first <= ?"
            self._db.execute(sql, (self.shard, gone[-1]))
            return self._db.changes()


def _roll_back(db: apsw.Connection) -> None:
    try:
        db.execute("ROLLBACK")
    except apsw.Error:
        return  # the connection is closed and reopened after any failure, which rolls back too


def mark_path(path: str, shard: str) -> str:
    """Where the high-water mark of one shard of this file is kept."""
    return f"{path}-{file_word(shard)}.mark"


def file_word(shard: str) -> str:
    """The shard's name in a file name: as it is if every file system keeps it so, else a digest.
    A slash would lead elsewhere, and some file systems take two cases for one."""
    if re.fullmatch(r"[a-z0-9_][a-z0-9_.-]{0,63}", shard):
        return shard
    return hashlib.blake2b(shard.encode(), digest_size=16).hexdigest()
