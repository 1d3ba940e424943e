"""Archives of tests, in a folder and in a bucket, and their files behind the archive's back."""

import asyncio
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from omnirelay.pipeline.shelf import is_bucket
from omnirelay.stores.registry import open_large

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def tell_workers(request: pytest.FixtureRequest, spark: "SparkSession", kind: str) -> None:
    """Workers get the environment that their session began with; this one began before. A source
    takes along what there is when it is registered."""
    from omnirelay.pipeline.source import OmniRelaySource

    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in request.getfixturevalue(kind).environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    spark.dataSource.register(OmniRelaySource)


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


def prune(path: Path, through: dict[str, int]) -> None:
    with closing(apsw.Connection(str(path))) as db:
        for shard, last in through.items():
            db.execute("DELETE FROM journal WHERE shard = ? AND last <= ?", (shard, last))
