"""Bugs to plant in the product, so that the suites can show that they would find them.

Each is what a tired developer might write: one comparison left out, one line in the wrong order. A
bug lives as long as its `with` block. A suite that does not notice one of these proves nothing by
being green.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from omnirelay.journal.backend import Head, JournalBackend
from omnirelay.journal.checkpoint import Checkpoint, CheckpointingSink
from omnirelay.journal.events import Event
from omnirelay.journal.format import Chain
from omnirelay.lease import answers, decide, deciding_moves, evolve
from omnirelay.lease import state as states
from omnirelay.lease.deadlines import Deadlines
from omnirelay.lease.options import SerializeBy
from omnirelay.lease.records import DEAD_LETTERED, EpochStarted, Expired, Item
from omnirelay.lease.state import Held, QueueState
from omnirelay.mesh import recovery
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.term import Term
from omnirelay.mesh.turn import Turn
from omnirelay.model.items import Token

_EARLY_MS = 100


@contextmanager
def _no_fencing() -> Iterator[None]:
    """Whoever names a leased item may end the lease: neither token nor holder nor time count."""

    def held_by(state: QueueState, token: Token, principal: str, now: int) -> Held | None:
        return state.active.get(token.sequence_id)

    with patch.object(decide, "held_by", held_by), patch.object(answers, "held_by", held_by):
        yield


@contextmanager
def _early_expiry() -> Iterator[None]:
    """A lease is taken away a little before its time."""
    due = Deadlines.due

    def early(self: Deadlines, now: int, limit: int) -> list[int]:
        return due(self, now + _EARLY_MS, limit)

    with patch.object(Deadlines, "due", early):
        yield


@contextmanager
def _ack_before_append() -> Iterator[None]:
    """Callers hear of success while the append is still under way."""
    append = Term.append

    async def hasty(self: Term, turn: Turn) -> None:
        for call, outcomes in turn.replies:
            call.reply(outcomes)
        turn.replies.clear()
        await append(self, turn)

    with patch.object(Term, "append", hasty):
        yield


@contextmanager
def _lost_requeue() -> Iterator[None]:
    """An item whose lease expired goes nowhere."""
    apply = evolve._APPLY[Expired]

    def drop(state: QueueState, record: Expired) -> None:
        if record.disposition == DEAD_LETTERED:
            apply(state, record)
        else:
            held = evolve._end_lease(state, record.sequence_id, record.fence)
            evolve._free_key(state, held.item)

    with patch.dict(evolve._APPLY, {Expired: drop}):
        yield


@contextmanager
def _double_restore() -> Iterator[None]:
    """A file is restored without asking whether its items' work was done since."""

    def is_missing(state: QueueState, item: Item) -> bool:
        return not any(item.sequence_id in here for here in _homes(state))

    with patch.object(deciding_moves, "_is_missing", is_missing):
        yield


def _homes(state: QueueState) -> tuple[dict[int, Any], ...]:
    return state.pending, state.active, state.dead


@contextmanager
def _stale_snapshot() -> Iterator[None]:
    """Recovery takes a snapshot for the present: the tail behind it is counted, not folded."""
    catch_up = recovery._catch_up

    async def skip(
        backend: JournalBackend,
        chain: Chain,
        state: QueueState,
        on_progress: Callable[[int], None] | None,
    ) -> Head:
        if chain.last == 0:
            return await catch_up(backend, chain, state, on_progress)
        head = await backend.head()
        chain.last, chain.link, chain.epoch = head.last, head.checksum, head.epoch
        state.sequence, state.epoch = head.last, head.epoch
        return head

    with patch.object(recovery, "_catch_up", skip):
        yield


@contextmanager
def _off_by_one_checkpoint() -> Iterator[None]:
    """A follower notes the place after the last event it applied."""
    advanced = Checkpoint.advanced

    def too_far(self: Checkpoint, events: Sequence[Event], at: int) -> Checkpoint:
        noted = advanced(self, events, at)
        step = 1 if events else 0
        return Checkpoint(noted.name, noted.shard, noted.position + step, noted.peers, at)

    with patch.object(Checkpoint, "advanced", too_far):
        yield


@contextmanager
def _reordered_sink() -> Iterator[None]:
    """The last two events of a batch reach the sink in the wrong order."""
    deliver = CheckpointingSink.deliver

    async def swapping(self: CheckpointingSink, events: Sequence[Event]) -> int:
        apply = self._apply

        async def swapped(ready: Sequence[Event]) -> None:
            await apply([*ready[:-2], *reversed(ready[-2:])])

        self._apply = swapped
        try:
            return await deliver(self, events)
        finally:
            self._apply = apply

    with patch.object(CheckpointingSink, "deliver", swapping):
        yield


@contextmanager
def _serialize_off() -> Iterator[None]:
    """Every item has a key of its own, whatever it shares with others."""

    def key_of(item: Item, serialize_by: SerializeBy) -> states.Key:
        return ("", str(item.sequence_id))

    with patch.object(states, "key_of", key_of):
        yield


@contextmanager
def _dedupe_ignored() -> Iterator[None]:
    """A request id is written down and never looked up."""

    def unknown(state: QueueState, request_id: str, now: int) -> int | None:
        return None

    with patch.object(decide, "known_request", unknown):
        yield


@contextmanager
def _lease_request_ignored() -> Iterator[None]:
    """A repeated lease call gets other items than the first, whose reply was lost."""

    def unknown(state: QueueState, request_id: str, now: int) -> list[Held] | None:
        return None

    with patch.object(decide, "leases_of_request", unknown):
        yield


@contextmanager
def _no_fresh_time() -> Iterator[None]:
    """A new epoch goes by the old deadlines, though nobody knows what time has passed."""
    apply = evolve._APPLY[EpochStarted]

    def start(state: QueueState, record: EpochStarted) -> None:
        before = dict(state.active)
        apply(state, record)
        state.active.update(before)
        state.rebuild_indexes()

    with patch.dict(evolve._APPLY, {EpochStarted: start}):
        yield


@contextmanager
def _dirty_read() -> Iterator[None]:
    """Readers are answered from decisions whose append has failed."""
    always = property(lambda shard: True, lambda shard, value: None)
    with patch.object(Shard, "_is_as_recovered", always, create=True):
        yield


PLANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no_fencing": _no_fencing,
    "early_expiry": _early_expiry,
    "ack_before_append": _ack_before_append,
    "lost_requeue": _lost_requeue,
    "double_restore": _double_restore,
    "stale_snapshot": _stale_snapshot,
    "off_by_one_checkpoint": _off_by_one_checkpoint,
    "reordered_sink": _reordered_sink,
    "serialize_off": _serialize_off,
    "dedupe_ignored": _dedupe_ignored,
    "lease_request_ignored": _lease_request_ignored,
    "no_fresh_time": _no_fresh_time,
    "dirty_read": _dirty_read,
}


@contextmanager
def plant_bug(name: str | None) -> Iterator[None]:
    """Raises KeyError for a bug that nobody has written."""
    if name is None:
        yield
        return
    with PLANTS[name]():
        yield
