"""Figures of a run: lines that add up, a table that leaves nothing out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omnirelay.testing.figures import main, read_totals, record, reports_path, table

LABELS = [
    "states explored (exhaustive)",
    "schedules explored",
    "schedules of a mesh",
    "model steps",
    "crash points hit / enumerated",
    "power cuts",
    "disk faults injected / survived",
    "cluster actions",
    "bad inputs tried",
    "identity cases tried",
    "planted bugs caught",
    "effects run twice under one id",
    "recovery",
    "failover",
]


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that does not exist yet, as on a fresh clone."""
    folder = tmp_path / "deep" / "reports"
    monkeypatch.setenv("OMNIRELAY_REPORTS", str(folder))
    return folder


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The printed table, by label."""
    assert main([]) == 0
    rows = {}
    for line in capsys.readouterr().out.splitlines():
        label, _, cells = line.partition("  ")
        rows[label] = cells.strip()
    return rows


def test_a_record_is_one_line_of_json(reports: Path) -> None:
    record("disk", injected=3, survived=2)
    text = (reports / "reliability.jsonl").read_text()
    assert text.count("\n") == 1
    assert json.loads(text) == {"suite": "disk", "injected": 3, "survived": 2}


def test_reports_lie_in_the_working_folder_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMNIRELAY_REPORTS")
    assert reports_path() == Path("reports/reliability.jsonl")


def test_processes_that_record_together_lose_no_line() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from omnirelay.testing.figures import record\n"
        "for number in range(200): record('crash', restarts=1, recovery_ms=[number] * 50)"
    )
    command = [sys.executable, "-c", code, *sys.path]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    totals = read_totals(reports_path().read_text().splitlines())
    assert totals["crash"]["restarts"] == 800


def test_everything_is_not_run_before_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == dict.fromkeys(LABELS, "not run")


def test_every_row_shows_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    record("exhaustive", states=124_561, transitions=505_262, depth=10, violations=0)
    record("simulation", schedules=5_000, virtual_hours=61.25, failing_seeds=0, faults=7)
    record("ownership", schedules=20_000, virtual_hours=2.5, epochs=42_000, items_lost=0)
    record("ownership", doubled=0, stale_accepted=0, split_brains=0, failing_seeds=[])
    record("ownership", faults={"kill": 2, "pause": 3})
    record("model", machines=5, steps=60_000, bugs=0)
    record("crash", points_hit=56, points_enumerated=57, restarts=56, acknowledged_lost=0)
    record("crash", recovery_ms=[30, 10, 20])
    record("power", cuts=1_000, acknowledged_lost=0, corrupt_served=0)
    record("disk", injected=112, survived=111)
    record("cluster", actions=4, operations=900, unknown=3, items_lost=0, stale_accepted=0)
    record("cluster", failover_ms=[1_500])
    record("inputs", tried=2_000, server_errors=0, wrongly_accepted=0)
    record("identity", cases=300, server_errors=0, wrongly_accepted=0)
    record("identity", secrets_found=[])
    record("planted", caught=8, planted=8)
    record("effects", run_twice=0, ids=40)
    assert list(printed(capsys).values()) == [
        "124,561   transitions 505,262   depth 10   violations 0",
        "5,000   virtual hours 61.2   faults 7   failing seeds 0",
        "20,000   virtual hours 2.5   epochs 42,000   items lost 0   doubled 0   "
        "stale completions accepted 0   split brains 0   failing seeds 0   "
        "faults 5 (kill 2, pause 3)",
        "60,000   machines 5   bugs 0",
        "56/57   restarts 56   acknowledged lost 0",
        "1,000   acknowledged lost 0   corrupt served 0",
        "112/111",
        "4   operations 900   unknown 3   items lost 0   stale completions accepted 0",
        "2,000   5xx 0   wrongly accepted 0",
        "300   5xx 0   wrongly accepted 0   secrets found 0",
        "8/8",
        "0   ids 40",
        "p50 0.020 s   max 0.030 s",
        "p50 1.500 s   max 1.500 s",
    ]


def test_a_figure_that_a_suite_forgot_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    record("model", steps=10)
    assert printed(capsys)["model steps"] == "10   machines not run   bugs not run"


def test_a_suite_outside_the_table_is_printed_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    record("load", offered=10, refused=4)
    rows = printed(capsys)
    assert list(rows) == [*LABELS, "load"]
    assert rows["load"] == "offered 10   refused 4"


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        ({"steps": 2}, {"steps": 3}, {"steps": 5}),
        ({"virtual_hours": 1}, {"virtual_hours": 0.5}, {"virtual_hours": 1.5}),
        ({"depth": 10}, {"depth": 9}, {"depth": 10}),
        ({"recovery_ms": [1]}, {"recovery_ms": [2]}, {"recovery_ms": [1, 2]}),
        ({"failing_seeds": 0}, {"failing_seeds": [7, 8]}, {"failing_seeds": 2}),
        ({"failing_seeds": [7, 8]}, {"failing_seeds": 1}, {"failing_seeds": 3}),
        (
            {"faults": {"drop": 1}},
            {"faults": {"drop": 2, "cut": 1}},
            {"faults": {"drop": 3, "cut": 1}},
        ),
        ({"steps": 2}, {"bugs": 0}, {"steps": 2, "bugs": 0}),
    ],
)
def test_lines_of_one_suite_add_up(first: Any, second: Any, total: Any) -> None:
    record("any", **first)
    record("any", **second)
    assert read_totals(reports_path().read_text().splitlines()) == {"any": total}


def test_lists_and_kinds_are_shown_as_counts() -> None:
    totals: Any = {"simulation": {"failing_seeds": [7, 42], "faults": {"drop": 3, "cut": 1}}}
    row = table(totals).splitlines()[1]
    assert "failing seeds 2" in row
    assert "faults 4 (cut 1, drop 3)" in row


@pytest.mark.parametrize(
    ("suite", "figures"),
    [
        ("", {"steps": 1}),
        ("model", {}),
        ("model", {"steps": "many"}),
        ("model", {"steps": True}),
        ("model", {"steps": None}),
        ("model", {"steps": float("nan")}),
        ("simulation", {"faults": {"drop": "many"}}),
    ],
)
def test_what_cannot_be_added_up_is_refused_before_it_is_written(suite: str, figures: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        record(suite, **figures)
    assert not reports_path().exists()


@pytest.mark.parametrize("line", ['{"suite": "model", "st', "[]", '{"steps": 1}', "7"])
def test_a_line_that_cannot_be_read_is_named(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    record("model", steps=1)
    with reports_path().open("a") as file:
        file.write(line + "\n")
    assert main([]) == 1
    assert "line 2" in capsys.readouterr().err


def test_clear_forgets_the_last_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clear"]) == 0
    record("model", steps=1)
    assert main(["--clear"]) == 0
    assert capsys.readouterr().out == ""
    assert not reports_path().exists()


def test_the_module_is_a_command() -> None:
    record("planted", caught=7, planted=8)
    code = "import runpy, sys; sys.path[:0] = sys.argv[1:]; sys.argv[1:] = []\n"
    code += "runpy.run_module('omnirelay.testing.figures', run_name='__main__')"
    command = [sys.executable, "-c", code, *sys.path]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "planted bugs caught              7/8" in shown
