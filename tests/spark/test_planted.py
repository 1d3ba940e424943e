"""Whatever is planted in a history is found where it was planted, and nothing else is claimed."""

from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.audit import Audited, Evidence, Finding, audit
from omnirelay.pipeline.planting import KINDS, plant
from omnirelay.pipeline.planting_bed import Planted
from omnirelay.pipeline.synth_traffic import Share
from tests.spark.audit_histories import clean_history, frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 900
IN_ROWS = [kind for kind, flaw in KINDS.items() if "archive" in flaw.forms or kind == "cut-tail"]
# One clean shard before each damaged one: those with an odd number take in what it hands over.
COUNT = 2 * len(IN_ROWS)


@pytest.fixture(scope="module")
def planted() -> dict[str, Planted]:
    return {}


@pytest.fixture(scope="module")
def found(spark: "SparkSession", planted: dict[str, Planted]) -> Audited:
    histories = []
    for number, kind in enumerate(IN_ROWS):
        kept, planted[kind] = plant(kind, _share(2 * number + 1))
        histories += [clean_history(_share(2 * number)), kept]
    acknowledged = {one.shard: one.acknowledged[0] for one in planted.values() if one.acknowledged}
    evidence = Evidence(frame_of(spark, histories), acknowledged=acknowledged)
    return audit(spark, evidence)


def _share(number: int) -> Share:
    return Share(number, seed=3, total=EVENTS * COUNT, count=COUNT)


@pytest.mark.timeout(180)
def test_histories_beside_the_damaged_ones_stay_free_of_findings(
    found: Audited, planted: dict[str, Planted]
) -> None:
    damaged = {one.shard for one in planted.values()}
    assert [one for one in found.findings if one.shard not in damaged] == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", IN_ROWS)
def test_planted_damage_is_found_by_its_check_at_its_place_and_nothing_else_is_claimed(
    kind: str, found: Audited, planted: dict[str, Planted]
) -> None:
    flaw = planted[kind]
    here = [one for one in found.findings if one.shard == flaw.shard]
    assert (flaw.check, flaw.sequence) in {(one.check, one.sequence) for one in here}, here
    assert {one.check for one in here} <= {flaw.check, *flaw.also}, _beside(here, flaw)


def _beside(findings: list[Finding], flaw: Planted) -> list[Finding]:
    return [one for one in findings if one.check not in (flaw.check, *flaw.also)]
