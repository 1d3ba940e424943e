"""How far a journal was acknowledged, kept apart from it, so that a lost tail is noticed on open.

Written after each commit without a sync of its own: it may lag behind after a power cut, never run
ahead, so it can miss a loss but cannot cry wolf.
"""

import os
import zlib

import msgspec

_LINE = 80


class Mark(msgspec.Struct, frozen=True):
    last: int
    epoch: int
    checksum: str


class HighWater:
    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def open(self) -> Mark | None:
        """The stored mark; None if there is none or it was torn while it was written."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        line = os.pread(self._fd, _LINE, 0).decode("ascii", "replace")
        fields = line.split()
        if len(line) != _LINE or len(fields) != 4 or _crc(fields[:3]) != fields[3]:
            return None
        return Mark(int(fields[0]), int(fields[1]), fields[2])

    def write(self, mark: Mark) -> None:
        assert self._fd is not None
        fields = [str(mark.last), str(mark.epoch), mark.checksum]
        line = " ".join([*fields, _crc(fields)]).ljust(_LINE - 1) + "\n"
        os.pwrite(self._fd, line.encode("ascii"), 0)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _crc(fields: list[str]) -> str:
    return f"{zlib.crc32(' '.join(fields).encode()):08x}"
