"""One shard, looked at without disturbing it: lengths and copies are read, nothing is locked."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from omnirelay.journal.copying import PRIMARY
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import Stats
from omnirelay.lease.commands import ReadStats
from omnirelay.lease.records import (
    Completed,
    Enqueued,
    Expired,
    Failed,
    Followed,
    Granted,
    Record,
    Released,
    Renewed,
)
from omnirelay.mesh.component import Component
from omnirelay.model import limits
from omnirelay.model.errors import NotOwner, OmniRelayError
from omnirelay.node.cluster import Cluster
from omnirelay.node.mirroring import Mirrors
from omnirelay.ops.reading import lags_of
from omnirelay.ops.view import Holder, NodeRow, ShardStatus, Transition
from omnirelay.sdk.engine import Engine

REFRESH_S = 1.0

_COUNTED: dict[type[Record], str] = {
    Enqueued: "enqueued",
    Granted: "granted",
    Completed: "completed",
    Failed: "failed",
    Expired: "expired",
    Released: "released",
    Renewed: "heartbeats",
}


class ShardWatch:
    """Made on the node's loop."""

    def __init__(
        self,
        engine: Engine,
        component: Component,
        cluster: Cluster | None = None,
        mirrors: Mirrors | None = None,
    ) -> None:
        self._engine = engine
        self._cluster = cluster if engine.has_rivals else None
        self._component = component
        self._mirrors = mirrors
        self._shard = engine.shard
        self._loop = asyncio.get_running_loop()
        self._watchers: set[asyncio.Queue[Transition | None]] = set()
        self._number = 0
        self._oldest_ms: int | None = None
        self._asked_at: float | None = None
        """Since when the shard owes an answer."""
        self.last_transition: Transition | None = None
        self._shard.tally.on_backpressure = self._changed

    @property
    def tells_depth(self) -> bool:
        return self._shard.is_served_here or not self._engine.has_rivals

    def status(self) -> ShardStatus:
        shard, state = self._shard, self._shard.state
        rules = state.rules
        return ShardStatus(
            shard=shard.name,
            is_ready=shard.ready.is_set() or shard.is_hot,
            leader=state.node,
            epoch=state.epoch,
            last_sequence=state.sequence,
            pending_count=len(state.pending),
            active_lease_count=len(state.active),
            delayed_count=len(state.delayed),
            dead_letter_count=len(state.dead),
            backpressure=state.paused,
            role=self._role(),
            journal=self._engine.journal_name,
            durability="unknown" if shard.durability is None else shard.durability.in_words(),
            trouble=self._trouble(),
            oldest_pending_age_ms=self._oldest_ms if state.pending else None,
            pending_high=rules.pending_high or None,
            pending_low=rules.pending_low if rules.pending_high else None,
        )

    def _trouble(self) -> str | None:
        """A shard that another node serves is in order: calls are passed on. One that answers
        nobody, whatever holds it up, is not."""
        failure = self._shard.failure
        if failure is not None and not isinstance(failure, NotOwner):
            return failure.message
        silent_s = 0.0 if self._asked_at is None else self._loop.time() - self._asked_at
        if silent_s < limits.ANSWER_S_MAX:
            return None
        return f"the shard has answered nobody for {silent_s:.0f} s"

    def _role(self) -> str:
        if self._shard.is_served_here:
            return "owner"
        return "follower" if self._shard.is_hot else ""

    def nodes(self) -> Sequence[NodeRow]:
        return [] if self._cluster is None else self._cluster.rows(self._shard.name)

    async def refresh(self) -> None:
        """What only the shard itself can tell is asked for now and then."""
        while True:
            self._asked_at = self._loop.time()
            try:
                stats = await self._component.one(ReadStats(), Stats)
                self._oldest_ms = stats.oldest_pending_age_ms
            except OmniRelayError:
                self._oldest_ms = None  # it does not serve; `trouble` says why
            self._asked_at = None
            await asyncio.sleep(REFRESH_S)

    async def tell_lags(self) -> None:
        """How far its readers are goes into the journal too, if this node writes it."""
        while True:
            await asyncio.sleep(limits.LAG_EVERY_S)
            is_ours = self._shard.is_served_here
            self._shard.tally.followed = await asyncio.to_thread(self._followed) if is_ours else ()

    def _followed(self) -> tuple[Followed, ...]:
        try:
            return lags_of(self)
        except OmniRelayError:
            return ()  # the store does not say

    def followers(self) -> Sequence[FollowerStatus]:
        """Of a mirror that runs here, what it says itself."""
        mirrors = [] if self._mirrors is None else self._mirrors.status()
        known = {PRIMARY, *(one.name for one in mirrors)}
        outside = [one for one in self._engine.outside_status() if one.name not in known]
        return [*self._engine.follower_status(), *outside, *mirrors]

    def holders(self) -> Sequence[Holder]:
        now = self._shard.now_ms()
        by: dict[tuple[str, str], tuple[int, int, int, int]] = {}
        for held in list(self._shard.state.active.values()):
            key = (held.peer_id or held.principal, held.principal)
            seen = by.get(key, (0, held.granted_at, held.expires_at, 0))
            by[key] = (
                seen[0] + 1,
                min(seen[1], held.granted_at),
                min(seen[2], held.expires_at),
                seen[3] + (held.expires_at <= now),
            )
        return [
            Holder(peer, principal, count, max(0, now - granted), expires - now, overdue)
            for (peer, principal), (count, granted, expires, overdue) in sorted(by.items())
        ]

    def counts(self) -> Mapping[str, int]:
        tally = self._shard.tally
        kinds = {name: tally.kinds[kind] for kind, name in _COUNTED.items()}
        return {
            **kinds,
            "dead_lettered": tally.dead_lettered,
            "commits": tally.commits,
            "events": tally.kinds.total(),
        }

    # -- backpressure -------------------------------------------------------------------------

    def _changed(self, is_paused: bool, pending: int) -> None:
        """On the shard's thread."""
        try:
            self._loop.call_soon_threadsafe(self._tell, is_paused, pending)
        except RuntimeError:
            return  # the node's loop has ended

    def _tell(self, is_paused: bool, pending: int) -> None:
        self._number += 1
        transition = self.last_transition = Transition(
            shard=self._shard.name,
            number=self._number,
            state="active" if is_paused else "inactive",
            pending_count=pending,
            at_ms=self._shard.now_ms(),
        )
        for watcher in self._watchers:
            watcher.put_nowait(transition)

    async def transitions(self) -> AsyncGenerator[Transition]:
        """A watcher that does not read keeps only what happens meanwhile, and transitions are
        rare: two watermarks lie between any two of them."""
        watcher: asyncio.Queue[Transition | None] = asyncio.Queue()
        if self.last_transition is not None:
            watcher.put_nowait(self.last_transition)
        self._watchers.add(watcher)
        try:
            while (transition := await watcher.get()) is not None:
                yield transition
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """Its watchers have seen the last of it: they need not hold a stopping node up."""
        for watcher in self._watchers:
            watcher.put_nowait(None)
