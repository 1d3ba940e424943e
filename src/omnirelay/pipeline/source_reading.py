"""One task's work: from a slice of a journal to batches of rows."""

from collections.abc import Collection, Iterator
from contextlib import closing

import pyarrow as pa

from omnirelay.model.ports import SystemClock
from omnirelay.pipeline.address import JournalAddress, open_journal
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.decode_types import arrow_type
from omnirelay.pipeline.quarantine import QUARANTINE
from omnirelay.pipeline.source_options import SourceOptions
from omnirelay.pipeline.source_plan import Slice


def read_slice(
    part: Slice,
    options: SourceOptions,
    names: tuple[str, ...],
    event_types: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    span = part.span
    with closing(open_journal(part.url, token=options.token)) as journal:
        if options.view == "quarantine":
            yield from _damaged(journal, part, names)
            return
        wanted = Part(names=names, after=span.after, through=span.through, event_types=event_types)
        yield from journal.read(span.shard, wanted)


def _damaged(
    journal: JournalAddress, part: Slice, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    found_at = SystemClock().wall_ms() * 1000
    schema = pa.schema([(name, arrow_type(QUARANTINE[name])) for name in names])
    for damage in journal.damaged(part.span.shard, part.span.after, part.span.through):
        row = {
            "shard": part.span.shard,
            "sequence": damage.sequence,
            "address": journal.url,
            "reason": damage.reason,
            "body": damage.body,
            "found_at": found_at,
        }
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in names}], schema=schema)
