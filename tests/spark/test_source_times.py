"""A span of time is the same events whether the journal still has them or its archive alone."""

from contextlib import closing
from itertools import product
from pathlib import Path

import apsw
import pytest
from pyspark.sql import SparkSession

from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.shelf import segments_of
from omnirelay.pipeline.source_filters import Bounds
from omnirelay.pipeline.source_options import parse
from omnirelay.pipeline.source_plan import Plan
from omnirelay.pipeline.source_stream import JournalStream
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append

EVENTS, A_TIME = 40, 5
"""Five events are of one time: the envelopes are written at 1010, 1020, … ms after 1970."""
TIMES = (1005, 1010, 1020, 1025, 1040, 1070, 1085)
SPANS = [(low, high) for low, high in product((None, *TIMES), (None, *TIMES)) if low != high]
SPANS = [(low, high) for low, high in SPANS if low is None or high is None or low < high]


@pytest.fixture(params=[16, 31], ids=lambda first: f"pruned up to {first}")
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """An archive of ten events a segment, and what is left of its journal."""
    url, archive = tmp_path / "leases.db", tmp_path / "archive"
    scribe = Scribe("plain")
    append(url, [scribe.seal(A_TIME) for _ in range(EVENTS // A_TIME)])
    assert len(archive_journal(str(url), archive, segment_events=10)) == 4
    with closing(apsw.Connection(str(url))) as db:
        db.execute("DELETE FROM journal WHERE first < ?", (request.param,))
    return {"url": str(url), "archive": str(archive)}


def stamp(ms: int) -> str:
    return f"1970-01-01T00:00:0{ms // 1000}.{ms % 1000:03d}Z"


def planned(options: dict[str, str], bounds: Bounds | None = None) -> list[int]:
    with Plan(parse(options)) as plan:
        spans = [part.span for part in plan.batch(bounds or Bounds())]
    return [number for span in spans for number in range(span.after + 1, span.through + 1)]


def expected(low: int | None, high: int | None) -> list[int]:
    times = {number: 1010 + (number - 1) // A_TIME * 10 for number in range(1, EVENTS + 1)}
    low, high = low or 0, high or 10_000
    return [number for number, at in times.items() if low <= at < high]


def test_times_are_looked_up_in_the_archive_where_the_journal_is_pruned(
    place: dict[str, str],
) -> None:
    for low, high in SPANS:
        ends = {"from_time": low, "to_time": high}
        wish = {name: stamp(ms) for name, ms in ends.items() if ms is not None}
        assert planned(place | wish) == expected(low, high), (low, high)
        assert planned(place, Bounds(from_ms=low, to_ms=high)) == expected(low, high), (low, high)


def test_a_stream_begins_and_ends_by_the_archive_too(place: dict[str, str]) -> None:
    wish = {"from_time": stamp(1020), "to_time": stamp(1040)}
    stream = JournalStream(parse(place | wish), ("sequence",))
    assert (stream.initialOffset(), stream.reportLatestOffset()) == ({"plain": 5}, {"plain": 15})


def test_a_segment_that_cannot_be_read_is_part_of_one_span_of_time_and_no_other(
    place: dict[str, str],
) -> None:
    second = Path(segments_of(place["archive"], "plain")[1].path)
    second.write_bytes(second.read_bytes()[:-9])
    for at in TIMES:
        early = planned(place | {"to_time": stamp(at)})
        late = planned(place | {"from_time": stamp(at)})
        assert early + late == list(range(1, EVENTS + 1)), at


@pytest.mark.timeout(120)
def test_conditions_on_the_time_find_what_is_archived(
    spark: SparkSession, place: dict[str, str]
) -> None:
    reader = spark.read.format("omnirelay").options(pushdown="true", **place)
    late = reader.load().where(f"timestamp >= '{stamp(1020)}'").select("sequence")
    assert sorted(row.sequence for row in late.collect()) == list(range(6, EVENTS + 1))
