"""The datasets moved on in DuckDB: the same texts in the other dialect, a hundred times as fast
when histories are small and many."""

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from omnirelay.pipeline.datasets import EVENTS, Dataset, all_datasets
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.fresh import RARE
from omnirelay.pipeline.sql import DUCKDB, DUCKDB_MACROS, named_sql
from omnirelay.testing.event_rows import rows_of
from omnirelay.testing.table_texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnirelay.journal.format import Envelope

Row = dict[str, Any]  # Any: one row of mixed columns


_SPANS = "(SELECT shard, min(sequence) AS since FROM new GROUP BY shard)"


class TablesInDuckDB:
    def __init__(self) -> None:
        self.database = duckdb.connect()
        for text in ("SET timezone = 'UTC'", *DUCKDB_MACROS):
            self.database.execute(text)
        named = {dataset.name: dataset for dataset in all_datasets()}
        self.datasets = [named[name] for name in TEXTS]
        self.has_begun = False

    def advance(self, envelopes: "Iterable[Envelope]") -> None:
        rows = [row for envelope in envelopes for row in rows_of(envelope)]
        self.database.register("arrow_events", pa.Table.from_pylist(rows, schema=SCHEMA))
        self.database.execute("CREATE OR REPLACE TABLE new AS SELECT * FROM arrow_events")
        self._put(EVENTS, "SELECT * FROM new")
        for dataset in self.datasets:
            self._step(dataset)
        self.has_begun = True

    def _step(self, dataset: Dataset) -> None:
        name, is_carry = dataset.name, dataset.kind == "carry"
        old = f"(SELECT * FROM {name} WHERE state = 'open')" if is_carry else name
        tables = {one: one for one in TEXTS} | dict.fromkeys(("new", *RARE), "new") | {"old": old}
        tables |= {"spans": _SPANS, "recent_names": "lineage_names"}
        tables |= {"every_lease": "lease_attempts", "every_item": "items"}
        text = named_sql(TEXTS[name](DUCKDB, has_old=self.has_begun), **tables)
        self.database.execute(f"CREATE OR REPLACE TABLE result AS {text}")
        if self.has_begun and dataset.kind != "append":
            self.database.execute(f"DELETE FROM {name} {'WHERE state = $$open$$' * is_carry}")
        self._put(name, "SELECT * FROM result")

    def _put(self, name: str, rows: str) -> None:
        begin = f"INSERT INTO {name}" if self.has_begun else f"CREATE TABLE {name} AS"
        self.database.execute(f"{begin} {rows}")

    def rows(self, name: str) -> list[Row]:
        """With times as milliseconds."""
        columns = self.database.execute(f"DESCRIBE {name}").fetchall()
        chosen = ", ".join(
            f'epoch_ms("{one}") AS "{one}"' if kind.startswith("TIMESTAMP") else one
            for one, kind, *_ in columns
        )
        found = self.database.execute(f"SELECT {chosen} FROM {name}").fetchall()
        return [dict(zip((one for one, *_ in columns), row, strict=True)) for row in found]
