"""Three to five real nodes over one journal, under twenty thousand seeds: pauses, cuts, crashes,
late and doubled appends, clocks that disagree, hand-overs.

`OMNIRELAY_FIRST_SEED` moves the range, so that a nightly run sees other schedules than the gate.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

from omnirelay.testing import figures
from omnirelay.testing.mesh_plan import FAULTS
from omnirelay.testing.mesh_planted import PLANTS, plant_mesh_bug
from omnirelay.testing.mesh_verdict import DOUBLED, LOST, SPLIT, STALE, count_of
from omnirelay.testing.mesh_world import MeshReport, main, run_mesh_seed, run_mesh_seeds

SEEDS = 20_000
SEEDS_A_TEST = 500
TWICE_EVERY = 250
PLANTED_SEEDS_MAX = 400
FIRST = int(os.environ.get("OMNIRELAY_FIRST_SEED", "1"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SEEDS_A_TEST))
def test_every_schedule_has_one_owner_and_keeps_every_promise(first: int) -> None:
    reports = list(run_mesh_seeds(range(first, first + SEEDS_A_TEST)))
    failed = [report for report in reports if report.failed]
    complaints = [words for report in failed for words in report.complaints]
    figures.record(
        "ownership",
        schedules=len(reports),
        virtual_hours=sum(report.virtual_s for report in reports) / 3600,
        epochs=sum(report.epochs for report in reports),
        items_lost=count_of(complaints, LOST),
        doubled=count_of(complaints, DOUBLED),
        stale_accepted=count_of(complaints, STALE),
        split_brains=count_of(complaints, SPLIT),
        failing_seeds=[report.plan.seed for report in failed],
        faults=dict(_faults(reports)),
    )
    assert not failed, "\n".join(map(str, failed))
    for report in reports[::TWICE_EVERY]:
        again = run_mesh_seed(report.plan.seed)
        assert again.fingerprint == report.fingerprint, f"chance from outside: {report.command}"


def _faults(reports: list[MeshReport]) -> Counter[str]:
    return sum((report.faults for report in reports), start=Counter[str]())


@pytest.mark.timeout(60)
def test_the_seeds_meet_every_fault_and_what_follows_from_it() -> None:
    reports = list(run_mesh_seeds(range(FIRST, FIRST + 300)))
    met = sum((report.met for report in reports), start=Counter[str]())
    seen = ("append_landed_late", "snapshots", "pruned", "forwarded")
    for what in (*FAULTS, *seen):
        assert met[what], f"no seed met {what}"
    kinds = {op.kind for report in reports for op in report.diary.history if op.ok}
    assert kinds == {"enqueue", "lease", "heartbeat", "complete", "fail", "release"}
    assert any(report.diary.readings for report in reports)
    assert {report.plan.nodes for report in reports} == {3, 4, 5}
    assert max(report.epochs for report in reports) > 4
    assert any(op.ok is None for report in reports for op in report.diary.history)


@pytest.mark.timeout(60)
def test_a_seed_gives_the_same_schedule_in_another_process() -> None:
    code = (
        "from omnirelay.testing.mesh_world import run_mesh_seed\n"
        "print([run_mesh_seed(seed).fingerprint for seed in range(1, 60)])"
    )
    first, second = (
        subprocess.check_output(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        for hash_seed in ("1", "2")
    )
    assert first == second


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_bug_planted_in_ownership_is_caught(plant: str) -> None:
    reports = run_mesh_seeds(range(1, PLANTED_SEEDS_MAX + 1), plant)
    report = next((report for report in reports if report.failed), None)
    figures.record("planted", planted=1, caught=int(report is not None))
    assert report is not None, f"{PLANTED_SEEDS_MAX} seeds did not notice {plant}"
    assert not run_mesh_seed(report.plan.seed).failed, "the seed fails without the bug, too"


@pytest.mark.timeout(60)
def test_a_split_brain_is_called_by_its_name() -> None:
    reports = run_mesh_seeds(range(1, PLANTED_SEEDS_MAX + 1), "split_brain")
    assert any(count_of(report.complaints, SPLIT) for report in reports)


def test_a_bug_that_nobody_has_written_cannot_be_planted() -> None:
    with pytest.raises(KeyError), plant_mesh_bug("none_of_these"):
        pass


def test_a_failing_seed_prints_the_command_that_reproduces_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seed", "1", "--count", "20", "--plant", "no_fresh_time"]) == 1
    said = capsys.readouterr().out
    assert "python -m omnirelay.testing.mesh_world --seed" in said
    assert "--plant no_fresh_time" in said
    assert main(["--seed", "1", "--history"]) == 0
    assert "holds; trace" in capsys.readouterr().out
