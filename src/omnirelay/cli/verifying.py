"""A journal checked from its first link to its last, wherever it is kept."""

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from omnirelay.cli.ending import BadAddress
from omnirelay.cli.progress import Progress
from omnirelay.journal.events import event_type
from omnirelay.journal.format import Chain, Envelope
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import recover, replay
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.stores.outside import NoAddress, Outside

if TYPE_CHECKING:
    from collections.abc import Iterator


class Verdict(msgspec.Struct, rename="camel", omit_defaults=True):
    ok: bool
    url: str
    namespace: str
    first_sequence: int = 0
    last_sequence: int = 0
    envelopes: int = 0
    events: int = 0
    epoch: int = 0
    replayed: bool = False
    """The state was folded from the first record on and agrees with what was recorded."""
    snapshot_sequence: int = 0
    """Where the beginning was pruned: the snapshot from which the rest was folded."""
    event_types: dict[str, int] = {}
    damaged_at: int | None = None
    message: str | None = None


async def verify_all(seen: Outside, verdict: Verdict, what: str = "verifying") -> None:
    """Fills the verdict. Raises Corrupt."""
    source = seen.source
    first = await source.first()
    head = await source.head()
    chain = Chain(verdict.namespace, first - 1, "" if first == 1 else None)
    # What was pruned cannot be folded; the rest can, from a snapshot.
    state = QueueState() if first == 1 else None
    verdict.first_sequence, verdict.replayed = first, state is not None
    types: Counter[str] = Counter()
    with Progress(what, total=max(1, head.last - first + 1)) as progress:
        while bodies := await source.read(chain.last, limits.READ_ENVELOPES_MAX):
            for envelope in chain.accept_all(bodies):
                _count(verdict, types, envelope)
                if state is not None:
                    replay(state, envelope)
            progress.at(verdict.events)
    verdict.event_types = dict(sorted(types.items()))
    if state is None:
        verdict.snapshot_sequence = (await recover(source)).snapshot_sequence
    _check_end(seen, chain, head.last)


def _count(verdict: Verdict, types: "Counter[str]", envelope: Envelope) -> None:
    verdict.envelopes += 1
    verdict.events += len(envelope.records)
    verdict.last_sequence, verdict.epoch = envelope.last, envelope.epoch
    types.update(event_type(record) for record in envelope.records)


def _check_end(seen: Outside, chain: Chain, last: int) -> None:
    if chain.last < last:
        why = f"the journal says that it ends at {last}, what it holds ends at {chain.last}"
        raise Corrupt(chain.shard, chain.last + 1, why)
    mark = seen.acknowledged
    if mark is None:
        return
    if chain.last < mark.last:
        why = f"the journal ends at {chain.last} but {mark.last} was acknowledged"
        raise Corrupt(chain.shard, chain.last + 1, why)
    if chain.last == mark.last and chain.link != mark.checksum:
        raise Corrupt(chain.shard, chain.last, "its end is not the one that was acknowledged")


def in_words(verdict: Verdict) -> str:
    proof = "folded and compared"
    if not verdict.replayed:
        proof = (
            f"chain checked; its beginning was pruned, the rest follows from a snapshot of "
            f"{verdict.snapshot_sequence}"
        )
    return (
        f"whole: {verdict.events} events in {verdict.envelopes} envelopes, sequences "
        f"{verdict.first_sequence} to {verdict.last_sequence}, epoch {verdict.epoch}; {proof}"
    )


@contextmanager
def addressed() -> "Iterator[None]":
    """An address that cannot be one is wrong usage."""
    try:
        yield
    except NoAddress as error:
        raise BadAddress(error.message) from error
