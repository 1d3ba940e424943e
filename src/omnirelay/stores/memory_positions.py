"""Checkpoints that live and die with the process; they belong to a `memory:` journal."""

from omnirelay.journal.checkpoint import Checkpoint


class MemoryCheckpoints:
    def __init__(self) -> None:
        self._stored: dict[tuple[str, str], Checkpoint] = {}

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        return self._stored.get((name, shard))

    async def write(self, checkpoint: Checkpoint) -> None:
        known = self._stored.get((checkpoint.name, checkpoint.shard))
        if known is None or known.position <= checkpoint.position:
            self._stored[(checkpoint.name, checkpoint.shard)] = checkpoint

    async def readers(self, shard: str) -> list[Checkpoint]:
        found = sorted((name, c) for (name, s), c in self._stored.items() if s == shard)
        return [Checkpoint(name, shard, c.position, {}, c.updated_at) for name, c in found]

    async def slowest(self, shard: str) -> int | None:
        return min((c.position for (_, s), c in self._stored.items() if s == shard), default=None)

    async def forget(self, name: str, shard: str) -> None:
        self._stored.pop((name, shard), None)

    async def close(self) -> None:
        return None
