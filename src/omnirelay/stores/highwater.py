"""How far a journal was acknowledged, kept apart from it, so that a lost tail is noticed on open.

Written after each commit through a memory map, without a sync of its own: it survives the process,
may lag behind after a power cut, and never runs ahead. So it can miss a loss but cannot cry wolf.
A map, because a write call dirties the inode, which the journal's next sync then has to wait for
(measured: a third of the commits a second on ext4). Two slots in turn, because a process can be
killed between two bytes.
"""

import mmap
import os
from zlib import crc32

import msgspec

_LINE = 80


class Mark(msgspec.Struct, frozen=True):
    last: int
    epoch: int
    checksum: str


class HighWater:
    def __init__(self, path: str) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        self._slot = 0

    def open(self) -> Mark | None:
        """The highest mark stored; None if there is none that can be read."""
        if self._map is None:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._map = _mapped(fd)
            finally:
                os.close(fd)
        return _highest(self._map[:])

    def write(self, last: int, epoch: int, checksum: str) -> None:
        assert self._map is not None
        fields = f"{last} {epoch} {checksum}".encode("ascii")
        line = b"%b %08x" % (fields, crc32(fields))
        self._slot = 1 - self._slot
        start = self._slot * _LINE
        self._map[start : start + _LINE] = line.ljust(_LINE - 1) + b"\n"

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None


def peek(path: str) -> Mark | None:
    """What `HighWater.open` finds, for a reader: nothing is created or mapped."""
    try:
        with open(path, "rb") as file:
            return _highest(file.read(2 * _LINE))
    except FileNotFoundError:
        return None


def _highest(data: bytes) -> Mark | None:
    found = [mark for slot in (0, 1) if (mark := _parsed(data, slot)) is not None]
    return max(found, key=lambda mark: (mark.last, mark.epoch), default=None)


def _parsed(data: bytes, slot: int) -> Mark | None:
    line = data[slot * _LINE : (slot + 1) * _LINE].decode("ascii", "replace")
    fields = line.split()
    if len(fields) != 4 or f"{crc32(' '.join(fields[:3]).encode()):08x}" != fields[3]:
        return None
    return Mark(int(fields[0]), int(fields[1]), fields[2])


def _mapped(fd: int) -> mmap.mmap:
    size = os.fstat(fd).st_size
    if size < 2 * _LINE:
        # Written, not only lengthened: on a full disk a write says so, whereas the first touch of
        # a mapped hole kills the process.
        os.pwrite(fd, bytes(2 * _LINE - size), size)
    return mmap.mmap(fd, 2 * _LINE)
