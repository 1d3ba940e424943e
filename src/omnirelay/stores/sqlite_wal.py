"""SQLite's write-ahead log, used so that a failed write is never taken for a good one.

Left to itself SQLite stays in its old mode when the switch to WAL is not followed to its end, drops
the error of an automatic checkpoint and tries the same sync again with the next commit, and copies
the log into the database while it closes, whatever happened before. On a disk that has just
failed, each of these can cost what was acknowledged.
"""

from typing import Final, cast

import apsw

from omnirelay.model.errors import Unavailable

PAGE_BYTES: Final = 8192
"""Of a new file. Every page of a commit is written on its own, so twice SQLite's usual 4096 halves
the calls of a large one (500 kB: 1.06 ms instead of 1.35) and costs a small one nothing; four times
that made small ones a tenth slower."""
CHECKPOINT_BYTES: Final = 2000 * PAGE_BYTES
"""Fewer, larger checkpoints than SQLite's 1000 pages: each costs two syncs of the main file."""
LOG_BYTES: Final = CHECKPOINT_BYTES // PAGE_BYTES * (PAGE_BYTES + 24) + 32
"""What the log holds when it is checkpointed: pages with their frame headers, and its own."""
_CHUNK_BYTES: Final = 1 << 16
"""SQLite's own files take no more than 128 KiB - 1 at once and call the rest a full disk."""
_LOG_FLAGS: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_WAL


class WalConnection(apsw.Connection):
    """`failure` is set once anything went wrong; from then on the connection is only closed."""

    checkpoint_pages = CHECKPOINT_BYTES // PAGE_BYTES
    failure: BaseException | None = None

    def enter_wal(self, path: str, vfs: str | None, log_bytes: int) -> None:
        """Raises Unavailable if the file cannot be used as WAL."""
        self.execute(f"PRAGMA page_size={PAGE_BYTES}")  # a file that is there keeps its own
        # To the last row: the switch is committed behind the first, and may fail there.
        answer = self.execute("PRAGMA journal_mode=WAL").fetchall()
        if answer != [("wal",)]:
            raise Unavailable(f"{path} cannot be put into WAL mode, it answers {answer}")
        self.execute("PRAGMA synchronous=FULL")
        page_bytes = cast("int", self.execute("PRAGMA page_size").fetchall()[0][0])
        self.checkpoint_pages = CHECKPOINT_BYTES // page_bytes
        self.set_wal_hook(_checkpoint)
        self._settle(vfs, log_bytes)

    def _settle(self, vfs: str | None, log_bytes: int) -> None:
        """Write the log over with its own bytes, lengthen it with zeros, and sync it.

        After a failed sync the kernel keeps the pages readable and calls them clean: recovery would
        believe them, no later sync would write them, and a power cut would take them together
        with everything that was acknowledged behind them. That may have happened to a process
        that is gone, so it is done on every open.
        """
        self.execute("BEGIN IMMEDIATE")  # nobody else writes to the log meanwhile
        try:
            log = apsw.VFSFile(vfs or "", self.filename_wal, [_LOG_FLAGS, 0])
            try:
                _rewrite(log, log_bytes)
            finally:
                log.xClose()
        finally:
            self.execute("ROLLBACK")

    def check(self) -> None:
        """Raises Unavailable if something failed behind the last statement's back."""
        if self.failure is not None:
            raise Unavailable(f"nothing was changed: the journal failed before: {self.failure}")

    def leave(self) -> None:
        """Close; after a failure without touching the file again."""
        if self.failure is not None:
            self.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.close()


def _rewrite(log: apsw.VFSFile, log_bytes: int) -> None:
    size = log.xFileSize()
    for offset in range(0, size, _CHUNK_BYTES):
        log.xWrite(log.xRead(min(_CHUNK_BYTES, size - offset), offset), offset)
    _lengthen(log, size, log_bytes)
    if size or log_bytes:
        log.xSync(apsw.SQLITE_SYNC_NORMAL)


def _lengthen(log: apsw.VFSFile, size: int, log_bytes: int) -> None:
    """A sync that need not record a new length costs half (measured: 155 µs instead of 300), and
    SQLite takes zeros for the end of the log. A disk without room for them is no reason to
    refuse: the commits themselves will say so."""
    try:
        for offset in range(size, log_bytes, _CHUNK_BYTES):
            log.xWrite(bytes(min(_CHUNK_BYTES, log_bytes - offset)), offset)
    except apsw.FullError:
        return


def _checkpoint(connection: apsw.Connection, database: str, pages: int) -> int:
    """Called by SQLite after each commit. The commit stands whatever happens here, so a failure
    is only noted: it ends the connection before its next statement."""
    assert isinstance(connection, WalConnection)
    if pages >= connection.checkpoint_pages and connection.failure is None:
        try:
            connection.wal_checkpoint(database, apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return apsw.SQLITE_OK  # somebody else is at it
        except apsw.Error as error:
            connection.failure = error
    return apsw.SQLITE_OK
