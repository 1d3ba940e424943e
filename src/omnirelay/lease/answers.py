"""What the caller is told, read from the state after the command's records were applied."""

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Expire,
    Fail,
    Grant,
    Heartbeat,
    Inspect,
    ListDead,
    Purge,
    ReadStats,
    Redrive,
    Release,
    Remain,
    Restore,
    StartEpoch,
    TellFollowed,
    TellRefused,
)
from omnirelay.lease.decide import held_by, known_request, leases_of_request, refusal
from omnirelay.lease.deciding_moves import from_item, matching_dead
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import (
    Drained,
    Enqueued,
    Failed,
    Granted,
    Purged,
    Record,
    Redriven,
    Restored,
)
from omnirelay.lease.state import Held, QueueState
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, UnknownItem, UnknownToken
from omnirelay.model.items import ErrorInfo, Payload, PendingItem, Token, Wire, to_time


class Answer(Wire, frozen=True, gc=False):
    pass


class Accepted(Answer, frozen=True, gc=False):
    sequence_id: int
    duplicate: bool
    pending_count: int
    active_lease_count: int


class LeaseResponse(Answer, frozen=True, gc=False):
    """A lease as it travels: every wire writes it as it is (CONTRACT §1)."""

    payload: Payload
    sequence_id: int
    attempt: int
    enqueued_at: datetime
    token: Token = msgspec.field(name="ownershipToken")
    fence: int
    expires_at: datetime
    lease_duration_ms: int
    heartbeat_interval_ms: int
    owner_peer_id: str | None = None
    last_error: ErrorInfo | None = None


class Beat(Answer, frozen=True, gc=False):
    """A heartbeat was taken."""

    expires_at: int
    remaining_ms: int


class Beats(Answer, frozen=True, gc=False):
    """One outcome a token, in order: taken, or why not."""

    outcomes: tuple[Beat | OmniRelayError, ...]


class Done(Answer, frozen=True, gc=False):
    pass


class Returned(Answer, frozen=True, gc=False):
    """A failed lease, and where its item went."""

    disposition: str
    attempt: int
    available_at: int = 0


class DrainPage(Answer, frozen=True, gc=False):
    items: tuple[PendingItem, ...]
    remaining: int


class RestoreCount(Answer, frozen=True, gc=False):
    restored_count: int
    skipped_count: int


class Count(Answer, frozen=True, gc=False):
    count: int


class Stats(Answer, frozen=True, gc=False):
    pending_count: int
    active_lease_count: int
    delayed_count: int
    dead_letter_count: int
    backpressure: bool
    leader: str
    epoch: int
    last_sequence: int
    oldest_pending_age_ms: int | None = None


class ItemView(Answer, frozen=True, gc=False):
    """One item as an operator sees it."""

    state: str
    item: PendingItem
    token: Token | None = None
    owner_peer_id: str | None = None
    principal: str | None = None
    granted_at: int | None = None
    expires_at: int | None = None


class DeadPage(Answer, frozen=True, gc=False):
    items: tuple[PendingItem, ...]
    total: int


Records = tuple[Record, ...]


def answer(
    state: QueueState, command: Command, records: Records, now: int, options: QueueOptions
) -> Answer | tuple[LeaseResponse, ...] | None:
    """None: a `Grant` found nothing; the caller may wait."""
    outcome: Answer | tuple[LeaseResponse, ...] | None = _ANSWER[type(command)](
        state, command, records, now, options
    )
    return outcome


def _accepted(
    state: QueueState, command: Enqueue, records: Records, now: int, options: QueueOptions
) -> Accepted:
    pending, active = len(state.pending), len(state.active)
    if records:
        record = records[0]
        assert isinstance(record, Enqueued)
        return Accepted(record.sequence_id, False, pending, active)
    assert command.payload.request_id is not None
    known = known_request(state, command.payload.request_id, now)
    assert known is not None
    return Accepted(known, True, pending, active)


def _leased(
    state: QueueState, command: Grant, records: Records, now: int, options: QueueOptions
) -> tuple[LeaseResponse, ...] | None:
    if records:
        record = records[0]
        assert isinstance(record, Granted)
        return tuple(leased_all((state.active[record.sequence_id],), options))
    if command.request_id is not None and command.index == 0:
        served = leases_of_request(state, command.request_id, now)
        if served:
            return tuple(leased_all(served, options))
    return None


def leased_all(all_held: Iterable[Held], options: QueueOptions) -> list[LeaseResponse]:
    """As their holders see them. Those of one batch mostly share their times."""
    leases: list[LeaseResponse] = []
    known_ms = beat_ms = enqueued_ms = expires_ms = 0
    enqueued_at = expires_at = to_time(0)
    for held in all_held:
        item, lease_ms = held.item, held.lease_ms
        if lease_ms != known_ms:
            known_ms, beat_ms = lease_ms, options.heartbeat_ms(lease_ms)
        if item.enqueued_at != enqueued_ms:
            enqueued_ms, enqueued_at = item.enqueued_at, to_time(item.enqueued_at)
        if held.expires_at != expires_ms:
            expires_ms, expires_at = held.expires_at, to_time(held.expires_at)
        leases.append(
            LeaseResponse(
                item.payload,
                item.sequence_id,
                item.attempt,
                enqueued_at,
                Token(item.sequence_id, item.attempt, held.lease_id, held.fence),
                held.fence,
                expires_at,
                lease_ms,
                beat_ms,
                held.peer_id or (held.principal or None),
                item.last_error,
            )
        )
    return leases


