"""Archives: closed stretches of a journal, written once. No Spark here."""

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pyarrow.parquet as pq
import pytest

import omnirelay
from omnirelay import KeepOptions, Payload
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.format import unseal
from omnirelay.model.errors import Corrupt, InvalidOption, Unavailable
from omnirelay.pipeline.address import Extent, open_file
from omnirelay.pipeline.archive import CONSUMER, archive_journal
from omnirelay.pipeline.archive_reading import (
    Found,
    extended,
    look_through,
    pieces,
    reach,
    read_segment,
)
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import Span, held
from omnirelay.pipeline.segment import Manifest, Segment
from omnirelay.pipeline.shelf import (
    archived_shards,
    content_of,
    damage_of,
    is_bucket,
    open_shelf,
    segments_of,
)
from omnirelay.pipeline.shelf_folder import FolderShelf
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.event_rows import rows_of
from tests.spark.archives import archive_at, lose, meddle
from tests.spark.journals import append

STEPS = [
    "archive.after_rows",
    "archive.after_write",
    "archive.after_rename",
    "archive.after_manifest",
]
IN_A_FOLDER = "archive.before_link"
KILLED = """
import os, sys
from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.archive import archive_journal

def die_at(step):
    times = 0
    def hook(name):
        nonlocal times
        times += name == step
        if times == 2:
            os._exit(9)
    set_failpoint(hook)
    archive_journal(sys.argv[1], f"{sys.argv[2]}/{step}", segment_events=6)

for step in sys.argv[3:]:
    if os.fork() == 0:
        try:
            die_at(step)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9, step
"""
"""Forks, so that Python starts once."""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    scribe = Scribe("s")
    append(tmp_path / "j.db", [scribe.seal(3) for _ in range(7)])
    return tmp_path / "j.db"


@pytest.fixture(params=["folder", "s3"])
def archive(request: pytest.FixtureRequest) -> str:
    return archive_at(request, request.param)


def ranges(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(one.manifest.first, one.manifest.last) for one in segments]


def sequences(archive: str) -> list[int]:
    batches = [b for s in segments_of(archive, "s") for b in read_segment(s, Part())]
    return [row["sequence"] for batch in batches for row in batch.to_pylist()]


def test_segments_hold_the_exact_rows_in_full_envelopes(journal: Path, archive: str) -> None:
    written = archive_journal(str(journal), archive, segment_events=5)
    assert ranges(written) == [(1, 6), (7, 12), (13, 18)]
    assert ranges(segments_of(archive, "s")) == ranges(written)
    with closing(apsw.Connection(str(journal))) as db:
        bodies = [b for (b,) in db.execute("SELECT CAST(body AS BLOB) FROM journal WHERE last < 7")]
    expected = [
        row
        for at, body in zip((1, 4), bodies, strict=True)
        for row in rows_of(unseal(bytes(body), shard="s", at=at))
    ]
    found = [row for batch in read_segment(written[0], Part()) for row in batch.to_pylist()]
    assert found == expected


def test_segments_hang_together_by_the_checksums_of_their_envelopes(
    journal: Path, archive: str
) -> None:
    one, two, three = (s.manifest for s in archive_journal(str(journal), archive, segment_events=5))
    assert one.prev == ""
    assert (two.prev, three.prev) == (one.link, two.link)
    assert one.events == 6


def test_what_fills_no_segment_waits_unless_it_is_asked_for(journal: Path, archive: str) -> None:
    archive_journal(str(journal), archive, segment_events=5)
    assert archive_journal(str(journal), archive, segment_events=5) == []
    tail = archive_journal(str(journal), archive, segment_events=5, has_tail=True)
    assert ranges(tail) == [(19, 21)]
    assert sequences(archive) == list(range(1, 22))


