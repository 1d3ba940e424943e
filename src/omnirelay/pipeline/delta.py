"""Tables in Delta format, without Delta's jars: Spark writes and reads Parquet, the log is kept by
delta-rs. Whoever reads Delta reads these tables.

One commit holds the new files, those that go, and how far the table has come (delta_log.py), so a
table and its positions cannot part.
"""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock, SystemClock, failpoint
from omnirelay.pipeline.datasets import (
    EVENTS,
    LAYERS,
    LEASE_EVENTS,
    NOT_READ,
    Change,
    Commit,
    Committed,
    Dataset,
    ExpectationFailed,
    Older,
    Positions,
    Snapshot,
    TableFenced,
    TableMoved,
    TableTooNew,
)
from omnirelay.pipeline.decode_types import arrow_schema
from omnirelay.pipeline.delta_files import (
    WRITING,
    DataFile,
    Written,
    commit_folder,
    files_of,
    unread,
    values_in,
    write_files,
)
from omnirelay.pipeline.delta_frames import Frames
from omnirelay.pipeline.delta_here import write_here
from omnirelay.pipeline.delta_layout import is_split_otherwise, split_anew
from omnirelay.pipeline.delta_log import (
    INPUT,
    LEASE,
    LINK,
    RETIRED,
    SCHEMA,
    SHARD,
    SHARDS,
    by_shard,
    positions_at,
    properties,
    shards_of,
)
from omnirelay.pipeline.delta_open import Opened
from omnirelay.pipeline.delta_rows import all_rows, between, open_or_after

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = ("max.timestamp", "max.ended_at", "max.until_at", "max.at", "max.found_at")
_LOG = {
    # A stream commits every second or so: what a table was like last week is in its rows.
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 2 days",
}


