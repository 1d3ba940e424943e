"""Nodes that share a simulated journal: each the real shard, cluster, forwarding and verbs, in a
process that can be paused, killed, cut off and started again."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from random import Random

from omnirelay.identity.settings import IdentitySettings
from omnirelay.journal.events import Event
from omnirelay.mesh import procedures
from omnirelay.mesh.component import Component
from omnirelay.mesh.neighbours import Known, Neighbour
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import OutcomeUnknown
from omnirelay.node.cluster import Cluster
from omnirelay.node.settings import MeshSettings
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.procedure import Registry
from omnirelay.rpc.transport import Outbound
from omnirelay.testing.loop import SimClock
from omnirelay.testing.mesh_plan import DRIFT, MeshPlan
from omnirelay.testing.mesh_store import DOWN, UP, SimStore, StoreHandle
from omnirelay.testing.mesh_wire import Calling, SimOutbound, Wire
from omnirelay.testing.nodes import SeededIds, SimRest
from omnirelay.testing.pausing import PausingLoop, process_context

SHARD = "sim"
STOPPED_S = 0.03


class NodeClock(SimClock):
    """Its own rate and its own idea of the date."""

    def __init__(self, loop: PausingLoop, *, rate: float, offset_ms: int) -> None:
        super().__init__(loop)
        self._source = loop
        self._rate = rate
        self.jump_wall(offset_ms)

    def monotonic_ms(self) -> int:
        return int(self._source.time() * self._rate * 1000 + 0.0005)


class _Queue:
    """What a component needs, without readers of events: those have their own simulation."""

    def __init__(self, shard: Shard) -> None:
        self.offer = shard.offer

    def events(self, after: int, *, follow: bool) -> AsyncGenerator[Event]:
        raise NotImplementedError

    async def position(self, reader: str, sequence: int | None, *, forget: bool) -> int | None:
        raise NotImplementedError


class SimCluster(Cluster):
    """The real one, over the simulated wire."""

    def __init__(self, life: "Life", settings: MeshSettings, shard: Shard) -> None:
        self._life = life
        super().__init__(
            settings, life.name, {SHARD: shard}, identity=IdentitySettings(), clock=life.clock
        )

    def _reach(self, url: str) -> Outbound:
        return self._life.fleet.outbound(self._life.name, url, self._life.clock)


class Life:
    """One process of a node, from its start to its end."""

    def __init__(self, fleet: "Fleet", name: str, clock: NodeClock) -> None:
        plan, loop = fleet.plan, fleet.loop
        self.fleet = fleet
        self.name = name
        self.clock = clock
        self.is_alive = True
        self.calls: dict[Calling, None] = {}
        self.context = process_context(self)
        self.journal = StoreHandle(fleet.store, name)
        self.shard = Shard(
            self.journal,
            ShardOptions(
                node=name,
                queue=plan.queue,
                keep=plan.keep,
                ttl_ms=plan.ttl_ms,
                retry_min_s=0.01,
                retry_max_s=0.05,
            ),
            clock=clock,
            ids=fleet.ids,
            rest=SimRest(loop),
            rank=self._rank,
        )
        knows = "neighbours" in plan.habits
        settings = MeshSettings(
            peers=tuple(fleet.urls.values()) if knows else (),
            advertise=fleet.urls[name],
            epoch_s=plan.ttl_ms / 1000,
        )
        self.cluster = SimCluster(self, settings, self.shard)
        self.cluster.serve_at("")
        registry = Registry()
        procedures.register(registry, Component(SHARD, _Queue(self.shard), clock=clock))
        self.cluster.register(registry)
        self.handler = Dispatcher(registry, [self.cluster.forwarding])
        # Who knows nobody has nobody to ask or to give anything to.
        other = self.cluster.run() if knows else self.cluster.forwarding.passings.run()
        running = (self.shard.run(), other)
        self.tasks = [loop.create_task(one, context=self.context) for one in running]

    def _rank(self) -> int:
        return self.cluster.neighbours.rank(SHARD)

    def die(self) -> list["asyncio.Task[None]"]:
        """At once: nothing it does from now on is seen. Its callers' connections break."""
        self.is_alive, self.journal.is_dead = False, True
        self.fleet.loop.resume(self)
        dying = [*self.tasks, *(call.task for call in self.calls if call.task is not None)]
        for call in self.calls:
            call.refuse(OutcomeUnknown("the connection was lost"))
        self.calls.clear()
        for task in dying:
            task.cancel()
        return dying


