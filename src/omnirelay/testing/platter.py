"""Files as a disk holds them: what was synced, and what a power cut may do to the rest.

What the file systems we run on promise, and no more:

* synced bytes survive, and so does the file's size at that moment;
* of the writes since then any may be lost, torn at a 512-byte sector, or land in another order;
* a write touches only the bytes it was given, also when it is torn (SQLite calls that
  power-safe overwrite and its own default VFS claims it);
* a name that was created or removed is certain only after its directory was synced;
* after a *failed* sync the kernel calls the pages clean: they stay readable, and no later sync
  writes them, unless somebody writes the same bytes again.
"""

from random import Random
from typing import NamedTuple

SECTOR = 512


class Change(NamedTuple):
    """Bytes written at an offset; `data` None means cut to `offset` bytes."""

    offset: int
    data: bytes | None


class Inode:
    """One file: as this machine sees it, as the platter has it, and the changes between."""

    __slots__ = ("durable", "pending", "visible")

    def __init__(self, content: bytes = b"") -> None:
        self.visible = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Change] = []

    def change(self, change: Change) -> None:
        _apply(self.visible, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def fail_sync(self, chance: Random) -> None:
        self.durable = self._after_cut(chance)
        self.pending.clear()

    def cut(self, chance: Random) -> bytes:
        return bytes(self._after_cut(chance))

    def _after_cut(self, chance: Random) -> bytearray:
        left = bytearray(self.durable)
        for change in _survivors(self.pending, chance):
            _apply(left, change)
        return left


def _apply(content: bytearray, change: Change) -> None:
    offset, data = change
    if data is None:
        del content[offset:]
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _survivors(pending: list[Change], chance: Random) -> list[Change]:
    """Which changes reach the platter, in which order. The gentle fates are drawn too: a bug may
    need everything but one sector to survive."""
    if not pending:
        return []
    match chance.randrange(5):
        case 0:
            return []
        case 1:
            return pending
        case 2:
            whole = chance.randrange(len(pending))
            return [*pending[:whole], *_some(_sectors(pending[whole]), chance, 0.5)]
        case 3:
            pieces = [piece for change in pending for piece in _sectors(change)]
            return _some(pieces, chance, chance.choice((0.1, 0.5, 0.9, 0.98)))
        case _:
            pieces = [piece for change in pending for piece in _sectors(change)]
            kept = _some(pieces, chance, chance.choice((0.5, 0.9)))
            chance.shuffle(kept)
            return kept


def _some(pieces: list[Change], chance: Random, share: float) -> list[Change]:
    return [piece for piece in pieces if chance.random() < share]


def _sectors(change: Change) -> list[Change]:
    offset, data = change
    if data is None:
        return [change]
    pieces: list[Change] = []
    at = 0
    while at < len(data):
        size = SECTOR - (offset + at) % SECTOR
        pieces.append(Change(offset + at, data[at : at + size]))
        at += size
    return pieces


Image = dict[str, bytes]
"""What is on a disk that nobody writes to: content by name."""


class Platter:
    """One directory. Each name has the inodes it was bound to since the directory was last
    synced: the first one is certain, the last one is what this machine sees."""

    def __init__(self, image: Image | None = None) -> None:
        self._names: dict[str, list[Inode | None]] = {
            name: [Inode(content)] for name, content in (image or {}).items()
        }

    def find(self, name: str) -> Inode | None:
        bound = self._names.get(name)
        return bound[-1] if bound else None

    def create(self, name: str) -> Inode:
        inode = Inode()
        self._names.setdefault(name, [None]).append(inode)
        return inode

    def remove(self, name: str) -> None:
        self._names[name].append(None)

    def sync_names(self) -> None:
        for bound in self._names.values():
            del bound[:-1]

    def cut(self, chance: Random) -> Image:
        """The disk as the next boot finds it; this one goes on as if nothing had happened."""
        image: Image = {}
        for name, bound in self._names.items():
            inode = chance.choice(bound)
            if inode is not None:
                image[name] = inode.cut(chance)
        return image

    def content(self) -> Image:
        """The disk as a process that starts now finds it: `kill -9` loses nothing written."""
        found = ((name, bound[-1]) for name, bound in self._names.items())
        return {name: bytes(inode.visible) for name, inode in found if inode is not None}
