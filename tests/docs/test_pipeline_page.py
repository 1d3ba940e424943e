"""The walk from journal to answer is walked, line by line."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(400)
def test_every_command_of_the_walk_does_what_the_page_says(tmp_path: Path) -> None:
    lines = [line for block in SHELL.findall(PAGE.read_text()) for line in block.splitlines()]
    assert [line.split()[2] for line in lines] == ["synth", "run", "audit", "report", "replay"]
    for line in lines:
        said = run(line, tmp_path)
        assert said.returncode == 0, f"{line}\n{said.stdout}{said.stderr}"
        assert said.stderr == "", f"{line}\n{said.stderr}"
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "items.jsonl").stat().st_size > 0


def run(line: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    words = shlex.split(line)
    assert words[0] == "omnirelay"
    return subprocess.run(
        [sys.executable, "-m", "omnirelay.cli", *words[1:]],
        cwd=folder,
        env={**os.environ, "OMNIRELAY_SPARK_MASTER": "local[2]"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
