"""One running node: opened in phases, closed in reverse."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from omnirelay.identity.settings import build_identity
from omnirelay.journal.mirror import OnRival
from omnirelay.lease.records import EpochStarted, Refused
from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.component import Component, peer_of
from omnirelay.mesh.driven import DrivenShard
from omnirelay.mesh.driver import LoopDriver
from omnirelay.mesh.hub_procedures import register_hub
from omnirelay.mesh.office import NEVER
from omnirelay.mesh.procedures import register
from omnirelay.model.errors import PermissionDenied, Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.node.build import build_dispatcher, build_engine, build_inbounds, node_id
from omnirelay.node.cluster import Cluster
from omnirelay.node.hub import open_hub
from omnirelay.node.mirroring import Mirrors
from omnirelay.node.opening import not_open_yet, pages_once_open
from omnirelay.node.settings import NamespaceSettings, NodeSettings, check
from omnirelay.node.standby import Standby
from omnirelay.node.watch import ShardWatch
from omnirelay.ops.control import control_pages
from omnirelay.ops.metrics import open_metrics
from omnirelay.ops.regions import region_pages
from omnirelay.ops.tracing import Sampling
from omnirelay.ops.view import NodeRow
from omnirelay.rpc.meta import Request
from omnirelay.rpc.procedure import Procedure, Registry

if TYPE_CHECKING:
    from omnirelay.mesh.hub import Hub
    from omnirelay.rpc.transport import Inbound
    from omnirelay.sdk.engine import Engine

log = logging.getLogger(__name__)

HAND_OVER_S = 2.0
"""The least that handing queues over may take, however short the grace is."""
RELOAD_S = 2.0
"""How often certificate files are looked at."""


class Node:
    """`async with Node(settings) as node:` serves until the block is left. HTTP opens first, and
    says that the node is starting; then the queues, then the other doors; whatever fails closes
    what was opened, last first."""

    def __init__(self, settings: NodeSettings) -> None:
        check(settings)
        self.settings = settings
        self.node_id = node_id(settings)
        self.shards: dict[str, ShardWatch] = {}
        self.procedures: list[str] = []
        self.is_draining = False
        self._clock = SystemClock()
        self._standby = Standby(settings, self._clock)
        self._identity = build_identity(settings.identity, self._clock)
        self._is_opening = True
        self._engines: dict[str, Engine] = {}
        self._cluster: Cluster | None = None
        self._running_cluster: asyncio.Task[None] | None = None
        self._mirrors: dict[str, Mirrors] = {}
        self._ways_in: dict[str, Callable[[], None]] = {}
        """Each lets callers in to a queue."""
        self._hub: Hub | None = None
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
        return self._standby.trouble or self.unsettled

    @property
    def unsettled(self) -> str | None:
        """Why it cannot do yet, or any more, what it is there for: to serve or to stand by."""
        if self._is_opening:
            return "the node is starting"
        for name, shard in self.shards.items():
            if (trouble := shard.status().trouble) is not None:
                return f"{name}: {trouble}"
        return None

    @property
    def others(self) -> list[NodeRow]:
        return [] if self._cluster is None else self._cluster.rows()

    async def hand_over(self) -> None:
        """Give queues that others can own to them; what comes in afterwards is passed on."""
        if self._cluster is not None:
            await self._cluster.leave()

    def drain(self) -> None:
        """Take no new work; calls under way go on."""
        self.is_draining = True
        for engine in self._engines.values():
            engine.shard.turn_away(Unavailable("the node is draining: call another"))

    def resume(self) -> None:
        self.is_draining = False
        if self._cluster is not None:
            self._cluster.stay()
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
        """Queues go to other nodes first. Then who waits for work or follows events is sent away
        at once; calls under way finish."""
        await self._hand_over_in_time()
        self.drain()
        for shard in self.shards.values():
            shard.close()
        for engine in self._engines.values():
            engine.end_events()
        if self._hub is not None:
            self._hub.turn_away()
        await self._closing.aclose()

    async def _hand_over_in_time(self) -> None:
        try:
            async with asyncio.timeout(max(HAND_OVER_S, self.settings.grace_s)):
                await self.hand_over()
        except TimeoutError:
            log.warning("the node stops before it has handed everything over")
        if self._cluster is not None:
            self._cluster.forwarding.passings.send_away("the node is stopping: call another")

    async def _open(self) -> None:
        self._closing.push_async_callback(self._identity.close)
        for name, own in self.settings.all_namespaces().items():
            self._make_engine(name, own)
        registry = Registry()
        self._cluster = self._build_cluster(registry)
        for name, engine in self._engines.items():
            way_in = self._standby.gate(self._way_in(engine))
            entry = way_in if engine.has_rivals else not_open_yet
            component = Component(name, engine, entry, clock=self._clock)
            self._ways_in[name] = partial(component.desk.admit_by, way_in)
            register(registry, component)
            watch = self.shards[name] = ShardWatch(
                engine, component, self._cluster, self._mirrors[name]
            )
            self._keep(watch.refresh())
            self._keep(watch.tell_lags())
        if self.settings.hub:
            self._hub = open_hub(self.settings, self._identity, self._clock)
            self._closing.push_async_callback(self._hub.close)
            register_hub(registry, self._hub)
        self._identity.authorize.on_denied = self._note_denied
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
            last=() if self._cluster is None else (self._cluster.forwarding,),
        )
        self.procedures = [procedure.name for procedure in registry]
        self._standby.watch(self._engines, self._mirrors)
        pages = {
            **control_pages(self, self._identity, clock=self._clock, sampling=sampling),
            **region_pages(self._standby, self._identity, self._clock),
        }
        pages = pages_once_open(pages, lambda: self._is_opening)
        self._closing.push_async_callback(self._stop_inbounds)
        inbounds = build_inbounds(
            self.settings,
            dispatcher,
            self._identity,
            clock=self._clock,
            pages=pages,
            is_well=lambda: self.trouble is None,
        )
        await self._open_doors(inbounds)
        self._is_opening = False
        if self._identity.tls is not None:
            self._keep(self._reload())
        log.info("node %s serves %s", self.node_id, ", ".join(self.urls.values()))

    async def _open_doors(self, inbounds: Sequence["Inbound"]) -> None:
        """Those with pages first: whoever asks how the node is gets an answer while queues are read
        back. The others once there is something to call; the mesh comes by the stream's."""
        doors = {inbound.name: inbound for inbound in inbounds}
        await self._open_door(doors.get("control"))
        await self._open_door(doors.get("http"))
        for name, engine in self._engines.items():
            if not engine.has_rivals:
                await self._start(name)
        await self._open_door(doors.get("stream"))
        await self._join()
        await self._open_door(doors.get("grpc"))

    async def _open_door(self, inbound: "Inbound | None") -> None:
        if inbound is not None:
            await inbound.start()
            self._inbounds.append(inbound)

    def _build_cluster(self, registry: Registry) -> Cluster | None:
        """Where other nodes may own a queue too."""
        rivalled = {name: one.shard for name, one in self._engines.items() if one.has_rivals}
        if not rivalled:
            return None
        own = self.settings
        cluster = Cluster(
            own.mesh,
            self.node_id,
            rivalled,
            identity=own.identity,
            clock=self._clock,
            is_apart=lambda: self._standby.is_apart,
        )
        cluster.register(registry)
        # After the doors: calls that are under way when they close may still be passed on.
        self._closing.push_async_callback(self._leave_cluster)
        return cluster

    async def _leave_cluster(self) -> None:
        if self._running_cluster is not None:
            self._running_cluster.cancel()
            await asyncio.gather(self._running_cluster, return_exceptions=True)

    async def _join(self) -> None:
        """Once other nodes can reach this one it may own queues, and not before: an epoch says
        where its owner takes calls."""
        if self._cluster is None:
            return
        self._cluster.serve_at(self.urls.get("stream", ""))
        self._running_cluster = asyncio.create_task(self._cluster.run())
        self._running_cluster.add_done_callback(_complain)
        for name, engine in self._engines.items():
            if engine.has_rivals:
                await self._start(name)

    @staticmethod
    def _way_in(engine: "Engine") -> Callable[[AnyCall], None]:
        """This loop may take a shard's turns itself, unless they wait for a server."""
        if isinstance(engine.shard, DrivenShard):
            return LoopDriver(engine.shard, asyncio.get_running_loop()).offer
        return engine.offer

    async def _stop_inbounds(self) -> None:
        """Together: the grace is the node's, not each door's."""
        grace_s = self.settings.grace_s
        await asyncio.gather(*(inbound.stop(grace_s) for inbound in self._inbounds))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run beside the doors, until the node closes."""
        task = asyncio.create_task(work)
        task.add_done_callback(_complain)
        self._closing.callback(task.cancel)

    def _give_way(self, name: str) -> OnRival:
        """For a mirror, which calls from a thread of its own."""
        loop = asyncio.get_running_loop()

        def tell(rival: EpochStarted) -> None:
            loop.call_soon_threadsafe(lambda: self._keep(self._standby.give_way(name, rival)))

        return tell

    def _make_engine(self, name: str, own: NamespaceSettings) -> None:
        engine = build_engine(
            self.settings,
            name,
            own,
            clock=self._clock,
            line=self,
            stands_by=self._standby.is_standing,
        )
        self._engines[name] = engine
        self._closing.push_async_callback(asyncio.to_thread, engine.close)
        mirrors = self._mirrors[name] = Mirrors(
            engine, self.settings, own, self._clock, self._give_way(name)
        )
        self._closing.push_async_callback(asyncio.to_thread, mirrors.close)

    async def _start(self, name: str) -> None:
        await asyncio.to_thread(self._engines[name].start)
        self._ways_in[name]()
        self._mirrors[name].start()

    def _note_denied(self, request: Request, procedure: Procedure, error: PermissionDenied) -> None:
        """The journal says so too, if this node writes it: who was denied is worth knowing."""
        engine, meta = self._engines.get(procedure.namespace), request.meta
        if engine is not None and engine.shard.is_served_here:
            by = (peer_of(meta), meta.principal, meta.proof)
            denied = Refused(procedure.verb, error.code, 1, None, None, None, *by)
            engine.shard.tally.denied.append(denied)

    def rank(self, namespace: str) -> int:
        if self._standby.is_standing:
            return NEVER
        return 0 if self._cluster is None else self._cluster.neighbours.rank(namespace)

    def read_by_all(self, namespace: str) -> int:
        if self._cluster is None:
            return sys.maxsize
        return self._cluster.neighbours.read_by_all(namespace)

    async def _reload(self) -> None:
        tls = self._identity.tls
        assert tls is not None
        while True:
            await asyncio.sleep(RELOAD_S)
            if await asyncio.to_thread(tls.reload_if_changed):
                for inbound in self._inbounds:
                    inbound.reload_tls()


def _complain(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a part of the node has ended", exc_info=error)
