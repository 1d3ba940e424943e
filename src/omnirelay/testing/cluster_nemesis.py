"""What is done to a mesh while its callers go on. Each trouble ends with everything mended."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from omnirelay.testing.cluster_nodes import ClusterMesh, ClusterNode

LOOK_S = 0.02


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
        link = self.mesh.to_store[self.mesh.place(owner)]
        link.cut()
        try:
            await self._replaced(owner)
        finally:
            link.heal()

    async def let_the_store_answer_nobody(self) -> None:
        """What the owner writes arrives, and it does not hear of it."""
        owner = await self.mesh.owner()
        self.actions.append(f"{owner.name} does not hear the store")
        link = self.mesh.to_store[self.mesh.place(owner)]
        link.cut(there=False)
        try:
            await self._replaced(owner)
        finally:
            link.heal()

    async def shut_the_owners_door(self) -> None:
        """Other nodes cannot call it; it writes on and stays the owner."""
        owner = await self.mesh.owner()
        self.actions.append(f"nobody reaches {owner.name}")
        door = self.mesh.doors[self.mesh.place(owner)]
        door.cut(back=False)
        try:
            await asyncio.sleep(self._epoch_s / 2)
        finally:
            door.heal()

    async def slow_everything_down(self) -> None:
        self.actions.append("slow links")
        links = [*self.mesh.doors, *self.mesh.to_store]
        for link in links:
            link.slow_down(0.05)
        try:
            await asyncio.sleep(self._epoch_s)
        finally:
            for link in links:
                link.heal()

    async def restart_one_by_one(self) -> None:
        """As an upgrade does, the owner last but one and never two at a time."""
        for node in self.mesh.nodes:
            self.actions.append(f"restart {node.name}")
            assert await asyncio.to_thread(node.end) == 0, node.log[-2000:]
            node.launch()
            await asyncio.to_thread(node.await_ready)

    def troubles(self) -> list[Callable[[], Awaitable[None]]]:
        """Those that this mesh can suffer."""
        always = [self.kill_the_owner, self.stop_the_owner, self.shut_the_owners_door]
        with_links = [
            self.cut_the_owner_from_the_store,
            self.let_the_store_answer_nobody,
            self.slow_everything_down,
        ]
        return [*always, *(with_links if self.mesh.to_store else ())]
