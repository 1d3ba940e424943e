"""Whatever is planted in a history is found where it was planted, and nothing else is claimed."""

from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.audit import Evidence, audit
from omnirelay.pipeline.planting import KINDS
from tests.spark.audit_histories import (
    IN_ROWS,
    complaints,
    damaged_histories,
    envelopes_of,
    found_by_duckdb,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 700


def test_there_are_enough_kinds_of_damage() -> None:
    assert len(KINDS) >= 30
    assert set(KINDS) - set(IN_ROWS) == {"flipped", "cut-tail"}, "those are planted in files"


@pytest.mark.timeout(300)
def test_every_kind_of_damage_is_found_at_its_place_and_nothing_else_is_claimed(
    spark: "SparkSession",
) -> None:
    histories, planted = damaged_histories(seed=3, events=EVENTS)
    events = table_of(envelopes_of(histories))
    found = audit(spark, Evidence(spark.createDataFrame(events))).findings
    named = {(one.check, one.shard, one.sequence) for one in found}
    assert complaints(named, planted) == []
    # Two events with one sequence have no order, so what follows from them is left to the engine.
    tied = planted["duplicate"].shard
    others = {one for one in found_by_duckdb(events) if one[1] != tied}
    assert {one for one in named if one[1] != tied} == others, "one text, two engines, one answer"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_other_seeds_put_the_damage_elsewhere_and_it_is_found_there(seed: int) -> None:
    histories, planted = damaged_histories(seed, events=1500)
    assert complaints(found_by_duckdb(table_of(envelopes_of(histories))), planted) == []


def test_damage_that_only_shows_in_one_shard_names_every_item_that_came_in_twice() -> None:
    histories, planted = damaged_histories(seed=5, events=EVENTS)
    flaw = planted["restored-elsewhere"]
    found = found_by_duckdb(table_of(envelopes_of(histories)))
    assert ("moves.restored", flaw.shard, flaw.sequence) in found
