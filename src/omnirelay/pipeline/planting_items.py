"""Damage to what happened to items: leases, tokens, attempts, moves."""

import msgspec

from omnirelay.lease.deciding_moves import from_item
from omnirelay.lease.options import SerializeBy
from omnirelay.lease.records import (
    REQUEUED,
    Completed,
    Drained,
    Enqueued,
    Expired,
    Granted,
    Item,
    Purged,
    Renewed,
    Restored,
)
from omnirelay.model.errors import InvalidOption
from omnirelay.model.items import ErrorInfo, PendingItem, dashed
from omnirelay.pipeline.planting_bed import Bed, Flaw
from omnirelay.pipeline.synth_traffic import LEASE_MS, Share, Traffic

_LEASE_ID = dashed("f" * 32)
_UNKNOWN = 1_000_000


def _grant(bed: Bed, item: Item) -> int:
    """As the core would have granted it, had it been there to be granted."""
    fence = bed.last + 1 + bed.state.fence_offset
    expires_at = bed.drafts[-1].time + LEASE_MS
    record = Granted(item.sequence_id, item.attempt, _LEASE_ID, fence, expires_at, LEASE_MS)
    return bed.append(record, (-1, 1))


def _overlapping_grant(bed: Bed) -> int:
    return _grant(bed, bed.held().item)


def _overlapping_resource(bed: Bed) -> int:
    """Another item about a resource that somebody holds is granted all the same."""
    held = bed.held().item
    sequence_id = bed.state.last_id + 1
    bed.append(Enqueued(sequence_id, held.payload), (1, 0))
    return _grant(bed, Item(sequence_id, held.payload, 1, bed.drafts[-1].time))


def _serialised(share: Share) -> Traffic:
    return Traffic(msgspec.structs.replace(share, serialize_by=SerializeBy.RESOURCE))


def _granted_without_enqueue(bed: Bed) -> int:
    item = msgspec.structs.replace(bed.held().item, sequence_id=bed.state.last_id + _UNKNOWN)
    return _grant(bed, item)


def _granted_after_the_end(bed: Bed) -> int:
    done = bed.find(Completed).record
    item = bed.held().item
    return _grant(
        bed,
        msgspec.structs.replace(item, sequence_id=done.sequence_id, attempt=done.attempt + 1),
    )


def _fence_again(bed: Bed) -> int:
    """Two leases of a resource with one fence: who wrote last cannot be told."""
    resources = {
        place.record.sequence_id: place.record.payload.resource_id for place in bed.places(Enqueued)
    }
    earlier: dict[str, int] = {}
    used: dict[int, int] = {}
    for place in bed.places(Granted):
        name = resources.get(place.record.sequence_id, "")
        if name in earlier:
            used[place.record.fence] = earlier[name]
        earlier[name] = place.record.fence
    grant, end = bed.lease(lambda record: record.fence in used)
    fence = used[grant.record.fence]
    end.put(msgspec.structs.replace(end.record, fence=fence))
    return grant.put(msgspec.structs.replace(grant.record, fence=fence))


def _attempt_jumps(bed: Bed) -> int:
    grant, end = bed.lease()
    attempt = grant.record.attempt + 3
    end.put(msgspec.structs.replace(end.record, attempt=attempt))
    return grant.put(msgspec.structs.replace(grant.record, attempt=attempt))


# -- ends -------------------------------------------------------------------------------------


def _older_token(bed: Bed) -> int:
    """A holder from before completes what was granted again since."""
    older: dict[int, Granted] = {}
    newest: dict[int, Granted] = {}
    for place in bed.places(Granted):
        record = place.record
        if record.sequence_id in newest:
            older[record.fence] = newest[record.sequence_id]
        newest[record.sequence_id] = record
    end = bed.find(Completed, lambda record: record.fence in older)
    old = older[end.record.fence]
    return end.put(
        msgspec.structs.replace(
            end.record, attempt=old.attempt, lease_id=old.lease_id, fence=old.fence
        )
    )


def _completed_by_another(bed: Bed) -> int:
    end = bed.find(Completed)
    return end.put(msgspec.structs.replace(end.record, principal="intruder"))


def _completed_unknown(bed: Bed) -> int:
    done = bed.find(Completed).record
    unknown = bed.state.last_id + _UNKNOWN
    return bed.append(msgspec.structs.replace(done, sequence_id=unknown), (0, -1))


