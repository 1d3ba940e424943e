"""Columns as a Dataset names them, without Spark."""

import pyarrow as pa
import pytest

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.decode_types import arrow_schema


def test_a_table_of_somebody_s_own_may_have_any_plain_column() -> None:
    columns = "day date, share float, spans array<struct<low: bigint, tags: map<string, string>>>"
    assert arrow_schema(columns).types == [
        pa.date32(),
        pa.float32(),
        pa.list_(
            pa.field(
                "element",
                pa.struct([("low", pa.int64()), ("tags", pa.map_(pa.string(), pa.string()))]),
            )
        ),
    ]


@pytest.mark.parametrize("kind", ["decimal(10,2)", "STRING", "map<string, double>", "bigint NOT"])
def test_a_column_that_cannot_be_is_named(kind: str) -> None:
    with pytest.raises(InvalidOption, match="no column can be of type"):
        arrow_schema(f"shard string, odd {kind}")
