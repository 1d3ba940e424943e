"""Journal files as a node leaves them, for tests that read them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from omnirelay.journal.format import Sealed, unseal
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.event_rows import rows_of


def append(path: Path, envelopes: Sequence[Sealed]) -> None:
    async def write() -> None:
        journal = SqliteJournal(str(path), envelopes[0].shard)
        await journal.open()
        for sealed in envelopes:
            await journal.append(sealed, expected=sealed.first - 1)
        await journal.close()

    asyncio.run(write())


def rows_in(path: Path) -> list[dict[str, Any]]:
    """Read the exact way, by shard and sequence; times without their zone, as Spark collects."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    stored: list[Any] = db.execute(
        "SELECT shard, first, CAST(body AS BLOB) FROM journal ORDER BY 1, 2"
    ).fetchall()
    found = [
        row for shard, first, body in stored for row in rows_of(unseal(body, shard=shard, at=first))
    ]
    db.close()
    return [_collected(row) for row in found]


def _collected(value: Any) -> Any:
    """Any: one cell of a row, of whatever type."""
    if isinstance(value, dict):
        return {name: _collected(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_collected(member) for member in value]
    if hasattr(value, "tzinfo"):
        return value.replace(tzinfo=None)
    return bytearray(value) if isinstance(value, bytes) else value
