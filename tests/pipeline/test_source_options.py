"""Options, conditions and positions of the source: what is asked for. No Spark session here."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from omnirelay.model.errors import Corrupt, InvalidOption, Unavailable
from omnirelay.pipeline.address import Extent, check_kept, open_journal
from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.offsets import Span, admitted, cut
from omnirelay.pipeline.source import NarrowingReader
from omnirelay.pipeline.source_filters import Bounds, bounds_of
from omnirelay.pipeline.source_options import parse
from omnirelay.pipeline.source_plan import Plan
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append

URL = {"url": "sqlite:////j.db"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": "sqlite:///a.db,"}, "url"),
        ({"url": "a.db,a.db"}, "url"),
        ({"url": "sqlite://a.db"}, "sqlite://a.db"),
        ({"url": "sqlite:///a.db?x=1"}, "takes no options"),
        ({"url": "memory:"}, "url"),
        ({"url": "ftp://h/db"}, "url"),
        ({"url": "a.db", "path": "b.db"}, "url"),
        ({**URL, "shard": "s"}, "'shard'"),
        ({**URL, "shards": "a,,b"}, "shards"),
        ({**URL, "shards": "a,a"}, "shards"),
        ({**URL, "from_sequence": "0"}, "from_sequence"),
        ({**URL, "from_sequence": "-1"}, "from_sequence"),
        ({**URL, "from_sequence": "1_000"}, "from_sequence"),
        ({**URL, "from_sequence": "٣"}, "from_sequence"),
        ({**URL, "from_sequence": "9" * 30}, "from_sequence"),
        ({**URL, "from_sequence": "1.5"}, "from_sequence"),
        ({**URL, "to_sequence": "x"}, "to_sequence"),
        ({**URL, "from_sequence": "5", "to_sequence": "4"}, "to_sequence"),
        ({**URL, "from_time": "yesterday"}, "from_time"),
        ({**URL, "from_time": "2026-01-01T00:00:00"}, "from_time"),
        ({**URL, "to_time": "2026-13-01T00:00:00Z"}, "to_time"),
        (
            {**URL, "from_time": "2026-01-02T00:00:00Z", "to_time": "2026-01-01T00:00:00Z"},
            "to_time",
        ),
        ({**URL, "rows_per_batch": "0"}, "rows_per_batch"),
        ({**URL, "rows_per_partition": "-5"}, "rows_per_partition"),
        ({**URL, "consumer": " "}, "consumer"),
        ({**URL, "consumer": "x" * 513}, "consumer"),
        ({**URL, "archive": ""}, "archive"),
        ({**URL, "token": ""}, "token"),
        ({**URL, "view": "tables"}, "view"),
        ({**URL, "columns": "shard,nothing"}, "columns"),
        ({**URL, "event_types": "Enqueue,Lost"}, "event_types"),
        ({**URL, "pushdown": "maybe"}, "pushdown"),
        ({**URL, "columns": "event_type", "view": "quarantine"}, "columns"),
    ],
)
def test_an_option_that_cannot_work_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse(given)
    assert named in refused.value.message


def test_addresses_are_made_absolute_where_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = parse({"url": "sqlite:///a.db, b.db ,http://h:7400"})
    assert options.urls == (f"{tmp_path}/a.db", f"{tmp_path}/b.db", "http://h:7400")
    assert parse({"path": "/x/c.db"}).urls == ("/x/c.db",)


def test_times_are_read_with_their_zone() -> None:
    options = parse({**URL, "from_time": "2026-01-31T10:00:00+02:00"})
    assert options.from_ms == 1769846400000


def test_columns_are_those_that_were_asked_for() -> None:
    assert parse({**URL, "columns": "sequence, shard"}).ddl() == "sequence bigint, shard string"


# -- journals -----------------------------------------------------------------------------------


def test_a_shard_that_no_journal_has_is_named_with_those_there_are(tmp_path: Path) -> None:
    append(tmp_path / "j.db", [Scribe("a").seal(1)])
    with (
        Plan(parse({"url": str(tmp_path / "j.db"), "shards": "z"})) as plan,
        pytest.raises(InvalidOption, match=r"'z'; there are: a"),
    ):
        plan.batch(Bounds())


def test_one_shard_in_two_journals_is_refused(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        append(tmp_path / name, [Scribe("a").seal(1)])
    urls = f"{tmp_path / 'one.db'},{tmp_path / 'two.db'}"
    with Plan(parse({"url": urls})) as plan, pytest.raises(InvalidOption, match="both have"):
        plan.batch(Bounds())


def test_a_place_without_a_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no such file"):
        open_journal(str(tmp_path / "none.db"))
    with pytest.raises(Unavailable, match="no such file"):
        open_journal(str(tmp_path))
    (tmp_path / "text.db").write_text("no database, but longer than the header of one " * 20)
    with pytest.raises(Corrupt, match="not a database"):
        open_journal(str(tmp_path / "text.db"))


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(InvalidOption, match="another program's"):
        open_journal(str(tmp_path / "other.db"))


def test_what_was_pruned_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="oldest kept is 10"):
        check_kept("s", 3, Extent(10, 20))
    check_kept("s", 9, Extent(10, 20))


def test_a_time_finds_the_sequence_before_it(tmp_path: Path) -> None:
    scribe = Scribe("s", time=1_000)
    append(tmp_path / "j.db", [scribe.seal(3) for _ in range(9)])  # at 1010, 1020, … 1090
    journal = open_journal(str(tmp_path / "j.db"))
    times = [0, 1010, 1011, 1050, 1090, 1091, 99_999]
    assert [journal.sequence_before("s", at) for at in times] == [0, 0, 3, 12, 24, 27, 27]
    journal.close()


# -- conditions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("shard",), "a")], Bounds(shards=frozenset("a"))),
        ([In(("shard",), ("a", "b")), EqualTo(("shard",), "b")], Bounds(shards=frozenset("b"))),
        ([In(("event_type",), ("X",))], Bounds(event_types=frozenset(["X"]))),
        (
            [GreaterThan(("sequence",), 5), LessThanOrEqual(("sequence",), 9)],
            Bounds(after=5, through=9),
        ),
        (
            [GreaterThanOrEqual(("sequence",), 5), LessThan(("sequence",), 9)],
            Bounds(after=4, through=8),
        ),
        ([EqualTo(("sequence",), 7)], Bounds(after=6, through=7)),
        ([In(("sequence",), (3, 9))], Bounds(after=2, through=9)),
        ([Not(EqualTo(("sequence",), 7)), IsNotNull(("shard",))], Bounds()),
        ([EqualTo(("items", "sequence_id"), 7)], Bounds()),
        ([EqualTo(("sequence",), None)], Bounds()),
    ],
)
def test_conditions_narrow_what_is_read(filters: list[Filter], expected: Bounds) -> None:
    assert bounds_of(filters) == expected


def test_conditions_on_time_never_cut_a_row_that_belongs() -> None:
    at = datetime(2026, 1, 31, 8, 0, 0, 123_456, UTC)
    elsewhere = at.astimezone(timezone(timedelta(hours=5)))
    for time in (at, elsewhere):
        bounds = bounds_of([GreaterThan(("timestamp",), time), LessThan(("timestamp",), time)])
        assert (bounds.from_ms, bounds.to_ms) == (1769846400122, 1769846400125)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two shards of 20 envelopes with five events each, at 1010, 1020, … ms after 1970."""
    path = tmp_path_factory.mktemp("journal") / "j.db"
    for shard in ("a", "b"):
        scribe = Scribe(shard)
        append(path, [scribe.seal(5) for _ in range(20)])
    return str(path)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize(
    ("filters", "planned", "read"),
    [
        ([], {"a": (0, 100), "b": (0, 100)}, 200),
        ([EqualTo(("shard",), "b")], {"b": (0, 100)}, 100),
        ([EqualTo(("shard",), "z")], {}, 0),
        ([GreaterThan(("sequence",), 42)], {"a": (42, 100), "b": (42, 100)}, 116),
        (
            [In(("sequence",), (3, 9)), In(("shard",), ("a",))],
            {"a": (2, 9)},
            7,
        ),
        # By envelopes of ten milliseconds: those of one moment are five events.
        ([EqualTo(("timestamp",), at(1050))], {"a": (20, 25), "b": (20, 25)}, 10),
        ([LessThan(("timestamp",), at(1030))], {"a": (0, 15), "b": (0, 15)}, 30),
        ([GreaterThanOrEqual(("timestamp",), at(1190))], {"a": (90, 100), "b": (90, 100)}, 20),
        # A type is no place in a journal: everything is looked at, and the one epoch is a row.
        ([EqualTo(("event_type",), "EpochStarted")], {"a": (0, 100), "b": (0, 100)}, 2),
    ],
)
def test_conditions_narrow_the_plan_and_the_rows_that_a_task_gives_out(
    journal: str, filters: list[Filter], planned: dict[str, tuple[int, int]], read: int
) -> None:
    """Spark filters what it is given once more, so only what it is given shows the difference."""
    names = ("sequence", "shard", "event_type")
    reader = NarrowingReader(parse({"url": journal, "rows_per_partition": "30"}), names)
    assert reader.pushFilters(filters) == filters
    partitions = reader.partitions()
    spans = [part.value.span for part in partitions]
    assert all(span.rows <= 30 for span in spans)
    found: dict[str, tuple[int, int]] = {}
    for span in spans:
        low, high = found.get(span.shard, (span.after, span.through))
        found[span.shard] = (min(low, span.after), max(high, span.through))
    assert found == planned
    assert sum(span.rows for span in spans) == sum(high - low for low, high in planned.values())
    batches = [batch for part in partitions for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == read
    assert all(tuple(batch.schema.names) == names for batch in batches)


def test_an_archive_is_narrowed_to_the_segments_and_columns_that_are_wanted(
    journal: str, tmp_path: Path
) -> None:
    archive_journal(journal, tmp_path, shards=("a",), segment_events=25)
    reader = NarrowingReader(parse({"url": journal, "archive": str(tmp_path)}), ("sequence",))
    reader.pushFilters([EqualTo(("shard",), "a"), GreaterThan(("sequence",), 60)])
    partitions = reader.partitions()
    segments = [part.value.segment for part in partitions]
    assert [segment.manifest.first for segment in segments] == [51, 76]
    (first, *_) = reader.read(partitions[0])
    assert first.schema.names == ["sequence"]
    assert first["sequence"].to_pylist() == list(range(61, 76))


# -- positions ----------------------------------------------------------------------------------


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 60))
def test_parts_of_a_span_are_the_span(after: int, rows: int, size: int) -> None:
    parts = cut(Span("s", after, after + rows), size)
    assert all(0 < part.rows <= size for part in parts)
    covered = [n for part in parts for n in range(part.after + 1, part.through + 1)]
    assert covered == list(range(after + 1, after + rows + 1))


shards = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100))


@given(shards, shards, st.none() | st.integers(1, 120))
def test_a_batch_takes_what_it_may_and_never_goes_back(
    start: dict[str, int], head: dict[str, int], rows: int | None
) -> None:
    end = admitted(start, head, rows)
    lags = {shard: max(0, last - start.get(shard, 0)) for shard, last in head.items()}
    taken = {shard: end[shard] - start.get(shard, 0) for shard in end}
    assert all(0 <= taken[shard] <= lags.get(shard, 0) for shard in taken)
    total = sum(lags.values())
    assert sum(taken.values()) == (total if rows is None else min(rows, total))


def test_no_shard_waits_for_another() -> None:
    assert admitted({}, {"a": 1000, "b": 3, "c": 500}, 103) == {"a": 50, "b": 3, "c": 50}
