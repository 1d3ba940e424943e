"""Where a queue serialises by resource, nobody owned one while another did: the table shows it."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from omnirelay.lease.options import SerializeBy
from omnirelay.pipeline.synth_traffic import Share
from tests.spark.real_tables import Eventful

pytestmark = pytest.mark.timeout(300)
Row = dict[str, Any]  # Any: columns of every type


def overlaps(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Ownerships of one resource of which the later began before the earlier was over."""
    owned: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        owned[row["shard"], row["resource_type"], row["resource_id"]].append(row)
    return [
        (one, other)
        for found in owned.values()
        for one, other in pairwise(sorted(found, key=lambda row: row["from_sequence"]))
        if one["until_sequence"] is None
        or other["from_sequence"] <= one["until_sequence"]
        or other["fence"] <= one["fence"]
        or other["from_at"] < one["until_at"]
    ]


def test_ownerships_of_a_serialised_resource_do_not_overlap(eventful: Eventful) -> None:
    rows = [json.loads(row) for row in eventful.rows["resource_ownership"]]
    free, serial = Share(0, seed=0, total=1), Share(1, seed=0, total=1)
    assert (free.rule, serial.rule) == (SerializeBy.NONE, SerializeBy.RESOURCE)
    held = [row for row in rows if row["shard"] == serial.shard]
    resources = {(row["resource_type"], row["resource_id"]) for row in held}
    assert len(held) > len(resources), "some resource has been owned more than once"
    assert overlaps(held) == []
    # And where resources are not serialised, the same question has another answer.
    assert overlaps([row for row in rows if row["shard"] == free.shard])
