"""The storage a journal suite runs on, and what its cases do with it again and again."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from omnirelay.journal.backend import JournalBackend, JournalTarget, SnapshotRef
from omnirelay.journal.format import Sealed

SHARD = "orders"
FOREVER = 1 << 50
"""A time after every envelope's."""


class Medium(ABC):
    """One piece of storage that outlives the handles to it."""

    holds_shards = True
    """Several shards live in one piece of storage and do not mix."""
    notices_lost_tail = True
    """Something kept apart from the journal tells that its end is missing."""
    shows_bytes = True
    """`bodies`, `put_body` and `drop` work."""
    outlives_programs = True
    """What one version of a program stored, another may open: `version` and `put_version` work."""
    named_no_version = False
    """Journals were once made that do not say how they are laid out."""

    @abstractmethod
    def handle(self, shard: str = SHARD) -> JournalTarget:
        """One more handle to the same storage, not opened yet. Several may be open at once."""

    # Behind the store's back, while no handle is open. Envelopes are counted from 0, oldest first.

    def bodies(self) -> list[bytes]:
        raise AssertionError(_NO_BYTES)

    def put_body(self, at: int, body: bytes) -> None:
        """Other bytes where an envelope's are; everything else stays."""
        raise AssertionError(_NO_BYTES)

    def drop(self, at: int) -> None:
        """An envelope is gone, without a trace."""
        raise AssertionError(_NO_BYTES)

    def version(self) -> int | None:
        """Of the layout, as the storage says; None if it does not."""
        raise AssertionError(_NO_VERSION)

    def put_version(self, version: int | None) -> None:
        """Another one, or none, as another version of the program would have left it."""
        raise AssertionError(_NO_VERSION)


_NO_VERSION = "this storage has a version but does not say how; set outlives_programs to False"
_NO_BYTES = "this storage shows its bytes but does not say how; set shows_bytes to False"


@asynccontextmanager
async def opened(medium: Medium, shard: str = SHARD) -> AsyncIterator[JournalTarget]:
    handle = medium.handle(shard)
    try:
        await handle.open()
        yield handle
    finally:
        await handle.close()


async def append_all(journal: JournalBackend, envelopes: list[Sealed]) -> list[bytes]:
    for sealed in envelopes:
        await journal.append(sealed, expected=sealed.first - 1)
    return [sealed.body for sealed in envelopes]


async def snapshot_of(
    journal: JournalBackend, sequence: int, parts: list[bytes], *, finish: bool = True
) -> SnapshotRef:
    ref = SnapshotRef(sequence, 1, f"link-{sequence}", sequence * 10, len(parts), f"sum-{sequence}")
    for number, body in enumerate(parts):
        await journal.write_part(sequence, number, body)
    if finish:
        await journal.finish_snapshot(ref)
    return ref


class Hooks(ABC):
    @abstractmethod
    def make_medium(self, folder: Path) -> Medium:
        """Empty storage; `folder` is the test's own."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def medium(self, tmp_path: Path) -> Medium:
        return self.make_medium(tmp_path)

    @pytest.fixture
    async def journal(self, medium: Medium) -> AsyncIterator[JournalBackend]:
        async with opened(medium) as journal:
            yield journal
