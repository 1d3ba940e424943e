"""The keys of one shard. All of them share a hash tag, so that a cluster keeps them together."""

from urllib.parse import quote


class Keys:
    def __init__(self, prefix: str, shard: str) -> None:
        # Braces in a name would end the tag early.
        tag = f"{prefix}:{{{quote(shard, safe='')}}}"
        self.head = f"{tag}:head"
        self.log = f"{tag}:log"
        """A stream: the envelope that ends at n is the entry n-0, so that the one which holds a
        sequence is the first from it on."""
        self.index = f"{tag}:index"
        """A stream with the same numbers and no bodies, to prune by and to wait on."""
        self.snapshot = f"{tag}:snapshot"
        self.snapshots = f"{tag}:snapshots"
        """The sequences that there are parts of."""
        self.positions = f"{tag}:positions"

    def parts(self, sequence: int) -> str:
        return f"{self.snapshot}:{sequence}"


def entry(sequence: int) -> str:
    return f"{sequence}-0"


def sequence_of(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])
