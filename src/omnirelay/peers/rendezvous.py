"""Which node should own which shard, as every node works it out for itself.

Each pair of node and shard has a number, and the highest of a shard's wins. A node that comes or
goes moves only its own shards; nobody has to agree on anything, because a journal has one owner
whatever the nodes believe.
"""

from collections.abc import Iterable
from hashlib import blake2b


def ranked(shard: str, nodes: Iterable[str]) -> list[str]:
    """Best first."""
    return sorted(set(nodes), key=lambda node: (_weight(shard, node), node), reverse=True)


def _weight(shard: str, node: str) -> bytes:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    return blake2b(f"{len(shard)}:{shard}:{node}".encode(), digest_size=8).digest()
