"""Archives of tests, in a folder and in a bucket, and their files behind the archive's back."""

import asyncio
from itertools import count
from pathlib import Path

import pytest

from omnirelay.pipeline.shelf import is_bucket
from omnirelay.stores.registry import open_large

_numbers = count()


def archive_at(request: pytest.FixtureRequest, kind: str) -> str:
    """`folder`, or the fixture of an object store, which this process then finds."""
    if kind == "folder":
        return str(request.getfixturevalue("tmp_path") / "a")
    server = request.getfixturevalue(kind)
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return str(server.url(f"archive{next(_numbers)}"))


def meddle(path: str, content: bytes) -> None:
    if not is_bucket(path):
        Path(path).write_bytes(content)
        return
    address, _, name = path.rpartition("/")
    asyncio.run(open_large(address).put(name, content))


def lose(path: str) -> None:
    if not is_bucket(path):
        Path(path).unlink()
        return
    address, _, name = path.rpartition("/")
    asyncio.run(open_large(address).delete([name]))
