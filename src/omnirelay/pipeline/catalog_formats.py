"""What the table formats of a user's own Spark do each in their own way: how a note goes into a
commit, how the notes are read back, and how rows take the place of others."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PROPERTY = "omnirelay"


class Format(Protocol):
    """A table format that replaces rows by a condition, in one commit that carries a note."""

    name: str
    """As `CREATE TABLE ... USING` takes it."""

    def notes(self, session: "SparkSession", table: str) -> "DataFrame":
        """One row a commit, the newest first, with the column `note`; null if it has none."""

    def append(self, rows: "DataFrame", table: str, note: str) -> None: ...

    def overwrite(self, rows: "DataFrame", table: str, note: str, where: "Column") -> None:
        """`rows` in the place of those that meet the condition. They may be made of the table."""


class DeltaFormat:
    name = "delta"

    def notes(self, session: "SparkSession", table: str) -> "DataFrame":
        from pyspark.sql import functions as f

        commits = session.sql(f"DESCRIBE HISTORY {table}").orderBy(f.desc("version"))
        return commits.selectExpr("userMetadata AS note")

    def append(self, rows: "DataFrame", table: str, note: str) -> None:
        rows.writeTo(table).option("userMetadata", note).append()

    def overwrite(self, rows: "DataFrame", table: str, note: str, where: "Column") -> None:
        # Delta would have all new rows meet the condition too; closing some is what this is about.
        check = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
        rows.sparkSession.conf.set(check, "false")
        rows.writeTo(table).option("userMetadata", note).overwrite(where)


class IcebergFormat:
    name = "iceberg"

    def notes(self, session: "SparkSession", table: str) -> "DataFrame":
        from pyspark.sql import functions as f

        commits = session.table(f"{table}.snapshots").orderBy(f.desc("committed_at"))
        return commits.selectExpr(f"summary['{_PROPERTY}'] AS note")

    def append(self, rows: "DataFrame", table: str, note: str) -> None:
        rows.writeTo(table).option(f"snapshot-property.{_PROPERTY}", note).append()

    def overwrite(self, rows: "DataFrame", table: str, note: str, where: "Column") -> None:
        rows.writeTo(table).option(f"snapshot-property.{_PROPERTY}", note).overwrite(where)


FORMATS: dict[str, Format] = {one.name: one for one in (DeltaFormat(), IcebergFormat())}
