"""One task's work: from a slice of a journal to batches of rows."""

import gc
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import SystemClock
from omnirelay.pipeline.address import Damage, open_journal
from omnirelay.pipeline.archive_reading import read_segment
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.decode_types import arrow_type
from omnirelay.pipeline.quarantine import QUARANTINE
from omnirelay.pipeline.shelf import damage_of
from omnirelay.pipeline.source_options import SourceOptions
from omnirelay.pipeline.source_plan import Slice
from omnirelay.stores.address import masked


def read_slice(
    part: Slice,
    options: SourceOptions,
    names: tuple[str, ...],
    event_types: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of the view that the options name."""
    if options.view == "quarantine":
        yield from _quarantined(part, options, names)
        return
    span = part.span
    if options.event_types is not None:
        named = frozenset(options.event_types)
        event_types = named if event_types is None else named & frozenset(event_types)
    wanted = Part(names=names, after=span.after, through=span.through, event_types=event_types)
    with uncollected():
        if part.segment is not None:
            try:
                yield from read_segment(part.segment, wanted)
                return
            except Corrupt:
                if not _is_kept(part, options):
                    return  # the quarantine view says so
        with closing(open_journal(part.url, token=options.token)) as journal:
            yield from journal.read(span.shard, wanted)


def _is_kept(part: Slice, options: SourceOptions) -> bool:
    """Whether the journal still has all that the segment should hold."""
    with closing(open_journal(part.url, token=options.token)) as journal:
        return journal.extent(part.span.shard).first <= part.span.after + 1


@contextmanager
def uncollected() -> Iterator[None]:
    """Millions of short-lived values that form no cycles would each time make the collector walk
    everything there is: a fifth of the time of a read."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _quarantined(
    part: Slice, options: SourceOptions, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(name, arrow_type(QUARANTINE[name])) for name in names])
    found_at = SystemClock().wall_ms() * 1000
    for address, damage in _damages(part, options):
        row = {
            "shard": part.span.shard,
            "sequence": damage.sequence,
            "address": address,
            "reason": damage.reason,
            "body": damage.body,
            "found_at": found_at,
        }
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in names}], schema=schema)


def _damages(part: Slice, options: SourceOptions) -> Iterator[tuple[str, Damage]]:
    """With the place each was found in."""
    span, segment = part.span, part.segment
    reason = None if segment is None else damage_of(segment)
    if segment is not None and reason is None:
        known = segment.manifest.damaged
        yield from (
            (segment.path, one) for one in known if span.after < one.sequence <= span.through
        )
        return
    if segment is not None and not _is_kept(part, options):
        yield segment.path, Damage(span.after + 1, f"{reason}; the journal has it no more")
        return
    with closing(open_journal(part.url, token=options.token)) as journal:
        for damage in journal.damaged(span.shard, span.after, span.through):
            yield masked(part.url), damage