def _completed_twice(bed: Bed) -> int:
    return bed.append(bed.find(Completed).record, (0, -1))


def _completed_late(bed: Bed) -> int:
    held = bed.held()
    record = Completed(
        held.item.sequence_id,
        held.item.attempt,
        held.lease_id,
        held.fence,
        held.peer_id,
        held.principal,
    )
    later_ms = held.expires_at - bed.drafts[-1].time
    return bed.append(record, (0, -1), later_ms=later_ms)


def _beat_by_another(bed: Bed) -> int:
    beat = bed.find(Renewed)
    return beat.put(msgspec.structs.replace(beat.record, principal="intruder"))


def _expired_early(bed: Bed) -> int:
    held = bed.held()
    record = Expired(
        held.item.sequence_id,
        held.item.attempt,
        held.lease_id,
        held.fence,
        ErrorInfo("the lease expired without a heartbeat"),
        REQUEUED,
        held.peer_id,
        held.principal,
    )
    return bed.append(record, (1, -1), later_ms=1)


# -- arrivals and moves -----------------------------------------------------------------------


def _accepted_twice(bed: Bed) -> int:
    return bed.append(bed.find(Enqueued).record, (1, 0))


def _purged_alive(bed: Bed) -> int:
    return bed.append(Purged((bed.held().item.sequence_id,)))


def _drained_twice(bed: Bed) -> int:
    page = bed.find(Drained).record
    gone = tuple(item for item in page.items if item.sequence_id in bed.state.drained)
    if not gone:
        raise bed.poor("no drained item that stayed out")
    live = sum(not item.dead for item in gone)
    return bed.append(Drained(gone), (-live, 0))


def _restored_alive(bed: Bed) -> int:
    """An item comes in that never left."""
    item = bed.held().item
    return bed.append(Restored((item,)), (1, 0))


def _twice_restored(share: Share) -> Traffic:
    """A drain file that the neighbour took back is restored here too."""
    if share.count < 2 or share.number ^ 1 >= share.count:
        raise InvalidOption(
            "restored-elsewhere needs a neighbour: ask for an even number of shards"
        )
    other = Bed(Traffic(share.neighbour()))
    back = {
        item.sequence_id
        for place in other.places(Restored)
        for item in place.record.items
        if item.origin is None
    }
    items: dict[int, PendingItem] = {}
    for place in other.places(Drained):
        for item in place.record.items:
            if item.sequence_id in back and item.origin == other.state.origin:
                items.setdefault(item.sequence_id, from_item(item))
    if not items:
        raise other.poor("drained nothing that it took back")
    return Traffic(share, visitors=(other.drafts[-1].time, tuple(items.values())))


def _first_restore(bed: Bed) -> int:
    return bed.places(Restored)[0].sequence


ITEM_FLAWS: dict[str, Flaw] = {
    "overlapping-grant": Flaw(make=_overlapping_grant, check="items.overlap"),
    "overlapping-resource": Flaw(
        make=_overlapping_resource, check="resources.overlap", lay=_serialised
    ),
    "grant-without-enqueue": Flaw(make=_granted_without_enqueue, check="items.unknown"),
    "grant-after-end": Flaw(make=_granted_after_the_end, check="items.waiting"),
    "fence-again": Flaw(make=_fence_again, check="fences.line"),
    "attempt-jump": Flaw(make=_attempt_jumps, check="items.attempt"),
    "older-token": Flaw(make=_older_token, check="items.token"),
    "completed-by-another": Flaw(make=_completed_by_another, check="items.token"),
    "completed-unknown": Flaw(make=_completed_unknown, check="items.unknown"),
    "completed-twice": Flaw(make=_completed_twice, check="items.ended"),
    "completed-late": Flaw(make=_completed_late, check="items.deadline"),
    "heartbeat-by-another": Flaw(make=_beat_by_another, check="items.token"),
    "expired-early": Flaw(make=_expired_early, check="items.deadline"),
    "accepted-twice": Flaw(make=_accepted_twice, check="items.accepted"),
    "purged-alive": Flaw(make=_purged_alive, check="items.dead"),
    "drained-twice": Flaw(make=_drained_twice, check="items.moved"),
    "restored-alive": Flaw(make=_restored_alive, check="items.moved", also=("moves.restored",)),
    "restored-elsewhere": Flaw(make=_first_restore, check="moves.restored", lay=_twice_restored),
}
