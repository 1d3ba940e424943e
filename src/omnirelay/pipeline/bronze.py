"""Events from the journals into the event table, each once; what is damaged, into quarantine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnirelay.pipeline.bronze_source import Journals
from omnirelay.pipeline.datasets import (
    LEASE_EVENTS,
    QUARANTINED,
    Change,
    Commit,
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
        after, upto = self.journals.new(base.positions, limit)
        if not upto:
            return Taken()
        return self._commit(base, self.journals.read(after, upto), after, upto)

    def take_batch(self, batch: "DataFrame", start: Positions | None, upto: Positions) -> Taken:
        """A micro-batch that holds the events of (start, upto], whatever of it is here already. If
        the table is behind its start (or the start is not known), what the batch lacks is read
        from the journals."""
        base = self.tables.snapshot(LEASE_EVENTS)
        new = moving(base.positions, upto)
        if not new:
            return Taken()
        is_whole = start is not None and all(
            shard in start and start[shard] <= low for shard, (low, _) in new.items()
        )
        after = {shard: low for shard, (low, _) in new.items()}
        ends = {shard: high for shard, (_, high) in new.items()}
        if is_whole:
            rows = batch if start == after else between(batch, after, ends)
        else:
            after = {shard: low for shard, low in after.items() if low}
            begin, _ = self.journals.new(after)
            after = {shard: begin.get(shard, 0) for shard in ends}
            rows = self.journals.read(after, ends)
        return self._commit(base, rows, after, ends)

    def _commit(
        self, base: Snapshot, rows: "DataFrame", after: Positions, upto: Positions
    ) -> Taken:
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

        commit = Commit(base, upto, fence=self.hold.fence, vet=vet)
        try:
            done = self.tables.commit(LEASE_EVENTS, Change(append=rows), commit)
        except TooManyRows:
            once = rows.dropDuplicates(["shard", "sequence"])
            done = self.tables.commit(LEASE_EVENTS, Change(append=once), commit)
        return Taken(done.rows, quarantined)

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
