"""A node that stands by over a mirrored journal, its promotion, and the standing down of another.

It follows the mirror hot and refuses work. Promotion begins a higher epoch in the mirror, which
fences whoever still writes there for the old region: its next append is refused, and its node
stands down.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from omnirelay.journal.copying import PRIMARY
from omnirelay.lease.answers import Stats
from omnirelay.lease.commands import Inspect, ListDead, ReadStats
from omnirelay.lease.records import EpochStarted
from omnirelay.mesh.calls import AnyCall, Call, Outcome
from omnirelay.mesh.refusal import answer_rest, commands_of
from omnirelay.model.errors import Behind, OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.model.ports import Clock, failpoint
from omnirelay.node.build import node_id
from omnirelay.node.mirroring import Mirrors
from omnirelay.node.role import SERVING, STANDBY, Role, RoleFile
from omnirelay.node.settings import NodeSettings
from omnirelay.ops.regions import SILENCE_MS, PromoteRequest, RegionState, ShardPlace, StoodDown
from omnirelay.sdk.engine import Engine

log = logging.getLogger(__name__)

CATCH_UP_S = 10.0
SERVES_WITHIN_S = 15.0
LOOK_S = 0.005
_READS = (ReadStats, Inspect, ListDead)


class Standby:
    def __init__(self, settings: NodeSettings, clock: Clock) -> None:
        """Raises InvalidOption if it is not known whether this node stands by."""
        self._settings = settings
        self._clock = clock
        self._file = RoleFile(settings)
        self.role = self._file.read()
        self._engines: dict[str, Engine] = {}
        self._mirrors: Mapping[str, Mirrors] = {}
        self._changing = asyncio.Lock()
        self._is_promoting = False

    @property
    def is_standing(self) -> bool:
        return self.role.role == STANDBY

    @property
    def trouble(self) -> str | None:
        return self._words if self.is_standing else None

    @property
    def _words(self) -> str:
        return (
            f"this node stands by and takes no work ({self.role.why}): `omnirelay promote` makes "
            f"it serve"
        )

    @property
    def is_apart(self) -> bool:
        """The journal's owner, as far as it is known here, is the other region's."""
        if self._is_promoting and all(one.shard.is_served_here for one in self._engines.values()):
            self._is_promoting = False
        return self.is_standing or self._is_promoting

    def watch(self, engines: dict[str, Engine], mirrors: Mapping[str, Mirrors]) -> None:
        self._engines, self._mirrors = engines, mirrors

    def gate(self, onward: Callable[[AnyCall], None]) -> Callable[[AnyCall], None]:
        """The way in to a queue: while the node stands by, only reads go through."""

        def offer(call: AnyCall) -> None:
            if self.is_standing and not all(isinstance(one, _READS) for one in commands_of(call)):
                answer_rest(call, Unavailable(self._words), lambda command: None)
            else:
                onward(call)

        return offer

    # -- what it knows --------------------------------------------------------------------------

    async def show(self) -> RegionState:
        places = [await self._place_of(name) for name in sorted(self._engines)]
        return RegionState(
            node_id=node_id(self._settings),
            role=self.role.role,
            since_ms=self.role.at_ms,
            why=self.role.why,
            shards=places,
        )

    async def _place_of(self, name: str) -> ShardPlace:
        engine = self._engines[name]
        state = engine.shard.state
        known = await engine.checkpoints.read(PRIMARY, name)
        if known is None:
            return ShardPlace(name, state.epoch, state.sequence, state.node)
        return ShardPlace(
            name,
            state.epoch,
            state.sequence,
            state.node,
            primary_sequence=known.position,
            behind_events=max(0, known.position - state.sequence),
            behind_ms=max(0, known.peers.get("time", 0) - state.at),
            silent_ms=max(0, self._clock.wall_ms() - known.updated_at),
        )

    # -- promotion ------------------------------------------------------------------------------

    async def promote(self, wanted: PromoteRequest) -> RegionState:
        """Raises Behind, before anything has changed, if more would be lost than is accepted."""
        async with self._changing:
            if not self.is_standing:
                return await self.show()
            lost = [await self._check(name, wanted) for name in sorted(self._engines)]
            why = f"promoted; accepted the loss of {sum(lost)} events"
            self._is_promoting = True
            await self._become(Role(SERVING, self._clock.wall_ms(), why))
            failpoint("standby.after_role")
            await self._forget_mirrors()
            for engine in self._engines.values():
                engine.shard.turn_away(None)
                engine.shard.take_over()
            await self._until_served()
            for name, engine in self._engines.items():
                await engine.checkpoints.forget(PRIMARY, name)
            log.warning("the node was promoted: %s", why)
            return await self.show()

    async def _forget_mirrors(self) -> None:
        """One of them may have made this node give way; whoever promotes it outvotes that."""
        for name, engine in self._engines.items():
            for mirror in self._mirrors[name].names:
                await engine.checkpoints.forget(mirror, name)

    async def _become(self, role: Role) -> None:
        """Remembered before it is so."""
        await asyncio.to_thread(self._file.write, role)
        self.role = role

    async def _check(self, name: str, wanted: PromoteRequest) -> int:
        """How many events are known to be lost."""
        final = wanted.last_sequences.get(name)
        place = await self._caught_up(name, final or 0)
        known = max(place.primary_sequence or 0, final or 0)
        behind = max(0, known - place.last_sequence)
        if behind > wanted.accept_loss_events:
            raise Behind(
                f"{name} is {behind} events behind: it ends at {place.last_sequence}, the other "
                f"region is known to have committed {known}; wait until it has caught up, or "
                f"accept the loss with --accept-loss {behind}",
                shard=name,
                behind=behind,
            )
        if final is None:
            self._check_silence(name, place.silent_ms, wanted.accept_loss_ms)
        return behind

    def _check_silence(self, name: str, silent_ms: int | None, accepted_ms: int | None) -> None:
        """A region that was not heard of may have gone on alone: how long, is for the operator to
        accept."""
        if silent_ms is None and accepted_ms is None:
            raise Behind(
                f"{name}: no other region was ever heard of here, so nobody knows what is missing; "
                f"if this is the whole journal, say --accept-loss 0s",
                shard=name,
                behind=0,
            )
        accepted_ms = SILENCE_MS if accepted_ms is None else accepted_ms
        if silent_ms is not None and silent_ms > accepted_ms:
            seconds = -(-silent_ms // 1000)
            raise Behind(
                f"{name}: the other region was last heard of {seconds} s ago, and what it has "
                f"committed since is unknown; accept that with --accept-loss {seconds + 60}s, or "
                f"let it stand down with --fence-old URL",
                shard=name,
                behind=0,
            )

    async def _caught_up(self, name: str, final: int) -> ShardPlace:
        """Once all is folded that the mirror holds, and it holds what it is known to get."""
        engine = self._engines[name]
        reader = engine.source()
        until = self._clock.monotonic_ms() + round(CATCH_UP_S * 1000)
        try:
            while True:
                wanted = max(final, (await reader.head()).last)
                place = await self._place_of(name)
                if place.last_sequence >= wanted or self._clock.monotonic_ms() > until:
                    return place
                await asyncio.sleep(LOOK_S)
        finally:
            await reader.close()

    async def _until_served(self) -> None:
        until = self._clock.monotonic_ms() + round(SERVES_WITHIN_S * 1000)
        shards = [engine.shard for engine in self._engines.values()]
        while not all(shard.is_served_here for shard in shards):
            if self._clock.monotonic_ms() > until:
                failure = next((shard.failure for shard in shards if shard.failure), None)
                why = "" if failure is None else f": {failure.message}"
                raise OutcomeUnknown(f"promoted, but not every queue is served yet{why}")
            await asyncio.sleep(LOOK_S)

    # -- standing down --------------------------------------------------------------------------

    async def stand_down(self, why: str) -> StoodDown:
        """Take no more calls, and let the mirrors have what was committed. Raises nothing that
        would leave it half done: a mirror that does not follow is told of."""
        async with self._changing:
            if not self.is_standing:
                await self._become(Role(STANDBY, self._clock.wall_ms(), why))
                for engine in self._engines.values():
                    engine.shard.turn_away(Unavailable(self._words))
                log.warning("the node stands down: %s", why)
            last = {name: await _last_of(engine) for name, engine in self._engines.items()}
            level = [await self._is_level(mirrors) for mirrors in self._mirrors.values()]
            return StoodDown(node_id(self._settings), last, all(level))

    async def give_way(self, shard: str, rival: EpochStarted) -> None:
        """A mirror of this node was promoted, and this node was not told."""
        at = f" at {rival.rules.url}" if rival.rules.url else ""
        why = f"{shard} is served by node {rival.node}{at} since its epoch {rival.epoch}"
        await self.stand_down(f"a mirror was promoted: {why}")

    @staticmethod
    async def _is_level(mirrors: Mirrors) -> bool:
        try:
            return await asyncio.to_thread(mirrors.caught_up)
        except (OmniRelayError, TimeoutError):
            return False


async def _last_of(engine: Engine) -> int:
    """Asked of the shard itself, behind all that was let in before."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Sequence[Outcome]] = loop.create_future()

    def reply(outcomes: Sequence[Outcome]) -> None:
        loop.call_soon_threadsafe(answered.set_result, outcomes)

    engine.offer(Call((ReadStats(),), reply))
    (outcome,) = await answered
    return outcome.last_sequence if isinstance(outcome, Stats) else engine.shard.state.sequence
