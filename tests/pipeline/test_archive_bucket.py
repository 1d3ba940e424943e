"""Archives in a bucket where several may write, and where the way there may be cut. No Spark."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.model.errors import OutcomeUnknown, Unavailable
from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.address import open_file
from omnirelay.pipeline.archive import CONSUMER, archive_journal
from omnirelay.pipeline.archive_reading import look_through, read_segment
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import held
from omnirelay.pipeline.segment import Segment
from omnirelay.pipeline.shelf import damage_of, open_shelf, segments_of
from omnirelay.stores.objects_cloud import CloudBucket
from omnirelay.testing.cluster_links import links
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.servers_objects import ObjectServer
from tests.spark.archives import archive_at
from tests.spark.journals import append
from tests.spark.test_source_stores import EVENTS, SHARD, history, write

STEPS = ("archive.after_write", "archive.after_rename")
"""Before and after there is something in the bucket."""


@pytest.fixture
def journal(tmp_path: Path) -> str:
    scribe = Scribe("s")
    append(tmp_path / "j.db", [scribe.seal(3) for _ in range(8)])
    return str(tmp_path / "j.db")


@pytest.fixture
def archive(request: pytest.FixtureRequest) -> str:
    return archive_at(request, "s3")


def ranges(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(one.manifest.first, one.manifest.last) for one in segments]


def sequences(archive: str, shard: str = "s") -> list[int]:
    batches = [b for s in segments_of(archive, shard) for b in read_segment(s, Part())]
    return [row["sequence"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("step", STEPS)
def test_who_comes_second_to_a_segment_goes_on_behind_the_first_one_s(
    journal: str, archive: str, step: str
) -> None:
    """The other is at work when this one has come to the step, and its segments are longer."""
    others: list[Segment] = []

    def meet(name: str) -> None:
        if name == step:
            set_failpoint(None)
            others.extend(archive_journal(journal, archive, segment_events=9))

    set_failpoint(meet)
    try:
        own = archive_journal(journal, archive, segment_events=5)
    finally:
        set_failpoint(None)
    assert (ranges(others), ranges(own)) == ([(1, 9), (10, 18)], [(19, 24)])
    assert sequences(archive) == list(range(1, 25))
    rows = [name for name in open_shelf(archive).names("s") if name.endswith(".parquet")]
    assert len(rows) == 3, "what lost is not left there"
    assert not look_through(archive).damaged


def test_a_manifest_whose_answer_is_lost_is_looked_for_and_counts(
    journal: str, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = CloudBucket.create

    async def unheard(bucket: CloudBucket, key: str, body: bytes) -> bool:
        is_new = await create(bucket, key, body)
        if key.endswith(".json"):
            raise OutcomeUnknown(f"{bucket.shown} did not answer")
        return is_new

    monkeypatch.setattr(CloudBucket, "create", unheard)
    written = archive_journal(journal, archive, segment_events=9)
    assert ranges(written) == ranges(segments_of(archive, "s")) == [(1, 9), (10, 18)]


@pytest.mark.timeout(40)
@pytest.mark.parametrize("step", [*STEPS, "archive.after_manifest"])
def test_when_the_way_is_cut_it_is_said_and_the_next_run_goes_on(
    journal: str, az: ObjectServer, monkeypatch: pytest.MonkeyPatch, step: str, tmp_path: Path
) -> None:
    archive = az.url(f"cut{tmp_path.name}")
    for name, value in az.environment.items():
        monkeypatch.setenv(name, value)
    endpoint = az.environment["AZURE_STORAGE_ENDPOINT"]
    with ExitStack() as way:
        net = way.enter_context(links())
        road = net.road(net.callers, net.host(), az.port)
        port = road.place.rpartition(":")[2]
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint.replace(str(az.port), port))
        times = 0

        def cut(name: str) -> None:
            nonlocal times
            times += name == step
            if times == 2:
                way.close()

        set_failpoint(cut)
        try:
            with pytest.raises(Unavailable, match=f"{archive} d.* not answer") as away:
                archive_journal(journal, archive, segment_events=5)
        finally:
            set_failpoint(None)
    assert LOOPBACK not in str(away.value)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    before = ranges(segments_of(archive, "s"))
    assert before in ([(1, 6)], [(1, 6), (7, 12)])
    store = open_file(journal)
    assert held(store.positions(), CONSUMER, ["s"])["s"] <= before[-1][1], "pruning waits"
    store.close()
    archive_journal(journal, archive, segment_events=5)
    assert sequences(archive) == list(range(1, 25))


def test_a_bucket_that_is_away_is_not_taken_for_damage(
    journal: str, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would be left out, or set aside as lost, for a server that comes back."""
    (segment, *_) = archive_journal(journal, archive, segment_events=9)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{LOOPBACK}:{free_port()}")
    with pytest.raises(Unavailable, match="does not answer"):
        next(read_segment(segment, Part()))
    with pytest.raises(Unavailable, match="does not answer"):
        damage_of(segment)
    with pytest.raises(Unavailable, match="does not answer"):
        look_through(archive)


def test_an_archive_may_have_the_address_of_its_journal(archive: str) -> None:
    """Neither takes what the other has for its own."""
    write(archive, history()[:8])
    archive_journal(archive, archive, segment_events=10)
    write(archive, history()[8:])
    archive_journal(archive, archive, segment_events=10, has_tail=True)
    assert sequences(archive, SHARD) == list(range(1, EVENTS + 1))
    store = open_file(archive)
    assert store.extent(SHARD).last == EVENTS
    assert list(store.damaged(SHARD, 0, EVENTS)) == []
    store.close()
