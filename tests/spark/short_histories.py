"""Random histories in which much comes and goes, with memories so small that they always forget."""

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from omnirelay.lease.commands import Command, Complete, Grant
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.model.items import PendingItem
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.replay_fold import Folding, fold_whole
from omnirelay.pipeline.replay_pieces import HeldPiece
from omnirelay.testing.folded import Entry
from tests.spark.histories import RandomHistory, enveloped
from tests.spark.replay_histories import batch_of

SHARD = "shard"


class PassingHistory(RandomHistory):
    """`rule` None: every epoch may serialise by something else."""

    def __init__(self, seed: int, rule: SerializeBy | None, turns: int) -> None:
        self._rule = rule
        super().__init__(seed, _foreign(seed))
        self.run(turns)

    def _options(self) -> QueueOptions:
        choice = self.chance.choice
        high = choice((None, 1, 3, 6))
        return QueueOptions(
            lease_duration_ms=20_000,
            max_attempts=choice((1, 2, 3)),
            serialize_by=self._rule or choice(list(SerializeBy)),
            pending_high=high,
            pending_low=None if high is None else self.chance.randrange(high),
            dedupe_window_ms=choice((0, 3_000, 100_000)),
            dedupe_entries=choice((1, 3, 50)),
            finished_entries=choice((1, 4, 50)),
        )

    def _about_a_lease(self) -> Command:
        if self.chance.random() < 0.6:
            token, who = self.tokens.pop(self.chance.randrange(len(self.tokens)))
            return Complete(token=token, principal=who)
        return super()._about_a_lease()

    def _command(self) -> Command:
        command = super()._command()
        if not isinstance(command, Grant):
            return command
        asked = self.chance.choice((None, "ask-1", "ask-2", f"ask-{self.chance.randrange(30)}"))
        return Grant(
            lease_id=command.lease_id,
            principal=command.principal,
            peer_id=command.peer_id,
            request_id=asked,
        )


def _foreign(seed: int) -> list[PendingItem]:
    other = RandomHistory(seed + 1_000_000, [])
    other.run(60)
    return other.file


def rows_of(journal: list[Entry]) -> pa.RecordBatch:
    return batch_of(enveloped(SHARD, journal))


def changed(rows: pa.RecordBatch, row: int, name: str, value: object) -> pa.RecordBatch:
    values = rows.to_pylist()
    values[row][name] = value
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


def in_batches(rows: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)]


def piece_of(rows: pa.RecordBatch, size: int = 5) -> HeldPiece:
    return HeldPiece(in_batches(rows, size))


def pieces_of(rows: pa.RecordBatch, cuts: list[int]) -> Iterator[pa.RecordBatch]:
    stops = sorted({0, rows.num_rows, *(cut % (rows.num_rows + 1) for cut in cuts)})
    for start, end in pairwise(stops):
        yield rows.slice(start, end - start)


def said_whole(rows: list[pa.RecordBatch], wanted: str) -> list[object]:
    return said(fold_whole(SHARD, rows), wanted)


def said(folding: Folding, wanted: str) -> list[object]:
    batches = folding.outcome(wanted, include_dead=True)  # type: ignore[arg-type]
    return [row for batch in batches for row in batch.to_pylist()]
