"""Journal addresses of CONTRACT §5 to the stores that serve them."""

from urllib.parse import unquote

import msgspec

from omnirelay.journal.backend import JournalBackend
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.model.errors import InvalidOption
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.stores.sqlite_wal import LOG_BYTES


class Opened(msgspec.Struct, frozen=True):
    """A journal and the place where its followers keep their positions."""

    journal: JournalBackend
    checkpoints: CheckpointStore


def is_journal(url: str) -> bool:
    return _scheme(url) in ("memory", "sqlite")


def open_address(url: str, shard: str) -> Opened:
    """`memory:` or `sqlite:///path` (three slashes: relative to here; four: absolute)."""
    scheme = _scheme(url)
    if scheme == "memory":
        return Opened(MemoryJournal(shard), MemoryCheckpoints())
    if scheme == "sqlite":
        path = sqlite_path(url)
        return Opened(
            SqliteJournal(path, shard, log_bytes=LOG_BYTES), SqliteCheckpoints(f"{path}-positions")
        )
    raise InvalidOption(f"no journal is served at {url!r}: use sqlite:///path or memory:")


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower() if ":" in url else ""


def sqlite_path(url: str) -> str:
    """Nothing in an address is passed over in silence: what is not the path is refused."""
    slashes, rest = url[len("sqlite:") :][:3], url[len("sqlite:///") :]
    name = unquote(rest)
    if slashes != "///" or not name or name.endswith("/") or "\x00" in name:
        raise InvalidOption(
            f"{url!r} names no file: write sqlite:///leases.db or sqlite:////abs.db"
        )
    if "?" in rest or "#" in rest:
        raise InvalidOption(f"{url!r}: sqlite:/// takes no options; in a path write %3F and %23")
    if name == ":memory:":
        raise InvalidOption(f"{url!r} would be lost with its handle: use memory: or sqlite:///path")
    return name
