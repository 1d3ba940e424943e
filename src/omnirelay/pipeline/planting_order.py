"""Damage to the order of a journal: numbers, links, epochs, clock, depths."""

import msgspec

from omnirelay.lease.records import Drained, Enqueued, EpochStarted
from omnirelay.model.items import Payload
from omnirelay.pipeline.planting_bed import Bed, Flaw
from omnirelay.pipeline.synth_chain import Kept, sealed_at
from omnirelay.pipeline.synth_traffic import Commit

_ROWS = ("archive", "lines")
_MANY = (
    "items.accepted",
    "items.unknown",
    "items.overlap",
    "items.waiting",
    "items.token",
    "items.held",
    "items.ended",
    "items.moved",
    "items.dead",
    "items.attempt",
    "items.deadline",
    "drains.depth",
    "moves.restored",
    "resources.overlap",
)
"""What is seen of items when events of theirs are missing, doubled or in another order."""


def _middle(bed: Bed) -> int:
    """An envelope from the middle that has some records and begins no epoch."""
    places = range(len(bed.kept) // 2, len(bed.kept) - 2)
    for place in places:
        records = bed.kept[place].envelope.records
        if len(records) > 1 and not any(isinstance(one, EpochStarted) for one in records):
            return place
    raise bed.poor("too few envelopes")


def _gap(bed: Bed) -> int:
    place = _middle(bed)
    del bed.kept[place]
    return bed.kept[place].envelope.first


def _doubled(bed: Bed) -> int:
    place = _middle(bed)
    bed.kept.insert(place, bed.kept[place])
    return bed.kept[place].envelope.first


def _reordered(bed: Bed) -> int:
    """Two envelopes have changed places and were numbered anew; their bytes are as they were."""
    place = _middle(bed)
    one, two = bed.kept[place].envelope, bed.kept[place + 1].envelope
    start = one.first
    middle = start + len(two.records)
    swapped = (
        msgspec.structs.replace(two, first=start, last=middle - 1),
        msgspec.structs.replace(one, first=middle, last=two.last),
    )
    bed.kept[place : place + 2] = [Kept(envelope, b"") for envelope in swapped]
    return start


def _flipped(bed: Bed) -> int:
    place = _middle(bed)
    kept = bed.kept[place]
    body = bytearray(kept.body)
    body[len(body) // 2] ^= 1
    bed.kept[place] = Kept(kept.envelope, bytes(body))
    return kept.envelope.first


def _relinked(bed: Bed) -> int:
    """The envelope is whole and the later ones follow it, but it follows another journal's."""
    place = _middle(bed)
    link = "0" * 32
    for at in range(place, len(bed.kept)):
        first = bed.kept[at].envelope.first
        kept = sealed_at(bed.share.shard, bed.drafts[at], first=first, prev=link)
        bed.kept[at] = kept
        link = kept.envelope.checksum
    return bed.kept[place].envelope.first


def _cut(bed: Bed) -> int:
    end = bed.kept[-1].envelope
    bed.acknowledged = (end.last, end.epoch, end.checksum)
    del bed.kept[-2:]
    return bed.kept[-1].envelope.last + 1


# -- epochs and clock -------------------------------------------------------------------------


def _epoch(bed: Bed, number: int) -> int:
    rules = bed.find(EpochStarted).record.rules
    node = f"node-{number}"
    sequence = bed.append(EpochStarted(number, node, bed.state.origin, rules))
    bed.drafts[-1].epoch, bed.drafts[-1].node = number, node
    return sequence


def _enqueue(bed: Bed) -> int:
    bed.state.last_id += 1
    return bed.append(Enqueued(bed.state.last_id, Payload("table", "late")), (1, 0))


def _epoch_back(bed: Bed) -> int:
    _epoch(bed, bed.state.epoch + 5)
    return _epoch(bed, bed.state.epoch + 3)


def _interleaved(bed: Bed) -> int:
    old = bed.drafts[-1]
    _epoch(bed, bed.state.epoch + 1)
    new = bed.drafts[-1]
    sequence = _enqueue(bed)
    _own(bed.drafts[-1], old)
    _enqueue(bed)
    _own(bed.drafts[-1], new)
    return sequence


def _own(draft: Commit, writer: Commit) -> None:
    draft.epoch, draft.node = writer.epoch, writer.node


def _two_writers(bed: Bed) -> int:
    sequence = _enqueue(bed)
    bed.drafts[-1].node = "node-of-nobody"
    return sequence


def _clock_back(bed: Bed) -> int:
    sequence = _enqueue(bed)
    bed.drafts[-1].time -= 10
    return sequence


# -- depths -----------------------------------------------------------------------------------


def _vanished(bed: Bed) -> int:
    """An accepted item is no longer counted, and no event says why."""
    return _shift(bed, through_the_end=True)


def _miscounted(bed: Bed) -> int:
    return _shift(bed, through_the_end=False)


def _shift(bed: Bed, *, through_the_end: bool) -> int:
    found = bed.last // 2
    for sequence, draft, index in bed.records():
        if sequence == found or (through_the_end and sequence > found):
            draft.pending[index] -= 1
    return found


def _drain_miscounted(bed: Bed) -> int:
    """From a drain on, one lease more is counted and one waiting item less."""
    found = bed.find(Drained).sequence
    for sequence, draft, index in bed.records():
        if sequence >= found:
            draft.pending[index] -= 1
            draft.active[index] += 1
    return found


ORDER_FLAWS: dict[str, Flaw] = {
    "gap": Flaw(make=_gap, check="order.gap", also=(*_MANY, "order.depth"), forms=_ROWS),
    "duplicate": Flaw(
        make=_doubled, check="order.duplicate", also=(*_MANY, "order.depth"), forms=("archive",)
    ),
    "reordered": Flaw(
        make=_reordered,
        check="order.chain",
        also=(*_MANY, "order.depth", "order.clock", "fences.line"),
        forms=_ROWS,
    ),
    "flipped": Flaw(
        make=_flipped, check="quarantine", also=(*_MANY, "order.gap"), forms=("sqlite",)
    ),
    "broken-link": Flaw(make=_relinked, check="order.chain", forms=_ROWS),
    "cut-tail": Flaw(make=_cut, check="tail", forms=("sqlite",)),
    "epoch-back": Flaw(make=_epoch_back, check="order.epoch"),
    "interleaved-epochs": Flaw(make=_interleaved, check="order.epoch"),
    "two-writers": Flaw(make=_two_writers, check="order.epoch"),
    "clock-back": Flaw(make=_clock_back, check="order.clock"),
    "vanished": Flaw(make=_vanished, check="order.depth"),
    "drain-miscounted": Flaw(make=_drain_miscounted, check="drains.depth", also=("order.depth",)),
    "miscounted": Flaw(make=_miscounted, check="order.depth"),
}
