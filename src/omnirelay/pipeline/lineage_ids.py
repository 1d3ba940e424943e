"""Names of runs that follow from the journal alone, the same in Python and in Spark SQL.

A run is named by what can happen only once: an attempt of an item under a fence. Reading the same
journal again, anywhere, gives the same names, so whoever collects lineage can drop what it has.
"""

from hashlib import sha256


def run_id(shard: str, sequence_id: int, attempt: int, fence: int) -> str:
    """The run of one attempt."""
    return _shaped(f"{shard}/{sequence_id}/{attempt}/{fence}")


def item_run_id(shard: str, sequence_id: int) -> str:
    """The run that an item's attempts have for a parent."""
    return _shaped(f"{shard}/{sequence_id}")


def run_id_sql(
    shard: str = "shard",
    sequence_id: str = "sequence_id",
    attempt: str = "attempt",
    fence: str = "fence",
) -> str:
    """`run_id` as an expression over columns (or expressions) with these names."""
    parts = ", '/', ".join(f"CAST({one} AS STRING)" for one in (shard, sequence_id, attempt, fence))
    digest = f"sha2(concat({parts}), 256)"
    return (
        f"concat(substr({digest}, 1, 8), '-', substr({digest}, 9, 4), '-8', "
        f"substr({digest}, 14, 3), '-8', substr({digest}, 18, 3), '-', substr({digest}, 21, 12))"
    )


def _shaped(name: str) -> str:
    """A UUID of version 8: the one whose bits are the maker's own business."""
    digest = sha256(name.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
