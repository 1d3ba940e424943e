"""Checkpoints at the hub, beside the journals it keeps, over a connection of their own."""

from omnirelay.journal import replication as wire
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.stores.hub_link import HubLink, HubTarget


class HubCheckpoints:
    """Used on one loop. After a failure the next call connects again."""

    def __init__(self, target: HubTarget) -> None:
        self._link = HubLink(target)

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        request = wire.CheckpointRequest(shard, name)
        found = await self._link.ask("checkpoint", request, wire.CheckpointResponse)
        if found.sequence is None:
            return None
        return Checkpoint(name, shard, found.sequence, found.peers, found.updated_at)

    async def write(self, checkpoint: Checkpoint) -> None:
        c = checkpoint
        request = wire.CheckpointRequest(c.shard, c.name, c.position, c.peers, c.updated_at)
        await self._link.ask("checkpoint", request, wire.CheckpointResponse, changes=True)

    async def readers(self, shard: str) -> list[Checkpoint]:
        request = wire.FollowersRequest(shard)
        found = await self._link.ask("followers", request, wire.FollowersResponse)
        return [
            Checkpoint(one.follower, shard, one.sequence, {}, one.updated_at)
            for one in found.followers
        ]

    async def slowest(self, shard: str) -> int | None:
        return min((one.position for one in await self.readers(shard)), default=None)

    async def forget(self, name: str, shard: str) -> None:
        await self._link.ask("forget", wire.ForgetRequest(shard, name), wire.Done, changes=True)

    async def close(self) -> None:
        await self._link.close()