class DeltaTables:
    def __init__(
        self,
        session: "SparkSession",
        root: str,
        *,
        clock: Clock | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        """`root`: a folder, or an address that both Spark and delta-rs reach."""
        self.session = session
        self.root = root.rstrip("/")
        self._clock = clock or SystemClock()
        self._storage = storage_options
        self._opened = Opened(storage_options)
        self._frames = Frames(session)
        self._places: dict[str, str] = {}
        self._known: dict[str, Snapshot] = {}
        self._types: tuple[tuple[str, ...], frozenset[str]] = (), frozenset()
        for name, value in WRITING.items():
            session.conf.set(name, value)

    # -- reading --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of the tables that are there, as `layer/table`."""
        from omnirelay.pipeline.delta_files import subfolders

        found = (f"{layer}/{name}" for layer in LAYERS for name in subfolders(self.root, layer))
        return [name for name in found if self.open(name) is not None]

    def address(self, table: str | Dataset) -> str:
        if isinstance(table, Dataset):
            return f"{self.root}/{table.layer}/{table.name}"
        if "/" in table:
            return f"{self.root}/{table}"
        if table not in self._places:
            places = [f"{self.root}/{layer}/{table}" for layer in LAYERS]
            found = [at for at in places if DeltaTable.is_deltatable(at, self._storage)]
            if not found:
                return places[0]
            self._places[table] = found[0]
        return self._places[table]

    def open(self, table: str | Dataset) -> DeltaTable | None:
        try:
            return DeltaTable(self.address(table), storage_options=self._storage)
        except TableNotFoundError:
            return None

    def _seen(self, table: str | Dataset) -> DeltaTable | None:
        """Like `open`, for reading alone."""
        return self._opened.table(self.address(table))

    def read(self, name: str) -> "DataFrame | None":
        table = self._seen(name)
        return None if table is None else self.frame(table, self.files(table))

    def read_open(self, name: str) -> "DataFrame | None":
        table = self._seen(name)
        if table is None:
            return None
        return self.frame(table, [file for file in self.files(table) if file.state == "open"])

    def read_events(self, after: Snapshot, upto: Positions) -> "DataFrame":
        table = self._seen(LEASE_EVENTS)
        if table is None:
            raise InvalidOption(f"{self.root} has no table of events yet")
        new = unread(self.files(table), after.inputs.get(EVENTS))
        rows = self.frame(table, new.files)
        is_all = dict(upto) == self._snapshot_of(LEASE_EVENTS).positions
        if is_all and (new.has_only_new or not after.positions):
            return rows
        return between(rows, after.positions, upto)

    def types_of_events(self, after: Snapshot) -> frozenset[str] | None:
        table = self._seen(LEASE_EVENTS)
        if table is None:
            return None
        new = unread(self.files(table), after.inputs.get(EVENTS)).files
        rows = sum(limits.ROWS_HERE_MAX if file.rows is None else file.rows + 1 for file in new)
        if rows > limits.ROWS_HERE_MAX:
            return None
        paths = tuple(file.path for file in new)
        known = self._types
        if known[0] != paths:
            known = paths, values_in(self.address(LEASE_EVENTS), paths, "event_type")
            self._types = known
        return known[1]

    def read_recent(self, name: str, after: Snapshot) -> "DataFrame":
        table = self._seen(name)
        if table is None:
            raise InvalidOption(f"{self.root} has no table {name} yet")
        found = self.files(table)
        new = unread([file for file in found if file.state != "open"], after.inputs.get(name))
        rows = self.frame(table, [*(file for file in found if file.state == "open"), *new.files])
        return rows if new.has_only_new else open_or_after(rows, after.positions)

    def files(self, table: DeltaTable) -> list[DataFile]:
        import pyarrow as pa

        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [
            DataFile(
                path=row["path"],
                size=row["size_bytes"],
                rows=row.get("num_records"),
                state=row.get("partition.state"),
                latest=next((row[name] for name in _TIMES if row.get(name) is not None), None),
            )
            for row in actions
        ]

    def frame(self, table: DeltaTable, files: list[DataFile]) -> "DataFrame":
        return self._frames.of(table, files)

    # -- where a table is -----------------------------------------------------------------------

    def positions(self, name: str) -> dict[str, int]:
        return positions_at(self.address(name), self._storage)

    def snapshot(self, dataset: Dataset) -> Snapshot:
        table = self._seen(dataset)
        if table is None:
            return Snapshot()
        found = table.transaction_version(SCHEMA) or 1
        if found > dataset.version:
            raise TableTooNew(dataset.name, found, dataset.version)
        return self._snapshot_of(dataset, table)

    def _snapshot_of(self, dataset: Dataset, table: DeltaTable | None = None) -> Snapshot:
        table = table or self._seen(dataset)
        if table is None:
            return Snapshot()
        known = self._known.get(dataset.name)
        if known is not None and known.version == table.version():
            return known
        inputs = (EVENTS, *dataset.inputs)
        read = {name: table.transaction_version(f"{INPUT}{name}") for name in inputs}
        self._known[dataset.name] = found = Snapshot(
            version=table.version(),
            positions=by_shard(table, SHARD),
            links=by_shard(table, LINK) if dataset.name == EVENTS else {},
            retired=by_shard(table, RETIRED) if dataset.name == EVENTS else {},
            fence=table.transaction_version(LEASE) or 0,
            inputs={n: version for n, version in read.items() if version not in (None, NOT_READ)},
        )
        return found

    # -- writing --------------------------------------------------------------------------------

    def commit(self, dataset: Dataset, change: Change, commit: Commit) -> Committed:
        table = self._prepared(dataset, commit)
        folder = commit_folder(table.version() + 1, is_step=True)
        if change.files is not None:
            names = change.files(f"{self.address(dataset)}/{folder}")
            written = files_of(names, table=self.address(dataset), folder=folder)
        else:
            written = self._written(dataset, all_rows(dataset, change), folder, commit)
        failpoint("pipeline.after_write")
        if commit.vet is not None:
            commit.vet(written.rows)
        warned = self._check(dataset, table, written)
        removes = self._removed(dataset, change, table)
        failpoint("pipeline.before_commit")
        self.act(dataset, table, [*written.adds, *removes], commit=commit)
        failpoint("pipeline.after_commit")
        return Committed(written.rows, warned)

    def _prepared(self, dataset: Dataset, commit: Commit) -> DeltaTable:
        """The table at the version the step began from, with a place for each shard's position."""
        found = self.snapshot(dataset)
        if found.fence > commit.fence:
            raise TableFenced(dataset.name, commit.fence, found.fence)
        if (found.version, found.positions) != (commit.base.version, commit.base.positions):
            raise TableMoved(dataset.name, commit.base.version)
        table = self.open(dataset) or self._create(dataset)
        names = set(shards_of(table))
        if not set(commit.positions) <= names:
            listed = json.dumps(sorted(names | set(commit.positions)))
            table.alter.set_table_properties({SHARDS: listed}, raise_if_not_exists=False)
            failpoint("pipeline.after_shards")
            table = self.open(dataset) or table
        return table

    def _create(self, dataset: Dataset) -> DeltaTable:
        properties = CommitProperties(app_transactions=[Transaction(SCHEMA, dataset.version)])
        created = DeltaTable.create(
            self.address(dataset),
            Schema.from_arrow(arrow_schema(dataset.columns)),
            mode="ignore",
            partition_by=dataset.partition_by,
            name=dataset.name,
            configuration=_LOG,
            storage_options=self._storage,
            commit_properties=properties,
        )
        failpoint("pipeline.after_creation")
        return created

    def _written(
        self, dataset: Dataset, rows: "DataFrame | None", folder: str, commit: Commit
    ) -> Written:
        if rows is None:
            return Written((), 0)
        at = self.address(dataset)
        events = sum({**commit.base.positions, **commit.positions}.values())
        is_little = events <= limits.EVENTS_FEW_MAX and not dataset.has_bodies
        if self._frames.is_in_one_task and is_little:
            return write_here(rows, dataset, table=at, folder=folder)
        chosen = rows.select(*arrow_schema(dataset.columns).names)
        return write_files(chosen, table=at, folder=folder, split_by=dataset.partition_by)

    def _check(self, dataset: Dataset, table: DeltaTable, written: Written) -> dict[str, int]:
        if not dataset.expectations or not written.adds:
            return {}
        counts = written.broken
        if counts is None:
            counts = self._counted(dataset, table, written)
        warned: dict[str, int] = {}
        for expectation, count in zip(dataset.expectations, counts, strict=True):
            if count and expectation.severity == "fail":
                raise ExpectationFailed(dataset.name, expectation.name, count)
            if count:
                warned[expectation.name] = count
        return warned

    def _counted(self, dataset: Dataset, table: DeltaTable, written: Written) -> tuple[int, ...]:
        """Of what was written rather than of what is to be: it costs a glance at a few columns, not
        the whole computation once more."""
        files = [DataFile(a.path, 0, None, a.partition_values.get("state")) for a in written.adds]
        broken = [f"count_if(NOT coalesce({e.holds}, false))" for e in dataset.expectations]
        return tuple(self.frame(table, files).selectExpr(*broken).collect()[0])

    def _removed(self, dataset: Dataset, change: Change, table: DeltaTable) -> list[RemoveAction]:
        if dataset.kind == "append" or (change.replace is None and change.rows is None):
            return []
        kept = "closed" if dataset.kind == "carry" else None
        return [
            self.removal(file, dataset)
            for file in self.files(table)
            if kept is None or file.state != kept
        ]

    def removal(self, file: DataFile, dataset: Dataset, *, changes: bool = True) -> RemoveAction:
        values = {dataset.partition_by: file.state} if dataset.partition_by else {}
        return RemoveAction(file.path, changes, self._clock.wall_ms(), file.size, values)

    def act(
        self,
        dataset: Dataset,
        table: DeltaTable,
        actions: list[AddAction | RemoveAction],
        *,
        commit: Commit,
        migrates: bool = False,
    ) -> None:
        """One Delta commit on the version that `table` is at, or TableMoved and nothing."""
        try:
            table.create_write_transaction(
                actions,
                "overwrite" if migrates else "append",
                Schema.from_arrow(arrow_schema(dataset.columns)) if migrates else table.schema(),
                dataset.partition_by,
                commit_properties=properties(dataset, commit, migrates=migrates),
            )
        except CommitFailedError as error:
            raise TableMoved(dataset.name, table.version()) from error

    def migrate(self, dataset: Dataset, fence: int) -> bool:
        seen = self._seen(dataset)
        found = dataset.version if seen is None else seen.transaction_version(SCHEMA) or 1
        if found == dataset.version:
            return False
        base, table = self.snapshot(dataset), self.open(dataset)
        assert table is not None, f"{dataset.name} was there a moment ago"
        if base.fence > fence:
            raise TableFenced(dataset.name, fence, base.fence)
        older = Older(self.frame(table, self.files(table)), self.read, base.positions)
        for migration in dataset.migrations[found - 1 :]:
            older = replace(older, rows=migration(older))
        folder = commit_folder(table.version() + 1, is_step=False)
        commit = Commit(base=base, positions=base.positions, fence=fence)
        written = self._written(dataset, older.rows, folder, commit)
        if is_split_otherwise(table, dataset):
            split_anew(
                table,
                dataset,
                properties(dataset, commit, migrates=True),
                schema=Schema.from_arrow(arrow_schema(dataset.columns)),
                address=self.address(dataset),
                folder=folder,
            )
        else:
            self.act(dataset, table, list(written.adds), commit=commit, migrates=True)
        return True
