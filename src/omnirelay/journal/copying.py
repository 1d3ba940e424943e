"""One journal made the same as another: same envelopes, byte for byte, under the same numbers.

Every envelope is checked before it is written, and is written by a conditional append, so that a
copy that was cut off anywhere goes on from what the target holds. Nothing is ever overwritten: the
target is empty, or it holds the beginning of the same journal, which its last checksum proves.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Protocol

from omnirelay.journal.backend import Head, JournalSource, SnapshotRef
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.journal.format import CHECKSUM_BYTES, Chain, Envelope, Sealed, first_of, unseal
from omnirelay.lease.records import EpochStarted
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, OtherJournal
from omnirelay.model.ports import failpoint

MIRROR = "mirror:"
"""How the names of mirrors begin among the readers of a journal."""
PRIMARY = "region:primary"
"""Under this name a mirror notes in its target how far the journal is that it is a mirror of."""


def is_own(name: str) -> bool:
    """Whether a position belongs to this very journal, and is not carried elsewhere."""
    return name.startswith(MIRROR) or name == PRIMARY


class Fillable(Protocol):
    """What a copy needs of its target; see JournalTarget."""

    async def head(self) -> Head: ...

    async def begin(self, sealed: Sealed) -> None: ...

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None: ...

    async def snapshot(self) -> SnapshotRef | None: ...

    async def write_part(self, sequence: int, part: int, body: bytes) -> None: ...

    async def finish_snapshot(self, ref: SnapshotRef) -> None: ...


def sealed_of(envelope: Envelope, body: bytes) -> Sealed:
    return Sealed(
        envelope.shard,
        envelope.first,
        envelope.last,
        envelope.epoch,
        envelope.time,
        envelope.checksum,
        body,
    )


async def meet(source: JournalSource, target: Fillable, shard: str) -> Chain:
    """The chain up to the target's end, from which the copy goes on.

    Raises OtherJournal if the target holds anything but a beginning of the source, and Corrupt if
    the source has lost or pruned what comes next.
    """
    held = await target.head()
    begins = await source.first()
    if not held.last:
        return Chain(shard, begins - 1, "" if begins == 1 else None)
    ends = await source.head()
    if held.last > ends.last:
        why = (
            f"it goes on to sequence {held.last}, epoch {held.epoch}, this one ends at {ends.last}"
        )
        raise OtherJournal(shard, ends.last + 1, why)
    if held.last < begins - 1:
        why = (
            f"what follows sequence {held.last} was pruned, the journal begins at {begins}: "
            f"empty the target, and it is filled from there"
        )
        raise Corrupt(shard, held.last + 1, why)
    if held.last >= begins:
        await _check_same(source, held, shard)
    # If it ends right before what is left of the source, the first link copied proves it.
    return Chain(shard, held.last, held.checksum, held.epoch)


async def _check_same(source: JournalSource, held: Head, shard: str) -> None:
    bodies = await source.read(held.last - 1, 1)
    first = first_of(bodies[0]) if bodies else 0
    envelope = unseal(bodies[0], shard=shard, at=first) if bodies else None
    if envelope is None or (envelope.last, envelope.checksum) != (held.last, held.checksum):
        why = f"its sequence {held.last}, of epoch {held.epoch}, is not what this journal has there"
        raise OtherJournal(shard, held.last, why)


async def find_rival(
    source: JournalSource, target: JournalSource, shard: str, known: int
) -> EpochStarted | None:
    """The epoch that was begun in the target without the source, if both were one journal up to
    sequence `known`. None: that is not so, or cannot be seen any more. Raises Corrupt."""
    theirs = await target.read(known, limits.READ_ENVELOPES_MAX) if known else []
    if not theirs:
        return None
    ours = await source.read(known, limits.READ_ENVELOPES_MAX)
    found = unseal(theirs[0], shard=shard, at=known + 1)
    link = unseal(ours[0], shard=shard, at=known + 1).prev if ours else await _link(source, known)
    if not link or found.prev != link:
        return None
    for body, own in zip_longest(theirs, ours):
        if body is None or body == own:
            continue
        begun = unseal(body, shard=shard, at=first_of(body)).records[0]
        return begun if isinstance(begun, EpochStarted) else None
    return None


async def _link(source: JournalSource, known: int) -> str:
    head = await source.head()
    return head.checksum if head.last == known else ""


class Copy:
    """`chain` is where `meet` left it; it goes along with what was copied."""

    def __init__(self, source: JournalSource, target: Fillable, chain: Chain) -> None:
        self.chain = chain
        self.envelopes = 0
        self._source = source
        self._target = target

    async def step(self, limit: int = limits.READ_ENVELOPES_MAX) -> int:
        """Copies some; returns how many, 0 at the end. Raises Corrupt, OtherJournal, and what the
        target's append raises. What was copied before stays; whoever goes on must meet again."""
        bodies = await self._source.read(self.chain.last, limit)
        for some in _portions(bodies):
            await self._put(some)
        return len(bodies)

    async def _put(self, bodies: list[bytes]) -> None:
        chain = self.chain
        expected, is_first = chain.last, chain.link is None
        self._check_link(bodies[0])
        envelopes = [sealed_of(chain.accept(body), body) for body in bodies]
        failpoint("copy.before_envelopes")
        if is_first:
            await self._target.begin(envelopes[0])
            failpoint("copy.after_first")
            expected = envelopes[0].last
        await self._target.extend(envelopes[is_first:], expected=expected)
        failpoint("copy.after_envelopes")
        self.envelopes += len(envelopes)

    def _check_link(self, body: bytes) -> None:
        """A target that ends right before a pruned source may be another journal's."""
        chain = self.chain
        if self.envelopes or not chain.link:
            return
        envelope = unseal(body, shard=chain.shard, at=chain.last + 1)
        if envelope.prev != chain.link:
            why = f"its sequence {chain.last} is not what {envelope.first} follows here"
            raise OtherJournal(chain.shard, chain.last, why)


