"""What must hold after every record. Checked in tests and simulations after each one, and cheap
enough to check whole states that were just recovered."""

from omnirelay.lease.state import QueueState


def violations(state: QueueState) -> list[str]:
    found: list[str] = []
    pending, active, dead = set(state.pending), set(state.active), set(state.dead)
    for one, two, words in (
        (pending, active, "pending and leased"),
        (pending, dead, "pending and dead"),
        (active, dead, "leased and dead"),
    ):
        found += [f"item {i} is {words}" for i in one & two]
    known = pending | active | dead
    found += [f"item {i} is alive and drained" for i in known if i in state.drained]
    found += [f"item {i} is alive and in a gap" for i in known if i in state.gaps]
    found += [f"item {i} is beyond last id {state.last_id}" for i in known if i > state.last_id]
    found += _leases(state) + _lines(state)
    if state.rules.pending_high and not state.paused and len(pending) >= state.rules.pending_high:
        found.append("not paused above the high watermark")
    if state.paused and len(pending) <= state.rules.pending_low:
        found.append("paused at or below the low watermark")
    return found


def _leases(state: QueueState) -> list[str]:
    found = []
    fences: set[int] = set()
    keys: set[tuple[str, str]] = set()
    for sequence_id, held in state.active.items():
        if held.fence in fences or held.fence > state.sequence + state.fence_offset:
            found.append(f"fence {held.fence} of item {sequence_id} is doubled or from the future")
        fences.add(held.fence)
        token = held.item.last_token
        if token is not None and token.fence is not None and token.fence >= held.fence:
            found.append(f"item {sequence_id}: fence {held.fence} after {token.fence}")
        if state.serialized:
            key = state.key(held.item)
            if key in keys and key not in state.crowded:
                found.append(f"key {key} is held twice")
            keys.add(key)
    due = state.deadlines.due(1 << 60, len(state.active) + 1)
    if sorted(due) != sorted(state.active):
        found.append("deadlines and leases differ")
    return found


def _lines(state: QueueState) -> list[str]:
    found = []
    waiting = {item.sequence_id for item in state.waiting()}
    if waiting != set(state.pending):
        found.append(
            f"waiting lines hold {sorted(waiting)[:9]}, pending {sorted(state.pending)[:9]}"
        )
    astray = state.delayed.keys() - state.pending.keys()
    found += [f"item {sequence_id} is delayed but not pending" for sequence_id in astray]
    if state.serialized:
        held = {state.key(lease.item) for lease in state.active.values()}
        free = [item.sequence_id for item in state.lanes if state.key(item) in held]
        found += [f"item {sequence_id} is offered though its key is held" for sequence_id in free]
    return found