def _beats(
    state: QueueState, command: Heartbeat, records: Records, now: int, options: QueueOptions
) -> Beats:
    outcomes: list[Beat | OmniRelayError] = []
    for token in command.tokens:
        held = held_by(state, token, command.principal, now)
        if held is None:
            outcomes.append(refusal(state, token, command.principal))
        else:
            outcomes.append(Beat(held.expires_at, held.expires_at - now))
    return Beats(tuple(outcomes))


def _done(*_: Any) -> Done:
    return DONE


def _returned(
    state: QueueState, command: Fail, records: Records, now: int, options: QueueOptions
) -> Returned:
    record = records[0]
    assert isinstance(record, Failed)
    return Returned(record.disposition, record.attempt, record.available_at)


def _drain_page(
    state: QueueState, command: Drain, records: Records, now: int, options: QueueOptions
) -> DrainPage:
    remaining = len(state.pending)
    if command.include_active:
        remaining += len(state.active)
    if command.include_dead:
        remaining += len(state.dead)
    if not records:
        return DrainPage((), remaining)
    record = records[0]
    assert isinstance(record, Drained)
    return DrainPage(tuple(from_item(item) for item in record.items), remaining)


def _restore_count(
    state: QueueState, command: Restore, records: Records, now: int, options: QueueOptions
) -> RestoreCount:
    restored = 0
    if records:
        record = records[0]
        assert isinstance(record, Restored)
        restored = len(record.items)
    return RestoreCount(restored, len(command.items) - restored)


def _count(
    state: QueueState, command: Command, records: Records, now: int, options: QueueOptions
) -> Count:
    if not records:
        return Count(0)
    record = records[0]
    assert isinstance(record, Redriven | Purged)
    return Count(len(record.sequence_ids))


def _stats(
    state: QueueState, command: ReadStats, records: Records, now: int, options: QueueOptions
) -> Stats:
    state.ripen(now)
    oldest = min((item.enqueued_at for item in state.lanes.fronts()), default=None)
    return Stats(
        len(state.pending),
        len(state.active),
        len(state.delayed),
        len(state.dead),
        state.paused,
        state.node,
        state.epoch,
        state.sequence,
        None if oldest is None else max(0, now - oldest),
    )


def _item_view(
    state: QueueState, command: Inspect, records: Records, now: int, options: QueueOptions
) -> ItemView:
    sequence_id = command.sequence_id
    if command.resource_type is not None:
        sequence_id = _find(state, command.resource_type, command.resource_id)
    held = state.active.get(sequence_id)
    if held is not None:
        return ItemView(
            "leased",
            from_item(held.item),
            Token(sequence_id, held.item.attempt, held.lease_id, held.fence),
            held.peer_id,
            held.principal,
            held.granted_at,
            held.expires_at,
        )
    state.ripen(now)
    item = state.pending.get(sequence_id)
    if item is not None:
        if sequence_id in state.delayed:
            return ItemView("delayed", from_item(item))
        return ItemView("ready" if state.is_ready(item) else "parked", from_item(item))
    dead = state.dead.get(sequence_id)
    if dead is None:
        raise UnknownToken(sequence_id)
    return ItemView("dead", from_item(dead.item, dead=True))


def _find(state: QueueState, resource_type: str, resource_id: str | None) -> int:
    """Looks at every item: an operator's question, worth more than an index that all pay for."""
    items = chain(
        (held.item for held in state.active.values()),
        state.pending.values(),
        (dead.item for dead in state.dead.values()),
    )
    for item in items:
        payload = item.payload
        if payload.resource_id == resource_id and payload.resource_type == resource_type:
            return item.sequence_id
    raise UnknownItem(resource_type, resource_id)


def _dead_page(
    state: QueueState, command: ListDead, records: Records, now: int, options: QueueOptions
) -> DeadPage:
    most = max(1, min(command.max_items, limits.BATCH_MAX))
    found = matching_dead(state, command.resource_type, command.resource_id, len(state.dead))
    items: list[PendingItem] = []
    # If the last one of the page before is gone, start over: better told twice than never.
    seen = command.after not in state.dead
    for dead in found:
        if seen:
            items.append(from_item(dead.item, dead=True))
            if len(items) >= most:
                break
        seen = seen or dead.item.sequence_id == command.after
    return DeadPage(tuple(items), len(state.dead))


DONE = Done()

# Any: each function takes its own command type; the key is that type.
_ANSWER: dict[type, Callable[..., Any]] = {
    StartEpoch: _done,
    Remain: _done,
    TellRefused: _done,
    TellFollowed: _done,
    Enqueue: _accepted,
    Grant: _leased,
    Heartbeat: _beats,
    Complete: _done,
    Fail: _returned,
    Release: _done,
    Expire: _done,
    Drain: _drain_page,
    Restore: _restore_count,
    Redrive: _count,
    Purge: _count,
    ReadStats: _stats,
    Inspect: _item_view,
    ListDead: _dead_page,
}
