"""One epoch of a shard, from the record that began it to the append that fails."""

import asyncio
from collections.abc import Callable

from omnirelay.journal.backend import JournalBackend
from omnirelay.journal.bell import Bell
from omnirelay.journal.format import Chain
from omnirelay.lease.commands import Remain, TellFollowed
from omnirelay.mesh.following import Following
from omnirelay.mesh.hall import Hall
from omnirelay.mesh.keeper import Keeper
from omnirelay.mesh.office import Won
from omnirelay.mesh.refusal import append_refusal, refuse_turn
from omnirelay.mesh.refused import Refusals
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.mesh.tally import Tally
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits
from omnirelay.model.errors import Fenced, OmniRelayError
from omnirelay.model.ports import Clock, failpoint

_LOOK_S = 0.005
"""How often an owner that stands aside looks whether another has come."""


class Term:
    def __init__(
        self,
        won: Won,
        backend: JournalBackend,
        options: ShardOptions,
        *,
        keeper: Keeper,
        tally: Tally,
        bell: Bell,
    ) -> None:
        self.state = won.turn.state
        self.time = won.time
        self.keeper = keeper
        self._writer = won.writer
        self._backend = backend
        self._options = options
        self._ids = won.turn.ids
        self._tally = tally
        self._bell = bell
        self._wrote_at = 0
        keeper.snapshot_sequence = won.snapshot_sequence
        won.turn.evolve_decided()
        every_ms = options.queue.refusals_every_ms
        self._refusals = Refusals(self.state, every_ms, tally.denied)
        self._note(won.turn)

    def turn(self) -> Turn:
        """The next one, still empty."""
        now = self.time.now_ms()
        return Turn(self.state, self._options.queue, self._ids, now, self._refusals)

    async def commit(self, turn: Turn) -> None:
        """Make its records durable, then let its answers go. Raises what the journal raises, after
        everybody concerned has heard of it."""
        try:
            await self.append(turn)
        except OmniRelayError as error:
            refuse_turn(turn, append_refusal(error))
            raise
        self.settle(turn)

    async def append(self, turn: Turn) -> None:
        """Nobody hears of it here, whether or not it succeeds."""
        if turn.records:
            failpoint("shard.before_append")
            await self._writer.append(turn.sealed_by(self._writer))
            failpoint("shard.after_append")

    def seal(self, turn: Turn) -> None:
        """Make its envelope while the one before is on its way, instead of between the two."""
        if turn.records:
            turn.sealed_by(self._writer)

    def settle(self, turn: Turn, *, is_level: bool = True) -> None:
        """It is durable. `is_level`: nothing was decided after it, so the state is the journal's,
        and may be made a snapshot of."""
        for parted in turn.parted:
            parted.settled = len(parted.outcomes)
        for call, outcomes in turn.replies:
            call.reply(outcomes)
        failpoint("shard.after_reply")
        if turn.records:
            self._note(turn)
        if is_level:
            self.keeper.watch(self.state, self._writer.link)

    def may_run_ahead(self) -> bool:
        """Not when a snapshot is to begin, for which the state must be the journal's, nor while
        there is pruning to do, which goes on between turns."""
        keeper = self.keeper
        return keeper.is_writing or not keeper.is_wanted(self.state)

    def _note(self, turn: Turn) -> None:
        self._wrote_at = turn.now
        self._bell.ring(self._writer.last)
        self._tally.note(turn)
        self._tally.append_s = self._writer.append_s

    def affirm(self, turn: Turn) -> None:
        """An owner that may have rivals writes now and then, if only to find out that it has been
        replaced: whatever a turn answers, it answers as the owner or not at all."""
        if self._options.ttl_ms and not turn.records and turn.now >= self._must_write_at():
            turn.apply(Remain(principal=self._options.node))

    def tell(self, turn: Turn) -> None:
        """What was refused lately and how far readers are rides along with what is written
        anyway."""
        if self._refusals and turn.records and self._refusals.are_due(turn.now):
            turn.apply(self._refusals.take())
        if self._tally.followed and turn.records:
            followed, self._tally.followed = self._tally.followed, ()
            turn.apply(TellFollowed(followed=followed[: limits.FOLLOWED_MAX]))

    def _must_write_at(self) -> int:
        return self._wrote_at + self._options.ttl_ms // 3

    def next_at(self, hall: Hall) -> int | None:
        """When something is to be done even if nobody calls."""
        at = hall.next_at(self.state.next_ripe_at())
        expiry = self.state.deadlines.next_at()
        if expiry is not None:
            expiry += self._options.queue.sweep_interval_ms
            at = expiry if at is None or expiry < at else at
        if self._options.ttl_ms:
            write_at = self._must_write_at()
            at = write_at if at is None or write_at < at else at
        return at

    def left_behind(self, clock: Clock) -> Following:
        """The state as of the last append, for whoever follows the next owner. Only between two
        turns: what a failed one decided is in the state too."""
        chain = Chain(self._backend.shard, self._writer.last, self._writer.link, self.state.epoch)
        at = self.keeper.snapshot_sequence
        return Following(self._backend, clock, self.state, chain, snapshot_sequence=at)

    async def stand_aside(self, until: Callable[[], int]) -> None:
        """Raises Fenced once another owns the shard; returns if nobody came."""
        while self.time.now_ms() < until():
            head = await self._backend.head()
            if head.last != self._writer.last:
                raise Fenced(self._backend.shard, self.state.epoch, head.epoch)
            await asyncio.sleep(_LOOK_S)
