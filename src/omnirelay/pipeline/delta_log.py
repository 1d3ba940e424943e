"""What stands in the log of a Delta table beside its files, as transactions (application, version):

    shard:<name>          how far the table has come in the shard
    link:<name>           of the event table: the envelope that holds that position, by the first
                          digits of its checksum
    retired:<name>        of the event table: up to where a shard's events were let go for their age
    omnirelay.lease       the fence of the pipeline that wrote
    omnirelay.schema      the version of the columns
    input:<table>         the version of another table that was read to its end

The names of the shards, which a log of transactions does not list, are a property of the table,
written before the first commit that needs one.
"""

import json
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError

if TYPE_CHECKING:
    from omnirelay.pipeline.datasets import Commit, Dataset

SHARD = "shard:"
LINK = "link:"
RETIRED = "retired:"
LEASE = "omnirelay.lease"
SCHEMA = "omnirelay.schema"
INPUT = "input:"
SHARDS = "omnirelay.shards"
# Within a lease nobody else commits, and a commit that would land later than the version its files
# are named for is not the one its step worked out.
_NO_RETRY = 0


def properties(dataset: "Dataset", commit: "Commit", *, migrates: bool) -> CommitProperties:
    """What stands in the log beside the files."""
    versions = {f"{SHARD}{shard}": at for shard, at in commit.positions.items()}
    versions |= {f"{LINK}{shard}": link for shard, link in commit.links.items()}
    versions |= {f"{RETIRED}{shard}": at for shard, at in commit.retired.items()}
    versions |= {f"{INPUT}{name}": version for name, version in commit.inputs.items()}
    versions |= {LEASE: commit.fence} | ({SCHEMA: dataset.version} if migrates else {})
    return CommitProperties(
        max_commit_retries=_NO_RETRY,
        app_transactions=[Transaction(name, version) for name, version in versions.items()],
    )


def positions_at(address: str, storage: dict[str, str] | None = None) -> dict[str, int]:
    """How far the table has come; nowhere if there is none."""
    try:
        return by_shard(DeltaTable(address, storage_options=storage), SHARD)
    except TableNotFoundError:
        return {}


def shards_of(table: DeltaTable) -> list[str]:
    listed = table.metadata().configuration.get(SHARDS)
    return [] if listed is None else [str(name) for name in json.loads(listed)]


def by_shard(table: DeltaTable, kind: str) -> dict[str, int]:
    found = {shard: table.transaction_version(f"{kind}{shard}") for shard in shards_of(table)}
    return {shard: at for shard, at in found.items() if at is not None}
