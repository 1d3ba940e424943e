"""The rows of a short journal's table, written by the driver itself.

Spark's own writer makes folders for attempts, renames what is in them, starts a process to set the
permissions of each, and is asked once more to judge what it wrote. For few rows that is half of a
step's time; so these come to the driver, which judges and writes them.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.model.errors import OmniRelayError
from omnirelay.pipeline.decode_types import arrow_schema
from omnirelay.pipeline.delta_files import Written, files_of, write_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnirelay.pipeline.datasets import Dataset


def write_here(rows: "DataFrame", dataset: "Dataset", *, table: str, folder: str) -> Written:
    """Raises whatever Spark raises; then nothing was written."""
    judged = [
        f"NOT coalesce({expectation.holds}, false) AS {_broken(place)}"
        for place, expectation in enumerate(dataset.expectations)
    ]
    found = (rows.selectExpr("*", *judged) if judged else rows).toArrow()
    broken = tuple(pc.sum(found[_broken(place)]).as_py() or 0 for place in range(len(judged)))
    schema = arrow_schema(dataset.columns)
    kept = found.select(schema.names).cast(schema)
    names = _written(kept, f"{table}/{folder}", dataset.partition_by)
    return files_of(names, table=table, folder=folder, split_by=dataset.partition_by, broken=broken)


def _broken(place: int) -> str:
    return f"_broken_{place}"


def _written(rows: pa.Table, into: str, split_by: str | None) -> list[str]:
    if split_by is None:
        name = write_part(rows.to_batches(), into)
        return [] if name is None else [name]
    names = []
    for value in pc.unique(rows[split_by]).to_pylist():
        if value is None:
            raise OmniRelayError(f"a row of {into} without {split_by} belongs into no folder")
        part = rows.filter(pc.equal(rows[split_by], value)).drop_columns([split_by])
        names.append(
            f"{split_by}={value}/{write_part(part.to_batches(), f'{into}/{split_by}={value}')}"
        )
    return names
