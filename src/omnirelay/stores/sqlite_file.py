"""One SQLite file: who owns it, how it is opened, its schema and the migrations to it."""

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Any

import apsw

from omnirelay.model.errors import (
    Corrupt,
    DiskFull,
    InvalidOption,
    JournalOwned,
    OmniRelayError,
    OutcomeUnknown,
    Unavailable,
)
from omnirelay.stores.sqlite_wal import WalConnection
from omnirelay.stores.versions import refuse_later

SCHEMA_VERSION = 1
APPLICATION_ID = 0x4F6D5265  # "OmRe", so that `file` and a careless program can tell it apart

_JOURNAL = """
CREATE TABLE journal (
  shard TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, epoch INTEGER NOT NULL,
  written_at INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (shard, first));
CREATE TABLE snapshots (
  shard TEXT PRIMARY KEY, sequence INTEGER NOT NULL, epoch INTEGER NOT NULL, link TEXT NOT NULL,
  written_at INTEGER NOT NULL, parts INTEGER NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE snapshot_parts (
  shard TEXT NOT NULL, sequence INTEGER NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (shard, sequence, part));
CREATE VIEW lease_events AS
SELECT j.shard AS shard, j.first + r.key AS sequence_number,
  json_extract(r.value, '$.eventType') AS event_type,
  strftime('%Y-%m-%dT%H:%M:%fZ', j.written_at / 1000.0, 'unixepoch') AS timestamp,
  j.epoch AS epoch, json_extract(j.body, '$.node') AS node,
  json_extract(r.value, '$.sequenceId') AS sequence_id,
  iif(json_extract(r.value, '$.eventType') = 'Enqueue', 1, json_extract(r.value, '$.attempt'))
    AS attempt,
  json_extract(r.value, '$.leaseId') AS lease_id,
  json_extract(r.value, '$.fence') AS fence,
  strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(r.value, '$.expiresAt') / 1000.0, 'unixepoch')
    AS expires_at,
  json_extract(r.value, '$.peerId') AS peer_id,
  coalesce(json_extract(r.value, '$.principal'), 'anonymous') AS principal,
  json_extract(r.value, '$.payload') AS payload,
  json_extract(r.value, '$.error') AS error,
  json_extract(r.value, '$.disposition') AS disposition,
  coalesce(json_extract(r.value, '$.items'), json_extract(r.value, '$.beats'),
    json_extract(r.value, '$.sequenceIds')) AS items,
  json_object('queue.pending', json_extract(j.body, '$.pending[' || r.key || ']'),
    'queue.active', json_extract(j.body, '$.active[' || r.key || ']'),
    'shard.id', j.shard) AS metadata
FROM journal AS j, json_each(j.body, '$.records') AS r;
"""

MIGRATIONS: dict[int, str] = {
    0: f"{_JOURNAL} PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1",
}
"""From this version to the next. A new one is added, an old one is never changed."""


class OwnerLock:
    """One live process writes a file. The kernel drops the lock when that process dies, however."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def is_taken(self) -> bool:
        return self._fd is not None

    def take(self, owned: str) -> None:
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise JournalOwned(owned, int(text) if text.isdigit() else None) from None
        except OSError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def refuse_folder(path: str) -> None:
    """Asked before any file is laid beside the path."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def connect(
    path: str,
    *,
    read_only: bool = False,
    vfs: str | None = None,
    log_bytes: int = 0,
    check: Callable[[apsw.Connection], None] | None = None,
) -> WalConnection:
    """`check` sees the file before anything in it is changed; what it raises, it is refused for.
    `log_bytes` is how long the write-ahead log is made beforehand."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else _WRITE_FLAGS
    try:
        connection = WalConnection(path, flags=flags, vfs=vfs)
        try:
            connection.set_busy_timeout(5000)
            if check is not None:
                check(connection)
            if not read_only:
                connection.enter_wal(path, vfs, log_bytes)
            connection.execute("PRAGMA cache_size=-16000")
        except BaseException as error:
            connection.failure = error
            connection.leave()
            raise
    except apsw.Error as error:
        raise translate(error, path) from error
    return connection


_WRITE_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def check_ours(connection: apsw.Connection, path: str) -> None:
    """Refuse a file that somebody else made, or a later version of us."""
    # One transaction: between two looks another handle may turn an empty file into ours.
    connection.execute("BEGIN")
    try:
        owner = scalar(connection, "PRAGMA application_id")
        version = scalar(connection, "PRAGMA user_version")
        is_empty = not scalar(connection, "SELECT count(*) FROM sqlite_master")
    finally:
        if not connection.get_autocommit():  # a failed read may have ended it already
            connection.execute("ROLLBACK")
    if owner != APPLICATION_ID and not (owner == version == 0 and is_empty):
        raise InvalidOption(f"{path} is another program's SQLite file: choose another path")
    refuse_later(path, version, SCHEMA_VERSION)


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema to today's version, one step a transaction."""
    while scalar(connection, "PRAGMA user_version") < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked again under the lock: another handle may have taken this step meanwhile.
            step = MIGRATIONS.get(scalar(connection, "PRAGMA user_version"), "")
            connection.execute(step)
            connection.execute("COMMIT")
        except BaseException:
            if not connection.get_autocommit():
                connection.execute("ROLLBACK")
            raise


def scalar(connection: apsw.Connection, sql: str, *values: Any) -> Any:
    """Any: SQLite is typed by value, not by column."""
    row = connection.execute(sql, values).fetchone()
    return None if row is None else row[0]


def translate(error: apsw.Error, what: str) -> OmniRelayError:
    """A driver's error in our words. What cannot be placed leaves the outcome unknown."""
    if isinstance(error, apsw.FullError):
        return DiskFull(f"{what}: no room left on the disk; free some, the shard resumes by itself")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Corrupt(what, 0, f"SQLite says: {error}")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Unavailable(f"{what} is locked by another program: {error}")
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        return Unavailable(f"{what} cannot be opened: {error}")
    return OutcomeUnknown(f"{what}: {type(error).__name__}: {error}")


_WRONG_PLACE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


def translate_os(error: OSError, path: str) -> OmniRelayError:
    """The operating system's error about a file beside the journal, in our words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(f"{path}: no room left on the disk; free some, the shard resumes by itself")
    if error.errno == errno.ENOENT:
        folder = os.path.dirname(os.path.abspath(path))
        return InvalidOption(f"{path}: the folder {folder} does not exist: create it first")
    if error.errno == errno.EISDIR:
        return InvalidOption(f"{path} is a folder: name a file in it")
    if error.errno in _WRONG_PLACE:
        return InvalidOption(f"{path} cannot be written: {error.strerror} ({error.filename})")
    return Unavailable(f"{path} cannot be opened: {error}")
