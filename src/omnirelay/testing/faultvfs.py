"""A disk under SQLite that can lose power, fail or fill up, at any call.

`FaultVfs` is an apsw VFS whose files live in memory on a `Platter`. `cut` gives the image that a
power cut would leave at this moment while the run goes on, so one run yields as many cuts as it
has calls. Faults (EIO, ENOSPC) are aimed at the n-th call of a kind.

WAL needs shared memory, which a Python VFS cannot offer by itself: apsw hands `xShm…` to the VFS a
file inherits from. So the main database file inherits from the default VFS on an *empty* real file
in a temporary folder. Locks and `-shm` are then exactly those of production, several connections
can be open, and the journal needs no option for tests (`locking_mode=EXCLUSIVE` would have been
one, and would have shut readers out). No content ever reaches the real file, and shared memory is
rebuilt after a power cut anyway.
"""
# ruff: noqa: N802  # the methods have the names SQLite gave them

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Literal
from unittest import mock

import apsw

from omnirelay.testing.platter import Change, Image, Inode, Platter

CallKind = Literal["open", "read", "write", "truncate", "sync", "delete"]
ErrorKind = Literal["eio", "enospc"]
Watch = Callable[[CallKind, str], None]

_IOERR = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_numbers = count()


@dataclass(frozen=True, slots=True)
class Fault:
    """Strikes the `at`-th call of its kind, counted from when the VFS was made; a lasting one
    also strikes every later call of that kind until `heal`."""

    call: CallKind
    at: int
    error: ErrorKind = "eio"
    lasting: bool = False


class FaultVfs(apsw.VFS):
    """Registered under `name` until `unregister`. One folder: names are compared without path."""

    def __init__(self, image: Image | None = None, *, seed: int = 0) -> None:
        self.name = f"fault-{os.getpid()}-{next(_numbers)}"
        self.platter = Platter(image)
        self.chance = Random(seed)
        self.calls: Counter[CallKind] = Counter()
        self.fault: Fault | None = None
        self.is_full = False
        """No room: whatever would make a file longer fails, all else works."""
        self.struck = 0
        self.retried_syncs: list[str] = []
        """Files whose sync failed and was asked for again through the same handle. Not counted
        before there is a log: SQLite then takes back what it wrote and syncs that."""
        self.swallowed: list[str] = []
        """Errors that SQLite did not pass on to whoever ran the statement (`noting_swallowed`)."""
        self.watch: Watch | None = None
        """Called before every call that changes something."""
        super().__init__(self.name, "")

    def cut(self, chance: Random) -> Image:
        return self.platter.cut(chance)

    @property
    def has_log(self) -> bool:
        return any(name.endswith("-wal") for name in self.platter.content())

    def heal(self) -> None:
        self.fault, self.is_full = None, False

    def meet(self, call: CallKind, name: str) -> None:
        """Every call passes here first. Raises what SQLite expects for the fault, if it is due."""
        if self.watch is not None and call != "read":
            self.watch(call, name)
        self.calls[call] += 1
        fault = self.fault
        if fault is None or fault.call != call:
            return
        number = self.calls[call]
        if number == fault.at or (fault.lasting and number > fault.at):
            self.struck += 1
            raise _error(call, fault.error)

    # -- what SQLite calls ----------------------------------------------------------------------

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        flags[1] = flags[0]
        if name is None:  # a temporary file: gone with its handle, whatever happens
            return _MemoryFile(self, "", Inode(), False)  # type: ignore[return-value]
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        short = os.path.basename(path)
        inode = self.platter.find(short)
        if inode is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"{short} is not there")
            self.meet("open", short)
            inode = self.platter.create(short)
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _MainFile(self, short, inode, (name, flags))
        # apsw takes any object with the methods of a file; its stubs ask for the class.
        return _MemoryFile(self, short, inode, bool(flags[0] & _JOURNALS))  # type: ignore[return-value]

    def xDelete(self, filename: str, syncdir: bool) -> None:
        short = os.path.basename(filename)
        if self.platter.find(short) is None:
            raise _io_error(f"{short} is not there", apsw.SQLITE_IOERR_DELETE_NOENT)
        self.meet("delete", short)
        self.platter.remove(short)
        if syncdir:
            self.platter.sync_names()

    def xAccess(self, pathname: str, flags: int) -> bool:
        """As SQLite's own: an empty file does not count as being there."""
        inode = self.platter.find(os.path.basename(pathname))
        return inode is not None and bool(inode.visible)