def _portions(bodies: list[bytes]) -> Iterator[list[bytes]]:
    """As many as are appended together: bounded in number, and about in size."""
    some: list[bytes] = []
    size = 0
    for body in bodies:
        some.append(body)
        size += len(body)
        if len(some) >= limits.COPY_ENVELOPES_MAX or size >= limits.COPY_BYTES_MAX:
            yield some
            some, size = [], 0
    if some:
        yield some


async def copy_snapshot(source: JournalSource, target: Fillable, chain: Chain) -> int:
    """The source's latest snapshot, if the target has none as late. Returns its sequence, or 0.

    A snapshot of what the target does not hold yet is left: the journal must reach it first.
    """
    while True:
        ref = await source.snapshot()
        held = await target.snapshot()
        if ref is None or ref.sequence > chain.last:
            return 0
        if held is not None and held.sequence >= ref.sequence:
            return held.sequence
        try:
            await _copy_parts(source, target, ref, chain.shard)
            return ref.sequence
        except Corrupt:
            newer = await source.snapshot()
            if newer is None or newer.sequence <= ref.sequence:
                raise
            # The writer has taken another since, and dropped the parts of this one: not damage.


async def _copy_parts(
    source: JournalSource, target: Fillable, ref: SnapshotRef, shard: str
) -> None:
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for part in range(ref.parts):
        body = await source.read_part(ref.sequence, part)
        digest.update(body)
        await target.write_part(ref.sequence, part, body)
        failpoint("copy.after_part")
    if digest.hexdigest() != ref.checksum:
        raise Corrupt(shard, ref.sequence, "the snapshot's checksum is wrong")
    await target.finish_snapshot(ref)
    failpoint("copy.after_snapshot")


async def copy_positions(
    source: CheckpointStore, target: CheckpointStore, shard: str, last: int
) -> int:
    """How far each reader is, so that it goes on where it was. Returns how many were carried; one
    that is further than the target reaches is not."""
    carried = 0
    for known in await source.readers(shard):
        whole = await source.read(known.name, shard)
        if whole is None or whole.position > last or is_own(whole.name):
            continue
        await target.write(whole)
        failpoint("copy.after_position")
        carried += 1
    return carried
