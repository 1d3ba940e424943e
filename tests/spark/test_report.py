"""From tables to a page: few rows of tables of any size, and the hottest resource by default."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from omnirelay.cli.pipeline_report import report
from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.pipeline import (
    gold_peers,
    gold_principals,
    gold_resources,
    gold_windows,
    silver_ownership,
)
from omnirelay.pipeline.audit_report import FINDINGS, RUNS
from omnirelay.pipeline.report import write_report
from omnirelay.pipeline.report_gather import MINUTE_MS, gather, resource_of, step_ms
from tests.spark.report_rows import HOSTILE, OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(120)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTES = 1000
Row = dict[str, Any]  # Any: columns of mixed types


def windows() -> list[Row]:
    return [
        {
            "shard": f"shard-{number % 30}",
            "resource_type": "table",
            "window_start": BEGIN + timedelta(minutes=number),
            "enqueued": 2,
            "granted": 2,
            "completed": 1,
            "failed": 1,
            "expired": 0,
            "retries": 1,
            "dead_letters": 0,
            "wait_p50_ms": number,
            "wait_p95_ms": 2 * number,
            "wait_p99_ms": 3 * number,
            "pending_max": number,
            "backpressure_ms": 0,
            "replication_lag_ms": number if number % 2 else None,
            "slo_total": 4,
            "slo_good": 3,
            "burn": 25.0,
        }
        for number in range(MINUTES)
    ]


def resources() -> list[Row]:
    return [
        {
            "shard": "s",
            "resource_type": "table",
            "resource_id": HOSTILE[number % len(HOSTILE)] + str(number),
            "items": 4,
            "grants": 10,
            "retries": number,
            "expiries": 0,
            "failures": 0,
            "dead_letters": 0,
            "wait_ms_sum": 1000 * number,
            "wait_max_ms": 5000,
            "hold_ms_sum": 70,
        }
        for number in range(60)
    ]


def holds() -> list[Row]:
    hottest = resources()[-1]["resource_id"]
    return [
        {
            "shard": "s",
            "resource_type": "table",
            "resource_id": hottest,
            "fence": number,
            "peer_id": f"peer-{number % 3}",
            "principal": "w",
            "from_at": BEGIN + timedelta(seconds=number),
            "until_at": BEGIN + timedelta(seconds=number + 1) if number < 599 else None,
            "outcome": OUTCOMES[number % 5] if number < 599 else None,
            "sequence_id": number,
        }
        for number in range(600)
    ]


def peers() -> list[Row]:
    counts = {"completed": 5, "failed": 1, "expired": 2, "released": 0, "hold_ms_sum": 80}
    counts |= {"refused": 3}
    return [
        {"shard": s, "peer_id": f"p{n}", "grants": n, **counts, "suspected_zombie": n == 3}
        for n in range(40)
        for s in ("a", "b")
    ]


def _of(number: int) -> Row:
    return {"resource_type": "table", "resource_id": str(number)}


def principals() -> list[Row]:
    times = {"first_at": BEGIN, "last_at": BEGIN}
    return [
        {
            "shard": "s",
            "principal": f"who-{n}",
            "resource_type": "t",
            "resource_id": str(r),
            "action": a,
            "times": n,
        }
        | times
        for n in range(1, 30)
        for r in (1, 2)
        for a in ("Enqueue", "Completed")
    ]


AUDIT = {"kind": "audit", "events": 9, "verdict": "damaged", "positions": {"shard-48": 48}}
NEWEST = AUDIT | {"run_id": "newest", "ended_at": BEGIN, "findings": 150}
OLD = AUDIT | {"run_id": "old", "ended_at": BEGIN - timedelta(days=1), "findings": 0}
RUN = OLD | {"run_id": "run", "ended_at": BEGIN + timedelta(days=1), "kind": "run"}
FOUND = [
    {
        "run_id": run,
        "check": "gap",
        "severity": "error",
        "shard": "s",
        "sequence": n,
        "message": "m",
    }
    for run in ("newest", "old")
    for n in range(150)
]


class Frames:
    """Tables that lie nowhere: real frames under their names."""

    def __init__(self, frames: dict[str, "DataFrame"]) -> None:
        self._frames = frames

    def read(self, name: str) -> "DataFrame | None":
        return self._frames.get(name)

    def names(self) -> list[str]:
        return list(self._frames)

    def positions(self, name: str) -> dict[str, int]:
        return {f"shard-{number}": number for number in range(50)}


@pytest.fixture(scope="module")
def tables(spark: "SparkSession") -> Frames:
    made = {
        "slo_by_window": (windows(), gold_windows.COLUMNS),
        "hot_resources": (resources(), gold_resources.COLUMNS),
        "resource_ownership": (holds(), silver_ownership.COLUMNS),
        "peer_health": (peers(), gold_peers.COLUMNS),
        "principal_activity": (principals(), gold_principals.COLUMNS),
        "runs": ([RUN, NEWEST, OLD], RUNS.columns),
        "findings": (FOUND, FINDINGS.columns),
    }
    frames = {}
    for name, (rows, ddl) in made.items():
        columns = spark.createDataFrame([], ddl).columns
        whole = [tuple(row.get(one) for one in columns) for row in rows]
        frames[name] = spark.createDataFrame(whole, ddl)
    return Frames(frames)


def test_whatever_the_tables_hold_the_page_gets_few_rows_and_right_ones(tables: Frames) -> None:
    pictures = gather(tables)
    assert all(len(rows) <= 500 for rows in pictures.rows.values())
    drawn = pictures.of("windows")
    assert len(drawn) == 200
    assert pictures.step_ms == 5 * MINUTE_MS
    assert sum(row["enqueued"] for row in drawn) == 2 * MINUTES
    assert [drawn[1][one] for one in ("wait_p50_ms", "wait_p99_ms", "burn")] == [9, 27, 25.0]
    assert drawn[1]["replication_lag_ms"] == 9
    assert len({row["shard"] for row in pictures.of("heat")}) == 20
    assert {row["at_ms"] for row in pictures.of("heat")} <= set(pictures.times)
    assert max(row["pending_max"] for row in pictures.of("heat")) == MINUTES - 1
    slowest = pictures.of("slowest")[0]
    assert [slowest[one] for one in ("wait_mean_ms", "churn")] == [5900, 2.5]
    assert slowest["contention"] == 59_000 / 70
    assert pictures.resource == ("table", resources()[-1]["resource_id"])
    holds_drawn = pictures.of("timeline")
    assert [holds_drawn[at]["fence"] for at in (0, -1)] == [200, 599]
    top = pictures.of("peers")[0]
    assert (top["peer_id"], top["grants"], top["hold_mean_ms"]) == ("p39", 78, 10.0)
    assert top["refused"] == 6
    assert [row["zombie"] for row in pictures.of("peers") if row["peer_id"] == "p3"] == []
    first = pictures.of("principals")[0]
    assert (first["principal"], first["times"], first["resources"]) == ("who-29", 58, 2)
    assert pictures.of("runs")[0]["run_id"] == "newest"
    assert len(pictures.of("findings")) == 100
    assert [row["shard"] for row in pictures.of("unaudited")][-2:] == ["shard-12", "shard-13"]
    assert pictures.more["heat"] == 10
    assert (pictures.more["timeline"], pictures.more["findings"]) == (200, 50)
    assert pictures.more["unaudited"] == 43  # shard-0 has no events, and one was looked at


def test_a_page_is_written_whole_and_a_chosen_resource_is_drawn(
    tables: Frames, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    chosen = ("table", "never 'leased\" -- <b>")
    made = write_report(tables, out, place="here", clock=SystemClock(), resource=chosen)
    text = out.read_text("utf-8")
    assert (made.bytes, made.pictures["timeline"]) == (len(text.encode()), 0)
    assert "This resource was never leased." in text
    assert list(tmp_path.iterdir()) == [out]


def test_no_tables_at_all_are_told_from_empty_ones(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="holds no tables yet"):
        write_report(Frames({}), tmp_path / "x", place="nowhere", clock=SystemClock())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is no folder"):
        write_report(Frames({}), tmp_path / "no" / "x.html", place="here", clock=SystemClock())


@pytest.mark.usefixtures("spark")
def test_the_command_says_when_there_is_nothing_to_draw(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    ended = CliRunner().invoke(app, ["--tables", str(tmp_path), "--out", str(tmp_path / "r.html")])
    assert isinstance(ended.exception, Unavailable)
    bad = CliRunner().invoke(app, ["--tables", str(tmp_path), "--resource", "orders"])
    assert isinstance(bad.exception, InvalidArgument)


@pytest.mark.parametrize("text", ["", "table", ":orders", "table:"])
def test_a_resource_needs_a_type_and_an_id(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not TYPE:ID"):
        resource_of(text)


def test_an_id_may_hold_colons() -> None:
    assert resource_of("table:a:b") == ("table", "a:b")


@pytest.mark.parametrize(("minutes", "step"), [(1, 1), (240, 1), (241, 2), (480, 2), (10**6, 4167)])
def test_steps_are_whole_minutes_and_never_too_many(minutes: int, step: int) -> None:
    high = (minutes - 1) * MINUTE_MS
    found = step_ms(0, high, 240)
    assert found == step * MINUTE_MS
    assert high // found + 1 <= 240
