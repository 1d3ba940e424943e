"""Writing one segment: its rows on this machine, then both files where the archive stands."""

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from omnirelay.model import limits
from omnirelay.model.errors import Unavailable
from omnirelay.model.ports import failpoint
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.segment import Manifest, Segment, read_manifest, rows_name
from omnirelay.pipeline.shelf import Shelf, file_checksum


class SegmentWriter:
    """All rows, then `finish`, or `leave` without a trace. A segment that was finished before is
    left as it is; one that was not is written again."""

    def __init__(self, shelf: Shelf, shard: str, first: int) -> None:
        self._shelf = shelf
        self._place = shelf.place(shard)
        self._fresh = shelf.fresh(self._place, first)
        self._writer = pq.ParquetWriter(self._fresh.file, SCHEMA, compression="zstd")
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

    def finish(self, claim: Manifest) -> tuple[Segment, bool]:
        """The segment that stands there now, durably, and whether this has put it there: if not,
        it begins where `claim` does and may end elsewhere. `claim` lacks what only the file can
        tell."""
        self._flush()
        self._writer.close()
        file = self._fresh.file
        file.flush()
        size = file.tell()
        file.seek(0)
        manifest = msgspec.structs.replace(
            claim, events=self.events, bytes=size, checksum=file_checksum(file)
        )
        failpoint("archive.after_write")
        try:
            return self._put(manifest)
        finally:
            self._fresh.discard()

    def _put(self, manifest: Manifest) -> tuple[Segment, bool]:
        rows, listed = self._shelf.named(manifest)
        found = self._standing(listed)
        if found is not None:  # it must not get another file than the one it speaks of
            return found, False
        if rows != rows_name(listed, manifest):
            manifest = msgspec.structs.replace(manifest, file=rows)
        self._shelf.put(self._place, rows, self._fresh)
        failpoint("archive.after_rename")
        is_first = self._shelf.create(self._place, listed, msgspec.json.encode(manifest))
        failpoint("archive.after_manifest")
        if is_first:
            return Segment(self._shelf.address(self._place, rows), manifest), True
        found = self._standing(listed)
        if found is None:
            raise Unavailable(f"{self._shelf.shown}: {listed} was there and is gone: run it again")
        if rows != rows_name(listed, found.manifest):
            self._shelf.remove(self._place, [rows])
        return found, False

    def _standing(self, listed: str) -> Segment | None:
        (body,) = self._shelf.read_small(self._place, [listed])
        if body is None:
            return None
        manifest = read_manifest(body, self._shelf.address(self._place, listed))
        path = self._shelf.address(self._place, rows_name(listed, manifest))
        return Segment(path, manifest)

    def leave(self) -> None:
        self._writer.close()
        self._fresh.discard()
