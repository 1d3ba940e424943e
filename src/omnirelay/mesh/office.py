"""How a node comes to own a shard: it follows the journal, and when the owner has been silent for
its time to live, or asks for it, it appends the next epoch. The conditional append picks who wins.

Clocks decide when somebody tries, never who wins. A node that is alone with its journal (a lock of
the store keeps others out) tries at once. So does an owner whose append got no answer, if the
journal, read to its end, still has its epoch as the newest: it begins the next one, which shuts out
what may still be under way. Who loses goes on following, its state still hot.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Protocol

import msgspec

from omnirelay.journal.backend import Durability, JournalBackend
from omnirelay.journal.writer import Writer
from omnirelay.lease.commands import StartEpoch
from omnirelay.lease.state import QueueState
from omnirelay.mesh.following import Following
from omnirelay.mesh.rest import Rest
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.mesh.turn import Turn
from omnirelay.model.errors import Closed, Fenced, SequenceTaken
from omnirelay.model.ports import Clock, Ids, ShardClock, failpoint

Rank = Callable[[], int]
"""This node's place in the line of those who may own the shard; the first one tries first."""


NEVER = 1 << 40
"""The place of a node that stands by: only whoever asks it to take over makes it try."""


def first() -> int:
    return 0


ReadByAll = Callable[[], int]
"""The newest record format that all other nodes read, as far as this one knows them."""


def newest() -> int:
    return sys.maxsize


class Won(msgspec.Struct):
    """An epoch that was won."""

    turn: Turn
    """Holds the epoch's record: durable by now, and not yet applied."""
    writer: Writer
    time: ShardClock
    snapshot_sequence: int


class Candidate(Protocol):
    """What the office needs of the shard that it is held for."""

    is_stopping: bool

    def look_on(self, state: QueueState, *, is_caught_up: bool) -> None:
        """The journal was read, and somebody else may own it. Calls that wait are sent on."""

    def is_called(self) -> bool:
        """Whether a call waits."""


class Office:
    def __init__(
        self,
        backend: JournalBackend,
        options: ShardOptions,
        *,
        clock: Clock,
        ids: Ids,
        rest: Rest,
        rank: Rank,
    ) -> None:
        self.durability: Durability | None = None
        """What the journal states, once it is open."""
        self.url = options.url
        """Where this node takes calls that others pass on."""
        self._backend = backend
        self._options = options
        self._clock = clock
        self._ids = ids
        self._rest = rest
        self._rank = rank
        self.read_by_all: ReadByAll = newest
        self._is_wanted = False
        self._has_served = False
        self._held = 0
        """The newest epoch that this node was told it had begun. 0 after a try without an answer:
        a node that is never told would keep those waiting who would be, since each try of its own
        that lands begins their wait anew."""

    def want(self, is_wanted: bool) -> None:
        """Try as soon as the journal has been read to its end, whoever owns it. From any thread."""
        self._is_wanted = is_wanted
        self._rest.wake()

    async def enter(self, candidate: Candidate, left: Following | None = None) -> Won:
        """Returns with the epoch durable. `left` is what an earlier term left behind, so that only
        the rest has to be read. Raises Closed if the candidate stops before, and what the journal
        raises."""
        await self._backend.open()
        self.durability = await self._backend.durability()
        self.durability.require(self._options.require, self._backend.name)
        format_ = self._options.format
        following = left or await Following.begin(self._backend, self._clock, format_)
        candidate.look_on(following.state, is_caught_up=False)
        while True:
            if self._options.ttl_ms:
                await self._follow(following, candidate)
            try:
                return await self._win(following)
            except (Fenced, SequenceTaken):
                if not self._options.ttl_ms:
                    raise
            # Somebody was quicker. Nothing was applied, so the state is still the journal's.

    async def _win(self, following: Following) -> Won:
        state, options = following.state, self._options
        time = ShardClock(self._clock, floor_ms=state.at)
        epoch = state.epoch + 1
        writer = Writer(self._backend, following.head, epoch=epoch, node=options.node)
        failpoint("shard.before_epoch")
        turn = Turn(state, options.queue, self._ids, time.now_ms())
        turn.decide_only(
            StartEpoch(
                epoch=epoch,
                node=options.node,
                origin=self._ids.lease_id(),
                url=self.url,
                ttl_ms=options.ttl_ms,
                format=min(options.format, self.read_by_all()),
            )
        )
        self._has_served = True
        held, self._held = self._held, 0
        try:
            await writer.append(turn.sealed_by(writer))
        except (Fenced, SequenceTaken):
            self._held = held  # an answer; what took the place may be our own and late
            raise
        self._held = epoch
        # Not before: who was asked to take over and lost a race is still asked to.
        self._is_wanted = False
        failpoint("shard.after_epoch")
        return Won(turn, writer, time, following.snapshot_sequence)

    async def _follow(self, following: Following, candidate: Candidate) -> None:
        """Until this node should try. Raises Closed when the candidate stops."""

        def look(is_close: bool) -> None:
            candidate.look_on(following.state, is_caught_up=is_close)
            if candidate.is_stopping:
                raise Closed(f"shard {self._backend.shard} is closed")

        while True:
            await following.catch_up(self._options.format, look)
            look(True)
            left_ms = self._patience_ms(following.state) - following.silence_ms
            if self._is_wanted or left_ms <= 0:
                return
            await self._watch(following.head.last, left_ms / 1000, candidate)

    def _patience_ms(self, state: QueueState) -> int:
        """How long a silence lasts before this node tries."""
        place = self._rank()
        if place >= NEVER:
            return NEVER
        if state.node == self._options.node and not self._has_served:
            return 0  # the owner was this node, in a process that is gone
        if self._held and state.epoch == self._held:
            return 0  # nobody has come since an append of ours failed
        return state.rules.ttl_ms + place * self._options.ttl_ms // 4

    async def _watch(self, last: int, timeout_s: float, candidate: Candidate) -> None:
        """Until the journal grows, somebody calls or wants us, or the time is up."""
        if candidate.is_called():
            return
        more = asyncio.ensure_future(self._backend.wait_for_more(last, timeout_s))
        more.add_done_callback(self._wake)
        try:
            await self._rest.wait(timeout_s)
        finally:
            # Its end must not cut the next rest short.
            more.remove_done_callback(self._wake)
            if not more.done():
                more.cancel()
                await asyncio.wait([more])
        if not more.cancelled():
            more.result()  # raises what the journal raised

    def _wake(self, _ended: object) -> None:
        self._rest.wake()
