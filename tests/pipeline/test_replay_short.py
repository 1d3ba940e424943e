"""The short way to a state is the core's fold, in every fact and in what comes after; of damage it
says what the whole fold says."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirelay.lease.commands import Complete, Enqueue, Grant
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import SerializeBy
from omnirelay.lease.records import Record
from omnirelay.lease.state import QueueState
from omnirelay.model import limits
from omnirelay.model.items import Payload, to_time
from omnirelay.pipeline import replay_files, replay_pieces, replay_short
from omnirelay.pipeline.records import records_of
from omnirelay.pipeline.replay_files import fold_files
from omnirelay.pipeline.replay_fold import Folding, drain_lines, fold_shards, fold_whole
from omnirelay.pipeline.replay_pieces import Bounds, read_files
from omnirelay.pipeline.replay_rows import Unfit
from omnirelay.pipeline.replay_short import fold_piece
from omnirelay.pipeline.synth_traffic import Share, Traffic
from omnirelay.testing.folded import FoldedQueue, every_fact, fold, numbered_lease_id
from tests.spark.short_histories import (
    SHARD,
    PassingHistory,
    changed,
    in_batches,
    piece_of,
    pieces_of,
    rows_of,
    said,
    said_whole,
)

pytestmark = pytest.mark.timeout(120)  # whole histories are drawn, a hundred a test
seeds, turns = st.integers(0, 1 << 32), st.integers(1, 160)
cuts = st.lists(st.integers(0, 1 << 16), max_size=3)
rules = st.sampled_from(SerializeBy)


def in_order(state: QueueState) -> list[bytes]:
    """What would be granted after what. The state is empty afterwards."""
    return [line for page in drain_lines(state, include_dead=True) for line in page]


@given(seeds, rules, turns, cuts, st.integers(0, 1 << 16))
def test_the_short_way_leads_to_the_cores_state_and_goes_on_like_it(
    seed: int, rule: SerializeBy, turns: int, cuts: list[int], stop: int
) -> None:
    journal = PassingHistory(seed, rule, turns).queue.journal
    upto = 1 + stop % len(journal)
    state = QueueState()
    for rows in pieces_of(rows_of(journal[:upto]), cuts):
        fold_piece(state, piece_of(rows), remembers=True)
    core = fold(journal[:upto])
    assert every_fact(state) == every_fact(core)
    assert state.deadlines.due(1 << 50, 1000) == core.deadlines.due(1 << 50, 1000)
    assert state.delayed == core.delayed
    # The indexes that are no facts show in what the rest of the history makes of them.
    for at, record in journal[upto:]:
        evolve(state, record, at)
    whole = fold(journal)
    assert every_fact(state) == every_fact(whole)
    assert in_order(state) == in_order(whole)


def test_a_delay_that_ends_during_rows_that_are_left_out_has_ended() -> None:
    queue = FoldedQueue(SHARD)
    queue.submit(Enqueue(payload=Payload("table", "later"), delay_ms=5_000), 1_000)
    queue.submit(Enqueue(payload=Payload("table", "now")), 1_000)
    _, leased = queue.submit(Grant(lease_id=numbered_lease_id(1)), 2_000)
    assert isinstance(leased, tuple)
    queue.submit(Complete(token=leased[0].token), 9_000)
    state = QueueState()
    fold_piece(state, piece_of(rows_of(queue.journal)), remembers=True)
    assert not state.delayed
    assert every_fact(state) == every_fact(queue.state)


@given(seeds, rules, turns, cuts)
def test_the_order_of_the_line_is_the_cores(
    seed: int, rule: SerializeBy, turns: int, cuts: list[int]
) -> None:
    journal = PassingHistory(seed, rule, turns).queue.journal
    state = QueueState()
    for rows in pieces_of(rows_of(journal), cuts):
        fold_piece(state, piece_of(rows), remembers=False)
    assert in_order(state) == in_order(fold(journal))


@given(seeds, st.integers(1, 120), st.integers(5, 40))
def test_whatever_changes_between_epochs_the_outcome_is_that_of_the_whole_fold(
    seed: int, turns: int, size: int
) -> None:
    batches = in_batches(rows_of(PassingHistory(seed, None, turns).queue.journal), size)
    for wanted in ("state", "items"):
        found = fold_shards(batches, wanted)
        assert [row for one in found for row in one.to_pylist()] == said_whole(batches, wanted)


@pytest.mark.parametrize("rule", list(SerializeBy))
def test_most_rows_of_a_long_history_are_never_made_into_records(
    rule: SerializeBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()

    def counted(rows: pa.RecordBatch) -> list[Record]:
        made["rows"] += rows.num_rows
        return records_of(rows)

    monkeypatch.setattr(replay_short, "records_of", counted)
    share = Share(number=0, seed=3, total=4_000, serialize_by=rule)
    journal = [(one.time, record) for one in Traffic(share).run() for record in one.records]
    fold_piece(QueueState(), piece_of(rows_of(journal), 1_000), remembers=True)
    assert 0 < made["rows"] < len(journal) / 2


# -- damage -------------------------------------------------------------------------------------

DAMAGE = {
    "sequence_id": st.integers(0, 60),
    "fence": st.integers(0, 300),
    "event_type": st.sampled_from(
        ["Enqueue", "LeaseGranted", "Completed", "Released", "Levitated"]
    ),
    "disposition": st.sampled_from([None, "requeued", "deadLettered"]),
    "pending": st.none() | st.integers(0, 9),
    "active": st.integers(0, 9),
    "rules": st.sampled_from([None, "{", '{"pendingHigh":2,"pendingLow":2}']),
    "fence_floor": st.integers(0, 900),
    "sequence": st.integers(0, 300),
    "items": st.just([]) | st.just([{"sequence_id": 3, "fence": 4}]),
}


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, object]:
    name = draw(st.sampled_from(sorted(DAMAGE)))
    return name, draw(DAMAGE[name])


@given(seeds, rules, st.integers(1, 120), st.integers(0, 1 << 16), damages())
def test_of_a_damaged_row_it_says_what_the_whole_fold_says(
    seed: int, rule: SerializeBy, turns: int, row: int, damage: tuple[str, object]
) -> None:
    rows = rows_of(PassingHistory(seed, rule, turns).queue.journal)
    rows = changed(rows, row % rows.num_rows, *damage)
    batches = in_batches(rows, 11)
    for wanted in ("state", "items"):
        found = fold_shards(batches, wanted)
        assert [one for batch in found for one in batch.to_pylist()] == said_whole(batches, wanted)


def test_a_clock_that_goes_back_is_for_the_whole_fold() -> None:
    rows = rows_of(PassingHistory(1, SerializeBy.NONE, 60).queue.journal)
    early = rows.column("timestamp")[10].as_py() - timedelta(hours=1)
    with pytest.raises(Unfit, match="clock"):
        fold_piece(QueueState(), piece_of(changed(rows, 20, "timestamp", early)), remembers=True)


def test_a_kind_that_is_not_known_is_for_the_whole_fold() -> None:
    rows = rows_of(PassingHistory(1, SerializeBy.NONE, 60).queue.journal)
    with pytest.raises(Unfit, match="not known here"):
        fold_piece(
            QueueState(), piece_of(changed(rows, 20, "event_type", "Levitated")), remembers=True
        )


def test_marks_that_meet_are_for_the_whole_fold() -> None:
    rows = changed(
        rows_of(PassingHistory(1, SerializeBy.NONE, 60).queue.journal),
        0,
        "rules",
        '{"pendingHigh":2,"pendingLow":2}',
    )
    with pytest.raises(Unfit, match="flicker"):
        fold_piece(QueueState(), piece_of(rows), remembers=True)
    state = fold_whole(SHARD, [rows.slice(0, 1)]).state
    with pytest.raises(Unfit, match="flicker"):
        fold_piece(state, piece_of(rows.slice(1, 3)), remembers=True)


# -- files --------------------------------------------------------------------------------------


def written(folder: Path, rows: pa.RecordBatch, *, group_rows: int = 10) -> list[str]:
    """In two files of small row groups."""
    half = rows.num_rows // 2
    paths = [str(folder / name) for name in ("one.parquet", "two.parquet")]
    for path, part in zip(paths, (rows.slice(0, half), rows.slice(half)), strict=True):
        pq.write_table(pa.Table.from_batches([part]), path, row_group_size=group_rows)
    return paths


def outcome(paths: list[str], bounds: Bounds, wanted: str) -> list[object]:
    found = fold_files(SHARD, paths, bounds, wanted)  # type: ignore[arg-type]
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("wanted", ["state", "items"])
@pytest.mark.parametrize("seed", range(12))
def test_files_are_folded_piece_by_piece_to_any_moment(
    seed: int, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_pieces, "PIECE_ROWS", 40)
    rule = [*SerializeBy, None][seed % 4]
    journal = PassingHistory(seed, rule, 200).queue.journal
    paths = written(tmp_path, rows_of(journal))
    middle = to_time(journal[len(journal) // 2][0])
    for bounds in (Bounds(), Bounds(sequence=len(journal) // 3), Bounds(time=middle)):
        whole = fold_whole(SHARD, read_files(paths, bounds))
        assert outcome(paths, bounds, wanted) == said(whole, wanted)


@pytest.mark.parametrize(
    ("name", "value"), [("fence", 999), ("sequence", 5), ("event_type", "Levitated")]
)
def test_a_damaged_file_is_read_again_from_its_beginning_to_name_the_damage(
    name: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_pieces, "PIECE_ROWS", 40)
    rows = rows_of(PassingHistory(4, SerializeBy.NONE, 200).queue.journal)
    kinds = rows.column("event_type").to_pylist()
    place = max(at for at, kind in enumerate(kinds) if kind == "LeaseGranted")
    paths = written(tmp_path, changed(rows, place, name, value))
    whole = fold_whole(SHARD, read_files(paths, Bounds()))
    assert outcome(paths, Bounds(), "state") == said(whole, "state")
    assert whole.damage is not None


def test_a_row_group_too_long_to_be_held_is_folded_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLAY_GROUP_ROWS_MAX", 40)
    monkeypatch.setattr(replay_files, "fold_piece", None)
    rows = rows_of(PassingHistory(4, SerializeBy.NONE, 200).queue.journal)
    paths = written(tmp_path, rows, group_rows=1000)
    whole = fold_whole(SHARD, read_files(paths, Bounds()))
    assert outcome(paths, Bounds(), "items") == said(whole, "items")


def test_a_file_of_another_shard_is_no_part_of_this_one(tmp_path: Path) -> None:
    paths = written(tmp_path, rows_of(PassingHistory(4, SerializeBy.NONE, 60).queue.journal))
    found = fold_files("other", paths, Bounds(), "items")
    assert {row["shard"] for batch in found for row in batch.to_pylist()} == {SHARD}


def test_a_stream_too_long_to_be_held_is_folded_the_whole_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REPLAY_HELD_BYTES_MAX", 1)
    monkeypatch.setattr("omnirelay.pipeline.replay_fold.fold_piece", None)
    batches = in_batches(rows_of(PassingHistory(4, SerializeBy.NONE, 60).queue.journal), 9)
    found = [row for batch in fold_shards(batches, "state") for row in batch.to_pylist()]
    assert found == said_whole(batches, "state")


def test_nothing_wanted_of_an_empty_file(tmp_path: Path) -> None:
    paths = written(tmp_path, rows_of(PassingHistory(4, SerializeBy.NONE, 60).queue.journal))
    assert outcome(paths, Bounds(sequence=0), "state") == []
    assert said(Folding(SHARD), "items") == said(fold_whole(SHARD, []), "items")
