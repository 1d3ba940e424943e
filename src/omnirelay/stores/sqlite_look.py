"""A look into somebody else's SQLite journal: read-only, while its owner may be at work."""

import os
from functools import partial

import apsw
import msgspec

from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.stores.highwater import Mark, peek
from omnirelay.stores.sqlite import SqliteReader, mark_path
from omnirelay.stores.sqlite_file import check_ours, connect, scalar, translate, translate_os

_TABLE = "SELECT count(*) FROM sqlite_master WHERE name = 'journal'"
# One step of the index a shard, instead of every row of a long journal.
_NEXT_SHARD = "SELECT min(shard) FROM journal WHERE shard > ?"


class Look(msgspec.Struct, frozen=True):
    """A reader of one shard, and how far it was acknowledged at the moment of the look: a mark
    never runs ahead, so what the reader finds afterwards must reach at least that far."""

    reader: SqliteReader
    acknowledged: Mark | None


def look(path: str, shard: str) -> Look:
    """Raises Unavailable if there is no file, InvalidOption if it is not ours, InvalidArgument if
    it has no such shard."""
    shards = shards_of(path)
    if shard not in shards:
        known = ", ".join(shards) or "none"
        raise InvalidArgument(f"{path} has no journal of {shard!r}; it has: {known}")
    return Look(SqliteReader(path, shard), peek(mark_path(path, shard)))


def shards_of(path: str) -> list[str]:
    """Raises Unavailable if there is no file, InvalidOption if it is not ours."""
    if not os.path.isfile(path):
        raise Unavailable(f"{path}: there is no such file")
    try:
        db = connect(path, read_only=True, check=partial(check_ours, path=path))
        try:
            return _names(db)
        finally:
            db.leave()
    except apsw.Error as error:
        raise translate(error, path) from error
    except OSError as error:
        raise translate_os(error, path) from error


def _names(db: apsw.Connection) -> list[str]:
    if not scalar(db, _TABLE):
        return []  # made, and left before its first commit
    found: list[str] = []
    while (name := scalar(db, _NEXT_SHARD, found[-1] if found else "")) is not None:
        found.append(name)
    return found
