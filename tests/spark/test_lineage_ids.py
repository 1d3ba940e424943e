"""A run has one name, wherever it is worked out."""

from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from omnirelay.pipeline.lineage_ids import item_run_id, run_id, run_id_sql
from omnirelay.testing import strategies as drawn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = [("resourcelease", 1, 1, 2), ("a/b", 7, 3, 99), ("ש🙂'\"", 2**53, 1000, 2**52)]


@given(drawn.names, drawn.sequence_ids, drawn.attempts, st.integers(0, 2**62))
def test_a_run_id_is_a_uuid_of_the_makers_own_kind(
    shard: str, sequence_id: int, attempt: int, fence: int
) -> None:
    found = UUID(run_id(shard, sequence_id, attempt, fence))
    assert (found.version, str(found.variant)) == (8, "specified in RFC 4122")


def test_attempts_and_items_are_told_apart() -> None:
    names = {run_id(*one) for one in ATTEMPTS} | {item_run_id(one[0], one[1]) for one in ATTEMPTS}
    assert len(names) == 2 * len(ATTEMPTS)


def test_sql_and_python_give_a_run_the_same_name(spark: "SparkSession") -> None:
    frame = spark.createDataFrame(ATTEMPTS, "shard string, sequence_id bigint, attempt int, f long")
    rows = frame.selectExpr(f"{run_id_sql(fence='f')} AS run").collect()
    assert [row.run for row in rows] == [run_id(*one) for one in ATTEMPTS]
