"""Checkpoints in a small SQLite file of their own, beside the journal: a reader that stores its
position must never wait for the journal's writer, nor make it wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.stores.sqlite_file import connect, scalar, translate

if TYPE_CHECKING:
    from omnirelay.stores.sqlite_wal import WalConnection

_SCHEMA = """
CREATE TABLE IF NOT EXISTS positions (
  name TEXT NOT NULL, shard TEXT NOT NULL, position INTEGER NOT NULL, peers TEXT NOT NULL,
  updated_at INTEGER NOT NULL, PRIMARY KEY (name, shard))
"""
_UPSERT = """
INSERT INTO positions VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, shard) DO UPDATE SET
  position = excluded.position, peers = excluded.peers, updated_at = excluded.updated_at
WHERE excluded.position >= positions.position
"""


class SqliteCheckpoints:
    """Used from the followers' thread and from the writer's (for pruning), hence the lock."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        self.path = path
        self._vfs = vfs
        self._lock = Lock()
        self._connection: WalConnection | None = None

    @contextmanager
    def _db(self) -> Iterator[apsw.Connection]:
        """A connection that failed is not used again: the next call starts from the disk."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = connect(self.path, vfs=self._vfs)
                    self._connection.execute(_SCHEMA)
                yield self._connection
            except apsw.Error as error:
                if self._connection is not None:
                    self._connection.failure = error
                raise translate(error, self.path) from error
            finally:
                if self._connection is not None and self._connection.failure is not None:
                    self._leave()

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        sql = "SELECT position, peers, updated_at FROM positions WHERE name = ? AND shard = ?"
        with self._db() as db:
            row = db.execute(sql, (name, shard)).fetchone()
        if row is None:
            return None
        peers = msgspec.json.decode(row[1], type=dict[str, int])
        return Checkpoint(name, shard, row[0], peers, row[2])

    async def write(self, checkpoint: Checkpoint) -> None:
        c = checkpoint
        peers = msgspec.json.encode(c.peers).decode()
        with self._db() as db:
            db.execute(_UPSERT, (c.name, c.shard, c.position, peers, c.updated_at))

    async def readers(self, shard: str) -> list[Checkpoint]:
        sql = "SELECT name, position, updated_at FROM positions WHERE shard = ? ORDER BY name"
        with self._db() as db:
            # Any: what a cell holds, its column's declaration says.
            rows: list[Any] = db.execute(sql, (shard,)).fetchall()
        return [Checkpoint(name, shard, position, {}, at) for name, position, at in rows]

    async def slowest(self, shard: str) -> int | None:
        with self._db() as db:
            found = scalar(db, "SELECT min(position) FROM positions WHERE shard = ?", shard)
        return None if found is None else int(found)

    async def forget(self, name: str, shard: str) -> None:
        with self._db() as db:
            db.execute("DELETE FROM positions WHERE name = ? AND shard = ?", (name, shard))

    async def close(self) -> None:
        with self._lock:
            self._leave()
