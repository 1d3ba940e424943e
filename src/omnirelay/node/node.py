"""One running node: opened in phases, closed in reverse."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from omnirelay.identity.settings import build_identity
from omnirelay.mesh.component import Component
from omnirelay.mesh.driver import LoopDriver
from omnirelay.mesh.procedures import register
from omnirelay.model.errors import Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.node.build import build_dispatcher, build_inbounds, node_id, open_engine
from omnirelay.node.settings import NamespaceSettings, NodeSettings, check
from omnirelay.node.watch import ShardWatch
from omnirelay.ops.control import control_pages
from omnirelay.ops.metrics import open_metrics
from omnirelay.ops.tracing import Sampling
from omnirelay.rpc.procedure import Registry

if TYPE_CHECKING:
    from omnirelay.rpc.transport import Inbound
    from omnirelay.sdk.engine import Engine

log = logging.getLogger(__name__)

RELOAD_S = 2.0
"""How often certificate files are looked at."""


class Node:
    """`async with Node(settings) as node:` serves until the block is left. Queues open first, then
    the dispatcher, then the doors; whatever fails closes what was opened, last first."""

    def __init__(self, settings: NodeSettings) -> None:
        check(settings)
        self.settings = settings
        self.node_id = node_id(settings)
        self.shards: dict[str, ShardWatch] = {}
        self.procedures: list[str] = []
        self.is_draining = False
        self._clock = SystemClock()
        self._identity = build_identity(settings.identity, self._clock)
        self._engines: dict[str, Engine] = {}
        self._inbounds: list[Inbound] = []
        self._closing = AsyncExitStack()

    @property
    def urls(self) -> dict[str, str]:
        return {inbound.name: inbound.url for inbound in self._inbounds}

    @property
    def trouble(self) -> str | None:
        """Why it is not ready, if it is not."""
        if self.is_draining:
            return "the node is draining"
        for name, shard in self.shards.items():
            if (trouble := shard.status().trouble) is not None:
                return f"{name}: {trouble}"
        return None

    def drain(self) -> None:
        """Take no new work; calls under way go on."""
        self.is_draining = True
        for engine in self._engines.values():
            engine.shard.turn_away(Unavailable("the node is draining: call another"))

    def resume(self) -> None:
        self.is_draining = False
        for engine in self._engines.values():
            engine.shard.turn_away(None)

    async def __aenter__(self) -> "Node":
        try:
            await self._open()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Who waits for work or follows events is sent away at once; calls under way finish."""
        self.drain()
        for shard in self.shards.values():
            shard.close()
        for engine in self._engines.values():
            engine.end_events()
        await self._closing.aclose()

    async def _open(self) -> None:
        self._closing.push_async_callback(self._identity.close)
        for name, own in self.settings.all_namespaces().items():
            await self._open_engine(name, own)
        registry = Registry()
        for name, engine in self._engines.items():
            driver = LoopDriver(engine.shard, asyncio.get_running_loop())
            component = Component(name, engine, driver.offer)
            register(registry, component)
            watch = self.shards[name] = ShardWatch(engine, component)
            self._keep(watch.refresh())
        shown = open_metrics(self, clock=self._clock)
        self._closing.callback(shown.close)
        sampling = Sampling()
        dispatcher = build_dispatcher(
            self.settings,
            registry,
            self._identity,
            sampling,
            record=shown.record,
            clock=self._clock,
        )
        self.procedures = [procedure.name for procedure in registry]
        pages = control_pages(self, self._identity, clock=self._clock, sampling=sampling)
        self._closing.push_async_callback(self._stop_inbounds)
        for inbound in build_inbounds(
            self.settings,
            dispatcher,
            self._identity,
            clock=self._clock,
            pages=pages,
            is_well=lambda: self.trouble is None,
        ):
            await inbound.start()
            self._inbounds.append(inbound)
        if self._identity.tls is not None:
            self._keep(self._reload())
        log.info("node %s serves %s", self.node_id, ", ".join(self.urls.values()))

    async def _stop_inbounds(self) -> None:
        """Together: the grace is the node's, not each door's."""
        grace_s = self.settings.grace_s
        await asyncio.gather(*(inbound.stop(grace_s) for inbound in self._inbounds))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run beside the doors, until the node closes."""
        self._closing.callback(asyncio.create_task(work).cancel)

    async def _open_engine(self, name: str, own: NamespaceSettings) -> None:
        engine = await asyncio.to_thread(open_engine, self.settings, name, own)
        self._engines[name] = engine
        self._closing.push_async_callback(asyncio.to_thread, engine.close)

    async def _reload(self) -> None:
        tls = self._identity.tls
        assert tls is not None
        while True:
            await asyncio.sleep(RELOAD_S)
            if await asyncio.to_thread(tls.reload_if_changed):
                for inbound in self._inbounds:
                    inbound.reload_tls()
