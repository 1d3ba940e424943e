"""The port every journal store satisfies, and what it must state about itself."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from omnirelay.journal.format import Sealed
from omnirelay.model.errors import TooLittleDurability


class Durability(msgspec.Struct, frozen=True):
    """What an acknowledged append survives, as the store can tell, and on which condition."""

    survives_process_kill: bool
    survives_power_loss: bool
    survives_node_loss: bool
    condition: str

    def in_words(self) -> str:
        survived = {
            "a killed process": self.survives_process_kill,
            "power loss": self.survives_power_loss,
            "the loss of a node": self.survives_node_loss,
        }
        named = [what for what, holds in survived.items() if holds]
        return f"survives {', '.join(named) or 'nothing'} ({self.condition})"

    def require(self, wanted: str | None, store: str) -> None:
        """`wanted` is process_kill, power_loss, node_loss or None."""
        known = {
            None: True,
            "process_kill": self.survives_process_kill,
            "power_loss": self.survives_power_loss,
            "node_loss": self.survives_node_loss,
        }
        if wanted not in known:
            raise TooLittleDurability(
                f"require is {wanted!r}, must be process_kill, power_loss or node_loss"
            )
        if not known[wanted]:
            raise TooLittleDurability(
                f"{store} does not survive {wanted} ({self.condition}): choose another journal or "
                f"require less"
            )


class Head(msgspec.Struct, frozen=True):
    """The last envelope of a shard. An empty shard has last 0."""

    last: int = 0
    epoch: int = 0
    checksum: str = ""
    time: int = 0


class SnapshotRef(msgspec.Struct, frozen=True):
    """A finished snapshot of the state after `sequence`; `link` is the checksum of the envelope
    that ends there, so that the tail can be checked against it."""

    sequence: int
    epoch: int
    link: str
    time: int
    parts: int
    checksum: str


class JournalReader(Protocol):
    """Reads one shard; independent of the writer, in this process or another."""

    @property
    def blocks(self) -> bool:
        """True: the methods block the calling thread rather than suspend, so a loop that has other
        things to do must call them elsewhere."""

    async def head(self) -> Head: ...

    async def first(self) -> int:
        """Sequence of the oldest envelope still kept; 1 for an empty journal."""

    async def read(self, after: int, limit: int) -> list[bytes]:
        """Up to `limit` envelopes in order, the first being the one that contains `after + 1`.

        Raises Corrupt if `after + 1` was written but is gone (pruned or lost).
        """

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        """Until the journal may be longer than `after`, or the timeout has passed; may return
        early. Suspends, even where the other methods block. A store that cannot be reached is
        waited for as well: whoever reads afterwards learns of it."""

    async def close(self) -> None: ...


class JournalSource(JournalReader, Protocol):
    """All that another journal needs to become the same one."""

    shard: str

    async def snapshot(self) -> SnapshotRef | None: ...

    async def read_part(self, sequence: int, part: int) -> bytes:
        """Raises Corrupt if the part is missing."""


class JournalBackend(JournalSource, Protocol):
    """One shard's journal. Called by one writer at a time; several handles may exist."""

    name: str

    async def open(self) -> None:
        """Open or create, migrating an older schema. Raises JournalOwned if another live process
        has it, Corrupt if it ends before the high-water mark. Called again, it starts anew from
        what is stored, without giving up ownership in between."""

    async def durability(self) -> Durability: ...

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        """Make the envelope durable at `expected + 1`, or change nothing.

        Raises Fenced if a higher epoch has written, SequenceTaken if the journal does not end at
        `expected`, DiskFull if there is no room, OutcomeUnknown if the store cannot tell. After any
        of these the caller must open again: nothing is retried on the same connection.
        """

    def reader(self) -> JournalReader:
        """A reader of its own, for use from another thread or loop."""

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        """Store one part of an unfinished snapshot. An older unfinished one may be dropped; a newer
        one may be that of an owner since, and stays."""

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        """The parts are all there: from now on this is the latest snapshot, and older ones may go.
        If a newer one is finished it stays the latest: a writer whose term is over may come last,
        when what its own snapshot needs was pruned."""

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        """Drop up to `limit` envelopes that end at or before `through` and were written at or
        before `before_ms`; oldest first, never the last one. Returns how many went."""


class JournalTarget(JournalBackend, Protocol):
    """A journal that can be filled from another one. Until it is opened, its handle reads without
    creating or owning anything."""

    def reader(self) -> JournalSource: ...

    async def begin(self, sealed: Sealed) -> None:
        """Make the envelope durable as the first of an empty journal, wherever it begins: what
        came before it was pruned where it comes from. Else change nothing.

        Raises SequenceTaken if there is an envelope already, and what `append` raises.
        """

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        """Append several that follow one another: with one sync where the store can, else one
        after another (see `one_by_one`). Raises what `append` raises; then none of them is there,
        or only the first ones."""


async def one_by_one(
    journal: JournalBackend, envelopes: Sequence[Sealed], *, expected: int
) -> None:
    for sealed in envelopes:
        await journal.append(sealed, expected=expected)
        expected = sealed.last
