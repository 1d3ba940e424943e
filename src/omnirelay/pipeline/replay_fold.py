"""What a Spark task does in a replay: fold sorted rows, shard after shard, as the core does.

It needs no Spark: batches of Arrow go in and come out. Damage comes out as a row, not as a trace
of a lost task.
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.lease.commands import Drain
from omnirelay.lease.decide import decide
from omnirelay.lease.deciding_moves import from_item
from omnirelay.lease.evolve import evolve
from omnirelay.lease.image import freeze
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import Drained
from omnirelay.lease.runs import evolve_all
from omnirelay.lease.state import QueueState
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.pipeline.columns import Columns
from omnirelay.pipeline.records import records_of
from omnirelay.pipeline.replay_pieces import HeldPiece
from omnirelay.pipeline.replay_rows import Unfit
from omnirelay.pipeline.replay_short import Astray, fold_piece

Wanted = Literal["state", "items"]
OUTCOME = "shard string, sequence bigint, kind string, number bigint, body binary, why string"
"""`state`: parts of the state after `sequence`. `item`: lines of a drain file. `damaged`: the fold
stopped before `sequence`, and `why`. `pruned`: the rows begin at `sequence`. `end`: the shard was
folded to `sequence`, and `number` bytes were said about it."""
_SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("sequence", pa.int64()),
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("body", pa.binary()),
        ("why", pa.string()),
    ]
)
PART_ITEMS = 4096
_encoder = msgspec.json.Encoder()


def fold_shards(
    batches: Iterable[pa.RecordBatch], wanted: Wanted, *, include_dead: bool = True
) -> Iterator[pa.RecordBatch]:
    """Rows come sorted by (shard, sequence); every shard of this task is among them as a whole."""
    with without_collector():
        for shard, rows in by_shard(batches):
            folding = _fold_stream(shard, rows, remembers=wanted == "state")
            yield from folding.outcome(wanted, include_dead=include_dead)


def by_shard(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    runs = chain.from_iterable(map(_runs, batches))
    for shard, slices in groupby(runs, key=itemgetter(0)):
        yield shard, (rows for _, rows in slices)


def _fold_stream(shard: str, rows: Iterator[pa.RecordBatch], *, remembers: bool) -> "Folding":
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size > limits.REPLAY_HELD_BYTES_MAX:
            # A stream cannot be read again: once for what matters, once for the rest.
            return fold_whole(shard, chain(held, rows))
    folding = Folding(shard)
    try:
        fold_piece(folding.state, HeldPiece(held), remembers=remembers)
    except (Unfit, Astray):
        return fold_whole(shard, held)
    return folding


def fold_whole(shard: str, rows: Iterable[pa.RecordBatch]) -> "Folding":
    folding = Folding(shard)
    for batch in rows:
        folding.add(batch)
    return folding


@contextmanager
def without_collector() -> Iterator[None]:
    """A fold makes no cycles, and looking for them in a growing state takes a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batch in slices of one shard each."""
    if not batch.num_rows:
        return
    runs = pc.run_end_encode(batch.column("shard"))
    start = 0
    for shard, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield shard, batch.slice(start, end - start)
        start = end


class Damage(Exception):
    """Why a fold stops, and where. It becomes a row, not the end of the task."""

    def __init__(self, sequence: int, why: str, kind: str = "damaged") -> None:
        super().__init__(why)
        self.sequence = sequence
        self.why = why
        self.kind = kind


class Folding:
    """One shard on its way from its first record to the last one wanted."""

    def __init__(self, shard: str, state: QueueState | None = None) -> None:
        self.shard = shard
        self.state = state or QueueState()
        self.damage: Damage | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        if self.damage is None:
            try:
                self._fold(rows)
            except Damage as damage:
                self.damage = damage

    def _fold(self, rows: pa.RecordBatch) -> None:
        state = self.state
        columns = Columns.of_batch(rows)
        sequences = columns.numbers("sequence")
        if not state.sequence and sequences[0] > 1:
            raise Damage(sequences[0], "its beginning is not there", "pruned")
        whole = self._followed(sequences)
        if whole:
            self._apply(rows.slice(0, whole))
            depth = (len(state.pending), len(state.active))
            recorded = (
                rows.column("pending")[whole - 1].as_py(),
                rows.column("active")[whole - 1].as_py(),
            )
            if depth != recorded:
                why = f"recorded depth {recorded}, replay gives {depth}"
                raise Damage(state.sequence, why)
        if whole < len(sequences):
            wanted, found = state.sequence + 1, sequences[whole]
            what = "stands twice" if found < wanted else f"is missing; {found} comes next"
            raise Damage(min(wanted, found), f"sequence {min(wanted, found)} {what}")

    def _followed(self, sequences: list[int]) -> int:
        """How many of them follow without a gap."""
        first = self.state.sequence + 1
        expected = range(first, first + len(sequences))
        if sequences == list(expected):
            return len(sequences)
        pairs = zip(expected, sequences, strict=True)
        return next(at for at, (wanted, found) in enumerate(pairs) if wanted != found)

    def _apply(self, rows: pa.RecordBatch) -> None:
        state = self.state
        times = Columns.of_batch(rows).times("timestamp")
        try:
            records = list(records_of(rows))
            assert len(records) == len(times)
            start = 0
            for at, run in groupby(times):
                end = start + sum(1 for _ in run)
                evolve_all(state, records[start:end], at)
                start = end
        except (AssertionError, KeyError) as error:
            why = f"its record does not follow from those before: {error}"
            raise Damage(state.sequence, why) from error
        except (msgspec.DecodeError, TypeError, ValueError, OmniRelayError) as error:
            why = f"rows from here on cannot be read back: {error}"
            raise Damage(state.sequence + 1, why) from error

    def outcome(self, wanted: Wanted, *, include_dead: bool) -> Iterator[pa.RecordBatch]:
        if self.damage is not None:
            said = self.damage
            yield self._rows(said.kind, [b""], sequence=said.sequence, why=said.why)
            return
        last, size = self.state.sequence, 0
        for rows in self._said(wanted, include_dead=include_dead):
            size += rows.nbytes
            yield rows
        yield self._rows("end", [b""], sequence=last, number=size)

    def _said(self, wanted: Wanted, *, include_dead: bool) -> Iterator[pa.RecordBatch]:
        last = self.state.sequence
        if wanted == "state":
            for number, part in enumerate(freeze(self.state, PART_ITEMS)):
                yield self._rows("state", [_encoder.encode(part)], sequence=last, number=number)
            return
        number = 0
        for lines in drain_lines(self.state, include_dead=include_dead):
            yield self._rows("item", lines, sequence=last, number=number)
            number += len(lines)

    def _rows(
        self, kind: str, bodies: list[bytes], *, sequence: int, number: int = 0, why: str = ""
    ) -> pa.RecordBatch:
        count = len(bodies)
        columns = [
            pa.array([self.shard] * count, pa.string()),
            pa.array([sequence] * count, pa.int64()),
            pa.array([kind] * count, pa.string()),
            pa.array(range(number, number + count), pa.int64()),
            pa.array(bodies, pa.binary()),
            pa.array([why] * count, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def drain_lines(state: QueueState, *, include_dead: bool) -> Iterator[list[bytes]]:
    """Pages of a drain file with everything that is not finished, a lease as one more try. The
    state is empty afterwards: this is a drain, of a copy that nobody else has."""
    command = Drain(max_items=limits.BATCH_MAX, include_active=True, include_dead=include_dead)
    options = QueueOptions()
    while True:
        records = decide(state, command, state.at, options)
        if not records:
            return
        (record,) = records
        assert isinstance(record, Drained)
        evolve(state, record, state.at)
        yield [_encoder.encode(from_item(item)) for item in record.items]
