"""What must hold when a simulated world has come to rest. Says each breach in one line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from omnirelay.journal.events import Event
from omnirelay.lease.options import SerializeBy
from omnirelay.lease.state import QueueState
from omnirelay.model.items import Payload
from omnirelay.testing import checker
from omnirelay.testing.checker import Op, Violation

if TYPE_CHECKING:
    from datetime import datetime, timedelta

Json = Mapping[str, Any]  # Any: an event as JSON, whose shape the checker reads field by field
_TICK_S = 0.001
"""A shard counts whole milliseconds, so a lease may end up to one before its time."""
_ENDS = ("Completed", "Failed", "Expired", "Released", "DrainSnapshot")


def judge_history(
    history: Sequence[Op], events: Sequence[Event], *, skew_s: float = _TICK_S
) -> Iterator[str]:
    """The rules of the history checker, and that a refusal kept its word."""
    journal: list[Json] = [msgspec.to_builtins(event) for event in events]
    found = checker.check(history, journal, skew_s=skew_s) + checker.check_conservation(journal)
    for violation in found:
        if not _is_rewound(violation, journal):
            yield f"{violation.rule}: {violation.message} {list(violation.ops)}"
    yield from _kept_refusals(history, journal)


def _is_rewound(violation: Violation, journal: Sequence[Json]) -> bool:
    """An operator who restores an older file of an item sets its attempts back to that file's.
    Fences go on growing, so no old holder gains by it."""
    if violation.rule not in ("R1", "R2") or len(violation.ops) != 2:
        return False
    first, second = sorted(violation.ops, key=lambda op: op.fence or 0)
    if first.fence == second.fence or first.called > second.called:
        return False
    numbers = {
        event["fence"]: event["sequenceNumber"]
        for event in journal
        if event["eventType"] == "LeaseGranted"
    }
    start, end = numbers.get(first.fence, 0), numbers.get(second.fence, 0)
    return any(
        start < event["sequenceNumber"] < end
        and any(item["sequenceId"] == first.sequence_id for item in event["items"])
        for event in journal
        if event["eventType"] == "RestoreSnapshot"
    )


def _kept_refusals(history: Sequence[Op], journal: Sequence[Json]) -> Iterator[str]:
    """N1: an enqueue that was refused whenever it was asked is not in the journal."""
    hopeful: dict[str, bool] = {}
    for op in history:
        if op.kind == "enqueue" and op.request_id is not None:
            hopeful[op.request_id] = hopeful.get(op.request_id, False) or op.ok is not False
    for event in journal:
        if event["eventType"] == "Enqueue":
            request_id = event["payload"].get("requestId")
            if request_id is not None and not hopeful.get(request_id, False):
                yield f"N1: enqueue {request_id} was refused and yet is journaled"


def judge_followers(seen: Sequence[Event], events: Sequence[Event]) -> Iterator[str]:
    """J1: a follower that came to the end has seen the journal, event for event."""
    for mine, theirs in zip(seen, events, strict=False):
        if mine != theirs:
            yield f"J1: the follower has another event {theirs.sequence_number}"
            return
    if len(seen) != len(events):
        yield f"J1: the follower has {len(seen)} of {len(events)} events"


def judge_ends(events: Sequence[Event], state: QueueState) -> Iterator[str]:
    """L1: every item that came in is finished, dead, drained or purged."""
    open_: dict[int, str] = {}
    for event in events:
        kind = event.event_type
        for sequence_id in _ids(event):
            if kind in ("Enqueue", "RestoreSnapshot", "Redriven"):
                open_[sequence_id] = kind
            elif kind in ("Completed", "DrainSnapshot", "Purged"):
                open_.pop(sequence_id, None)
    for sequence_id in open_:
        if sequence_id in state.dead:
            continue
        where = "pending" if sequence_id in state.pending else "nowhere"
        where = "leased" if sequence_id in state.active else where
        yield f"L1: item {sequence_id} never ended; it is {where}"


def _ids(event: Event) -> Iterator[int]:
    if event.items is not None:
        yield from (item.sequence_id for item in event.items)
    elif event.sequence_id is not None:
        yield event.sequence_id


def judge_keys(events: Sequence[Event], serialize_by: Mapping[int, SerializeBy]) -> Iterator[str]:
    """S1: no item is granted while another of its key is held. `serialize_by` is by epoch: what
    was granted under a looser rule may stay."""
    payloads = {
        entry.sequence_id: entry.payload
        for event in events
        for entry in event.items or (event,)
        if entry.payload is not None
    }
    held: dict[int, Payload] = {}
    for event, item in ((each, item) for each in events for item in _ids(each)):
        if event.event_type in _ENDS:
            held.pop(item, None)
        elif event.event_type == "LeaseGranted":
            rule, payload = serialize_by[event.epoch], payloads[item]
            rivals = [n for n, other in held.items() if _are_rivals(payload, other, rule)]
            if rivals:
                yield f"S1: {event.sequence_number}: {item} granted while {rivals} hold its key"
            held[item] = payload


def _are_rivals(one: Payload, two: Payload, rule: SerializeBy) -> bool:
    keys = (one.partition_key, two.partition_key)
    if rule == SerializeBy.NONE:
        return False
    if rule == SerializeBy.PARTITION_KEY and keys != (None, None):
        return keys[0] == keys[1]
    return (one.resource_type, one.resource_id) == (two.resource_type, two.resource_id)


def judge_expiries(events: Sequence[Event]) -> Iterator[str]:
    """T1: by the journal's own clock no lease expires before its time, which a heartbeat moves and
    a new epoch begins again."""
    lasts: dict[int, timedelta] = {}
    until: dict[int, datetime] = {}
    for event in events:
        match event.event_type:
            case "LeaseGranted" if event.sequence_id is not None and event.expires_at is not None:
                lasts[event.sequence_id] = event.expires_at - event.timestamp
                until[event.sequence_id] = event.expires_at
            case "Heartbeat":
                moved = {item.sequence_id: item.expires_at for item in event.items or ()}
                until.update((item, at) for item, at in moved.items() if at is not None)
            case "EpochStarted":
                until = {item: event.timestamp + lasts[item] for item in until}
            case "Expired" if event.timestamp < until[event.sequence_id or 0]:
                yield f"T1: {event.sequence_number}: item {event.sequence_id} expired too early"


def judge_reads(
    reads: Sequence[tuple[int, int, int]], depths: Mapping[int, tuple[int, int]]
) -> Iterator[str]:
    """D1: what a reader was told was the state after some committed record."""
    for sequence, *told in reads:
        known = depths.get(sequence)
        if known != tuple(told):
            yield f"D1: read {told} at {sequence}, the journal has {known}"
