"""What keeps tables quick and small: few files instead of many, nothing that nobody needs.

All of it under the pipeline's own lease, so it never meets a run; readers of an older version keep
their files for as long as `orphans_hours` says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock, SystemClock, failpoint
from omnirelay.pipeline.audit_report import FINDINGS, RUNS
from omnirelay.pipeline.datasets import (
    LEASE_EVENTS,
    QUARANTINED,
    Commit,
    Dataset,
    Positions,
    TableFenced,
    TableMoved,
    all_datasets,
)
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.delta_files import (
    DataFile,
    commit_folder,
    ends_in,
    file_system,
    write_files,
)
from omnirelay.pipeline.hold import Holding
from omnirelay.pipeline.retention import lasts, without_holes

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

FILE_BYTES = 128 << 20
"""What a compacted file is meant to have."""
WEEK_HOURS = 24 * 7
SHARED = (FINDINGS, RUNS)
"""What others write too while the pipeline is held: an audit takes no lease."""
SHARED_ORPHANS_HOURS = 1
"""Of their files one that nobody needs yet may be part of a commit to come."""


@dataclass(frozen=True)
class Upkeep:
    file_bytes: int = FILE_BYTES
    orphans_hours: int = WEEK_HOURS
    """How long a file that no version needs any more, or that a killed run left, stays."""
    keep_days: int | None = None
    """Events and closed rows whose newest time is older go; None keeps all."""

    def __post_init__(self) -> None:
        if self.orphans_hours < 0 or self.file_bytes < 1:
            raise InvalidOption("orphans_hours cannot be negative, nor file_bytes less than 1")
        if self.keep_days is not None and self.keep_days < 1:
            raise InvalidOption(f"keep_days is {self.keep_days}, must be 1 or more")


@dataclass(frozen=True)
class Kept:
    table: str
    files_before: int = 0
    files_after: int = 0
    retired: int = 0
    """Files whose rows were too old."""
    swept: int = 0
    """Files nobody needed."""


def maintain(
    tables: DeltaTables,
    hold: Holding,
    upkeep: Upkeep | None = None,
    *,
    datasets: Iterable[Dataset] | None = None,
    clock: Clock | None = None,
) -> list[Kept]:
    """Of every table that is there. Raises TableFenced or HoldLost if a run came in between."""
    made = tuple(all_datasets() if datasets is None else datasets)
    work = _Upkeeper(tables, hold, upkeep or Upkeep(), made, clock or SystemClock())
    found = (work.keep(dataset) for dataset in (LEASE_EVENTS, QUARANTINED, *made, *SHARED))
    return [kept for kept in found if kept is not None]


@dataclass(frozen=True)
class _Upkeeper:
    tables: DeltaTables
    hold: Holding
    upkeep: Upkeep
    made: tuple[Dataset, ...]
    clock: Clock

    def keep(self, dataset: Dataset) -> Kept | None:
        table = self.tables.open(dataset)
        if table is None:
            return None
        kept = Kept(dataset.name, files_before=len(self.tables.files(table)))
        kept = replace(kept, retired=self._retire(dataset, table))
        try:
            self._compact(dataset)
        except TableMoved:
            if dataset not in SHARED:
                raise
            # An audit was faster. Its row and ours are there; the next upkeep puts them together.
        table = self.tables.open(dataset)
        assert table is not None
        hours = self.upkeep.orphans_hours
        hours = max(hours, SHARED_ORPHANS_HOURS) if dataset in SHARED else hours
        kept = replace(kept, swept=self._vacuum(table, hours) + self._sweep(dataset, hours))
        return replace(kept, files_after=len(self.tables.files(table)))

    # -- retention ------------------------------------------------------------------------------

    def _retire(self, dataset: Dataset, table: "DeltaTable") -> int:
        """Whole files only, by the greatest time their statistics name: nothing is rewritten. An
        event goes only when every table has read it, and all before it; what an audit proved of it
        stays, and up to where they went, so that no audit misses them."""
        if self.upkeep.keep_days is None or dataset.kind not in ("append", "carry"):
            return 0
        if dataset in SHARED:
            return 0
        if dataset is LEASE_EVENTS and not self._all_have_read():
            return 0
        now = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        oldest = now - timedelta(days=self.upkeep.keep_days)
        files = self.tables.files(table)
        over = [
            file
            for file in files
            if file.state != "open" and file.latest is not None and file.latest < oldest
        ]
        retired: dict[str, int] = {}
        if over and dataset is LEASE_EVENTS:
            ends = {file.path: ends_in(self.tables.address(dataset), file.path) for file in files}
            paths = without_holes((file.path for file in over), ends)
            over = [file for file in over if file.path in paths]
            retired = lasts(paths, ends)
        if over:
            gone: list[AddAction | RemoveAction] = [
                self.tables.removal(file, dataset) for file in over
            ]
            self._commit(dataset, table, gone, retired=retired)
        return len(over)

    def _all_have_read(self) -> bool:
        last = self.tables.snapshot(LEASE_EVENTS).positions
        return all(self.tables.snapshot(dataset).positions == last for dataset in self.made)

    # -- compaction -----------------------------------------------------------------------------

    def _compact(self, dataset: Dataset) -> None:
        for state in ("open", "closed") if dataset.partition_by else (None,):
            table = self.tables.open(dataset)
            assert table is not None
            small = [file for file in self.tables.files(table) if file.state == state]
            small = [file for file in small if file.size < self.upkeep.file_bytes // 2]
            if len(small) > 1:
                self._rewrite(dataset, table, small)

    def _rewrite(self, dataset: Dataset, table: "DeltaTable", small: list[DataFile]) -> None:
        """The same rows in fewer files, said to be no change, so that nobody reads them as new.
        In the order of the key, which is what makes their statistics worth having."""
        count = max(1, -(-sum(file.size for file in small) // self.upkeep.file_bytes))
        rows = self.tables.frame(table, small)
        rows = rows.repartitionByRange(count, *dataset.key) if count > 1 else rows.coalesce(1)
        written = write_files(
            rows.sortWithinPartitions(*dataset.key),
            table=self.tables.address(dataset),
            folder=commit_folder(table.version() + 1, is_step=False),
            split_by=dataset.partition_by,
        )
        assert written.rows == sum(file.rows or 0 for file in small), "a compaction changed rows"
        failpoint("pipeline.after_compaction")
        adds = [replace(add, data_change=False) for add in written.adds]
        gone = [self.tables.removal(file, dataset, changes=False) for file in small]
        self._commit(dataset, table, [*adds, *gone])

    def _commit(
        self,
        dataset: Dataset,
        table: "DeltaTable",
        actions: "list[AddAction | RemoveAction]",
        *,
        retired: Positions | None = None,
    ) -> None:
        self.hold.check()
        base = self.tables.snapshot(dataset)
        commit = Commit(base, {}, fence=self.hold.fence, retired=retired or {})
        if commit.base.fence > commit.fence:
            raise TableFenced(dataset.name, commit.fence, commit.base.fence)
        self.tables.act(dataset, table, actions, commit=commit)

    # -- what nobody needs ----------------------------------------------------------------------

    def _vacuum(self, table: "DeltaTable", hours: int) -> int:
        gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(gone)

    def _sweep(self, dataset: Dataset, hours: int) -> int:
        """Folders of commits that never were: Spark's unfinished files in them have names that a
        vacuum leaves alone."""
        table = self.tables.open(dataset)
        assert table is not None
        needed = {file.path.partition("/")[0] for file in self.tables.files(table)}
        system, path = file_system(self.tables.address(dataset))
        before = self.clock.wall_ms() - hours * 3_600_000
        swept = 0
        for folder in system.get_file_info(pafs.FileSelector(path)):
            if folder.type != pafs.FileType.Directory or folder.base_name in needed:
                continue
            if not folder.base_name.startswith("c") or not _is_rubbish(system, folder, before):
                continue
            system.delete_dir(folder.path)
            swept += 1
        return swept


def _is_rubbish(system: pafs.FileSystem, folder: pafs.FileInfo, before_ms: int) -> bool:
    """A data file that is still there was removed lately, and somebody may be reading it."""
    inside = system.get_file_info(pafs.FileSelector(folder.path, recursive=True))
    files = [info for info in inside if info.is_file]
    if any(info.mtime_ns // 1_000_000 > before_ms for info in [folder, *files]):
        return False
    return not any(
        info.base_name.endswith(".parquet") and "/_temporary/" not in info.path for info in files
    )
