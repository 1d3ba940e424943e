"""A table whose rows come to lie in other folders than before: a change of what it is split by.

A Delta commit that only adds files cannot say so; delta-rs can when it writes the rows itself.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import Schema, write_deltalake

from omnirelay.pipeline.delta_files import file_system

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

    from omnirelay.pipeline.datasets import Dataset


def is_split_otherwise(table: "DeltaTable", dataset: "Dataset") -> bool:
    split_by = [] if dataset.partition_by is None else [dataset.partition_by]
    return table.metadata().partition_columns != split_by


def split_anew(
    table: "DeltaTable",
    dataset: "Dataset",
    properties: "CommitProperties",
    *,
    schema: Schema,
    address: str,
    folder: str,
) -> None:
    """All rows that were written into `folder`, in one commit instead of those that are there. They
    pass through in batches, however many they are; the folder goes."""
    system, path = file_system(f"{address}/{folder}")
    system.create_dir(path)
    by = [] if dataset.partition_by is None else [(dataset.partition_by, pa.string())]
    rows = pads.dataset(
        path,
        schema=pa.schema(schema.to_arrow()),
        format="parquet",
        filesystem=system,
        partitioning=pads.partitioning(pa.schema(by), flavor="hive"),
    )
    write_deltalake(
        table,
        rows.scanner().to_reader(),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=[name for name, _ in by],
        commit_properties=properties,
    )
    system.delete_dir(path)
