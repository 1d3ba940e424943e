"""The port through which the pipeline reads a journal, wherever it is kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from omnirelay.journal.format import Envelope
from omnirelay.model.errors import Corrupt, InvalidOption
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import Places
from omnirelay.stores.address import masked

if TYPE_CHECKING:
    import pyarrow as pa


NAMESPACE = "resourcelease"
"""The shard of a place that does not say which it has, where nobody named another."""


class Extent(msgspec.Struct, frozen=True):
    """What is kept of one shard. An empty one ends before it begins."""

    first: int
    last: int


class Damage(msgspec.Struct, frozen=True):
    """An envelope that cannot be believed, or a stretch that is not there (then without a body).
    `sequence` is where it is stored."""

    sequence: int
    reason: str
    body: bytes | None = None


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An envelope as a store holds it: the keys it is found by, and its bytes, unchecked."""

    first: int
    last: int
    body: bytes


Seen = tuple[Stored, Envelope | Damage]
"""What is stored and what it is worth. A stretch that is missing is seen with what is behind it."""


class JournalAddress(Protocol):
    """One place with the journals of one or more shards, read while its owner may be writing.

    An implementation must never hold up that owner, must give the same answer for the same range
    however often it is asked, and may be opened in many processes at once.
    """

    url: str

    def shards(self) -> list[str]: ...

    def extent(self, shard: str) -> Extent: ...

    def sequence_before(self, shard: str, time_ms: int) -> int:
        """The last sequence that was written before that time, 0 if there is none: a shard's clock
        never goes back."""

    def read(self, shard: str, part: Part) -> "Iterator[pa.RecordBatch]":
        """The events of the part in order, those of damaged envelopes left out."""

    def damaged(self, shard: str, after: int, through: int) -> Iterator[Damage]:
        """What `read` leaves out of (after, through], and why; by the sequence it begins at."""

    def link(self, shard: str, sequence: int) -> str | None:
        """Checksum of the envelope that holds the sequence: no two journals share one. None if it
        cannot be told."""

    def positions(self) -> Places:
        """Where named readers keep their place so that pruning waits for them; to be closed."""

    def close(self) -> None: ...


class EnvelopeAddress(JournalAddress, Protocol):
    """A place that hands out the envelopes themselves, as every store of journals does."""

    def seen(self, shard: str, after: int, through: int) -> Iterator[Seen]:
        """Every envelope that has a sequence of (after, through], in order, judged."""


def check_kept(shard: str, after: int, kept: Extent) -> None:
    """Raises Corrupt if what comes next was pruned: a silent gap would be taken for silence."""
    if after + 1 < kept.first:
        raise Corrupt(
            shard,
            after + 1,
            f"it was pruned, the oldest kept is {kept.first}: read from there on, name an "
            f"`archive`, or give readers a `consumer` name so that pruning waits for them",
        )


def absolute(url: str) -> str:
    """The same address for a process that stands in another folder."""
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme in _NODES or is_store(url):
        return url
    if scheme == "sqlite":
        from omnirelay.stores.registry import sqlite_path

        return str(Path(sqlite_path(url)).absolute())
    if "://" in url or scheme in ("memory", "file"):
        raise InvalidOption(
            f"url {masked(url)!r}: no journal can be read there; use sqlite:///leases.db, the path "
            f"of a file, the address of another store, or http://host:port of a node"
        )
    if not url.strip() or "\x00" in url:
        raise InvalidOption(f"url {url!r} names nothing: use sqlite:///leases.db or a path")
    return str(Path(url).absolute())


_NODES = ("http", "https", "stream", "streams", "grpc", "grpcs")


def is_node(url: str) -> bool:
    return url.partition(":")[0].lower() in _NODES


def is_store(url: str) -> bool:
    """A server or an object store, which its product's own store module reaches."""
    from omnirelay.stores.registry import is_journal

    return is_journal(url) and url.partition(":")[0].lower() not in ("memory", "sqlite")


def open_file(url: str, shards: tuple[str, ...] = ()) -> EnvelopeAddress:
    """A journal that is read where it is stored. Raises InvalidOption for a node."""
    if is_node(url):
        raise InvalidOption(f"{url}: a node tells less than its journal holds; name the file")
    if is_store(url):
        from omnirelay.pipeline.address_store import StoreAddress

        return StoreAddress(url, shards)
    from omnirelay.pipeline.address_sqlite import SqliteAddress

    return SqliteAddress(absolute(url))


def open_journal(
    url: str, *, token: str | None = None, shards: tuple[str, ...] = ()
) -> JournalAddress:
    """`token` is for a node; `shards` for it and for stores that list none. Raises Unavailable
    if there is nothing, InvalidOption if it is not ours."""
    if is_node(url):
        from omnirelay.pipeline.address_node import NodeAddress

        return NodeAddress(url, token=token, namespaces=shards)
    return open_file(url, shards)
