"""Closed stretches of journals as columnar segments: the form for years, and the fast way in.

Each stretch is written once, however often and wherever the writing is killed, and a journal may
prune what is archived: the position `archive` is one that pruning waits for.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from omnirelay.journal.format import Envelope
from omnirelay.model.errors import InvalidOption, OtherJournal, Unavailable
from omnirelay.pipeline.address import (
    Damage,
    EnvelopeAddress,
    Extent,
    Seen,
    check_kept,
    open_file,
)
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import hold
from omnirelay.pipeline.quarantine import whole_batches
from omnirelay.pipeline.segment import Manifest, Segment
from omnirelay.pipeline.segment_writer import SegmentWriter
from omnirelay.pipeline.shelf import Shelf, open_shelf, swept

CONSUMER = "archive"
SEGMENT_EVENTS = 100_000
Note = Callable[[str, int, int], None]
"""Told of a shard how far it is archived, and where it ended when this began."""


def _quiet(shard: str, at: int, end: int) -> None:
    return None


def archive_journal(
    url: str,
    archive: str | Path,
    *,
    shards: tuple[str, ...] | None = None,
    segment_events: int = SEGMENT_EVENTS,
    has_tail: bool = False,
    note: Note = _quiet,
) -> list[Segment]:
    """Write what is not in the archive (a folder, or the address of a bucket) yet, in segments of
    at least `segment_events` events (to the end of an envelope). What is left at the end waits for
    more, unless `has_tail`. Returns what was written here: into a bucket others may write too.

    Raises Unavailable if another archiver is at work in the folder or the bucket does not answer,
    Corrupt if a stretch was pruned before it was archived, OtherJournal if the archive holds the
    past of another journal. After any of them the next call goes on from what is archived.
    """
    if segment_events < 1:
        raise InvalidOption(f"segment_events is {segment_events}, must be at least 1")
    shelf = open_shelf(archive)
    written: list[Segment] = []
    with closing(open_file(url, shards or ())) as journal:
        for shard in shards or journal.shards():
            writing = _Archiving(journal, shard, shelf, note)
            written += writing.run(segment_events, 1 if has_tail else segment_events)
    return written


class _Archiving:
    """One shard of one journal into one archive."""

    def __init__(self, journal: EnvelopeAddress, shard: str, shelf: Shelf, note: Note) -> None:
        self._journal = journal
        self._note = note
        self._shard = shard
        self._shelf = shelf
        self._link = ""
        """Checksum of the last envelope that is archived."""

    def run(self, full: int, least: int) -> list[Segment]:
        kept = self._journal.extent(self._shard)  # before there is a folder: it may be misspelt
        written: list[Segment] = []
        with self._shelf.alone(self._shelf.place(self._shard)):
            after = self._begin(kept)
            while (found := self._next(after, full, least)) is not None:
                segment, is_ours = found
                if not is_ours:
                    after = self._after_another(after)
                    continue
                written.append(segment)
                after, self._link = segment.manifest.last, segment.manifest.link
                self._hold(after)
                self._note(self._shard, after, kept.last)
        return written

    def _begin(self, kept: Extent) -> int:
        """How far the archive is."""
        known = swept(self._shelf, self._shard)
        after = known[-1].manifest.last if known else kept.first - 1
        check_kept(self._shard, after, kept)
        self._link = known[-1].manifest.link if known else ""
        self._check_same(after, kept)
        self._note(self._shard, after, kept.last)
        # From here on pruning waits for the archive, also for its very first segment.
        self._hold(after)
        return after

    def _check_same(self, after: int, kept: Extent) -> None:
        """Of another journal nothing may be let go for what this archive has."""
        if not self._link or not kept.first <= after <= kept.last:
            return
        if self._journal.link(self._shard, after) not in (None, self._link):
            why = f"sequence {after} is in another envelope than {self._shelf.shown} holds"
            raise OtherJournal(self._shard, after, why)

    def _after_another(self, after: int) -> int:
        """Another archiver was first here, and may be further by now."""
        found = self._begin(self._journal.extent(self._shard))
        if found <= after:
            raise Unavailable(
                f"{self._shelf.shown}: the segment behind {after} of {self._shard!r} is there, but "
                f"not listed: run it again later"
            )
        return found

    def _hold(self, position: int) -> None:
        hold(self._journal.positions(), CONSUMER, {self._shard: position})

    def _next(self, after: int, full: int, least: int) -> tuple[Segment, bool] | None:
        through = self._journal.extent(self._shard).last
        if through - after < least:
            return None
        stretch = _Stretch(after, full)
        writer = SegmentWriter(self._shelf, self._shard, after + 1)
        try:
            seen = stretch.taken(self._journal.seen(self._shard, after, through))
            for batch in whole_batches(seen, Part(), stretch.damaged.append):
                writer.write(batch)
            if stretch.last - after < least:
                writer.leave()
                return None
            manifest = stretch.manifest(self._shard)
            if self._link and manifest.prev and manifest.prev != self._link:
                why = (
                    f"sequence {manifest.first} does not go on from what {self._shelf.shown} holds"
                )
                raise OtherJournal(self._shard, manifest.first, why)
            return writer.finish(manifest)
        except BaseException:
            writer.leave()
            raise


class _Stretch:
    """The envelopes of one segment as they go by, and what its manifest says of them."""

    def __init__(self, after: int, full: int) -> None:
        self.after = self.last = after
        self.damaged: list[Damage] = []
        self._full = full
        self._prev = self._link = ""
        self._time = 0

    def taken(self, seen: Iterable[Seen]) -> Iterator[Seen]:
        for stored, verdict in seen:
            if isinstance(verdict, Envelope):
                if self.last == self.after:
                    self._prev = verdict.prev
                self._time = self._time or verdict.time
                self.last, self._link = verdict.last, verdict.checksum
            elif verdict.body is not None:
                self.last, self._link = max(self.last, stored.last), ""
            yield stored, verdict
            if self.last - self.after >= self._full:
                return

    def manifest(self, shard: str) -> Manifest:
        return Manifest(
            shard=shard,
            first=self.after + 1,
            last=self.last,
            time=self._time,
            prev=self._prev,
            link=self._link,
            damaged=tuple(self.damaged),
        )