@pytest.mark.timeout(60)
def test_killed_at_any_step_an_archive_is_finished_by_the_next_run(
    journal: Path, archive: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    steps = STEPS if is_bucket(archive) else [*STEPS, IN_A_FOLDER]
    words = [sys.executable, "-c", KILLED, str(journal), archive, *steps]
    subprocess.run(words, check=True, env={**os.environ, "TMPDIR": str(here)})
    assert list(here.iterdir()) == [], "what is on its way to a bucket goes with its writer"
    for step in steps:
        archive_journal(str(journal), f"{archive}/{step}", segment_events=6)
        assert sequences(f"{archive}/{step}") == list(range(1, 19))
        left = open_shelf(f"{archive}/{step}").names("s")
        assert len([name for name in left if name.endswith(".parquet")]) == 3
        assert not [name for name in left if name.endswith(".tmp")]


def test_only_one_archiver_works_in_an_archive(journal: Path, tmp_path: Path) -> None:
    inside = FolderShelf(tmp_path / "a").alone("s")
    with inside, pytest.raises(Unavailable, match="another archiver"):
        archive_journal(str(journal), tmp_path / "a")


def test_what_is_damaged_in_the_journal_goes_along_with_its_bytes(
    journal: Path, archive: str
) -> None:
    with closing(apsw.Connection(str(journal))) as db:
        db.execute("UPDATE journal SET body = replace(body, 'table', 'tabme') WHERE first = 4")
    (segment, *_) = archive_journal(str(journal), archive, segment_events=6)
    (damage,) = segment.manifest.damaged
    assert (segment.manifest.last, segment.manifest.events) == (6, 3)
    assert damage.sequence == 4
    assert b"tabme" in (damage.body or b"")


def test_a_flipped_bit_in_a_segment_is_noticed(journal: Path, archive: str) -> None:
    segment, *_ = archive_journal(str(journal), archive, segment_events=5)
    data = bytearray(content_of(segment))
    data[len(data) // 2] ^= 1
    meddle(segment.path, bytes(data))
    assert "its manifest says" in (damage_of(segment) or "")
    with pytest.raises(Corrupt, match="its manifest says"):
        next(read_segment(segment, Part()))
    found = look_through(archive)
    assert [one.path for one, _ in found.damaged] == [segment.path]
    assert len(found.sound) == 2


def test_a_lost_segment_file_is_noticed(journal: Path, archive: str) -> None:
    segment, *_ = archive_journal(str(journal), archive, segment_events=5)
    lose(segment.path)
    assert "cannot be read" in (damage_of(segment) or "")
    with pytest.raises(Corrupt, match="cannot be read"):
        next(read_segment(segment, Part()))


def test_a_segment_of_a_later_schema_is_not_guessed_at(journal: Path, archive: str) -> None:
    import msgspec

    segment, *_ = archive_journal(str(journal), archive, segment_events=5)
    later = msgspec.structs.replace(
        segment, manifest=msgspec.structs.replace(segment.manifest, v=99)
    )
    with pytest.raises(Corrupt, match="upgrade"):
        next(read_segment(later, Part()))


def test_a_part_of_a_segment_has_only_its_rows_and_columns(journal: Path, archive: str) -> None:
    segment, *_ = archive_journal(str(journal), archive, segment_events=6)
    part = Part(names=("node",), after=2, through=5, event_types=["Enqueue"])
    (batch,) = read_segment(segment, part)
    assert batch.to_pylist() == [{"node": "node-1"}] * 3


def test_segments_are_parquet_that_anybody_can_read(journal: Path, tmp_path: Path) -> None:
    segment, *_ = archive_journal(str(journal), tmp_path / "a", segment_events=5)
    metadata = pq.ParquetFile(segment.path).metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert metadata.num_rows == 6


def test_a_manifest_that_is_none_is_named(journal: Path, archive: str) -> None:
    archive_journal(str(journal), archive, segment_events=5)
    shelf = open_shelf(archive)
    manifest = next(name for name in shelf.names("s") if name.endswith(".json"))
    meddle(shelf.address("s", manifest), b"{")
    with pytest.raises(Corrupt, match=manifest):
        segments_of(archive, "s")


@pytest.mark.parametrize("shard", ["a/b", "..", ".", "größe", "A b", "x%2F"])
def test_any_name_of_a_shard_gets_a_folder_of_its_own_inside_the_archive(
    tmp_path: Path, shard: str
) -> None:
    folder = tmp_path / FolderShelf(tmp_path).place(shard)
    assert folder.resolve().parent == tmp_path.resolve()
    scribe = Scribe(shard)
    append(tmp_path / "j.db", [scribe.seal(3)])
    archive_journal(str(tmp_path / "j.db"), tmp_path / "a", has_tail=True)
    assert archived_shards(tmp_path / "a") == [shard]


def test_bad_wishes_are_refused(journal: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="segment_events"):
        archive_journal(str(journal), tmp_path / "a", segment_events=0)
    with pytest.raises(InvalidOption, match="name the file"):
        archive_journal("http://127.0.0.1:7400", tmp_path / "a")
    with pytest.raises(Unavailable, match="no such file"):
        archive_journal(str(tmp_path / "none.db"), tmp_path / "a")
    with pytest.raises(Unavailable, match="no segments"):
        look_through(tmp_path / "none")


# -- retention ----------------------------------------------------------------------------------


def test_an_archive_says_how_far_it_is_where_pruning_asks(journal: Path, tmp_path: Path) -> None:
    archive_journal(str(journal), tmp_path / "a", segment_events=5)
    store = SqliteCheckpoints(f"{journal}-positions")
    assert held(store, CONSUMER, ["s"]) == {"s": 18}


def test_pruning_waits_for_a_reader_from_outside_and_goes_on_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    keep = KeepOptions(snapshot_every=20, retain_ms=0)
    positions = SqliteCheckpoints(f"{path}-positions")
    with omnirelay.connect_sync(f"sqlite:///{path}", keep=keep) as relay:
        asyncio.run(positions.write(Checkpoint("spark", "resourcelease", 0)))
        for n in range(60):
            relay.enqueue("table", f"t{n}")
        assert first_of(path) == 1
        asyncio.run(positions.write(Checkpoint("spark", "resourcelease", 10)))
        for n in range(2_000):  # it happens between calls, once a snapshot is whole
            relay.enqueue_many([Payload("table", f"u{n}")])
            if first_of(path) > 1:
                break
    asyncio.run(positions.close())
    assert 1 < first_of(path) <= 11


def first_of(path: Path) -> int:
    with closing(open_file(str(path))) as address:
        return address.extent("resourcelease").first


def test_a_stretch_that_was_pruned_before_it_was_archived_is_named(
    journal: Path, tmp_path: Path
) -> None:
    archive_journal(str(journal), tmp_path / "a", segment_events=6)
    with closing(apsw.Connection(str(journal))) as db:
        db.execute("DELETE FROM journal WHERE first < 19")
        db.execute("UPDATE journal SET first = 22, last = 24")
    with pytest.raises(Corrupt, match="pruned"):
        archive_journal(str(journal), tmp_path / "a", segment_events=6)


# -- where what is read -------------------------------------------------------------------------


def segment(first: int, last: int) -> Segment:
    return Segment(f"{first}", Manifest(shard="s", first=first, last=last))


@pytest.mark.parametrize(
    ("after", "through", "expected"),
    [
        (0, 30, [(0, 10, "1"), (10, 20, "11"), (20, 30, None)]),
        (4, 8, [(4, 8, "1")]),
        (10, 20, [(10, 20, "11")]),
        (20, 25, [(20, 25, None)]),
        (5, 5, []),
    ],
)
def test_segments_are_preferred_and_the_journal_has_the_rest(
    after: int, through: int, expected: list[tuple[int, int, str | None]]
) -> None:
    found = pieces(Span("s", after, through), [segment(1, 10), segment(11, 20)])
    assert [(p.after, p.through, s and s.path) for p, s in found] == expected


def test_an_archive_reaches_back_only_as_far_as_it_has_no_gap() -> None:
    parts = [segment(1, 10), segment(21, 30), segment(31, 40)]
    assert extended(Extent(35, 50), parts) == Extent(21, 50)
    assert extended(Extent(60, 70), parts) == Extent(60, 70)


def test_sound_segments_reach_as_far_as_they_hang_together() -> None:
    found = Found((segment(1, 10), segment(11, 20), segment(31, 40)), ())
    assert reach(found, {}, {"s": 99, "t": 5}) == {"s": 20}
    assert reach(found, {"s": 4}, {"s": 15}) == {"s": 15}
    assert reach(found, {"s": 20}, {"s": 99}) == {}
    assert reach(found, {"s": 30}, {"s": 99}) == {"s": 40}
