"""A fold of rows is the core's fold: the same facts, the same file; damage is named."""

import msgspec
import pyarrow as pa
import pytest

from omnirelay.lease.image import Part, facts, thaw
from omnirelay.lease.records import Record
from omnirelay.model.items import PendingItem, check_payload
from omnirelay.pipeline.replay_fold import fold_shards
from omnirelay.testing.folded import fold
from tests.spark.replay_histories import History, batch_of

SEEDS = range(12)
_part = msgspec.json.Decoder(Part)
_item = msgspec.json.Decoder(PendingItem)


def rows_for(*histories: History) -> pa.Table:
    return pa.Table.from_batches([batch_of(one.envelopes()) for one in histories])


def outcomes(rows: pa.Table, wanted: str = "state", size: int = 7) -> list[dict[str, object]]:
    batches = fold_shards(rows.to_batches(max_chunksize=size), wanted)  # type: ignore[arg-type]
    return [row for batch in batches for row in batch.to_pylist()]


def test_the_histories_hold_every_kind_of_record() -> None:
    seen = {type(record) for seed in SEEDS for _, record in History(seed, 120).queue.journal}
    assert seen == set(Record.__args__)


def test_random_histories_fold_to_the_facts_of_the_core() -> None:
    histories = sorted((History(seed, 120) for seed in SEEDS), key=lambda one: one.shard)
    found = outcomes(rows_for(*histories))
    for history in histories:
        parts = [
            _part.decode(row["body"])  # type: ignore[arg-type]
            for row in found
            if row["shard"] == history.shard and row["kind"] == "state"
        ]
        assert facts(thaw(parts)) == facts(history.queue.state), history.shard


@pytest.mark.parametrize("upto", [1, 2, 50, 77])
def test_a_fold_may_end_at_any_sequence(upto: int) -> None:
    history = History(3, 150)
    parts = [
        _part.decode(row["body"])  # type: ignore[arg-type]
        for row in outcomes(rows_for(history).slice(0, upto))
        if row["kind"] == "state"
    ]
    assert facts(thaw(parts)) == facts(fold(history.queue.journal[:upto]))


def test_the_file_holds_what_a_drain_of_everything_would_take() -> None:
    history = History(5, 150)
    state = history.queue.state
    found = outcomes(rows_for(history), "items")
    items = [_item.decode(row["body"]) for row in found if row["kind"] == "item"]  # type: ignore[arg-type]
    assert {one.sequence_id for one in items} == {*state.pending, *state.active, *state.dead}
    for one in items:
        check_payload(one.payload)
        held = state.active.get(one.sequence_id)
        if held is not None:
            assert one.attempt == held.item.attempt + 1
            assert one.last_ownership_token is not None
            assert one.last_ownership_token.fence == held.fence
        assert one.dead_letter == (one.sequence_id in state.dead)
    assert found[-1]["kind"] == "end"


# -- damage -------------------------------------------------------------------------------------


def damage(rows: pa.Table) -> tuple[object, str]:
    (row,) = [row for row in outcomes(rows) if row["kind"] == "damaged"]
    return row["sequence"], str(row["why"])


def test_a_missing_sequence_is_named() -> None:
    rows = rows_for(History(1, 60))
    sequence, why = damage(pa.concat_tables([rows.slice(0, 20), rows.slice(21)]))
    assert (sequence, "sequence 21 is missing; 22 comes next" in why) == (21, True)


def test_a_sequence_that_stands_twice_is_named() -> None:
    rows = rows_for(History(1, 60))
    sequence, why = damage(pa.concat_tables([rows.slice(0, 20), rows.slice(19)]))
    assert (sequence, "sequence 20 stands twice" in why) == (20, True)


def test_a_sequence_that_lies_elsewhere_is_named() -> None:
    rows = rows_for(History(1, 60))
    numbers = rows.column("sequence").to_pylist()
    numbers[22] = 5
    where = rows.schema.get_field_index("sequence")
    wrong = rows.set_column(where, "sequence", pa.array(numbers, pa.int64()))
    assert damage(wrong) == (5, "sequence 5 stands twice")


def test_a_missing_beginning_is_told_from_damage() -> None:
    (row,) = outcomes(rows_for(History(1, 60)).slice(5))
    assert (row["kind"], row["sequence"]) == ("pruned", 6)


def test_a_record_that_cannot_follow_is_named() -> None:
    rows = rows_for(History(1, 60))
    types = rows.column("event_type").to_pylist()
    at = types.index("Enqueue")
    ids = rows.column("sequence_id").to_pylist()
    ids[at] = 999
    where = rows.schema.get_field_index("sequence_id")
    sequence, why = damage(rows.set_column(where, "sequence_id", pa.array(ids, pa.int64())))
    assert sequence == at + 1
    assert "does not follow" in why


def test_a_depth_that_was_not_recorded_so_is_named() -> None:
    rows = rows_for(History(1, 60))
    where = rows.schema.get_field_index("pending")
    wrong = pa.array([99] * rows.num_rows, pa.int64())
    assert "recorded depth (99," in damage(rows.set_column(where, "pending", wrong))[1]


def test_rules_that_are_no_rules_are_damage_and_not_a_lost_task() -> None:
    rows = rows_for(History(1, 60))
    where = rows.schema.get_field_index("rules")
    wrong = pa.array(["{"] * rows.num_rows, pa.string())
    sequence, why = damage(rows.set_column(where, "rules", wrong))
    assert (sequence, "cannot be read back" in why) == (1, True)


def test_one_damaged_shard_does_not_spoil_its_neighbour() -> None:
    one, two = History(1, 60), History(2, 60)
    rows = pa.concat_tables([rows_for(one).slice(0, 3), rows_for(one).slice(4), rows_for(two)])
    kinds = {(row["shard"], row["kind"]) for row in outcomes(rows)}
    assert kinds == {("shard-1", "damaged"), ("shard-2", "state"), ("shard-2", "end")}
