"""What must hold of a journal that several nodes wrote, and of what they told their callers.

E1  within an epoch one node appends, and the epoch is begun once
E2  epochs follow one another: none is left out, none comes again
D2  a reader is told of everything that was committed before the owner may last have looked
A2  what a caller is told of was in the journal before it was told
H1  where shards only move because they are meant to, no caller hears of it
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from omnirelay.journal.events import Event
from omnirelay.journal.format import Envelope
from omnirelay.lease.records import EpochStarted
from omnirelay.testing.checker import Op
from omnirelay.testing.mesh_crowd import Diary, Reading
from omnirelay.testing.mesh_plan import DRIFT, MeshPlan
from omnirelay.testing.mesh_store import Committed

_TICK_S = 0.003
_EVENTS = {"enqueue": "Enqueue", "lease": "LeaseGranted", "complete": "Completed"}
_envelopes = msgspec.json.Decoder(Envelope)

LOST = ("J3", "L1", "R7", "A2")
DOUBLED = ("R2", "R3", "R5", "R8", "C2", "C3")
SPLIT = ("E1", "E2")
STALE = ("R4",)


def count_of(complaints: Sequence[str], rules: tuple[str, ...]) -> int:
    return sum(words.partition(":")[0] in rules for words in complaints)


def judge_epochs(bodies: Sequence[bytes]) -> Iterator[str]:
    """Looks at each envelope by itself, so that a journal that leads nowhere is judged too."""
    owners: dict[int, str] = {}
    last = 0
    for envelope in map(_envelopes.decode, bodies):
        at, epoch, node = envelope.first, envelope.epoch, envelope.node
        is_start = isinstance(envelope.records[0], EpochStarted)
        if epoch not in owners:
            owners[epoch] = node
            if not is_start:
                yield f"E1: {at}: epoch {epoch} was never begun"
        elif is_start:
            yield f"E1: {at}: epoch {epoch} of {owners[epoch]} was begun again by {node}"
        elif owners[epoch] != node:
            yield f"E1: {at}: {node} appended in epoch {epoch} of {owners[epoch]}"
        if epoch != last + is_start:
            yield f"E2: {at}: epoch {epoch} follows {last}"
        last = max(last, epoch)


def judge_freshness(
    readings: Sequence[Reading], archive: Sequence[Committed], plan: MeshPlan
) -> Iterator[str]:
    """An owner answers reads without a word to the journal for a third of its time to live."""
    allowed_s = plan.ttl_ms / 3000 * (1 + 2 * DRIFT) + _TICK_S
    for reading in readings:
        known = (one.sealed.last for one in archive if one.at_s < reading.called - allowed_s)
        least = max(known, default=0)
        if reading.sequence < least:
            yield f"D2: asked at {reading.called:.3f}, told of {reading.sequence}, not of {least}"


def judge_answers(
    history: Sequence[Op], events: Sequence[Event], archive: Sequence[Committed]
) -> Iterator[str]:
    lasts = [one.sealed.last for one in archive]
    first: dict[tuple[str, int | None], int] = {}
    for event in events:
        first.setdefault((event.event_type, event.sequence_id), event.sequence_number)
    for op in history:
        kind = _EVENTS.get(op.kind)
        if not op.ok or kind is None:
            continue
        number = op.fence if op.kind == "lease" else first.get((kind, op.sequence_id))
        at = bisect_left(lasts, number or 0)
        if at < len(archive) and archive[at].at_s > (op.returned or 0.0):
            yield f"A2: {op.kind} of item {op.sequence_id} was told before it was written"


def judge_gap(plan: MeshPlan, diary: Diary) -> Iterator[str]:
    if plan.is_gentle and diary.refusals:
        yield f"H1: {len(diary.refusals)} calls were refused, the first: {diary.refusals[0]}"
