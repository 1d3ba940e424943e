"""Apply a record to the state. The writer, recovery, followers and replays all use this fold.

Nothing here refuses: a record is a fact. An assertion that fails means the journal and this code
disagree, and the shard must stop rather than guess.
"""

from collections.abc import Callable
from typing import Any

from omnirelay.lease.intervals import Intervals
from omnirelay.lease.records import (
    DEAD_LETTERED,
    Completed,
    Drained,
    Enqueued,
    EpochStarted,
    Expired,
    Failed,
    Followed,
    Granted,
    Item,
    Purged,
    Record,
    Redriven,
    Refused,
    Released,
    Renewed,
    Restored,
)
from omnirelay.lease.state import Dead, Held, QueueState
from omnirelay.model.items import ErrorInfo, Token


def evolve(state: QueueState, record: Record, at: int) -> None:
    """`at` is the time of the envelope that carries the record."""
    state.sequence += 1
    state.at = at
    if state.delayed:
        # Whose time has come lines up before whoever comes now, whether or not anybody looked in
        # between: the order of the line follows from the records alone.
        state.ripen(at)
    _APPLY[type(record)](state, record)


def _epoch_started(state: QueueState, record: EpochStarted) -> None:
    assert record.epoch > state.epoch, f"epoch {record.epoch} after {state.epoch}"
    state.epoch = record.epoch
    state.node = record.node
    state.origin = state.origin or record.origin
    regroup = record.rules.serialize_by != state.rules.serialize_by
    state.rules = record.rules
    # Nobody knows how long the shard stood still, so every holder gets its whole time again.
    for sequence_id, held in state.active.items():
        state.active[sequence_id] = _renew(held, state.at + held.lease_ms)
    state.rebuild_deadlines()
    if regroup:
        state.rebuild_lines()
    state.watch_level()


def _enqueued(state: QueueState, record: Enqueued) -> None:
    sequence_id = record.sequence_id
    assert sequence_id == state.last_id + 1, f"item {sequence_id} after {state.last_id}"
    state.last_id = sequence_id
    payload = record.payload
    state.insert(
        Item(
            sequence_id,
            payload,
            1,
            state.at,
            record.priority,
            record.available_at,
            record.max_attempts,
            record.lease_ms,
        )
    )
    if payload.request_id is not None:
        remember_request(state, payload.request_id, sequence_id)
    if state.rules.pending_high:
        state.watch_level()


def remember_request(state: QueueState, request_id: str, sequence_id: int) -> None:
    rules = state.rules
    state.requests.forget_before(state.at - rules.dedupe_window_ms)
    state.requests.put(request_id, sequence_id, state.at, rules.dedupe_entries)


def remember_requests(state: QueueState, request_ids: list[str | None], first_id: int) -> None:
    """`remember_request` for each that is one, of items that count up from `first_id`."""
    keys = [key for key in request_ids if key is not None]
    if len(keys) < len(request_ids):
        for sequence_id, request_id in enumerate(request_ids, first_id):
            if request_id is not None:
                remember_request(state, request_id, sequence_id)
    elif keys:
        rules = state.rules
        state.requests.forget_before(state.at - rules.dedupe_window_ms)
        state.requests.put_all(keys, first_id, state.at, rules.dedupe_entries)


def remember_lease(state: QueueState, request_id: str, *sequence_ids: int) -> None:
    rules = state.rules
    # First: an id that comes again after the window is a new call, not one more of the old one.
    state.lease_requests.forget_before(state.at - rules.dedupe_window_ms)
    state.lease_requests.add(request_id, sequence_ids, state.at, rules.dedupe_entries)


def _granted(state: QueueState, record: Granted) -> None:
    sequence_id = record.sequence_id
    item = state.pending[sequence_id]
    assert record.fence == state.sequence + state.fence_offset, f"fence {record.fence} out of line"
    state.hold(item)
    state.active[sequence_id] = Held(
        item,
        record.lease_id,
        record.fence,
        record.expires_at,
        state.at,
        record.lease_ms,
        record.principal,
        record.peer_id,
        record.request_id,
    )
    state.deadlines.add(sequence_id, record.expires_at)
    if record.request_id is not None:
        remember_lease(state, record.request_id, sequence_id)
    if state.rules.pending_high:
        state.watch_level()


def _renew(held: Held, expires_at: int) -> Held:
    return Held(
        held.item,
        held.lease_id,
        held.fence,
        expires_at,
        held.granted_at,
        held.lease_ms,
        held.principal,
        held.peer_id,
        held.request_id,
    )


def _renewed(state: QueueState, record: Renewed) -> None:
    active, deadlines = state.active, state.deadlines
    for sequence_id, fence, expires_at in record.beats:
        held = active[sequence_id]
        assert held.fence == fence, f"heartbeat of fence {fence}, item is held by {held.fence}"
        active[sequence_id] = _renew(held, expires_at)
        deadlines.remove(sequence_id, held.expires_at)
        deadlines.add(sequence_id, expires_at)


