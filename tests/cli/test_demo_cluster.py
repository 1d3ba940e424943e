"""`omnirelay demo --cluster`: owners are killed for real, and the journal has to answer for it."""

import os
import subprocess
from pathlib import Path
from statistics import median

import msgspec
import pytest

from tests.cli.command import argv

WITHIN_S = 80


@pytest.mark.timeout(WITHIN_S + 10)
def test_a_mesh_loses_its_owner_again_and_again_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.run(
        argv("demo", "--cluster", "--json"),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = msgspec.json.decode(ended.stdout)
    assert shown["ok"]
    assert [proof["claim"] for proof in shown["proofs"] if not proof["holds"]] == []
    assert [gap["how"] for gap in shown["gaps"]] == ["killed", "killed", "stopped", "told to stop"]
    assert all(gap["ms"] > 0 for gap in shown["gaps"])
    killed = [gap["ms"] for gap in shown["gaps"] if gap["how"] == "killed"]
    assert median(killed) <= 4_000
    assert max(killed) <= 6_000
    said = [proof["detail"] for proof in shown["proofs"] if "in time" in proof["claim"]]
    half, worst = round(median(killed)), max(killed)
    assert said == [f"p50 {half} ms, at most 4000; worst {worst} ms, at most 6000; 2 kills"]
    assert os.listdir(tmp_path) == []
