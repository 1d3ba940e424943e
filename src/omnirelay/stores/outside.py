"""A look into a journal from outside, at any address: nothing is created, owned or changed, and its
writer may be at work."""

from pathlib import Path

import msgspec

from omnirelay.journal.backend import JournalSource
from omnirelay.journal.checkpoint import Checkpoint, CheckpointStore
from omnirelay.model.errors import InvalidArgument, InvalidOption
from omnirelay.stores.address import masked
from omnirelay.stores.backup_reading import BackupReader, is_backup
from omnirelay.stores.highwater import Mark
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.stores.registry import Opened, is_journal, open_address, sqlite_path
from omnirelay.stores.sqlite_look import look, shards_of
from omnirelay.stores.sqlite_positions import SqliteCheckpoints

DEFAULT_SHARD = "resourcelease"
_SQLITE_FILE = b"SQLite format 3\x00"


class NoAddress(InvalidOption):
    """Neither a journal's address nor a backup."""


class Outside(msgspec.Struct, frozen=True):
    """`acknowledged` is how far it was, where that is kept apart, at the moment of the look: what
    the source holds must reach at least that far."""

    shard: str
    shown: str
    """The address, without secrets."""
    source: JournalSource
    checkpoints: CheckpointStore
    acknowledged: Mark | None = None

    async def close(self) -> None:
        await self.source.close()
        await self.checkpoints.close()


async def look_outside(address: str, shard: str | None = None) -> Outside:
    """`address` is a journal's, or the path of a backup. Without a shard: the only one there is, or
    the usual one. Raises NoAddress, InvalidArgument if there is no such journal, Unavailable if it
    is out of reach."""
    if not is_journal(address):
        return await _look_at_file(address, shard)
    name = shard or DEFAULT_SHARD
    opened = opened_at(address, name)
    if address.startswith("sqlite:"):
        return _look_at_sqlite(sqlite_path(address), shard)
    outside = Outside(name, masked(address), opened.journal, opened.checkpoints)
    try:
        if not (await opened.journal.head()).last:
            raise InvalidArgument(f"{outside.shown} has no journal of {name!r}")
    except BaseException:
        await outside.close()
        raise
    return outside


def opened_at(address: str, shard: str) -> Opened:
    """Nothing is reached yet. Raises NoAddress."""
    try:
        if not address.startswith("memory:"):
            return open_address(address, shard)
    except InvalidOption as error:
        raise NoAddress(error.message) from error
    raise NoAddress("memory: is seen by its own process only: use sqlite:///path or a server")


async def _look_at_file(address: str, shard: str | None) -> Outside:
    path = Path(address)
    if is_backup(path):
        reader = BackupReader(path)
        if shard not in (None, reader.shard):
            await reader.close()
            raise InvalidArgument(f"{path} has no journal of {shard!r}; it has: {reader.shard}")
        return Outside(reader.shard, str(path), reader, await _kept(reader.positions))
    if _begins_with(path, _SQLITE_FILE):  # as earlier versions backed journals up
        return _look_at_sqlite(address, shard)
    if _begins_with(path, b""):
        raise InvalidOption(f"{path} is no backup of a journal")
    raise NoAddress(
        f"{masked(address)!r} is neither a journal's address, such as sqlite:///path, nor a backup"
    )


def _begins_with(path: Path, opening: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(opening)) == opening
    except (OSError, ValueError):
        return False


async def _kept(positions: list[Checkpoint]) -> MemoryCheckpoints:
    found = MemoryCheckpoints()
    for one in positions:
        await found.write(one)
    return found


def _look_at_sqlite(path: str, shard: str | None) -> Outside:
    if shard is None:
        there = shards_of(path)
        shard = there[0] if len(there) == 1 else DEFAULT_SHARD
    seen = look(path, shard)
    positions = f"{path}-positions"
    checkpoints = SqliteCheckpoints(positions) if Path(positions).exists() else MemoryCheckpoints()
    return Outside(shard, path, seen.reader, checkpoints, seen.acknowledged)
