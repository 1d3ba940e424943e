"""`resource_ownership`: who held a resource from when to when, by fence.

The leases again, seen from the resource. Where the queue serialises by resource the intervals of a
resource do not overlap; where it does not, two items of one resource may be held at once, and the
table says so. An open row has no end yet.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from functools import partial

from omnirelay.pipeline.datasets import Change, Dataset, Expectation, Step
from omnirelay.pipeline.fresh import fresh_sql, made_by
from omnirelay.pipeline.sql import Dialect

COLUMNS = (
    "shard string, resource_type string, resource_id string, fence bigint, peer_id string,"
    " principal string, from_at timestamp, from_sequence bigint, until_at timestamp,"
    " until_sequence bigint, outcome string, sequence_id bigint, state string"
)


def statement(_: Dialect, *, has_old: bool) -> str:
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)}
SELECT shard, resource_type, resource_id, fence, peer_id, principal, granted_at AS from_at,
  granted_sequence AS from_sequence, ended_at AS until_at, ended_sequence AS until_sequence,
  outcome, sequence_id, state
FROM fresh_lease_attempts
WHERE fence IS NOT NULL"""


def advance(step: Step) -> Change:
    leases = partial(step.recent, "lease_attempts")
    return Change(rows=made_by(statement, step, lease_attempts=leases))


RESOURCE_OWNERSHIP = Dataset(
    name="resource_ownership",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "resource_type", "resource_id", "fence"),
    kind="carry",
    inputs=("lease_attempts",),
    advance=advance,
    partition_by="state",
    expectations=(
        Expectation(
            "a resource is let go after it was taken",
            "until_sequence IS NULL OR until_sequence > from_sequence",
            "warn",
        ),
    ),
)
