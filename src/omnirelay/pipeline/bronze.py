"""Events from the journals into the event table, each once; what is damaged, into quarantine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnirelay.pipeline.bronze_source import Journals
from omnirelay.pipeline.datasets import (
    LEASE_EVENTS,
    QUARANTINED,
    Change,
    Commit,
    OtherJournal,
    Positions,
    Snapshot,
    Tables,
)
from omnirelay.pipeline.delta_rows import between, moving
from omnirelay.pipeline.hold import Holding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Taken:
    rows: int = 0
    quarantined: int = 0


class TooManyRows(Exception):
    """More rows than there are sequences: something came twice."""


@dataclass(frozen=True)
class Intake:
    tables: Tables
    journals: Journals
    hold: Holding

    def take(self, limit: int | None = None) -> Taken:
        """All that is new, or at most `limit` rows of it."""
        base = self.tables.snapshot(LEASE_EVENTS)
        self._check_same(base, base.positions)
        after, upto = self.journals.new(base.positions, limit)
        if not upto:
            return Taken()
        return self._commit(base, self._read(after, upto), after, upto)

    def _read(self, after: Positions, upto: Positions) -> Change:
        rows = self.journals.read(after, upto)
        if self.journals.is_archived():
            return Change(append=rows)
        return Change(append=rows, files=lambda into: self.journals.write(after, upto, into))

    def take_batch(self, batch: "DataFrame", start: Positions | None, upto: Positions) -> Taken:
        """A micro-batch that holds the events of (start, upto], whatever of it is here already. If
        the table is behind its start (or the start is not known), what the batch lacks is read
        from the journals."""
        base = self.tables.snapshot(LEASE_EVENTS)
        new = moving(base.positions, upto)
        self._check_same(base, new)
        if not new:
            return Taken()
        is_whole = start is not None and all(
            shard in start and start[shard] <= low for shard, (low, _) in new.items()
        )
        after = {shard: low for shard, (low, _) in new.items()}
        ends = {shard: high for shard, (_, high) in new.items()}
        if is_whole:
            change = Change(append=batch if start == after else between(batch, after, ends))
        else:
            after = {shard: low for shard, low in after.items() if low}
            begin, _ = self.journals.new(after)
            after = {shard: begin.get(shard, 0) for shard in ends}
            change = self._read(after, ends)
        return self._commit(base, change, after, ends)

    def _commit(self, base: Snapshot, change: Change, after: Positions, upto: Positions) -> Taken:
        """Spans do not overlap, so rows are unique as they come; should they not be, they are more
        than the sequences, and only then is it worth sorting them out."""
        expected = sum(high - low for low, high in moving(after, upto).values())
        quarantined = 0

        def vet(found: int) -> None:
            nonlocal quarantined
            if found > expected:
                raise TooManyRows
            if found < expected:
                quarantined = self._set_aside(after, upto)
            self.hold.check()

        links = self.journals.links(upto)
        commit = Commit(base, upto, fence=self.hold.fence, links=links, vet=vet)
        try:
            done = self.tables.commit(LEASE_EVENTS, change, commit)
        except TooManyRows:
            assert change.append is not None
            once = change.append.dropDuplicates(["shard", "sequence"])
            done = self.tables.commit(LEASE_EVENTS, Change(append=once), commit)
        return Taken(done.rows, quarantined)

    def _check_same(self, base: Snapshot, shards: Iterable[str]) -> None:
        """Raises OtherJournal if what the table has of a shard is not what the journal has there:
        two journals under one name would be sewn together where the first one ended."""
        known = {shard: base.positions[shard] for shard in shards if shard in base.links}
        for shard, link in self.journals.links(known).items():
            if link != base.links[shard]:
                why = f"sequence {known[shard]} is in another envelope than the table knows"
                raise OtherJournal(shard, known[shard], why)

    def _set_aside(self, after: Positions, upto: Positions) -> int:
        """Before the events are committed: a crash in between leaves these as they are, and the
        next run adds only what lies behind them."""
        base = self.tables.snapshot(QUARANTINED)
        spans = moving({**after, **_later(base.positions, after)}, upto)
        if not spans:
            return 0
        begin = {shard: low for shard, (low, _) in spans.items()}
        rows = self.journals.read(begin, upto, view="quarantine")
        commit = Commit(base, upto, fence=self.hold.fence)
        return self.tables.commit(QUARANTINED, Change(append=rows), commit).rows


def _later(one: Positions, other: Positions) -> dict[str, int]:
    return {shard: max(last, other.get(shard, 0)) for shard, last in one.items()}
