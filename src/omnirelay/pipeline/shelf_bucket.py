"""An archive in a bucket of an object store, beside the journal that may be there or without one.

    {address}/_archive/{shard}/{first:020d}-{last:020d}.{checksum}.parquet
    {address}/_archive/{shard}/{first:020d}.json

Nobody is kept out. The name of rows holds their checksum, so that no writer can put others where a
manifest already speaks of some; and of two segments that begin alike one gets its manifest there,
because both would have the same name. Rows without a manifest can be removed once another manifest
has that name: their own will never come.
"""

import asyncio
import errno
import os
import tempfile
from collections.abc import Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from omnirelay.model.errors import OutcomeUnknown, Unavailable
from omnirelay.pipeline.segment import MANIFEST, ROWS, Manifest, stem
from omnirelay.pipeline.shelf import Fresh
from omnirelay.stores.objects_bucket import get_all
from omnirelay.stores.objects_layout import numbers, word
from omnirelay.stores.registry import open_large

T = TypeVar("T")
_ROOT = "_archive"
"""Where no journal of the same address has anything."""


class BucketShelf:
    is_near = False

    def __init__(self, address: str) -> None:
        self._bucket = open_large(address)
        self.shown = self._bucket.shown.rstrip("/")
        self._manifests: dict[str, bytes] = {}
        """By key: they never change."""

    def _wait(self, work: Coroutine[None, None, T]) -> T:
        """On a loop of its own: the bucket is bound to none, and threads may ask side by side."""
        return asyncio.run(work)

    def place(self, shard: str) -> str:
        return word(shard)

    def places(self) -> list[str]:
        keys = self._wait(self._bucket.keys(f"{_ROOT}/"))
        return sorted({key.split("/")[1] for key in keys})

    def address(self, place: str, name: str) -> str:
        return f"{self.shown}/{_key(place, name)}"

    def names(self, place: str) -> list[str]:
        keys = self._wait(self._bucket.keys(_key(place, "")))
        return [key.rpartition("/")[2] for key in keys]

    def read_small(self, place: str, names: Sequence[str]) -> list[bytes | None]:
        keys = [_key(place, name) for name in names]
        unread = [key for key in keys if key not in self._manifests]
        found = self._wait(get_all(self._bucket, unread)) if unread else []
        bodies = zip(unread, found, strict=True)
        self._manifests.update((key, body) for key, body in bodies if body is not None)
        return [self._manifests.get(key) for key in keys]

    def read(self, place: str, name: str, size: int) -> bytes:
        found = self._wait(self._bucket.get_large(_key(place, name), size))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.address(place, name))
        return found

    @contextmanager
    def alone(self, place: str) -> Iterator[None]:
        """Nobody is, but a server that overwrites what is there could not tell who was first."""
        self._wait(self._bucket.prepare(place))
        yield

    def fresh(self, place: str, first: int) -> Fresh:
        return Fresh(tempfile.TemporaryFile(prefix="omnirelay-"))

    def named(self, claim: Manifest) -> tuple[str, str]:
        rows = f"{stem(claim.first, claim.last)}.{claim.checksum}{ROWS}"
        return rows, f"{claim.first:020d}{MANIFEST}"

    def put(self, place: str, name: str, fresh: Fresh) -> None:
        size = fresh.file.seek(0, os.SEEK_END)
        fresh.file.seek(0)
        self._wait(self._bucket.put_large(_key(place, name), fresh.file, size))

    def create(self, place: str, name: str, body: bytes) -> bool:
        key = _key(place, name)
        try:
            return self._wait(self._bucket.create(key, body))
        except OutcomeUnknown as unknown:
            found = self._wait(self._bucket.get(key))
            if found is None:
                raise Unavailable(f"{unknown.message}: run it again, it goes on there") from unknown
            return found == body

    def remove(self, place: str, names: Sequence[str]) -> None:
        self._wait(self._bucket.delete([_key(place, name) for name in names]))

    def left(self, names: Collection[str], spoken_of: Collection[str]) -> list[str]:
        """Another writer may be about to write the manifest of any rows, unless there is one."""
        begun = {numbers(name)[0] for name in names if _is_ours(name, MANIFEST)}
        return [
            name
            for name in names
            if _is_ours(name, ROWS) and name not in spoken_of and numbers(name)[0] in begun
        ]


def parted(path: str) -> tuple[str, str, str]:
    """The address of the archive, place and name of a file of it."""
    address, root, place, name = path.rsplit("/", 3)
    assert root == _ROOT, f"{path} is not in an archive"
    return address, place, name


def _key(place: str, name: str) -> str:
    return f"{_ROOT}/{place}/{name}"


def _is_ours(name: str, ending: str) -> bool:
    """Not one that somebody copied here from a folder: there names are made otherwise."""
    count, dots = (1, 1) if ending == MANIFEST else (2, 2)
    return name.endswith(ending) and name.count(".") == dots and len(numbers(name)) == count
