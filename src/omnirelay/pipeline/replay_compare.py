"""A rebuilt state beside a living one: every field that differs, by name."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from omnirelay.journal.backend import JournalBackend
from omnirelay.journal.format import Chain
from omnirelay.lease.deciding_moves import from_item
from omnirelay.lease.evolve import evolve
from omnirelay.lease.image import freeze
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import recover, replay
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, UnknownToken
from omnirelay.model.items import PendingItem, Token
from omnirelay.sdk.connect import connect_sync
from omnirelay.sdk.sync import SyncRelay
from omnirelay.stores.sqlite_look import look

# Any: a state as plain values, to be compared member by member whatever they are.
Plain = Any


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    shard: str
    field: str
    """As in `pending.17.priority`."""
    replayed: Plain = None
    live: Plain = None


def differences(shard: str, replayed: QueueState, live: QueueState) -> list[Difference]:
    """None for states with equal facts."""
    return list(_differing(shard, "", _plain(replayed), _plain(live)))


def _plain(state: QueueState) -> dict[str, Plain]:
    """The facts by name; what has an id under its id, so that one more item is one difference."""
    found: dict[str, Plain] = {name: {} for name in ("pending", "active", "dead")}
    for part in freeze(state, limits.BATCH_MAX):
        if part.base is not None:
            found |= _values(part.base)
        found["pending"] |= {one.sequence_id: _values(one) for one in part.pending}
        found["active"] |= {one.item.sequence_id: _values(one) for one in part.active}
        found["dead"] |= {one.item.sequence_id: _values(one) for one in part.dead}
    for name in _REMEMBERED:
        remembered = getattr(state, name).items()
        found[name] = {key: {"at": at, "value": value} for at, key, value in remembered}
    return found


_REMEMBERED = ("requests", "lease_requests", "finished")


def _values(thing: Plain) -> Plain:
    """Every member of a struct, defaults too: whether an encoder left one out makes no difference
    between two states."""
    if not isinstance(thing, msgspec.Struct):
        return thing
    names = zip(thing.__struct_encode_fields__, thing.__struct_fields__, strict=True)
    return {encoded: _values(getattr(thing, name)) for encoded, name in names}


def _differing(shard: str, where: str, replayed: Plain, live: Plain) -> Iterator[Difference]:
    if isinstance(replayed, dict) and isinstance(live, dict):
        for name in [*replayed, *(name for name in live if name not in replayed)]:
            below = f"{where}.{name}" if where else str(name)
            yield from _differing(shard, below, replayed.get(name), live.get(name))
    elif replayed != live:
        yield Difference(shard, where, replayed, live)


# -- a journal ----------------------------------------------------------------------------------


def compare_journal(path: str, states: Mapping[str, QueueState]) -> list[Difference]:
    """Each state with what the core makes of the SQLite journal up to the same sequence."""
    return [
        difference
        for shard, state in states.items()
        for difference in differences(shard, state, _journal_state(path, shard, state.sequence))
    ]


def _journal_state(path: str, shard: str, upto: int) -> QueueState:
    async def fold() -> QueueState:
        reader = look(path, shard).reader
        try:
            if await reader.first() == 1:
                return await _fold_to(cast("JournalBackend", reader), upto)
            # Only what a recovery uses is asked of it, and a reader has all of that.
            state = (await recover(cast("JournalBackend", reader))).state
        finally:
            await reader.close()
        if state.sequence != upto:
            raise InvalidArgument(
                f"{path}: {shard} was pruned and is at sequence {state.sequence}, the replay at "
                f"{upto}: replay up to {state.sequence}"
            )
        return state

    return asyncio.run(fold())


async def _fold_to(reader: JournalBackend, upto: int) -> QueueState:
    """If the journal ends before, the difference of the sequences will say so."""
    state, chain = QueueState(), Chain(reader.shard)
    while state.sequence < upto:
        bodies = await reader.read(chain.last, limits.READ_ENVELOPES_MAX)
        if not bodies:
            break
        for body in bodies:
            _fold_envelope(state, chain, body, upto)
    return state


def _fold_envelope(state: QueueState, chain: Chain, body: bytes, upto: int) -> None:
    if state.sequence >= upto:
        return
    envelope = chain.accept(body)
    if envelope.last <= upto:
        replay(state, envelope)
        return
    for number, record in envelope.numbered():
        if number <= upto:
            evolve(state, record, envelope.time)


# -- a node -------------------------------------------------------------------------------------


class Compared(msgspec.Struct, frozen=True):
    differences: list[Difference]
    unseen: int = 0
    """Items that were not asked for one by one, because there are too many."""


def compare_node(
    url: str, states: Mapping[str, QueueState], *, token: str | None = None
) -> Compared:
    """Each state with what a node answers: its figures, its dead letters, and each item by name.

    Raises InvalidArgument if the node is not at the state's sequence, or moves on meanwhile."""
    found: list[Difference] = []
    unseen = 0
    for shard, state in states.items():
        with connect_sync(url, namespace=shard, token=token, retry=0.0) as relay:
            _check_still(relay, shard, state)
            found += _figures(relay, shard, state)
            found += _dead(relay, shard, state)
            looked_at = [*state.pending, *state.active][: limits.REPLAY_INSPECT_MAX]
            found += _items(relay, shard, state, looked_at)
            unseen += len(state.pending) + len(state.active) - len(looked_at)
            _check_still(relay, shard, state)
    return Compared(found, unseen)


