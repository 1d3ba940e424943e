"""One segment of an archive: a Parquet file with a closed stretch of one shard's events, and beside
it a manifest. The manifest is put there last and once: a segment without one is not there."""

from collections.abc import Iterable

import msgspec

from omnirelay.model.errors import Corrupt
from omnirelay.pipeline.address import Damage
from omnirelay.pipeline.schema import VERSION

MANIFEST, ROWS = ".json", ".parquet"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    v: int = VERSION
    """Of the event schema, so that a reader of tomorrow knows what it has."""
    shard: str
    first: int
    last: int
    time: int = 0
    """Of the first event, in milliseconds; 0: not told, as before there was this."""
    events: int = 0
    """Fewer than the stretch is long only by what `damaged` names."""
    bytes: int = 0
    checksum: str = ""
    """BLAKE2b (16 bytes, hex) of the Parquet file."""
    file: str = ""
    """Its name; empty: the manifest's own, but for the ending."""
    prev: str = ""
    """Checksum of the envelope before the first: what a chain of segments hangs together by."""
    link: str = ""
    """Checksum of the last envelope; empty if it is one of the damaged."""
    damaged: tuple[Damage, ...] = ()
    """With their bytes: what is wrong today is still evidence when the journal is pruned."""


class Segment(msgspec.Struct, frozen=True):
    path: str
    """Of the Parquet file: in a folder, or the address of an object."""
    manifest: Manifest


def stem(first: int, last: int) -> str:
    return f"{first:020d}-{last:020d}"


def read_manifest(body: bytes, address: str) -> Manifest:
    """Raises Corrupt if it is not what was written."""
    try:
        return msgspec.json.decode(body, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            address.split("/")[-2], 0, f"the manifest {address} cannot be read: {error}"
        ) from None


def rows_name(manifest_name: str, manifest: Manifest) -> str:
    """Of the file that the manifest speaks of."""
    return manifest.file or manifest_name.removesuffix(MANIFEST) + ROWS


def once(segments: Iterable[Segment]) -> list[Segment]:
    """In order, nothing of them twice."""
    found: list[Segment] = []
    for segment in sorted(segments, key=lambda one: one.manifest.first):
        if not found or segment.manifest.first > found[-1].manifest.last:
            found.append(segment)
    return found
