"""One segment of an archive: a Parquet file with a closed stretch of one shard's events, and beside
it a manifest. The manifest is written last and once: a segment without one is not there.

    {archive}/{shard}/{first:020d}-{last:020d}.parquet
    {archive}/{shard}/{first:020d}-{last:020d}.json
"""

import os
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from omnirelay.journal.format import CHECKSUM_BYTES
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import failpoint
from omnirelay.pipeline.address import Damage
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.schema import VERSION

_CHUNK_BYTES = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    v: int = VERSION
    """Of the event schema, so that a reader of tomorrow knows what it has."""
    shard: str
    first: int
    last: int
    events: int = 0
    """Fewer than the stretch is long only by what `damaged` names."""
    bytes: int = 0
    checksum: str = ""
    """BLAKE2b (16 bytes, hex) of the Parquet file."""
    prev: str = ""
    """Checksum of the envelope before the first: what a chain of segments hangs together by."""
    link: str = ""
    """Checksum of the last envelope; empty if it is one of the damaged."""
    damaged: tuple[Damage, ...] = ()
    """With their bytes: what is wrong today is still evidence when the journal is pruned."""


class Segment(msgspec.Struct, frozen=True):
    path: str
    manifest: Manifest


def shard_folder(archive: str | Path, shard: str) -> Path:
    """A shard's name may hold what no folder's may."""
    word = quote(shard, safe=" @+=,()")
    return Path(archive) / (word.replace(".", "%2E") if word.startswith(".") else word)


def stem(first: int, last: int) -> str:
    return f"{first:020d}-{last:020d}"


class SegmentWriter:
    """Writes one segment of a folder: all rows, then `finish`, or `leave` without a trace. A
    segment that was finished before is left as it is; one that was not is written again."""

    def __init__(self, folder: Path, first: int) -> None:
        self._folder = folder
        self._fresh = folder / f"{first:020d}.parquet.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(str(self._fresh), SCHEMA, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self.events = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self.events += batch.num_rows
        if sum(held.num_rows for held in self._held) >= limits.ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
            self._held = []
        failpoint("archive.after_rows")

    def finish(self, claim: Manifest) -> Segment:
        """Durable when it returns. `claim` lacks what only the file can tell."""
        name = stem(claim.first, claim.last)
        path, listed = self._folder / f"{name}.parquet", self._folder / f"{name}.json"
        self._flush()
        self._writer.close()
        _sync(self._fresh)
        failpoint("archive.after_write")
        if listed.exists():  # it must not get another file than the one it speaks of
            self._fresh.unlink()
            return Segment(str(path), read_manifest(listed))
        self._fresh.replace(path)
        _sync(self._folder)
        failpoint("archive.after_rename")
        manifest = msgspec.structs.replace(
            claim, events=self.events, bytes=path.stat().st_size, checksum=file_checksum(path)
        )
        put_if_absent(listed, msgspec.json.encode(manifest))
        failpoint("archive.after_manifest")
        return Segment(str(path), manifest)

    def leave(self) -> None:
        self._writer.close()
        self._fresh.unlink(missing_ok=True)


def put_if_absent(path: Path, content: bytes) -> None:
    """Whole or not at all, and never over what is there."""
    fresh = path.with_name(f"{path.name}.tmp")
    fresh.write_bytes(content)
    _sync(fresh)
    failpoint("archive.before_manifest")
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what a killed writer left. Only for who is alone in the folder."""
    for left in folder.glob("*.tmp"):
        left.unlink()
    for file in folder.glob("*.parquet"):
        if not file.with_suffix(".json").exists():
            file.unlink()


def file_checksum(path: Path) -> str:
    digest = blake2b(digest_size=CHECKSUM_BYTES)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Raises Corrupt if it is not what was written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise Corrupt(path.parent.name, 0, f"the manifest {path} cannot be read: {error}") from None


def segments_of(archive: str | Path, shard: str) -> list[Segment]:
    """In order, none of them twice. Raises Corrupt if a manifest cannot be read."""
    found: list[Segment] = []
    for listed in sorted(shard_folder(archive, shard).glob("*.json")):
        manifest = read_manifest(listed)
        if not found or manifest.first > found[-1].manifest.last:
            found.append(Segment(str(listed.with_suffix(".parquet")), manifest))
    return found


def archived_shards(archive: str | Path) -> list[str]:
    listed = (next(iter(sorted(f.glob("*.json"))), None) for f in sorted(Path(archive).glob("*/")))
    return [read_manifest(one).shard for one in listed if one is not None]


def damage_of(segment: Segment) -> str | None:
    """Why the file cannot be believed; None if it is the one that was written."""
    path = Path(segment.path)
    try:
        actual = file_checksum(path)
    except OSError as error:
        return f"segment {path.name} cannot be read: {error.strerror}"
    expected = segment.manifest.checksum
    if actual != expected:
        return f"segment {path.name} has checksum {actual}, its manifest says {expected}"
    return None
