"""The bare node of `make bench-peers`: what its jobs count is what it wrote down."""

import sqlite3
from pathlib import Path

import pytest

from bench import bare


@pytest.mark.parametrize(("callers", "once"), [(8, bare.batch), (8, bare.single)])
async def test_what_is_counted_was_completed_and_nothing_else(
    callers: int, once: bare.Work, tmp_path: Path
) -> None:
    with bare.node(tmp_path) as path:
        async with bare.connected(path) as line:
            rate, seconds = await bare.timed(callers, 0.1, once, line)
        with sqlite3.connect(tmp_path / "blobs.db") as blobs:
            (written,) = blobs.execute(
                "SELECT count(*) FROM blobs, json_each(body) "
                "WHERE json_extract(value, '$.eventType') = 'Completed'"
            ).fetchone()
        blobs.close()
    assert round(rate * seconds) == written > 0


async def test_a_sequence_ends_with_nothing_left(tmp_path: Path) -> None:
    with bare.node(tmp_path) as path:
        async with bare.connected(path) as line:
            assert await bare.sequential(line, 0.05) > 0
            assert await bare.wakeup(line, path, samples=3) > 0
