"""Bring a shard's state back from its journal: newest snapshot, then the tail, all checked."""

import hashlib
from collections.abc import Callable

import msgspec

from omnirelay.journal.backend import Head, JournalSource, SnapshotRef
from omnirelay.journal.format import CHECKSUM_BYTES, Chain, Envelope
from omnirelay.lease.image import Part, thaw
from omnirelay.lease.runs import evolve_all
from omnirelay.lease.state import QueueState
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import failpoint

_decoder = msgspec.json.Decoder(Part)


class Recovered(msgspec.Struct):
    state: QueueState
    chain: Chain
    snapshot_sequence: int
    records: int
    """How many were replayed after the snapshot."""


async def recover(
    backend: JournalSource, on_progress: Callable[[int], None] | None = None
) -> Recovered:
    """Raises Corrupt, naming the sequence, if what is stored cannot be what was written."""
    while True:
        ref = await backend.snapshot()
        try:
            return await _recover_from(backend, ref, on_progress)
        except Corrupt:
            newer = await backend.snapshot()
            if newer is None or (ref is not None and newer.sequence <= ref.sequence):
                raise
            # Another writer has taken a snapshot since, and pruned what was being read: not damage.


async def _recover_from(
    backend: JournalSource, ref: SnapshotRef | None, on_progress: Callable[[int], None] | None
) -> Recovered:
    state, chain = QueueState(), Chain(backend.shard)
    if ref is not None:
        state, chain = await _from_snapshot(backend, ref)
    start = chain.last
    failpoint("recover.after_snapshot")
    head = await _catch_up(backend, chain, state, on_progress)
    _check_end(backend.shard, head, chain, ref)
    return Recovered(state, chain, start, state.sequence - start)


async def _catch_up(
    backend: JournalSource,
    chain: Chain,
    state: QueueState,
    on_progress: Callable[[int], None] | None,
) -> Head:
    """Fold the tail as far as the journal reaches now, and say where that has to lead. Another
    writer may go on: to wait for a moment in which it has not would be to wait for ever, where it
    writes more often than one can look."""
    head = await backend.head()
    if chain.last >= head.last:
        return head
    while chain.last < head.last:
        bodies = await backend.read(chain.last, limits.READ_ENVELOPES_MAX)
        if not bodies:
            return head
        for body in bodies:
            replay(state, chain.accept(body))
            if on_progress is not None:
                on_progress(state.sequence)
    return head if chain.last == head.last else Head(chain.last, chain.epoch, chain.link or "")


def _check_end(shard: str, head: Head, chain: Chain, ref: SnapshotRef | None) -> None:
    if head.last != chain.last:
        first_bad = min(head.last, chain.last) + 1
        why = f"the journal ends at {head.last}, what it holds leads to {chain.last}"
        raise Corrupt(shard, first_bad, why)
    if head.checksum != (chain.link or ""):
        # Only a snapshot that no tail follows can get here: nothing else held it to the journal.
        raise Corrupt(
            shard, head.last, "the journal's end is not the one its snapshot was taken at"
        )
    if ref is not None and chain.last < ref.sequence:
        # The snapshot could not be read, but it proves that the journal went that far.
        raise Corrupt(
            shard, chain.last + 1, f"a snapshot of {ref.sequence} was taken, this is gone"
        )


def replay(state: QueueState, envelope: Envelope) -> None:
    """Fold one envelope and compare the depths it recorded with those it leads to."""
    try:
        assert state.sequence == envelope.first - 1, f"the state is at {state.sequence}"
        evolve_all(state, envelope.records, envelope.time)
    except (AssertionError, KeyError) as error:
        why = f"its record does not follow from those before: {error}"
        raise Corrupt(envelope.shard, state.sequence, why) from error
    depth = (len(state.pending), len(state.active))
    recorded = (envelope.pending[-1], envelope.active[-1])
    if depth != recorded:
        raise Corrupt(
            envelope.shard, envelope.last, f"recorded depth {recorded}, replay gives {depth}"
        )


async def _from_snapshot(backend: JournalSource, ref: SnapshotRef) -> tuple[QueueState, Chain]:
    try:
        parts = await _parts(backend, ref)
    except (Corrupt, msgspec.DecodeError) as error:
        if await backend.first() == 1:
            return QueueState(), Chain(backend.shard)  # the whole journal is still there
        raise Corrupt(
            backend.shard, ref.sequence, f"its snapshot cannot be read: {error}"
        ) from error
    state = thaw(parts)
    if state.sequence != ref.sequence:
        raise Corrupt(backend.shard, ref.sequence, f"the snapshot is of {state.sequence}")
    return state, Chain(backend.shard, ref.sequence, ref.link, ref.epoch)


async def _parts(backend: JournalSource, ref: SnapshotRef) -> list[Part]:
    """Decoded only once all of them are known to be what was written."""
    bodies = [await backend.read_part(ref.sequence, number) for number in range(ref.parts)]
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for body in bodies:
        digest.update(body)
    if digest.hexdigest() != ref.checksum:
        raise Corrupt(backend.shard, ref.sequence, "the snapshot's checksum is wrong")
    return [_decoder.decode(body) for body in bodies]
