"""The files of a Delta table as Spark's rows.

A step's new events are read by a dozen tables, and what is made of them by some of these: for files
that were asked for a moment ago Spark need not look again. A commit never changes a file.
"""

import json
from typing import TYPE_CHECKING

from omnirelay.model import limits
from omnirelay.pipeline.delta_files import DataFile, plain_address
from omnirelay.pipeline.delta_rows import together
from omnirelay.pipeline.session import is_in_one_task

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Frames:
    def __init__(self, session: "SparkSession") -> None:
        self._session = session
        self._known: dict[tuple[str, ...], DataFrame] = {}
        self.is_in_one_task = is_in_one_task(session)

    def of(self, table: "DeltaTable", files: list[DataFile]) -> "DataFrame":
        at, schema = plain_address(table.table_uri), table.schema().to_json()
        key = (at, schema, *sorted(file.path for file in files))
        # Taken out and put back, so that what is not asked for any more is the first.
        found = self._known.pop(key, None)
        if found is None:
            found = self._made(at, schema, files)
        self._known[key] = found
        for oldest in list(self._known)[: -limits.FRAMES_KNOWN_MAX]:
            self._known.pop(oldest, None)
        return found

    def _made(self, at: str, schema: str, files: list[DataFile]) -> "DataFrame":
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        struct = StructType.fromJson(json.loads(schema))
        if not files:
            return self._nothing(struct)
        # A partition's value is in the log, not in its files.
        parts: list[DataFrame] = []
        for state in sorted({file.state for file in files}, key=str):
            paths = [f"{at}/{file.path}" for file in files if file.state == state]
            part = self._session.read.schema(struct).parquet(*paths)
            parts.append(part if state is None else part.withColumn("state", f.lit(state)))
        rows = together(parts)
        return rows.coalesce(1) if self.is_in_one_task else rows

    def _nothing(self, struct: "StructType") -> "DataFrame":
        """Said so that Spark knows it: what would be made of it goes from the plan."""
        return self._session.createDataFrame([], struct).where("false")
