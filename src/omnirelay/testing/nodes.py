"""Shards that live, die and come back on one simulated disk."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from omnirelay.journal.events import Event, events_of
from omnirelay.journal.format import Chain
from omnirelay.lease import invariants
from omnirelay.lease.image import facts
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import Call, LeaseCall, Outcome
from omnirelay.mesh.recovery import replay
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import dashed
from omnirelay.model.ports import Ids, set_failpoint
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.testing.disk import SimDisk, SimJournal
from omnirelay.testing.loop import SimClock, SimLoop
from omnirelay.testing.plan import Plan, draw_queue

if TYPE_CHECKING:
    from omnirelay.lease.options import SerializeBy

SHARD = "sim"
_LOOKS = 0.03
"""Share of appends after which the whole state is compared with the fold of the journal."""

Answers = asyncio.Future[Sequence[Outcome] | None]
"""None: nobody knows what became of the call."""


Read = tuple[int, int, int]
"""Last sequence, pending and active, as one answer gave them."""


class ProcessDied(BaseException):
    """Raised at a failpoint: no handler of the product may answer it."""


class SeededIds(Ids):
    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def lease_id(self) -> str:
        return dashed(f"{self._chance.getrandbits(128):032x}")


class WatchedClock(SimClock):
    """Notices a program that looks at the clock over and over and never lets time pass: such a
    loop would run for ever here, and burn a processor elsewhere."""

    _LOOKS_A_TURN = 20_000

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self._turns = loop
        self._turn = self._looks = 0

    def monotonic_ms(self) -> int:
        if self._turn != self._turns.callbacks:
            self._turn, self._looks = self._turns.callbacks, 0
        self._looks += 1
        assert self._looks < self._LOOKS_A_TURN, "it turns without rest"
        return super().monotonic_ms()


class SimRest:
    """Waiting for the next call, on the simulated loop: whoever wakes is on the same thread, so
    that one trip through the loop is enough."""

    suspends = True

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._idle: asyncio.Future[None] | None = None
        self._is_woken = False

    def wake(self) -> None:
        self._is_woken = True
        if self._idle is not None:
            _resolve(self._idle)

    async def wait(self, timeout_s: float | None) -> None:
        idle = self._idle = self._loop.create_future()
        timer = None
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, _resolve, idle)
        try:
            if not self._is_woken:
                await idle
        finally:
            self._idle, self._is_woken = None, False
            if timer is not None:
                timer.cancel()

    async def breathe(self) -> None:
        await asyncio.sleep(0)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class SimNode:
    """One life of a process that serves the shard. What a dead one still says, nobody hears."""

    def __init__(self, shard: Shard, loop: SimLoop) -> None:
        self.shard = shard
        self.is_alive = True
        self.unanswered: dict[Answers, None] = {}
        self.task = loop.create_task(shard.run())

    def offer(self, call: Call | LeaseCall, answers: Answers) -> bool:
        try:
            self.shard.offer(call)
        except OmniRelayError:
            return False
        self.unanswered[answers] = None
        return True

    def die(self) -> None:
        """Connections break: whoever waits learns that, and no more."""
        self.is_alive = False
        for answers in self.unanswered:
            if not answers.done():
                answers.set_result(None)
        self.unanswered.clear()


class Site:
    """The machine: a disk, a clock, and usually one node. Only the last one started is found by
    callers, unless the older one is not yet known to be gone."""

    def __init__(self, plan: Plan, loop: SimLoop, chance: Random) -> None:
        self.plan = plan
        self.loop = loop
        self.chance = chance
        self.disk = SimDisk(chance)
        self.disk.latency_s = plan.latency_s
        self.clock = WatchedClock(loop)
        self.checkpoints = MemoryCheckpoints()
        self.mirror = Mirror(self.disk.index.archive)
        self.nodes: list[SimNode] = []
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.reads: list[Read] = []
        """Depths that readers were told."""
        self.crash_share = 0.0
        self.final = QueueState()
        """What the last node served at the end."""
        self._is_closing = False
        self._ids = SeededIds(chance)

    def start(self) -> SimNode:
        queue = self.plan.queue
        if self.nodes and "new_options" in self.plan.habits:
            queue = draw_queue(self.chance)
        options = ShardOptions(
            node=f"n{len(self.nodes)}",
            queue=queue,
            keep=self.plan.keep,
            require="power_loss",
            retry_max_s=0.4,
        )
        journal = SimJournal(SHARD, self.disk)
        shard = Shard(
            journal,
            options,
            clock=self.clock,
            ids=self._ids,
            slowest=self._slowest,
            rest=SimRest(self.loop),
        )
        node = SimNode(shard, self.loop)
        self.nodes.append(node)
        node.task.add_done_callback(lambda task: self._ended(node, task))
        return node

    async def _slowest(self) -> int | None:
        return await self.checkpoints.slowest(SHARD)

    def _ended(self, node: SimNode, task: asyncio.Task[None]) -> None:
        node.die()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ProcessDied):
            self.complaints.append(f"the shard ended: {type(error).__name__}: {error}")
        if not self._is_closing:
            self.loop.call_later(self.chance.uniform(0.0, 0.25), self._start_again)

    def _start_again(self) -> None:
        if self.node is None and not self._is_closing:
            self.start()

    @property
    def node(self) -> SimNode | None:
        return next((node for node in reversed(self.nodes) if node.is_alive), None)

    def pick(self) -> SimNode | None:
        alive = [node for node in self.nodes[-2:] if node.is_alive]
        return self.chance.choice(alive) if len(alive) > 1 else self.node

    async def kill(self, *, power: bool = False) -> None:
        """The process goes at once; with the power goes what the disk had not synced."""
        self.counts["power_cut" if power else "kill"] += 1
        alive = [node for node in self.nodes if node.is_alive]
        if power:
            self._cut_power()
        await self._end(alive if power else alive[-1:])

    def _cut_power(self) -> None:
        for node in self.nodes:
            if node.is_alive:
                node.die()
                node.task.cancel()
        self.disk.cut_power()

    async def _end(self, dying: list[SimNode]) -> None:
        for node in dying:
            node.die()
            node.task.cancel()
        if dying:
            await asyncio.wait([node.task for node in dying])

    async def stop(self) -> None:
        node = self.node
        if node is not None:
            self.counts["stop"] += 1
            node.shard.stop()
            await asyncio.wait([node.task])

    async def usurp(self) -> None:
        """Somebody starts a second node before the first is gone; both believe they serve."""
        self.counts["usurper"] += 1
        older = [node for node in self.nodes if node.is_alive]
        self.start()
        await asyncio.sleep(self.chance.uniform(0.1, 1.0))
        await self._end([node for node in older if node.is_alive])

    async def agree(self) -> None:
        """End a quarrel of two nodes for good. The one that is left may have been overruled last:
        an idle node learns that only by writing."""
        if "usurper" in self.plan.faults:
            await self._end([node for node in self.nodes if node.is_alive])

    async def close(self) -> None:
        self._is_closing = True
        node = self.node
        if node is not None:
            self.final = node.shard.state
            node.shard.stop()
            await asyncio.wait([node.task])

    # -- places where the product may be struck -------------------------------------------------

    @contextmanager
    def struck_at_failpoints(self) -> Iterator[None]:
        set_failpoint(self._at)
        try:
            yield
        finally:
            set_failpoint(None)

    def _at(self, name: str) -> None:
        is_looked_at = name == "shard.after_append" and self.chance.random() < _LOOKS
        is_struck = self.crash_share and self.chance.random() < self.crash_share
        if not is_looked_at and not is_struck:
            return
        task = asyncio.current_task(self.loop)
        node = next((node for node in self.nodes if node.task is task), None)
        if node is None or not node.is_alive:
            return
        if is_looked_at:
            self.complaints += self.mirror.differences(node.shard.state)
        if is_struck:
            self.counts["crash_point"] += 1
            node.die()
            if "power_cut" in self.plan.faults:
                self._cut_power()
            raise ProcessDied(name)


class Mirror:
    """The journal folded from its beginning, apart from any shard: what every state must equal."""

    def __init__(self, archive: list[bytes]) -> None:
        self.state = QueueState()
        self.depths: dict[int, tuple[int, int]] = {}
        """Pending and active after each sequence."""
        self.events: list[Event] = []
        self.serialize_by: dict[int, SerializeBy] = {}
        """The rule of each epoch."""
        self._archive = archive
        self._chain = Chain(SHARD)
        self._folded = 0

    def catch_up(self) -> None:
        """Raises Corrupt if the journal does not follow from itself."""
        archive = self._archive
        for body in archive[self._folded :]:
            envelope = self._chain.accept(body)
            replay(self.state, envelope)
            self.events.extend(events_of(envelope))
            self.serialize_by[envelope.epoch] = self.state.rules.serialize_by
            for number, depth in enumerate(
                zip(envelope.pending, envelope.active, strict=True), envelope.first
            ):
                self.depths[number] = depth
        self._folded = len(archive)

    def differences(self, state: QueueState) -> list[str]:
        """What a state that has just been appended breaks, by itself and beside the fold."""
        self.catch_up()
        found = [f"invariant: {words}" for words in invariants.violations(state)]
        if state.sequence == self.state.sequence and facts(state) != facts(self.state):
            found.append(f"at {state.sequence} the state is not the fold of the journal")
        return found