@contextmanager
def noting_swallowed(vfs: FaultVfs) -> Iterator[None]:
    """SQLite ignores some errors on purpose: a checkpoint can wait, a pragma says no instead. apsw
    then hands our exception to the interpreter as one that nobody could catch."""

    def note(unraisable: Any) -> None:
        vfs.swallowed.append(str(unraisable.exc_value))

    with mock.patch.object(sys, "unraisablehook", note):
        yield


class _Content:
    """What every kind of file does with its bytes."""

    vfs: FaultVfs
    name: str
    inode: Inode
    syncs_names: bool
    sync_failed: bool

    def _begin(self, vfs: FaultVfs, name: str, inode: Inode, syncs_names: bool) -> None:
        self.vfs, self.name, self.inode = vfs, name, inode
        # SQLite syncs the directory with the first sync of each journal or WAL it opened.
        self.syncs_names = syncs_names
        self.sync_failed = False

    def xRead(self, amount: int, offset: int) -> bytes:
        self.vfs.meet("read", self.name)
        return bytes(self.inode.visible[offset : offset + amount])

    def xWrite(self, data: Any, offset: int) -> None:
        content = bytes(data)
        assert len(content) < 1 << 17, "SQLite's own files would call this a full disk"
        try:
            self.vfs.meet("write", self.name)
            if self.vfs.is_full and offset + len(content) > len(self.inode.visible):
                self.vfs.struck += 1
                raise _error("write", "enospc")
        except apsw.Error:
            # A write that fails may have got some of its way.
            done = self.vfs.chance.choice((0, 0, len(content) // 2, len(content) - 1))
            if done:
                self.inode.change(Change(offset, content[:done]))
            raise
        self.inode.change(Change(offset, content))

    def xTruncate(self, newsize: int) -> None:
        self.vfs.meet("truncate", self.name)
        self.inode.change(Change(newsize, None))

    def xSync(self, flags: int) -> None:
        if self.sync_failed and self.vfs.has_log:
            self.vfs.retried_syncs.append(self.name)
        try:
            self.vfs.meet("sync", self.name)
        except apsw.Error:
            self.sync_failed = True
            self.inode.fail_sync(self.vfs.chance)
            raise
        self.inode.sync()
        if self.syncs_names:
            self.vfs.platter.sync_names()
            self.syncs_names = False

    def xFileSize(self) -> int:
        return len(self.inode.visible)

    def xSectorSize(self) -> int:
        return 4096

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class _MemoryFile(_Content):
    def __init__(self, vfs: FaultVfs, name: str, inode: Inode, syncs_names: bool) -> None:
        self._begin(vfs, name, inode, syncs_names)

    def xLock(self, level: int) -> None:
        return None

    def xUnlock(self, level: int) -> None:
        return None

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xClose(self) -> None:
        return None


class _MainFile(_Content, apsw.VFSFile):
    """Locks, shared memory and file controls come from the default VFS."""

    def __init__(
        self,
        vfs: FaultVfs,
        name: str,
        inode: Inode,
        opening: tuple[str | apsw.URIFilename, list[int]],
    ) -> None:
        apsw.VFSFile.__init__(self, "", *opening)
        self._begin(vfs, name, inode, False)


def _error(call: CallKind, kind: ErrorKind) -> apsw.Error:
    """As SQLite's own VFS reports it: only a write may say that the disk is full."""
    if call == "open":
        return apsw.CantOpenError(f"injected {kind} at {call}")
    if kind == "enospc" and call == "write":
        return apsw.FullError(f"injected {kind} at {call}")
    return _io_error(f"injected {kind} at {call}", _IOERR[call])


def _io_error(message: str, code: int) -> apsw.IOError:
    error = apsw.IOError(message)
    error.extendedresult = code  # type: ignore[attr-defined]  # apsw reads it, its stubs do not say
    return error
