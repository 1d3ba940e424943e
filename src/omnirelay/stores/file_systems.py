"""What a folder lies on, as the system tells, and whether what was synced there outlives a power
cut."""

import os
from typing import Final, NamedTuple

REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "glusterfs")
_IN_MEMORY: Final = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_ON_DISK: Final = (
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs"),
    "overlay",  # syncs go to what it lies over, unless it is told to leave them out
)
_MOUNTS: Final = "/proc/self/mountinfo"


class FileSystem(NamedTuple):
    kind: str
    options: tuple[str, ...] = ()

    @property
    def is_remote(self) -> bool:
        return self.kind in REMOTE

    @property
    def loss(self) -> str | None:
        """Why a power cut takes what was synced there; None if that is not known."""
        if self.kind in _IN_MEMORY:
            return f"{self.kind} is kept in memory"
        if "volatile" in self.options:
            return f"this {self.kind} leaves syncs out"
        return None

    @property
    def doubt(self) -> str | None:
        """Why a sync there need not mean that a power cut takes nothing; None if it does."""
        if self.loss is None and self.kind not in _ON_DISK:
            return f"what {self.kind} survives, it does not tell"
        return self.loss


UNKNOWN: Final = FileSystem("a file system that the operating system does not name")


def file_system(folder: str | os.PathLike[str], mounts: str = _MOUNTS) -> FileSystem:
    """Of the innermost mount, and of two at one place the later."""
    here, found, depth = os.path.realpath(folder), UNKNOWN, -1
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return UNKNOWN
    for line in lines:
        before, _, after = line.partition(" - ")
        places, kinds = before.split(" "), after.split(" ")
        if len(places) < 5 or len(kinds) < 3:
            continue
        point = _unescaped(places[4]).rstrip("/")
        if (here == point or here.startswith(f"{point}/")) and len(point) >= depth:
            found, depth = FileSystem(kinds[0], tuple(kinds[2].split(","))), len(point)
    return found


def _unescaped(point: str) -> str:
    """Blanks stand there as octal numbers."""
    return point.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
