"""Delta tables opened for reading: once, and again when somebody has committed.

To open one, its log is listed and read, a few milliseconds each time; a step asks a dozen times
where its inputs are. Whether a commit has come after the one that is known is a look at one name.

Only for reading: a commit goes through a table of its own, so that it lands on the version that its
step began from, whatever others have seen since.
"""

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from omnirelay.model.ports import stopwatch
from omnirelay.pipeline.delta_files import file_system

_TRUSTED_S = 60.0
"""A log forgets commits that are days old, and then the next one's name proves nothing."""


class _Mark(NamedTuple):
    """A commit's file: another table may come to lie where the known one was."""

    size: int | None
    written_ns: int | None


@dataclass(frozen=True)
class _Seen:
    table: DeltaTable
    mark: _Mark | None
    """Of its newest commit."""
    at: float


class Opened:
    def __init__(self, storage: dict[str, str] | None) -> None:
        self._storage = storage
        self._seen: dict[str, _Seen] = {}

    def table(self, address: str) -> DeltaTable | None:
        """As it is now. Not to be written with."""
        known = self._seen.get(address)
        if known is not None and stopwatch() - known.at < _TRUSTED_S and _is_newest(address, known):
            return known.table
        try:
            table = DeltaTable(address, storage_options=self._storage)
        except TableNotFoundError:
            return None
        mark, _ = _commits(address, table.version())
        self._seen[address] = _Seen(table, mark, stopwatch())
        return table


def _is_newest(address: str, seen: _Seen) -> bool:
    mark, following = _commits(address, seen.table.version())
    return mark is not None and mark == seen.mark and following is None


def _commits(address: str, version: int) -> tuple[_Mark | None, _Mark | None]:
    """That commit in the table's log, and the one after it."""
    system, root = file_system(address)
    paths = [f"{root}/_delta_log/{number:020d}.json" for number in (version, version + 1)]
    this, following = map(_mark, system.get_file_info(paths))
    return this, following


def _mark(found: pafs.FileInfo) -> _Mark | None:
    # A FileInfo equals no other, not even that of the same file a moment later.
    return _Mark(found.size, found.mtime_ns) if found.is_file else None
