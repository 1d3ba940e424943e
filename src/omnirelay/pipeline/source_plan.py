"""Which parts of which journals a read consists of."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.address import Extent, JournalAddress, open_journal
from omnirelay.pipeline.address import check_kept as check_kept
from omnirelay.pipeline.archive_reading import archived_before, extended, pieces
from omnirelay.pipeline.offsets import Positions, Span, cut, held
from omnirelay.pipeline.segment import Segment
from omnirelay.pipeline.shelf import open_shelf, segments_of
from omnirelay.pipeline.source_filters import Bounds
from omnirelay.pipeline.source_options import SourceOptions
from omnirelay.stores.address import masked


class Slice(msgspec.Struct, frozen=True):
    """What one task reads: a stretch of one shard from one place."""

    url: str
    span: Span
    segment: Segment | None = None
    """What of the archive holds the stretch; None: the journal itself."""


class Plan(AbstractContextManager["Plan"]):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._journals = [
            open_journal(url, token=options.token, shards=options.shards or ())
            for url in options.urls
        ]
        self._shelf = None if options.archive is None else open_shelf(options.archive)
        self._known: dict[str, list[Segment]] = {}
        """Of each shard, as they were first looked for: a plan is made and thrown away."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for journal in self._journals:
            journal.close()

    def homes(self) -> dict[str, JournalAddress]:
        """Where each wanted shard is read. Looked up anew: a shard may have come since."""
        wanted = self._options.shards
        homes: dict[str, JournalAddress] = {}
        for journal in self._journals:
            for shard in journal.shards():
                if wanted is not None and shard not in wanted:
                    continue
                if shard in homes:
                    both = f"{masked(homes[shard].url)} and {masked(journal.url)}"
                    raise InvalidOption(
                        f"url: {both} both have a shard {shard!r}; one table cannot hold both"
                    )
                homes[shard] = journal
        for shard in wanted or ():
            if shard not in homes:
                known = sorted({name for one in self._journals for name in one.shards()})
                raise InvalidOption(
                    f"shards: there is no shard {shard!r}; there are: {', '.join(known) or 'none'}"
                )
        return homes

    def batch(self, bounds: Bounds) -> list[Slice]:
        slices: list[Slice] = []
        for shard, journal in self.homes().items():
            if bounds.shards is None or shard in bounds.shards:
                span = self._span(journal, shard, bounds)
                slices += self.slices(journal, span)
        return slices

    def slices(self, journal: JournalAddress, span: Span) -> Iterator[Slice]:
        """Segments of the archive where there are some: they are read faster."""
        for piece, segment in pieces(span, self._segments(span.shard)):
            if segment is not None:
                yield Slice(journal.url, piece, segment)
            else:
                rows = self._options.rows_per_partition
                yield from (Slice(journal.url, part) for part in cut(piece, rows))

    def _segments(self, shard: str) -> list[Segment]:
        if self._shelf is None:
            return []
        if shard not in self._known:
            self._known[shard] = segments_of(self._shelf, shard)
        return self._known[shard]

    def extent(self, journal: JournalAddress, shard: str) -> Extent:
        """What can be read of the shard, here or in the archive."""
        return extended(journal.extent(shard), self._segments(shard))

    def _span(self, journal: JournalAddress, shard: str, bounds: Bounds) -> Span:
        kept = self.extent(journal, shard)
        after = max(self.start(journal, shard, kept), bounds.after)
        through = min(self.end(journal, shard, kept), bounds.through)
        if bounds.from_ms is not None:
            after = max(after, self._before(journal, shard, kept, bounds.from_ms))
        if bounds.to_ms is not None:
            through = min(through, self._before(journal, shard, kept, bounds.to_ms))
        return Span(shard, after, through)

    def start(self, journal: JournalAddress, shard: str, kept: Extent) -> int:
        """What the options say is read first, less one."""
        options = self._options
        after = kept.first - 1
        if options.from_sequence is not None:
            after = options.from_sequence - 1
            check_kept(shard, after, kept)
        elif options.consumer is not None:
            after = max(after, self.held([shard]).get(shard, 0))
        if options.from_ms is not None:
            after = max(after, self._before(journal, shard, kept, options.from_ms))
        return after

    def end(self, journal: JournalAddress, shard: str, kept: Extent) -> int:
        options = self._options
        through = kept.last
        if options.to_sequence is not None:
            through = min(through, options.to_sequence)
        if options.to_ms is not None:
            through = min(through, self._before(journal, shard, kept, options.to_ms))
        return through

    def _before(self, journal: JournalAddress, shard: str, kept: Extent, time_ms: int) -> int:
        """The last sequence from before that time, of what is `kept` here or in the archive."""
        found = journal.sequence_before(shard, time_ms)
        if self._options.archive is None or found >= journal.extent(shard).first:
            return found
        # All that the journal has is younger. The archive goes further back.
        return max(kept.first - 1, archived_before(self._segments(shard), time_ms))

    def held(self, shards: list[str]) -> Positions:
        """Where the named consumer is."""
        assert self._options.consumer is not None
        homes, found = self.homes(), Positions()
        for shard in shards:
            found |= held(homes[shard].positions(), self._options.consumer, [shard])
        return found
