"""Decisions that move many items at once: drain, restore, redrive, purge."""

from collections.abc import Iterator

from omnirelay.lease.commands import Drain, Purge, Redrive, Restore
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import Drained, Item, Purged, Record, Redriven, Restored
from omnirelay.lease.state import Dead, Held, QueueState
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, InvalidRestore, QueueFull, SequenceConflict
from omnirelay.model.items import PendingItem, Token, check_payload, to_ms, to_time, wire_size

Records = tuple[Record, ...]


def drain(state: QueueState, command: Drain, now: int, options: QueueOptions) -> Records:
    """One page: pending items in the order they would be granted, then, if asked, leases and dead
    letters. Costs what the page costs, however long the queue is."""
    most = _page(command.max_items)
    state.ripen(now)
    page: dict[int, Item] = {}
    size = 0
    for item in _drainable(state, command):
        if item.sequence_id in page:
            continue
        size += wire_size(item.payload, item.last_error)
        if page and size > limits.PAGE_BYTES_MAX:
            break
        page[item.sequence_id] = item
        if len(page) >= most:
            break
    if not page:
        return ()
    return (Drained(tuple(page.values()), command.principal, command.proof, command.peer_id),)


def _drainable(state: QueueState, command: Drain) -> Iterator[Item]:
    state_origin = state.origin
    for item in state.waiting():
        yield _with_origin(item, state_origin)
    if command.include_active:
        for held in state.active.values():
            yield _with_origin(_given_up(held), state_origin)
    if command.include_dead:
        for dead in state.dead.values():
            yield _with_origin(dead.item, state_origin, dead=True)


def _given_up(held: Held) -> Item:
    """A lease that is drained counts as a try: the holder may have done some of the work."""
    item = held.item
    token = Token(item.sequence_id, item.attempt, held.lease_id, held.fence)
    return _copy(item, attempt=item.attempt + 1, last_token=token)


def _with_origin(item: Item, origin: str, *, dead: bool = False) -> Item:
    return _copy(item, origin=item.origin or origin, dead=dead)


def _copy(item: Item, **changes: object) -> Item:
    fields = {name: getattr(item, name) for name in Item.__struct_fields__}
    return Item(**{**fields, **changes})


def restore(state: QueueState, command: Restore, now: int, options: QueueOptions) -> Records:
    """All or nothing. An item that is here already, or whose work was done here, is skipped."""
    if len(command.items) > limits.BATCH_MAX:
        raise InvalidRestore("too_many", f"at most {limits.BATCH_MAX} items a call")
    items: dict[int, Item] = {}
    for pending in command.items:
        item = to_item(pending)
        other = items.get(item.sequence_id)
        if other is not None and other.origin != item.origin:
            raise SequenceConflict(item.sequence_id)
        if other is None and _is_missing(state, item):
            items[item.sequence_id] = item
    if not items:
        return ()
    coming = sum(not item.dead for item in items.values())
    if coming and len(state.pending) + coming > options.capacity:
        raise QueueFull(len(state.pending), options.capacity)
    own = state.origin
    kept = tuple(_copy(i, origin=None) if i.origin == own else i for i in items.values())
    floor = max((i.last_token.fence or 0 for i in kept if i.last_token is not None), default=0)
    return (Restored(kept, floor, command.principal, command.proof, command.peer_id),)


def _is_missing(state: QueueState, item: Item) -> bool:
    sequence_id = item.sequence_id
    ours = item.origin == state.origin
    adopted = state.adopted.get(item.origin or "")
    if ours or (adopted is not None and sequence_id in adopted):
        # We know every id of these: what did not leave by drain is here, or finished here.
        return sequence_id in state.drained
    if sequence_id <= state.last_id and sequence_id not in state.gaps:
        raise SequenceConflict(sequence_id)
    return True


