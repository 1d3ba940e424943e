"""An archive in a folder, which every reader must see under the same path.

{archive}/{shard}/{first:020d}-{last:020d}.parquet
{archive}/{shard}/{first:020d}-{last:020d}.json
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from omnirelay.model.errors import Unavailable
from omnirelay.model.ports import failpoint
from omnirelay.pipeline.segment import MANIFEST, ROWS, Manifest, stem
from omnirelay.pipeline.shelf import Fresh

_HALF = ".tmp"


class FolderShelf:
    """One writer at a time; what it puts there is under its final name only when it is whole."""

    is_near = True

    def __init__(self, folder: str | Path) -> None:
        self.shown = str(folder)
        self._folder = Path(folder)

    def place(self, shard: str) -> str:
        """A shard's name may hold what no folder's may."""
        word = quote(shard, safe=" @+=,()")
        return word.replace(".", "%2E") if word.startswith(".") else word

    def places(self) -> list[str]:
        return [folder.name for folder in sorted(self._folder.glob("*/"))]

    def address(self, place: str, name: str) -> str:
        return str(self._folder / place / name)

    def names(self, place: str) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(os.listdir(self._folder / place))
        return []

    def read_small(self, place: str, names: Sequence[str]) -> list[bytes | None]:
        return [self._read(place, name) for name in names]

    def _read(self, place: str, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._folder / place / name).read_bytes()
        return None

    def read(self, place: str, name: str, size: int) -> bytes:
        return (self._folder / place / name).read_bytes()

    @contextmanager
    def alone(self, place: str) -> Iterator[None]:
        """The kernel drops the lock when its holder dies, however."""
        folder = self._folder / place
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unavailable(f"{folder}: another archiver is at work here") from None
            yield

    def fresh(self, place: str, first: int) -> Fresh:
        folder = self._folder / place
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{first:020d}{ROWS}{_HALF}"
        return Fresh(path.open("w+b"), path)

    def named(self, claim: Manifest) -> tuple[str, str]:
        name = stem(claim.first, claim.last)
        return f"{name}{ROWS}", f"{name}{MANIFEST}"

    def put(self, place: str, name: str, fresh: Fresh) -> None:
        assert fresh.path is not None, "it was not begun here"
        os.fsync(fresh.file.fileno())
        fresh.path.replace(self._folder / place / name)
        _sync(self._folder / place)

    def create(self, place: str, name: str, body: bytes) -> bool:
        path = self._folder / place / name
        fresh = path.with_name(f"{name}{_HALF}")
        fresh.write_bytes(body)
        _sync(fresh)
        failpoint("archive.before_link")
        try:
            os.link(fresh, path)
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        _sync(path.parent)
        return True

    def remove(self, place: str, names: Sequence[str]) -> None:
        for name in names:
            (self._folder / place / name).unlink(missing_ok=True)

    def left(self, names: Collection[str], spoken_of: Collection[str]) -> list[str]:
        """There is no other writer, so all that is not whole is left."""
        return [
            name
            for name in names
            if name.endswith(_HALF) or (name.endswith(ROWS) and name not in spoken_of)
        ]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
