"""Runs the command as a user does: a process, its words, its exit code."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.out, type=dict[str, object])

    @property
    def complaint(self) -> str:
        """The one line it complained with."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "omnirelay.cli", *words]


def omnirelay(*words: str, folder: Path | None = None, **environment: str) -> Ended:
    ended = subprocess.run(
        argv(*words),
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)