def to_item(pending: PendingItem) -> Item:
    """A drained item, checked. An absent lastError stays absent."""
    if not isinstance(pending, PendingItem):
        raise InvalidRestore("pending_item_required", "every restored item must be a pending item")
    check_payload(pending.payload)
    token = pending.last_ownership_token
    highest = limits.RESTORED_NUMBER_MAX
    _check("sequence_id", pending.sequence_id, 1, highest)
    _check("attempt", pending.attempt, 1, limits.ATTEMPTS_MAX)
    _check("priority", pending.priority, -limits.PRIORITY_ABS_MAX, limits.PRIORITY_ABS_MAX)
    # A redriven item's allowance counts on from its attempts, past what one enqueue may ask for.
    _check("max_attempts", pending.max_attempts, 1, 2 * limits.ATTEMPTS_MAX)
    # No grant could ever be made of an item with another duration: it would stop the whole line.
    _check("lease_duration", pending.lease_duration_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    if pending.last_error is not None:
        _check("last_error", len(pending.last_error.message), 0, limits.ERROR_CHARS_MAX)
        _check("last_error", len(pending.last_error.code or ""), 0, limits.NAME_CHARS_MAX)
    if token is not None:
        _check("fence", token.fence, 0, highest)
        if token.sequence_id != pending.sequence_id:
            why = f"item {pending.sequence_id} carries another item's token"
            raise InvalidRestore("token", why)
    return Item(
        pending.sequence_id,
        pending.payload,
        pending.attempt,
        to_ms(pending.enqueued_at),
        pending.priority,
        to_ms(pending.available_at) if pending.available_at is not None else 0,
        pending.max_attempts or 0,
        pending.lease_duration_ms or 0,
        pending.last_error,
        token,
        pending.origin or "unknown",
        pending.dead_letter,
    )


def _check(reason: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidRestore(reason, f"{reason} is {value}, must be {low} to {high}")


def from_item(item: Item, *, dead: bool = False) -> PendingItem:
    return PendingItem(
        item.payload,
        item.attempt,
        to_time(item.enqueued_at),
        item.sequence_id,
        item.last_error,
        item.last_token,
        dead or item.dead,
        to_time(item.available_at) if item.available_at else None,
        item.priority,
        item.max_attempts or None,
        item.lease_ms or None,
        item.origin,
    )


def redrive(state: QueueState, command: Redrive, now: int, options: QueueOptions) -> Records:
    chosen = _chosen_dead(state, command)
    if not chosen:
        return ()
    if len(state.pending) + len(chosen) > options.capacity:
        raise QueueFull(len(state.pending), options.capacity)
    return (
        Redriven(chosen, options.max_attempts, command.principal, command.proof, command.peer_id),
    )


def purge(state: QueueState, command: Purge, now: int, options: QueueOptions) -> Records:
    chosen = _chosen_dead(state, command)
    return (Purged(chosen, command.principal, command.proof, command.peer_id),) if chosen else ()


def _chosen_dead(state: QueueState, command: Redrive | Purge) -> tuple[int, ...]:
    most = _page(command.max_items)
    if command.sequence_ids is not None:
        if len(command.sequence_ids) > limits.BATCH_MAX:
            raise InvalidArgument(f"at most {limits.BATCH_MAX} sequence ids a call")
        named = dict.fromkeys(command.sequence_ids)
        found = [state.dead[i] for i in named if i in state.dead]
    else:
        found = list(matching_dead(state, command.resource_type, command.resource_id, most))
    return tuple(dead.item.sequence_id for dead in found[:most])


def matching_dead(
    state: QueueState, resource_type: str | None, resource_id: str | None, most: int
) -> Iterator[Dead]:
    for dead in state.dead.values():
        payload = dead.item.payload
        if resource_type is not None and payload.resource_type != resource_type:
            continue
        if resource_id is not None and payload.resource_id != resource_id:
            continue
        yield dead
        most -= 1
        if most <= 0:
            return


def _page(most: int) -> int:
    if not 1 <= most <= limits.BATCH_MAX:
        raise InvalidArgument(f"maxItems is {most}, must be 1 to {limits.BATCH_MAX}")
    return most
