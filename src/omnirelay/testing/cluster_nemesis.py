"""What is done to a mesh while its callers go on. Each trouble ends with everything mended."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from omnirelay.testing.cluster_net import Road
from omnirelay.testing.cluster_nodes import ClusterMesh, ClusterNode

HOUR_S = 3600.0

Trouble = Callable[[], Awaitable[None]]


class Kill(NamedTuple):
    """An owner that was killed, to measure how long nobody served."""

    at: float
    epoch: int


class Nemesis:
    def __init__(self, mesh: ClusterMesh, *, epoch_s: float) -> None:
        self.mesh = mesh
        self.actions: list[str] = []
        self.kills: list[Kill] = []
        self._epoch_s = epoch_s

    async def _newest(self) -> int:
        rows = await asyncio.to_thread(self.mesh.rows)
        return max(int(row["epoch"]) for row in rows)

    async def _replaced(self, owner: ClusterNode) -> None:
        """Until the others know another owner."""
        await self.mesh.owner(but=owner)

    async def kill_the_owner(self) -> None:
        owner = await self.mesh.owner()
        epoch = await self._newest()
        self.actions.append(f"kill {owner.name}")
        self.kills.append(Kill(time.monotonic(), epoch))
        owner.end(signal.SIGKILL)
        await self._replaced(owner)
        owner.launch()
        await asyncio.to_thread(owner.await_ready)

    async def stop_the_owner(self) -> None:
        """Beyond its epoch; when it goes on, it still believes."""
        owner = await self.mesh.owner()
        self.actions.append(f"stop {owner.name}")
        owner.send(signal.SIGSTOP)
        try:
            await self._replaced(owner)
        finally:
            owner.send(signal.SIGCONT)

    async def cut_the_owner_from_the_store(self) -> None:
        owner = await self.mesh.owner()
        self.actions.append(f"cut {owner.name} from the store")
        await self._cut_until_replaced(owner, self.mesh.store_roads_of(owner))

    async def let_the_store_answer_nobody(self) -> None:
        """What the owner writes arrives, and it does not hear of it."""
        owner = await self.mesh.owner()
        self.actions.append(f"{owner.name} does not hear the store")
        await self._cut_until_replaced(owner, self.mesh.store_roads_of(owner), there=False)

    async def silence_the_owner(self) -> None:
        """It hears the store, and what it writes does not arrive."""
        owner = await self.mesh.owner()
        self.actions.append(f"the store does not hear {owner.name}")
        await self._cut_until_replaced(owner, self.mesh.store_roads_of(owner), back=False)

    async def cut_the_owner_off(self) -> None:
        """From the store, from the other nodes and from its callers; it runs on."""
        owner = await self.mesh.owner()
        self.actions.append(f"cut {owner.name} off")
        await self._cut_until_replaced(owner, self.mesh.all_roads_of(owner))

    async def _cut_until_replaced(
        self, owner: ClusterNode, roads: Sequence[Road], *, there: bool = True, back: bool = True
    ) -> None:
        for road in roads:
            road.cut(there=there, back=back)
        try:
            await self._replaced(owner)
        finally:
            for road in roads:
                road.heal()

    async def shut_the_owners_door(self) -> None:
        """Other nodes cannot call it; it writes on and stays the owner."""
        owner = await self.mesh.owner()
        self.actions.append(f"nobody reaches {owner.name}")
        roads = self.mesh.roads_to(owner)
        for road in roads:
            road.cut(back=False)
        try:
            await asyncio.sleep(self._epoch_s / 2)
        finally:
            for road in roads:
                road.heal()

    async def slow_everything_down(self) -> None:
        self.actions.append("slow roads")
        for road in self.mesh.all_roads:
            road.slow_down(0.05)
        try:
            await asyncio.sleep(self._epoch_s)
        finally:
            for road in self.mesh.all_roads:
                road.heal()

    async def jump_the_clocks(self) -> None:
        """The owner's time of day is an hour ahead and then an hour behind; while the others are
        another hour off, one of them takes over. No lease may end early for it, nor late."""
        owner = await self.mesh.owner()
        self.actions.append(f"jump the clock of {owner.name}")
        try:
            for off_s in (HOUR_S, -HOUR_S):
                owner.shift_clock(off_s)
                await asyncio.sleep(self._epoch_s / 4)
            for place, node in enumerate(self.mesh.nodes):
                node.shift_clock((place + 2) * HOUR_S)
            await self.stop_the_owner()
        finally:
            for node in self.mesh.nodes:
                node.shift_clock(0.0)

    async def restart_one_by_one(self) -> None:
        """As an upgrade does, the owner last but one and never two at a time."""
        for node in self.mesh.nodes:
            self.actions.append(f"restart {node.name}")
            assert await asyncio.to_thread(node.end) == 0, node.log[-2000:]
            node.launch()
            await asyncio.to_thread(node.await_ready)

    def troubles(self) -> list[Trouble]:
        """Those that this mesh can suffer."""
        return [*self.of_nodes(), *(self.of_roads() if self.mesh.to_store else ())]

    def of_nodes(self) -> list[Trouble]:
        return [
            self.kill_the_owner,
            self.stop_the_owner,
            self.jump_the_clocks,
            self.shut_the_owners_door,
            self.slow_everything_down,
        ]

    def of_roads(self) -> list[Trouble]:
        """For a mesh that reaches its store by roads."""
        return [
            self.cut_the_owner_from_the_store,
            self.let_the_store_answer_nobody,
            self.silence_the_owner,
            self.cut_the_owner_off,
        ]