class Fleet:
    """All nodes, their store, and what lies between them."""

    def __init__(self, plan: MeshPlan, loop: PausingLoop, chance: Random) -> None:
        self.plan = plan
        self.loop = loop
        self.chance = chance
        self.ids = SeededIds(chance)
        self.store = SimStore(SHARD, plan, loop, chance)
        self.wire = Wire(plan, loop, chance)
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.names = [f"n{number}" for number in range(plan.nodes)]
        self.urls = {name: f"stream://{name}" for name in self.names}
        self.lives: dict[str, Life | None] = dict.fromkeys(self.names)
        self.clocks = {name: self._clock() for name in self.names}
        self.is_closing = False

    def _clock(self) -> NodeClock:
        chance, rate, offset_ms = self.chance, 1.0, 0
        if "clock_rates" in self.plan.faults:
            self.counts["clock_rates"] += 1
            rate = chance.uniform(1 - DRIFT, 1 + DRIFT)
        if "clock_offsets" in self.plan.faults:
            self.counts["clock_offsets"] += 1
            offset_ms = chance.choice((0, -5_000, 40, 3_000_000))
        return NodeClock(self.loop, rate=rate, offset_ms=offset_ms)

    def outbound(self, caller: str, url: str, clock: NodeClock) -> SimOutbound:
        name = url.removeprefix("stream://")
        return SimOutbound(self.wire, caller, lambda: self.lives[name], clock)

    def start(self, name: str) -> None:
        if self.is_closing or self.lives[name] is not None:
            return
        life = self.lives[name] = Life(self, name, self.clocks[name])
        life.tasks[0].add_done_callback(lambda task: self._ended(life, task))

    def _ended(self, life: Life, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.complaints.append(f"{life.name} ended: {type(error).__name__}: {error}")
        if self.lives[life.name] is life:
            self.lives[life.name] = None
            life.die()

    def living(self) -> list[Life]:
        return [life for life in self.lives.values() if life is not None]

    @property
    def owner(self) -> Life | None:
        """Who serves the newest epoch, if anybody does."""
        serving = [life for life in self.living() if life.shard.is_served_here]
        return max(serving, key=lambda life: life.shard.state.epoch, default=None)

    # -- blows ---------------------------------------------------------------------------------

    def kill(self, life: Life) -> None:
        self.lives[life.name] = None
        life.die()

    async def pause(self, life: Life, seconds: float) -> None:
        self.loop.pause(life)
        await asyncio.sleep(seconds)
        self.loop.resume(life)

    def cut_from_store(self, name: str, ways: tuple[str, ...]) -> None:
        self.store.cuts.update((name, way) for way in ways)

    def cut_between(self, one: str, two: str, *, both: bool) -> None:
        self.wire.cuts.add((one, two))
        if both:
            self.wire.cuts.add((two, one))

    def isolate(self, name: str, clients: list[str]) -> None:
        self.cut_from_store(name, (UP, DOWN))
        for other in (*self.names, *clients):
            self.cut_between(name, other, both=True)

    def mend(self) -> None:
        self.store.cuts.clear()
        self.wire.cuts.clear()

    async def hand_over(self, owner: Life, heir: str) -> None:
        """As a node does that should not have the shard; the heir may be anybody."""
        url = self.urls[heir]
        neighbour = Neighbour(url, self.outbound(owner.name, url, owner.clock))
        neighbour.node_id, neighbour.shards = heir, {SHARD: Known(owner.name, 0, 0)}
        giving = owner.cluster._give(SHARD, neighbour)
        await self.loop.create_task(giving, context=owner.context)

    async def leave(self, life: Life) -> None:
        """SIGTERM: the node gives away what it has, finishes, and is gone."""

        async def leave() -> None:
            await life.cluster.leave()
            life.shard.stop()

        task = self.loop.create_task(leave(), context=life.context)
        await asyncio.wait([task, life.tasks[0]], timeout=1.0)
        if self.lives[life.name] is life:
            self.kill(life)
        task.cancel()

    def close(self) -> list["asyncio.Task[None]"]:
        self.is_closing = True
        dying: list[asyncio.Task[None]] = []
        for life in self.living():
            self.lives[life.name] = None
            dying += life.die()
        return dying
