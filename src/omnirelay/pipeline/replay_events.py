"""The events that a job reads: from journals, from the tables, or from an archive."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.address import is_node
from omnirelay.pipeline.replay_files import Files, Foldable, of_archive, of_table
from omnirelay.pipeline.shelf import check_archive
from omnirelay.pipeline.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "lease_events"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Exactly one of the first three; `shards` and `token` are the journal's."""

    journal: str | None = None
    tables: str | None = None
    archive: str | None = None
    shards: str | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.journal, self.tables, self.archive) if one]
        if len(given) != 1:
            raise InvalidOption("name one place to read: --from, --tables or --archive")
        if self.shards is not None and not self.journal:
            raise InvalidOption("--shards goes with --from, whose journals it names")
        if self.archive is not None:
            check_archive(self.archive)

    def check_lossless(self) -> None:
        """Raises InvalidOption for a place whose events do not hold all that a state needs."""
        if self.journal is not None and any(map(is_node, self.journal.split(","))):
            raise InvalidOption(
                f"{self.journal}: a node's events leave out what a state needs (rules, durations): "
                f"replay from its journal's file, from the tables or from the archive"
            )

    def events(self, session: "SparkSession") -> "DataFrame":
        """Columns of `schema.EVENT`, in no order. Raises Unavailable if nothing is there."""
        if self.journal is not None:
            options = source_options([self.journal], shards=self.shards, token=self.token)
            return session.read.format("omnirelay").options(**options).load()
        if self.tables is not None:
            return _of_tables(session, self.tables)
        from omnirelay.pipeline.archive_reading import archived_events

        assert self.archive is not None
        # Of a damaged segment nothing comes: the fold finds the hole, and names it.
        return archived_events(session, self.archive)

    def foldable(self, session: "SparkSession") -> Foldable:
        """Raises Unavailable if nothing is there."""
        return Foldable(session, lambda: self.events(session), self._files(session))

    def _files(self, session: "SparkSession") -> Files | None:
        """Where a shard's rows lie in files of their own."""
        if self.archive is not None:
            return of_archive(self.archive)
        if self.tables is None:
            return None
        from omnirelay.pipeline.delta import DeltaTables
        from omnirelay.pipeline.opening import open_tables

        tables = open_tables(session, self.tables)
        # Where the rows of a catalog's tables lie is its own affair: Spark hands them out.
        table = tables.open(TABLE) if isinstance(tables, DeltaTables) else None
        return None if table is None else of_table(table)


def _of_tables(session: "SparkSession", folder: str) -> "DataFrame":
    from omnirelay.pipeline.opening import open_tables

    found = open_tables(session, folder).read(TABLE)
    if found is None:
        raise Unavailable(f"{folder} has no table {TABLE}: `omnirelay pipeline run` makes it")
    return found