def _end_lease(state: QueueState, sequence_id: int, fence: int) -> Held:
    held = state.active.pop(sequence_id)
    assert held.fence == fence, f"end of fence {fence}, item {sequence_id} is held by {held.fence}"
    state.deadlines.remove(sequence_id, held.expires_at)
    return held


def _free_key(state: QueueState, item: Item) -> None:
    if state.serialized:
        key = state.key(item)
        if state.busy.get(key) is item:
            state.free(key)


def _completed(state: QueueState, record: Completed) -> None:
    sequence_id = record.sequence_id
    held = _end_lease(state, sequence_id, record.fence)
    state.finished.put(sequence_id, record.lease_id, state.at, state.rules.finished_entries)
    if state.serialized:
        _free_key(state, held.item)


def _ended_badly(state: QueueState, record: Failed | Expired, available_at: int) -> None:
    held = _end_lease(state, record.sequence_id, record.fence)
    item = _next_try(
        held,
        attempt=record.attempt + (record.disposition != DEAD_LETTERED),
        error=record.error,
        available_at=available_at,
    )
    if record.disposition == DEAD_LETTERED:
        state.dead[item.sequence_id] = Dead(item, state.at)
    else:
        # The key stays taken until the item is back in line, else a parked one could pass it twice.
        state.insert(item)
    _free_key(state, held.item)
    if state.rules.pending_high:
        state.watch_level()


def _next_try(held: Held, *, attempt: int, error: ErrorInfo | None, available_at: int) -> Item:
    item = held.item
    return Item(
        item.sequence_id,
        item.payload,
        attempt,
        item.enqueued_at,
        item.priority,
        available_at,
        item.max_attempts,
        item.lease_ms,
        error,
        Token(item.sequence_id, item.attempt, held.lease_id, held.fence),
        item.origin,
    )


def _failed(state: QueueState, record: Failed) -> None:
    _ended_badly(state, record, record.available_at)


def _expired(state: QueueState, record: Expired) -> None:
    _ended_badly(state, record, 0)


def _released(state: QueueState, record: Released) -> None:
    held = _end_lease(state, record.sequence_id, record.fence)
    item = _next_try(held, attempt=record.attempt, error=held.item.last_error, available_at=0)
    state.give_back(held.item, item)
    if state.rules.pending_high:
        state.watch_level()


def _drained(state: QueueState, record: Drained) -> None:
    for item in record.items:
        sequence_id = item.sequence_id
        if sequence_id in state.pending:
            state.take_out(state.pending[sequence_id])
        elif sequence_id in state.dead:
            del state.dead[sequence_id]
        else:
            held = state.active[sequence_id]
            _end_lease(state, sequence_id, held.fence)
            _free_key(state, held.item)
        state.drained.add(sequence_id)
    state.watch_level()


def _restored(state: QueueState, record: Restored) -> None:
    state.fence_offset = max(state.fence_offset, record.fence_floor - state.sequence)
    for item in record.items:
        _adopt(state, item)
        if item.dead:
            state.dead[item.sequence_id] = Dead(item, state.at)
        else:
            state.insert(item)
        if item.payload.request_id is not None:
            remember_request(state, item.payload.request_id, item.sequence_id)
    state.watch_level()


def _adopt(state: QueueState, item: Item) -> None:
    """Account for a restored item's id: ours come home, foreign ones take a place of their own."""
    sequence_id = item.sequence_id
    state.drained.discard(sequence_id)
    if item.origin is None:
        return
    state.adopted.setdefault(item.origin, Intervals()).add(sequence_id)
    if sequence_id > state.last_id:
        state.gaps.add(state.last_id + 1, sequence_id - 1)
        state.last_id = sequence_id
    else:
        state.gaps.discard(sequence_id)


def _redriven(state: QueueState, record: Redriven) -> None:
    for sequence_id in record.sequence_ids:
        item = state.dead.pop(sequence_id).item
        # Attempts go on counting, so no two grants of an item ever share one; the item gets a
        # fresh allowance instead.
        state.insert(
            Item(
                sequence_id,
                item.payload,
                item.attempt + 1,
                item.enqueued_at,
                item.priority,
                0,
                item.attempt + record.extra_attempts,
                item.lease_ms,
                item.last_error,
                item.last_token,
                item.origin,
            )
        )
    state.watch_level()


def _purged(state: QueueState, record: Purged) -> None:
    for sequence_id in record.sequence_ids:
        del state.dead[sequence_id]


def _told(state: QueueState, record: Refused | Followed) -> None:
    """A record like any other to whoever counts them, and nothing else."""


# Any: each function takes its own record type; the key is that type.
_APPLY: dict[type, Callable[[QueueState, Any], None]] = {
    EpochStarted: _epoch_started,
    Enqueued: _enqueued,
    Granted: _granted,
    Renewed: _renewed,
    Completed: _completed,
    Failed: _failed,
    Expired: _expired,
    Released: _released,
    Drained: _drained,
    Restored: _restored,
    Redriven: _redriven,
    Purged: _purged,
    Refused: _told,
    Followed: _told,
}
