"""Lineage from the journal alone: every attempt once, however often it is sent and refused."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import omnirelay
from omnirelay.cli.pipeline_lineage import lineage
from omnirelay.lease import records as kinds
from omnirelay.lease.evolve import evolve
from omnirelay.lease.state import QueueState
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.lineage import Position, emit
from omnirelay.pipeline.lineage_ids import run_id
from omnirelay.pipeline.lineage_outlets import FileOutlet, HttpOutlet, ScreenOutlet, outlet_of
from tests.spark.replay_histories import History, batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(120)
HISTORIES = [History(seed, 120) for seed in (4, 5, 8, 12)]
Told = dict[str, Any]  # Any: the JSON of an event


@pytest.fixture(scope="module")
def events(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "DataFrame":
    folder = tmp_path_factory.mktemp("events")
    table = pa.Table.from_batches([batch_of(one.envelopes()) for one in HISTORIES])
    pq.write_table(table, folder / "events.parquet")
    return spark.read.parquet(str(folder))


# -- what is true, worked out one record at a time ----------------------------------------------


def expected(history: History) -> Iterator[tuple[str, str, int, int | None, str]]:
    """(run, state, sequence, wait or hold, resource) of each start and end."""
    state = QueueState()
    ready: dict[int, int] = {}
    for sequence, (at, record) in enumerate(history.queue.journal, start=1):
        before = dict(state.active)
        evolve(state, record, at)
        for sequence_id in state.active.keys() - before.keys():
            held = state.active[sequence_id]
            wait = at - ready[sequence_id]
            yield _told(history.shard, held, ("START", sequence, wait))
        for sequence_id in sorted(before.keys() - state.active.keys()):
            held = before[sequence_id]
            end = {kinds.Completed: "COMPLETE", kinds.Failed: "FAIL"}.get(type(record), "ABORT")
            yield _told(history.shard, held, (end, sequence, at - held.granted_at))
        _note_ready(state, before, ready, at, record)


def _note_ready(
    state: QueueState, before: dict[int, Any], ready: dict[int, int], at: int, record: kinds.Record
) -> None:
    """Any: the leases there were."""
    named: set[int] = set()
    if isinstance(record, kinds.Enqueued | kinds.Failed | kinds.Expired | kinds.Released):
        named = {record.sequence_id}
    elif isinstance(record, kinds.Restored):
        named = {item.sequence_id for item in record.items}
    elif isinstance(record, kinds.Redriven):
        named = set(record.sequence_ids)
    for sequence_id in named & state.pending.keys():
        ready[sequence_id] = max(at, state.pending[sequence_id].available_at)


def _told(shard: str, held: Any, what: tuple[str, int, int]) -> Any:
    """Any: a lease, and the tuple of `expected`."""
    item = held.item
    run = run_id(shard, item.sequence_id, item.attempt, held.fence)
    return (run, *what, f"{item.payload.resource_type}:{item.payload.resource_id}")


def seen(told: Told) -> tuple[str, str, int, int | None, str]:
    lease = told["run"]["facets"]["omniRelay_lease"]
    span = lease.get("waitMs" if told["eventType"] == "START" else "holdMs")
    (output,) = told["outputs"]
    return told["run"]["runId"], told["eventType"], lease["sequence"], span, output["name"]


def all_expected() -> list[Any]:
    return [one for history in HISTORIES for one in expected(history)]


def sent_to(path: Path) -> list[Told]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# -- tests --------------------------------------------------------------------------------------


def test_every_attempt_starts_and_ends_as_the_core_says(
    events: "DataFrame", tmp_path: Path
) -> None:
    path = tmp_path / "lineage.jsonl"
    outlet = FileOutlet(path)
    emitted = emit(events, outlet, Position(None, "x"))
    outlet.close()
    told = sent_to(path)
    assert emitted.events == len(told)
    assert sorted(map(seen, told)) == sorted(all_expected())
    assert emitted.positions == {one.shard: one.queue.state.sequence for one in HISTORIES}
    assert {state for _, state, *_ in all_expected()} == {"START", "COMPLETE", "FAIL", "ABORT"}
    asked = [one for one in told if one["inputs"]]
    assert [one["name"] for one in asked[0]["inputs"]] == ["a", "b"]


def test_a_second_run_sends_only_what_is_new(events: "DataFrame", tmp_path: Path) -> None:
    path, kept = tmp_path / "lineage.jsonl", Position(tmp_path / "position", "file")
    counts = []
    for upto in (30, 10_000, 10_000):
        outlet = FileOutlet(path)
        counts.append(emit(events.where(f"sequence <= {upto}"), outlet, kept).events)
        outlet.close()
    assert counts[-1] == 0
    assert min(counts[:2]) > 10
    assert sorted(map(seen, sent_to(path))) == sorted(all_expected())


# -- a collector over HTTP ----------------------------------------------------------------------


class Collector:
    """Takes lineage; refuses the calls numbered in `refused`, and all from `broken_from` on."""

    def __init__(self) -> None:
        self.taken: list[Told] = []
        self.calls = 0
        self.refused: set[int] = set()
        self.broken_from = 10**9
        self.tokens: set[str | None] = set()
        self.paths: set[str] = set()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.calls += 1
        is_refused = self.calls in self.refused or self.calls >= self.broken_from
        self.tokens.add(handler.headers["Authorization"])
        self.paths.add(handler.path)
        if not is_refused:
            self.taken.append(json.loads(body))
        handler.send_response(503 if is_refused else 201)
        handler.send_header("Content-Length", "0")
        handler.end_headers()


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    collecting = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            collecting.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield collecting, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


def test_a_collector_that_stumbles_gets_every_event_once(
    events: "DataFrame", collector: tuple[Collector, str]
) -> None:
    collecting, url = collector
    collecting.refused = {2, 3}
    outlet = HttpOutlet(url, token="secret")
    emitted = emit(events, outlet, Position(None, url))
    outlet.close()
    assert emitted.events == len(collecting.taken)
    assert sorted(map(seen, collecting.taken)) == sorted(all_expected())
    assert (collecting.tokens, collecting.paths) == ({"Bearer secret"}, {"/api/v1/lineage"})


def test_a_collector_that_breaks_is_reported_and_loses_nothing(
    events: "DataFrame", collector: tuple[Collector, str], tmp_path: Path
) -> None:
    collecting, url = collector
    collecting.broken_from = 30
    kept = Position(tmp_path / "position", url)
    outlet = HttpOutlet(f"{url}/own/path", retries=1)
    with pytest.raises(Unavailable, match=r"events were sent, the next run goes on from there"):
        emit(events, outlet, kept)
    assert len(collecting.taken) == 29
    collecting.broken_from = 10**9
    emit(events, outlet, kept)
    outlet.close()
    sent = [seen(one) for one in collecting.taken]
    assert set(sent) == set(all_expected())
    assert len(sent) - len(set(sent)) <= 2, "at most what one drained sequence tells comes twice"
    assert collecting.paths == {"/own/path"}


# -- places and positions -----------------------------------------------------------------------


def test_a_file_of_somebody_else_is_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_text("precious\n")
    with pytest.raises(InvalidOption, match="is there already"):
        FileOutlet(path).begin(0)
    with pytest.raises(InvalidOption, match="it was changed"):
        FileOutlet(path).begin(100)
    assert path.read_text() == "precious\n"


def test_what_a_killed_run_wrote_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "lineage.jsonl"
    path.write_bytes(b"settled\nhalf a li")
    outlet = FileOutlet(path)
    outlet.begin(8)
    assert outlet.settle() == 8
    outlet.close()
    assert path.read_bytes() == b"settled\n"


@pytest.mark.parametrize("place", ["", "file:", "ftp://x", "http://", "orders.jsonl"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InvalidOption, match="is no place for lineage"):
        outlet_of(place, StringIO())


def test_places_are_told_apart() -> None:
    assert isinstance(outlet_of("console", StringIO()), ScreenOutlet)
    assert isinstance(outlet_of("file:x", StringIO()), FileOutlet)


def test_a_position_of_another_place_or_of_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "position"
    Position(path, "a").write(Position(path, "a").read())
    with pytest.raises(InvalidOption, match="is the position of a, not of b"):
        Position(path, "b").read()
    path.write_bytes(b"\xff{")
    with pytest.raises(InvalidOption, match="is no position of lineage"):
        Position(path, "a").read()


@pytest.mark.usefixtures("spark")
def test_the_command_prints_a_journal_as_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    with omnirelay.connect_sync(url, peer_id="w") as relay:
        relay.enqueue("table", "orders", attributes={"lineage.inputs": "raw/orders"})
        with relay.lease():
            pass
    app = typer.Typer()
    app.command()(lineage)
    ended = CliRunner().invoke(app, ["--from", url, "--to", "console", "--namespace", "prod"])
    assert ended.exit_code == 0, ended.exception
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [one["eventType"] for one in told] == ["START", "COMPLETE"]
    assert told[0]["inputs"][0] | {"facets": 0, "inputFacets": 0} == {
        "namespace": "raw",
        "name": "orders",
        "facets": 0,
        "inputFacets": 0,
    }
