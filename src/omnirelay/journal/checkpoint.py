"""How far a reader of the journal has come, durably, and the sink that applies only what is new."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from omnirelay.journal.events import Event
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import Clock, failpoint

Apply = Callable[[Sequence[Event]], Awaitable[None]]
"""Takes events in order, all of them new. Raising means none of them counts as applied."""


class Checkpoint(msgspec.Struct, frozen=True, rename="camel"):
    """`position`: every event up to here was applied. `peers`: the last one of each peer."""

    name: str
    shard: str
    position: int = 0
    peers: dict[str, int] = {}
    updated_at: int = 0

    def advanced(self, events: Sequence[Event], at: int) -> "Checkpoint":
        """Positions only grow, whatever order events are named in."""
        peers = dict(self.peers)
        for event in events:
            peer = event.peer_id or "default"
            known = peers.pop(peer, 0)
            peers[peer] = max(known, event.sequence_number)
        while len(peers) > limits.PEER_POSITIONS_MAX:
            del peers[next(iter(peers))]  # the peer that was silent longest
        position = max([self.position, *(event.sequence_number for event in events)])
        return Checkpoint(self.name, self.shard, position, peers, at)


class CheckpointStore(Protocol):
    async def read(self, name: str, shard: str) -> Checkpoint | None: ...

    async def write(self, checkpoint: Checkpoint) -> None:
        """Durable when it returns. A position that would go back is left as it is."""

    async def readers(self, shard: str) -> list[Checkpoint]:
        """Of every reader of the shard, in this process or another, by name; without the positions
        of peers."""

    async def slowest(self, shard: str) -> int | None:
        """The lowest position of any reader of the shard; None if there is none."""

    async def forget(self, name: str, shard: str) -> None:
        """The reader is gone for good: it holds back pruning no more."""

    async def close(self) -> None: ...


class CheckpointingSink:
    """Applies each event once and in order, however often and in whatever order it is delivered.

    An event that comes early is held until those before it have come; one that was applied is
    dropped. The position is stored after the apply, so a crash between the two delivers the last
    batch again: an apply that must not see it twice keeps the event's number with its own effect.
    """

    def __init__(
        self, checkpoint: Checkpoint, store: CheckpointStore, apply: Apply, clock: Clock
    ) -> None:
        self.checkpoint = checkpoint
        self._store = store
        self._apply = apply
        self._clock = clock
        self._held: dict[int, Event] = {}

    @classmethod
    async def open(
        cls, name: str, shard: str, *, store: CheckpointStore, apply: Apply, clock: Clock
    ) -> "CheckpointingSink":
        found = await store.read(name, shard)
        return cls(found or Checkpoint(name, shard), store, apply, clock)

    @property
    def position(self) -> int:
        return self.checkpoint.position

    async def hold(self) -> None:
        """Store the position as it is: pruning waits for this reader from now on, though it has
        applied nothing yet."""
        self.checkpoint = self.checkpoint.advanced((), self._clock.wall_ms())
        await self._store.write(self.checkpoint)

    async def deliver(self, events: Sequence[Event]) -> int:
        """Returns how many were applied. Raises what `apply` raises; then nothing has moved."""
        position, held = self.position, self._held
        fresh = [
            e for e in events if e.sequence_number > position and e.sequence_number not in held
        ]
        held.update((event.sequence_number, event) for event in fresh)
        ready: list[Event] = []
        while position + len(ready) + 1 in held:
            ready.append(held[position + len(ready) + 1])
        if len(held) - len(ready) > limits.SINK_HELD_EVENTS_MAX:
            self._let_go(fresh)
            raise Corrupt(
                self.checkpoint.shard,
                position + 1,
                f"it never came; {len(held)} later events wait for it",
            )
        if not ready:
            return 0
        await self._apply(ready)
        failpoint("sink.after_apply")
        advanced = self.checkpoint.advanced(ready, self._clock.wall_ms())
        await self._store.write(advanced)
        self.checkpoint = advanced
        self._let_go(ready)
        return len(ready)

    def _let_go(self, events: Sequence[Event]) -> None:
        for event in events:
            self._held.pop(event.sequence_number, None)
