"""Journal addresses of CONTRACT §5 to the stores that serve them. A product is imported when an
address asks for it, so that a program installs only what it uses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec

from omnirelay.journal.backend import JournalTarget
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.model.errors import InvalidOption
from omnirelay.stores.address import masked
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.stores.sqlite_wal import LOG_BYTES

if TYPE_CHECKING:
    from omnirelay.stores.objects_bucket import LargeBucket


class Opened(msgspec.Struct, frozen=True):
    """A journal and the place where its followers keep their positions."""

    journal: JournalTarget
    checkpoints: CheckpointStore
    suspends: bool = True
    """Their methods wait for something: they need an event loop, and each is used on one alone."""


def is_journal(url: str) -> bool:
    return _scheme(url) in _OPENERS


def open_address(url: str, shard: str) -> Opened:
    """Nothing is opened or reached yet. Raises InvalidOption if the address cannot be one, or if
    the package that serves it is not installed."""
    scheme = _scheme(url)
    opener = _OPENERS.get(scheme)
    if opener is None:
        raise InvalidOption(
            f"no journal is served at {masked(url)!r}: use sqlite:///path, memory: or one of "
            f"{', '.join(f'{known}://' for known in _EXTRAS)}"
        )
    with _installed(scheme):
        return opener(url, shard)


def open_large(url: str) -> "LargeBucket":
    """A bucket of s3://, gs:// or az://, for more than journals. Raises as `open_address` does."""
    with _installed(_scheme(url)):
        from omnirelay.stores.objects_address import open_cloud

        return open_cloud(url)


@contextmanager
def _installed(scheme: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        if scheme not in _EXTRAS:
            raise
        raise InvalidOption(
            f"{scheme}:// needs {missing.name}: pip install 'omnirelay[{_EXTRAS[scheme]}]'"
        ) from missing


def open_mirror(url: str, shard: str) -> Opened:
    """The same for a mirror: where a file has an owner, a mirror is not it. The node that stands by
    over the file is."""
    opened = open_address(url, shard)
    if not has_one_owner(url):
        return opened
    path = sqlite_path(url)
    return Opened(SqliteJournal(path, shard, owner=False), opened.checkpoints, opened.suspends)


def is_hub(url: str) -> bool:
    return _scheme(url) in ("hub", "hubs")


def has_one_owner(url: str) -> bool:
    """True: the address names a file that one queue has to itself; a server keeps many apart."""
    return _scheme(url) == "sqlite"


def may_have_rivals(url: str) -> bool:
    """True: other nodes may reach the same journal, so its owner must show that it is alive."""
    return _scheme(url) in _EXTRAS


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower() if ":" in url else ""


def _memory(url: str, shard: str) -> Opened:
    return Opened(MemoryJournal(shard), MemoryCheckpoints(), suspends=False)


def _sqlite(url: str, shard: str) -> Opened:
    """Three slashes: relative to here; four: absolute."""
    path = sqlite_path(url)
    journal = SqliteJournal(path, shard, log_bytes=LOG_BYTES)
    return Opened(journal, SqliteCheckpoints(f"{path}-positions"), suspends=False)


def _postgres(url: str, shard: str) -> Opened:
    from omnirelay.stores.postgres import PostgresJournal
    from omnirelay.stores.postgres_link import PostgresTarget
    from omnirelay.stores.postgres_positions import PostgresCheckpoints

    target = PostgresTarget.parse(url)
    return Opened(PostgresJournal(target, shard), PostgresCheckpoints(target))


def _redis(url: str, shard: str) -> Opened:
    from omnirelay.stores.redis import RedisJournal
    from omnirelay.stores.redis_link import RedisTarget
    from omnirelay.stores.redis_positions import RedisCheckpoints

    target = RedisTarget.parse(url)
    return Opened(RedisJournal(target, shard), RedisCheckpoints(target))


def _nats(url: str, shard: str) -> Opened:
    from omnirelay.stores.nats import NatsJournal
    from omnirelay.stores.nats_address import parse
    from omnirelay.stores.nats_positions import NatsCheckpoints

    address = parse(url)
    return Opened(NatsJournal(address, shard), NatsCheckpoints(address))


def _objects(url: str, shard: str) -> Opened:
    from omnirelay.stores.objects import ObjectJournal
    from omnirelay.stores.objects_address import open_bucket
    from omnirelay.stores.objects_positions import ObjectCheckpoints

    bucket = open_bucket(url)
    return Opened(ObjectJournal(bucket, shard), ObjectCheckpoints(bucket))


def _hub(url: str, shard: str) -> Opened:
    from omnirelay.stores.hub import HubJournal
    from omnirelay.stores.hub_link import HubTarget
    from omnirelay.stores.hub_positions import HubCheckpoints

    target = HubTarget.parse(url)
    return Opened(HubJournal(target, shard), HubCheckpoints(target))


_OPENERS: Final[dict[str, Callable[[str, str], Opened]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
    "redis": _redis,
    "rediss": _redis,
    "nats": _nats,
    "file": _objects,
    "s3": _objects,
    "gs": _objects,
    "az": _objects,
    "hub": _hub,
    "hubs": _hub,
}
_EXTRAS: Final[dict[str, str]] = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "nats": "nats",
    "file": "objects",
    "s3": "objects",
    "gs": "objects",
    "az": "objects",
    "hub": "grpc",
    "hubs": "grpc",
}
"""What to install for each scheme that needs more than the package itself."""


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
