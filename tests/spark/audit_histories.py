"""Histories for the audit's tests: many shards as one frame of events."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from omnirelay.pipeline.decode import Part, batch_of
from omnirelay.pipeline.synth_chain import Kept, sealed
from omnirelay.pipeline.synth_traffic import Share, Traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def clean_history(share: Share) -> list[Kept]:
    return list(sealed(share.shard, Traffic(share).run()))


def frame_of(spark: "SparkSession", histories: Iterable[list[Kept]]) -> "DataFrame":
    batches = [batch_of([one.envelope for one in kept], Part()) for kept in histories]
    return spark.createDataFrame(pa.Table.from_batches(batches))
