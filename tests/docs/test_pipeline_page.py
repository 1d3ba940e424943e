"""The walk from journal to answer is walked, and all else that the page prints is run."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.nodes import running

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPARK = re.compile(r"^spark\.read.*$", re.MULTILINE)
PRINTED = re.compile(r"`(omnirelay [^`]* [^`]*|report --open|--once|--keep-days 90)`")
APART = 2
"""How many commands of the walk are processes of their own. The others share a Spark that is there,
as they do for somebody who calls them from a notebook: starting one takes longer than any of them.
"""
TOGETHER = """
import json, sys
from omnirelay.cli.app import main
from omnirelay.pipeline.session import SessionOptions, open_session

spark = open_session(SessionOptions(master="local[2]", size="few"))
for words in json.loads(sys.argv[1]):
    if isinstance(words, str):
        frame = eval(words)
        print(words, frame.isStreaming or frame.count(), flush=True)
        continue
    sys.argv = words
    print(*words, flush=True)
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def walk() -> list[list[str]]:
    lines = [line for block in SHELL.findall(PAGE.read_text()) for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


def printed_elsewhere() -> list[list[str]]:
    """What is printed within sentences, in an order in which each finds what it needs."""
    found = PRINTED.findall(PAGE.read_text())
    once, open_, days = (found.pop(found.index(one)) for one in ("--once", "report --open", DAYS))
    assert [" ".join(one.split()[1:3]) for one in found] == [
        "restore items.jsonl",
        "pipeline stream",
        "pipeline maintain",
        "pipeline archive",
        "pipeline lineage",
    ]
    restore, stream, maintain, archive, lineage = found
    texts = [restore, f"{stream} {once}", f"omnirelay pipeline {open_}", archive, lineage]
    return [shlex.split(text) for text in (*texts, f"{maintain} {days}")]


DAYS = "--keep-days 90"


@pytest.mark.timeout(600)
def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    lines = walk()
    assert [line[2] for line in lines] == ["synth", "run", "audit", "report", "replay"]
    for words in lines[:APART]:
        run([sys.executable, "-m", "omnirelay.cli", *words[1:]], tmp_path)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/shown\n')
    browser.chmod(0o755)
    spark = SPARK.findall(PAGE.read_text())
    assert len(spark) == 2
    with running(tmp_path) as node:
        # Where a report looks for tables if it is not told.
        (tmp_path / ".omnirelay" / "tables").symlink_to(tmp_path / "tables")
        together = json.dumps([*lines[APART:], *spark, *printed_elsewhere()])
        environment = {"OMNIRELAY_URL": node.urls["http"], "BROWSER": f"{browser} %s"}
        said = run([sys.executable, "-c", TOGETHER, together], tmp_path, **environment)
        items = len((tmp_path / "items.jsonl").read_text().splitlines())
        assert f"{items} items restored, 0 were there already" in said
        stats = json.loads(node("stats", "--json").out)
    assert stats["stats"]["pendingCount"] + stats["deadLetterCount"] == items > 0
    assert "resourcelease" in said
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "shown").read_text() == f"{(tmp_path / 'report.html').as_uri()}\n"
    assert list((tmp_path / "segments").rglob("*.parquet"))
    runs = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert {one["eventType"] for one in runs} >= {"START", "COMPLETE", "FAIL", "ABORT"}


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert done.stderr == "", f"{command}\n{done.stderr}"
    return done.stdout
