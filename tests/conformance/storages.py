"""The storages that the suites and machines of this repository run on."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from omnirelay.journal.backend import JournalTarget
from omnirelay.stores.memory import MemoryJournal, MemoryMedium
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.store_suite import SHARD, Medium


class MemoryStorage(Medium):
    holds_shards = False
    notices_lost_tail = False
    outlives_programs = False

    def __init__(self) -> None:
        self._medium = MemoryMedium()

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return MemoryJournal(shard, self._medium)

    def bodies(self) -> list[bytes]:
        return [sealed.body for sealed in self._medium.envelopes]

    def put_body(self, at: int, body: bytes) -> None:
        sealed = self._medium.envelopes[at]
        self._medium.envelopes[at] = msgspec.structs.replace(sealed, body=body)

    def drop(self, at: int) -> None:
        del self._medium.envelopes[at]
        del self._medium.lasts[at]


class SqliteStorage(Medium):
    """Handles leave out the owner's lock, so that several may be open at once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "leases.db"

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return SqliteJournal(str(self._path), shard, owner=False)

    @contextmanager
    def _db(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as db, db:
            yield db

    def bodies(self) -> list[bytes]:
        sql = "SELECT CAST(body AS BLOB) FROM journal WHERE shard = ? ORDER BY first"
        with self._db() as db:
            return [row[0] for row in db.execute(sql, (SHARD,))]

    def put_body(self, at: int, body: bytes) -> None:
        sql = "UPDATE journal SET body = CAST(? AS TEXT) WHERE rowid = ?"
        with self._db() as db:
            db.execute(sql, (body, _row(db, at)))

    def drop(self, at: int) -> None:
        with self._db() as db:
            db.execute("DELETE FROM journal WHERE rowid = ?", (_row(db, at),))

    def version(self) -> int | None:
        with self._db() as db:
            found: tuple[int] = db.execute("PRAGMA user_version").fetchone()
        return found[0]

    def put_version(self, version: int | None) -> None:
        with self._db() as db:
            db.execute(f"PRAGMA user_version = {version}")


def _row(db: sqlite3.Connection, at: int) -> int:
    sql = "SELECT rowid FROM journal WHERE shard = ? ORDER BY first LIMIT 1 OFFSET ?"
    found: tuple[int] = db.execute(sql, (SHARD, at)).fetchone()
    return found[0]
