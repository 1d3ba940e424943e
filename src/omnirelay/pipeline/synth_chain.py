"""Drafts of a synthetic history sealed into the chain that a journal is."""

from collections.abc import Iterable, Iterator

import msgspec

from omnirelay.journal.format import VERSION, Envelope, seal
from omnirelay.pipeline.synth_traffic import Commit


class Kept(msgspec.Struct, frozen=True):
    """An envelope and the bytes it is stored as."""

    envelope: Envelope
    body: bytes


def sealed(shard: str, drafts: Iterable[Commit]) -> Iterator[Kept]:
    last, link = 0, ""
    for draft in drafts:
        kept = sealed_at(shard, draft, first=last + 1, prev=link)
        last, link = kept.envelope.last, kept.envelope.checksum
        yield kept


def sealed_at(shard: str, draft: Commit, *, first: int, prev: str) -> Kept:
    depths = (draft.pending, draft.active)
    head = (shard, draft.epoch, draft.node)
    one = seal(draft.records, depths, head=head, first=first, time=draft.time, prev=prev)
    envelope = Envelope(
        VERSION,
        shard,
        draft.epoch,
        draft.node,
        one.first,
        one.last,
        draft.time,
        prev,
        draft.records,
        *depths,
        one.checksum,
    )
    return Kept(envelope, one.body)