def _check_still(relay: SyncRelay, shard: str, state: QueueState) -> None:
    last = relay.stats().last_sequence
    if last != state.sequence:
        raise InvalidArgument(
            f"{shard} is at sequence {last} on the node, the replay at {state.sequence}: compare "
            f"while nobody works, or compare with its journal"
        )


def _figures(relay: SyncRelay, shard: str, state: QueueState) -> Iterator[Difference]:
    stats = relay.stats()
    live = {
        "pendingCount": stats.pending_count,
        "activeLeaseCount": stats.active_lease_count,
        "deadLetterCount": stats.dead_letter_count,
        "backpressure": stats.backpressure,
        "leader": stats.leader,
        "epoch": stats.epoch,
    }
    replayed = {
        "pendingCount": len(state.pending),
        "activeLeaseCount": len(state.active),
        "deadLetterCount": len(state.dead),
        "backpressure": state.paused,
        "leader": state.node,
        "epoch": state.epoch,
    }
    return _differing(shard, "stats", replayed, live)


def _dead(relay: SyncRelay, shard: str, state: QueueState) -> Iterator[Difference]:
    live = {str(one.sequence_id): _values(one) for one in _dead_letters(relay)}
    replayed = {
        str(sequence_id): _values(from_item(dead.item, dead=True))
        for sequence_id, dead in state.dead.items()
    }
    return _differing(shard, "dead", replayed, live)


def _dead_letters(relay: SyncRelay) -> Iterator[PendingItem]:
    after, is_full = 0, True
    while is_full:
        items = relay.dead_letters(limits.BATCH_MAX, after=after).items
        yield from items
        is_full = len(items) == limits.BATCH_MAX
        after = items[-1].sequence_id if items else 0


def _items(
    relay: SyncRelay, shard: str, state: QueueState, ids: Iterable[int]
) -> Iterator[Difference]:
    for sequence_id in ids:
        replayed = _item_view(state, sequence_id)
        try:
            view = relay.inspect(sequence_id)
        except UnknownToken:
            yield Difference(shard, f"items.{sequence_id}", replayed, None)
            continue
        live = {
            "item": _values(view.item),
            "token": _values(view.token),
            "ownerPeerId": view.owner_peer_id,
            "principal": view.principal,
            "grantedAt": view.granted_at,
            "expiresAt": view.expires_at,
        }
        yield from _differing(shard, f"items.{sequence_id}", replayed, live)


def _item_view(state: QueueState, sequence_id: int) -> dict[str, Plain]:
    held = state.active.get(sequence_id)
    if held is None:
        alone = {"token": None, "ownerPeerId": None, "principal": None}
        times = {"grantedAt": None, "expiresAt": None}
        return {"item": _values(from_item(state.pending[sequence_id])), **alone, **times}
    token = Token(sequence_id, held.item.attempt, held.lease_id, held.fence)
    return {
        "item": _values(from_item(held.item)),
        "token": _values(token),
        "ownerPeerId": held.peer_id,
        "principal": held.principal,
        "grantedAt": held.granted_at,
        "expiresAt": held.expires_at,
    }
