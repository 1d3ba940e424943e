"""The port to the place where an archive stands: a folder, or a bucket of an object store.

{shard}/{segment}.parquet    rows
{shard}/{segment}.json       its manifest, which says that it is there
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Protocol

from omnirelay.journal.format import CHECKSUM_BYTES
from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.segment import (
    MANIFEST,
    Manifest,
    Segment,
    once,
    read_manifest,
    rows_name,
)
from omnirelay.stores.address import masked
from omnirelay.stores.objects_address import check_address

_CHUNK_BYTES = 1 << 20
BUCKETS = ("s3", "gs", "az")


@dataclass(frozen=True)
class Fresh:
    """Rows that are being written on this machine."""

    file: IO[bytes]
    path: Path | None = None
    """None: nobody else sees the file, and it goes with whoever has it open."""

    def discard(self) -> None:
        self.file.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Shelf(Protocol):
    """Files by place (one a shard) and name. Nobody sees half of one, and what a method has put
    there is durable when it returns.

    Every method may raise Unavailable if the place does not answer; then the outcome is open, and
    who does the same again is right either way.
    """

    shown: str
    """The address, without secrets."""
    is_near: bool
    """Every reader of Parquet opens the files by their addresses."""

    def place(self, shard: str) -> str: ...

    def places(self) -> list[str]:
        """Those that have something."""

    def address(self, place: str, name: str) -> str: ...

    def names(self, place: str) -> list[str]:
        """In order; empty if there is no such place."""

    def read_small(self, place: str, names: Sequence[str]) -> list[bytes | None]:
        """None for what is not there."""

    def read(self, place: str, name: str, size: int) -> bytes:
        """A file of that size, or whatever is there. Raises OSError if it cannot be read."""

    def alone(self, place: str) -> AbstractContextManager[None]:
        """To be held while writing. Keeps others out, or lets them write too: then `create` tells
        who was first. Raises Unavailable if another is inside, InvalidOption if this place cannot
        hold an archive."""

    def fresh(self, place: str, first: int) -> Fresh: ...

    def named(self, claim: Manifest) -> tuple[str, str]:
        """Of rows and manifest. Two segments that begin alike have one name for their manifests if
        they can be written at the same time."""

    def put(self, place: str, name: str, fresh: Fresh) -> None:
        """The rows, under a name that no manifest of other rows speaks of."""

    def create(self, place: str, name: str, body: bytes) -> bool:
        """False: something is there already, and stays."""

    def remove(self, place: str, names: Sequence[str]) -> None:
        """Those that are there."""

    def left(self, names: Collection[str], spoken_of: Collection[str]) -> list[str]:
        """Which of `names`, all that there are, nobody will ever need: not one that a manifest
        speaks of or, of a writer that may still be at work, will."""


def open_shelf(address: str | Path) -> Shelf:
    """Nothing is opened or reached yet. Raises InvalidOption if no archive can be there."""
    place = str(address)
    check_archive(place)
    if is_bucket(place):
        from omnirelay.pipeline.shelf_bucket import BucketShelf

        return BucketShelf(place)
    from omnirelay.pipeline.shelf_folder import FolderShelf

    return FolderShelf(place)


def is_bucket(address: str) -> bool:
    return address.partition("://")[0].lower() in BUCKETS and "://" in address


def check_archive(address: str) -> None:
    """Raises InvalidOption for what cannot be the address of an archive."""
    if is_bucket(address):
        check_address(address)
    elif "://" in address:
        raise InvalidOption(
            f"{masked(address)!r}: no archive can be there; name a folder, or s3://bucket/prefix, "
            f"gs://bucket/prefix or az://container/prefix"
        )
    elif not address.strip() or "\x00" in address:
        raise InvalidOption(f"{address!r} names no archive")


# -- what stands there --------------------------------------------------------------------------


def segments_of(archive: str | Path | Shelf, shard: str) -> list[Segment]:
    """In order, nothing of them twice. Raises Corrupt if a manifest cannot be read."""
    shelf = _opened(archive)
    place = shelf.place(shard)
    return once(_all(shelf, place, shelf.names(place)))


def swept(shelf: Shelf, shard: str) -> list[Segment]:
    """The same, and what killed writers have left is removed. Only for who is writing."""
    place = shelf.place(shard)
    # Looked at once: a manifest that comes later speaks of rows that would seem to be left.
    names = shelf.names(place)
    found = _all(shelf, place, names)
    left = shelf.left(names, {one.path.rpartition("/")[2] for one in found})
    if left:
        shelf.remove(place, left)
    return once(found)


def _all(shelf: Shelf, place: str, names: Sequence[str]) -> list[Segment]:
    listed = [name for name in names if name.endswith(MANIFEST)]
    bodies = zip(listed, shelf.read_small(place, listed), strict=True)
    manifests = [
        (name, read_manifest(body, shelf.address(place, name)))
        for name, body in bodies
        if body is not None
    ]
    return [
        Segment(shelf.address(place, rows_name(name, manifest)), manifest)
        for name, manifest in manifests
    ]


def archived_shards(archive: str | Path | Shelf) -> list[str]:
    shelf = _opened(archive)
    shards: list[str] = []
    for place in shelf.places():
        listed = (name for name in shelf.names(place) if name.endswith(MANIFEST))
        for name in listed:
            (body,) = shelf.read_small(place, [name])
            if body is not None:
                shards.append(read_manifest(body, shelf.address(place, name)).shard)
                break
    return shards


def _opened(archive: str | Path | Shelf) -> Shelf:
    return open_shelf(archive) if isinstance(archive, str | Path) else archive


# -- its rows -----------------------------------------------------------------------------------


def content_of(segment: Segment) -> bytes:
    """As the file is now. Raises OSError if it cannot be read, Unavailable if its place does not
    answer."""
    if not is_bucket(segment.path):
        return Path(segment.path).read_bytes()
    from omnirelay.pipeline.shelf_bucket import BucketShelf, parted

    address, place, name = parted(segment.path)
    return BucketShelf(address).read(place, name, segment.manifest.bytes)


def damage_of(segment: Segment) -> str | None:
    """Why the file cannot be believed; None if it is the one that was written."""
    name = segment.path.rpartition("/")[2]
    try:
        actual = _checksum_of(segment)
    except OSError as error:
        return f"segment {name} cannot be read: {error.strerror}"
    expected = segment.manifest.checksum
    if actual != expected:
        return f"segment {name} has checksum {actual}, its manifest says {expected}"
    return None


def _checksum_of(segment: Segment) -> str:
    if is_bucket(segment.path):
        return checksum(content_of(segment))
    with Path(segment.path).open("rb") as file:
        return file_checksum(file)


def checksum(content: bytes) -> str:
    return blake2b(content, digest_size=CHECKSUM_BYTES).hexdigest()


def file_checksum(file: IO[bytes]) -> str:
    """From here to its end."""
    digest = blake2b(digest_size=CHECKSUM_BYTES)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
