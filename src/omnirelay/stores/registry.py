"""Journal addresses of CONTRACT §5 to the store that serves them."""

from urllib.parse import unquote, urlsplit

from omnirelay.journal.backend import JournalBackend
from omnirelay.model.errors import InvalidOption
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.sqlite import SqliteJournal


def open_address(url: str, shard: str) -> JournalBackend:
    """`memory:` or `sqlite:///path` (three slashes: relative to here; four: absolute)."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return MemoryJournal(shard)
    if parts.scheme == "sqlite":
        return SqliteJournal(_sqlite_path(url, parts.netloc, parts.path), shard)
    raise InvalidOption(
        f"no journal is served at {parts.scheme or url!r}:; use sqlite:///path or memory:"
    )


def _sqlite_path(url: str, host: str, path: str) -> str:
    name = unquote(path)[1:]
    if host or not name or name.endswith("/") or "\x00" in name:
        raise InvalidOption(f"{url!r} names no file; write sqlite:///leases.db or sqlite:////abs.db")
    return name
