"""States as of any moment, rebuilt by Spark: the core's own, and good for a restore."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnirelay
from omnirelay.lease.image import facts
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, InvalidArgument
from omnirelay.model.items import PendingItem, to_time
from omnirelay.pipeline.replay import Moment, rebuild, write_files
from omnirelay.pipeline.replay_files import Files, Foldable
from omnirelay.testing.folded import fold
from tests.spark.replay_histories import History, batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(120)  # the first of them waits for the session
HISTORIES = [History(seed, 60 + seed) for seed in range(20)]
ONE = HISTORIES[7]


@pytest.fixture(scope="module")
def events(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "DataFrame":
    """All of them in one table, in no order."""
    folder = tmp_path_factory.mktemp("events")
    table = pa.Table.from_batches([batch_of(one.envelopes()) for one in HISTORIES])
    order = [("envelope_checksum", "ascending")]
    pq.write_table(table.sort_by(order), folder / "events.parquet")
    return spark.read.parquet(str(folder))


def rows_of(events: "DataFrame", files: Files | None = None) -> Foldable:
    return Foldable(events.sparkSession, lambda: events, files)


def test_spark_rebuilds_the_facts_of_many_random_histories(events: "DataFrame") -> None:
    states = rebuild(rows_of(events), Moment())
    assert set(states) == {one.shard for one in HISTORIES}
    for one in HISTORIES:
        assert facts(states[one.shard]) == facts(one.queue.state), one.shard


def test_a_state_as_of_a_sequence_is_a_fold_up_to_it(events: "DataFrame") -> None:
    states = rebuild(rows_of(events), Moment(sequence=20))
    for one in HISTORIES:
        assert facts(states[one.shard]) == facts(fold(one.queue.journal[:20])), one.shard


def test_a_state_as_of_a_time_holds_all_that_happened_by_then(events: "DataFrame") -> None:
    middle = ONE.queue.journal[len(ONE.queue.journal) // 2][0]
    state = rebuild(rows_of(events), Moment(shard=ONE.shard, time=to_time(middle)))[ONE.shard]
    wanted = fold(entry for entry in ONE.queue.journal if entry[0] <= middle)
    assert facts(state) == facts(wanted)


def test_shards_in_files_of_their_own_are_rebuilt_by_whoever_reads_them(
    events: "DataFrame", tmp_path: Path
) -> None:
    files = {}
    for one in HISTORIES[:4]:
        rows = batch_of(one.envelopes())
        files[one.shard] = [str(tmp_path / f"{one.shard}-{half}.parquet") for half in (0, 1)]
        halves = (rows.slice(0, 12), rows.slice(12))
        for path, half in zip(files[one.shard], halves, strict=True):
            pq.write_table(pa.Table.from_batches([half]), path)
    states = rebuild(rows_of(events, files), Moment())
    for one in HISTORIES[:4]:
        assert facts(states[one.shard]) == facts(one.queue.state), one.shard
    (first, *_) = HISTORIES
    time = to_time(first.queue.journal[14][0])
    for moment in (Moment(shard=first.shard, sequence=15), Moment(shard=first.shard, time=time)):
        (state,) = rebuild(rows_of(events, files), moment).values()
        assert facts(state) == facts(rebuild(rows_of(events), moment)[first.shard])
    holed = {first.shard: files[first.shard][1:]}
    with pytest.raises(InvalidArgument, match="what is kept begins at sequence 13"):
        rebuild(rows_of(events, holed), Moment(shard=first.shard))


# -- files --------------------------------------------------------------------------------------


def test_a_file_is_restored_into_a_living_relay_and_worked_off(
    events: "DataFrame", tmp_path: Path
) -> None:
    file = tmp_path / "as-it-was.jsonl"
    (written,) = write_files(rows_of(events), Moment(shard=ONE.shard), file)
    items = [msgspec.json.decode(line, type=PendingItem) for line in file.read_bytes().splitlines()]
    state = ONE.queue.state
    living = {*state.pending, *state.active}
    assert (written.sequence, written.items) == (state.sequence, len(items))
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/elsewhere.db") as relay:
        assert relay.restore(items).restored_count == len(items)
        assert relay.restore(items).skipped_count == len(items)
        done: set[int] = set()
        while len(done) < len(living):
            for lease in relay.lease_many(16, wait=5.0):
                lease.complete()
                done.add(lease.sequence_id)
        assert done == living
        assert relay.stats().dead_letter_count == len(state.dead)


def test_an_outcome_that_is_too_large_at_once_is_read_shard_by_shard(
    events: "DataFrame", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(rows_of(events), Moment(), tmp_path / "at-once")
    monkeypatch.setattr(limits, "REPLAY_HELD_BYTES_MAX", 0)
    written = write_files(rows_of(events), Moment(), tmp_path / "one-by-one")
    assert len(written) == len(HISTORIES)
    for one in written:
        name = Path(one.file).name
        assert Path(one.file).read_bytes() == (tmp_path / "at-once" / name).read_bytes()


def test_several_shards_go_into_a_folder_one_file_each(events: "DataFrame", tmp_path: Path) -> None:
    written = write_files(rows_of(events), Moment(), tmp_path / "all")
    assert {Path(one.file).name for one in written} == {f"{h.shard}.jsonl" for h in HISTORIES}
    with pytest.raises(InvalidArgument, match="is there already"):
        write_files(rows_of(events), Moment(), tmp_path / "all")


# -- what cannot be rebuilt ---------------------------------------------------------------------


def test_a_moment_is_a_sequence_or_a_time() -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        Moment(sequence=1, time=datetime.now(UTC))
    with pytest.raises(InvalidArgument, match="has no zone"):
        Moment(time=datetime(2026, 1, 1))


def test_a_sequence_beyond_the_end_is_refused_and_nothing_written(
    events: "DataFrame", tmp_path: Path
) -> None:
    last = ONE.queue.state.sequence
    with pytest.raises(InvalidArgument, match=rf"ends at sequence {last}: there is no {last + 1}"):
        write_files(rows_of(events), Moment(shard=ONE.shard, sequence=last + 1), tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_time_before_the_journal_and_an_unknown_shard_are_told_apart(
    events: "DataFrame",
) -> None:
    early = to_time(0) - timedelta(days=1)
    with pytest.raises(InvalidArgument, match=r"begins at 1970-01-01T00:00:00\.000Z, after"):
        rebuild(rows_of(events), Moment(shard=ONE.shard, time=early))
    with pytest.raises(InvalidArgument, match="no shard 'nowhere'; there are: shard-0, shard-1"):
        rebuild(rows_of(events), Moment(shard="nowhere"))


def test_what_was_pruned_is_said_to_be(events: "DataFrame") -> None:
    kept = events.where("sequence > 10")
    with pytest.raises(InvalidArgument, match="what is kept begins at sequence 11"):
        rebuild(rows_of(kept), Moment(shard=ONE.shard))
    with pytest.raises(InvalidArgument, match="sequence 5 was pruned: shard shard-7 begins at 11"):
        rebuild(rows_of(kept), Moment(shard=ONE.shard, sequence=5))


def test_a_damaged_range_names_shard_and_sequence(events: "DataFrame", tmp_path: Path) -> None:
    holed = events.where("NOT (shard = 'shard-3' AND sequence = 12)")
    with pytest.raises(Corrupt, match="shard-3: journal is damaged at sequence 12") as caught:
        write_files(rows_of(holed), Moment(), tmp_path / "all")
    assert (caught.value.shard, caught.value.sequence) == ("shard-3", 12)
    assert not (tmp_path / "all").exists()
