"""A catalog that every Spark has, with Parquet tables, in the place of Delta's or Iceberg's: their
jars are not there. What those do in one commit this one does in two steps: good for all but
crashes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NOTES = "notes"


class PlainFormat:
    name = "parquet"

    def notes(self, session: "SparkSession", table: str) -> "DataFrame":
        kept = [(number, note) for number, note in enumerate(self._kept(session, table))]
        found = session.createDataFrame(kept, "number int, note string")
        return found.orderBy(f.desc("number")).select("note")

    def _kept(self, session: "SparkSession", table: str) -> list[str]:
        shown = session.sql(f"SHOW TBLPROPERTIES {table}").collect()
        found = {row["key"]: row["value"] for row in shown}
        return list(json.loads(bytes.fromhex(found.get(_NOTES, b"[]".hex()))))

    def _note(self, session: "SparkSession", table: str, note: str) -> None:
        text = json.dumps([*self._kept(session, table), note]).encode().hex()
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{_NOTES}' = '{text}')")

    def append(self, rows: "DataFrame", table: str, note: str) -> None:
        session = rows.sparkSession
        rows.select(*session.table(table).columns).write.insertInto(table)
        self._note(session, table, note)

    def overwrite(self, rows: "DataFrame", table: str, note: str, where: "Column") -> None:
        session, old = rows.sparkSession, rows.sparkSession.table(table)
        whole = old.where(~where).unionByName(rows.select(*old.columns))
        # Spark does not overwrite what it reads.
        apart = session.createDataFrame(whole.collect(), old.schema)
        apart.write.insertInto(table, overwrite=True)
        session.catalog.refreshTable(table)
        self._note(session, table, note)


@contextmanager
def plain_catalog(session: "SparkSession", folder: Path) -> Iterator[str]:
    """The name of a schema that is gone afterwards."""
    session.sql(f"CREATE DATABASE plain LOCATION '{folder}'")
    try:
        yield "spark_catalog.plain"
    finally:
        session.sql("DROP DATABASE plain CASCADE")
