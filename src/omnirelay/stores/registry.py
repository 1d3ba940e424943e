"""Journal addresses of CONTRACT §5 to the stores that serve them."""

from urllib.parse import unquote, urlsplit

import msgspec

from omnirelay.journal.backend import JournalBackend
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.model.errors import InvalidOption
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_positions import SqliteCheckpoints


class Opened(msgspec.Struct, frozen=True):
    """A journal and the place where its followers keep their positions."""

    journal: JournalBackend
    checkpoints: CheckpointStore


def is_journal(url: str) -> bool:
    return urlsplit(url).scheme in ("memory", "sqlite")


def open_address(url: str, shard: str) -> Opened:
    """`memory:` or `sqlite:///path` (three slashes: relative to here; four: absolute)."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return Opened(MemoryJournal(shard), MemoryCheckpoints())
    if parts.scheme == "sqlite":
        path = _sqlite_path(url, parts.netloc, parts.path)
        return Opened(SqliteJournal(path, shard), SqliteCheckpoints(f"{path}-positions"))
    raise InvalidOption(
        f"no journal is served at {parts.scheme or url!r}:; use sqlite:///path or memory:"
    )


def _sqlite_path(url: str, host: str, path: str) -> str:
    name = unquote(path)[1:]
    if host or not name or name.endswith("/") or "\x00" in name:
        raise InvalidOption(
            f"{url!r} names no file; write sqlite:///leases.db or sqlite:////abs.db"
        )
    return name
