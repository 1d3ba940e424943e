"""Bring a shard's state back from its journal: newest snapshot, then the tail, all checked."""

import hashlib
from collections.abc import AsyncIterator, Callable

import msgspec

from omnirelay.journal.backend import JournalBackend, SnapshotRef
from omnirelay.journal.format import CHECKSUM_BYTES, Chain, Envelope
from omnirelay.lease.evolve import evolve
from omnirelay.lease.image import Part, thaw
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
    backend: JournalBackend, on_progress: Callable[[int], None] | None = None
) -> Recovered:
    """Raises Corrupt, naming the sequence, if what is stored cannot be what was written."""
    ref = await backend.snapshot()
    state, chain = QueueState(), Chain(backend.shard)
    if ref is not None:
        state, chain = await _from_snapshot(backend, ref)
    start = chain.last
    failpoint("recover.after_snapshot")
    async for envelope in _tail(backend, chain):
        replay(state, envelope)
        if on_progress is not None:
            on_progress(state.sequence)
    head = await backend.head()
    if head.last != chain.last:
        raise Corrupt(backend.shard, chain.last + 1, f"the journal ends at {head.last}")
    return Recovered(state, chain, start, state.sequence - start)


def replay(state: QueueState, envelope: Envelope) -> None:
    """Fold one envelope and compare the depths it recorded with those it leads to."""
    try:
        for number, record in envelope.numbered():
            evolve(state, record, envelope.time)
            assert state.sequence == number
    except (AssertionError, KeyError) as error:
        why = f"its record does not follow from those before: {error}"
        raise Corrupt(envelope.shard, state.sequence, why) from error
    depth = (len(state.pending), len(state.active))
    recorded = (envelope.pending[-1], envelope.active[-1])
    if depth != recorded:
        raise Corrupt(
            envelope.shard, envelope.last, f"recorded depth {recorded}, replay gives {depth}"
        )


async def _from_snapshot(backend: JournalBackend, ref: SnapshotRef) -> tuple[QueueState, Chain]:
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    parts: list[Part] = []
    try:
        for number in range(ref.parts):
            body = await backend.read_part(ref.sequence, number)
            digest.update(body)
            parts.append(_decoder.decode(body))
        if digest.hexdigest() != ref.checksum:
            raise Corrupt(backend.shard, ref.sequence, "the snapshot's checksum is wrong")
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


async def _tail(backend: JournalBackend, chain: Chain) -> AsyncIterator[Envelope]:
    while True:
        bodies = await backend.read(chain.last, limits.READ_ENVELOPES_MAX)
        if not bodies:
            return
        for body in bodies:
            yield chain.accept(body)
