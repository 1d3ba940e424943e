"""Named readers whose place a node keeps: it shows how far they are behind, and prunes nothing that
they have not read."""

from collections.abc import Callable

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.sdk.asking import Asking, Route


class NodePositions:
    """A shard is a namespace of the node. Belongs to the loop that first asks; `close` ends that,
    and another loop may go on."""

    def __init__(self, route: Callable[[str], Route]) -> None:
        self._route = route
        self._askings: dict[str, Asking] = {}

    async def _ask(
        self, name: str, shard: str, sequence: int | None = None, *, forget: bool = False
    ) -> int | None:
        if shard not in self._askings:
            self._askings[shard] = self._route(shard).asking(limits.NODE_RETRY_S)
        request = wire.PositionRequest(name, sequence, forget)
        asking = self._askings[shard]
        answer = await asking.ask("position", request, wire.PositionResponse)
        return None if answer is None else answer.sequence

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        position = await self._ask(name, shard)
        return None if position is None else Checkpoint(name, shard, position)

    async def write(self, checkpoint: Checkpoint) -> None:
        await self._ask(checkpoint.name, checkpoint.shard, checkpoint.position)

    async def forget(self, name: str, shard: str) -> None:
        await self._ask(name, shard, forget=True)

    async def close(self) -> None:
        for asking in self._askings.values():
            await asking.close()
        self._askings.clear()
