"""The tables in a catalog of the user's own Spark, in its Delta or Iceberg, instead of a folder.

Rows are written with DataFrameWriterV2, and what `delta.py` keeps as transactions is a note on the
same commit: Delta's `userMetadata`, a property of Iceberg's snapshot. So data and positions are one
commit here too.

What is not proved: neither format's jars come with our packages, so no test of ours has run the few
lines of `catalog_formats.py` against them; what is here is run by tests, over Spark's own catalog
and a format that needs no jars. And two writers are told apart by looking before the write, not by
the write itself: the lease must be a mesh's, and between the look and the write it is the format's
own conflict detection that decides.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.catalog_formats import FORMATS, Format
from omnirelay.pipeline.datasets import (
    EVENTS,
    LEASE_EVENTS,
    QUARANTINED,
    Change,
    Commit,
    Committed,
    Dataset,
    ExpectationFailed,
    Positions,
    Snapshot,
    TableFenced,
    TableMoved,
    TableTooNew,
    all_datasets,
)
from omnirelay.pipeline.delta_rows import all_rows, between, open_or_after

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Note:
    """What a commit says of itself: all positions, not only those that moved."""

    positions: dict[str, int]
    fence: int
    schema: int

    def encode(self) -> str:
        return json.dumps(vars(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> "Note | None":
        """None for what somebody else wrote there."""
        try:
            found = json.loads(text)
            positions = {str(name): int(at) for name, at in found["positions"].items()}
            return cls(positions, int(found["fence"]), int(found["schema"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def catalog_of(address: str) -> tuple[Format, str] | None:
    """`delta:catalog.schema` or `iceberg:catalog.schema`; None for a folder."""
    kind, colon, namespace = address.partition(":")
    if not colon or kind not in FORMATS or namespace.startswith("//"):
        return None
    if not namespace or not all(part.isidentifier() for part in namespace.split(".")):
        raise InvalidOption(f"{address!r}: write {kind}:catalog.schema")
    return FORMATS[kind], namespace


class CatalogTables:
    """`Tables` over `<namespace>.<table>`."""

    def __init__(self, session: "SparkSession", format_: Format, namespace: str) -> None:
        self.session = session
        self.root = f"{format_.name}:{namespace}"
        self._format = format_
        self._namespace = namespace

    def names(self) -> list[str]:
        listed = self.session.sql(f"SHOW TABLES IN {self._namespace}").collect()
        there = {row["tableName"] for row in listed}
        return [f"{one.layer}/{one.name}" for one in declared() if one.name in there]

    def _name(self, table: str) -> str:
        """Of a table, also as `names` calls it."""
        return f"{self._namespace}.{table.rpartition('/')[2]}"

    def read(self, name: str) -> "DataFrame | None":
        if not self.session.catalog.tableExists(self._name(name)):
            return None
        return self.session.table(self._name(name))

    def read_open(self, name: str) -> "DataFrame | None":
        rows = self.read(name)
        return None if rows is None else rows.where("state = 'open'")

    def read_events(self, after: Snapshot, upto: Positions) -> "DataFrame":
        rows = self.read(EVENTS)
        if rows is None:
            raise InvalidOption(f"{self.root} has no table of events yet")
        is_all = not after.positions and dict(upto) == self.snapshot(LEASE_EVENTS).positions
        return rows if is_all else between(rows, after.positions, upto)

    def types_of_events(self, after: Snapshot) -> frozenset[str] | None:
        return None

    def read_recent(self, name: str, after: Snapshot) -> "DataFrame":
        rows = self.read(name)
        if rows is None:
            raise InvalidOption(f"{self.root} has no table {name} yet")
        return open_or_after(rows, after.positions)

    def positions(self, name: str) -> dict[str, int]:
        note = self._newest(name)[1]
        return {} if note is None else note.positions

    def snapshot(self, dataset: Dataset) -> Snapshot:
        version, note = self._newest(dataset.name)
        if note is None:
            return Snapshot(version=version)
        if note.schema > dataset.version:
            raise TableTooNew(dataset.name, note.schema, dataset.version)
        return Snapshot(version, note.positions, note.fence)

    def _newest(self, table: str) -> tuple[int, Note | None]:
        """How many commits there are, -1 if there is no table, and the newest note of ours."""
        if not self.session.catalog.tableExists(self._name(table)):
            return -1, None
        commits = self._format.notes(self.session, self._name(table)).collect()
        noted = (Note.decode(row["note"]) for row in commits if row["note"] is not None)
        return len(commits), next((found for found in noted if found is not None), None)

    def migrate(self, dataset: Dataset, fence: int) -> bool:
        """A table of one's own catalog is altered by its owner."""
        return False

    def commit(self, dataset: Dataset, change: Change, commit: Commit) -> Committed:
        found = self.snapshot(dataset)
        if found.fence > commit.fence:
            raise TableFenced(dataset.name, commit.fence, found.fence)
        if found.positions != commit.base.positions:
            raise TableMoved(dataset.name, commit.base.version)
        self.session.sql(creation(self._format.name, self._name(dataset.name), dataset))
        rows = all_rows(dataset, change)
        if rows is None:
            rows = self.session.createDataFrame([], dataset.columns)
        # Counted, judged and written, of one computation.
        rows = rows.persist()
        try:
            counts = self._judged(dataset, rows)
            if commit.vet is not None:
                commit.vet(counts.rows)
            note = Note({**found.positions, **commit.positions}, commit.fence, dataset.version)
            self._write(dataset, change, rows, note)
        finally:
            rows.unpersist()
        return counts

    def _judged(self, dataset: Dataset, rows: "DataFrame") -> Committed:
        broken = [f"count_if(NOT coalesce({e.holds}, false))" for e in dataset.expectations]
        total, *counts = rows.selectExpr("count(*)", *broken).collect()[0]
        warned: dict[str, int] = {}
        for expectation, count in zip(dataset.expectations, counts, strict=True):
            if count and expectation.severity == "fail":
                raise ExpectationFailed(dataset.name, expectation.name, count)
            if count:
                warned[expectation.name] = count
        return Committed(total, warned)

    def _write(self, dataset: Dataset, change: Change, rows: "DataFrame", note: Note) -> None:
        from pyspark.sql import functions as f

        table, text = self._name(dataset.name), note.encode()
        if change.replace is None and change.rows is None:
            self._format.append(rows, table, text)
        else:
            is_carry = dataset.kind == "carry"
            where = f.col("state") == "open" if is_carry else f.lit(True)
            self._format.overwrite(rows, table, text, where)


def declared() -> tuple[Dataset, ...]:
    """Every table that a pipeline and its audits make."""
    from omnirelay.pipeline.audit_report import FINDINGS, RUNS

    return (LEASE_EVENTS, *all_datasets(), FINDINGS, RUNS, QUARANTINED)


def creation(kind: str, table: str, dataset: Dataset) -> str:
    parts = f" PARTITIONED BY ({dataset.partition_by})" if dataset.partition_by else ""
    return f"CREATE TABLE IF NOT EXISTS {table} ({dataset.columns}) USING {kind}{parts}"
