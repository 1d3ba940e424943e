"""Envelopes as a shard would write them, for suites that test what keeps and reads them."""

from copy import copy

from omnirelay.journal.backend import JournalReader
from omnirelay.journal.format import Chain, Envelope, Sealed, seal
from omnirelay.lease.options import Rules
from omnirelay.lease.records import Enqueued, EpochStarted, Record
from omnirelay.model.errors import Corrupt
from omnirelay.model.items import Payload


class Scribe:
    """Seals envelopes that follow one another and fold to a queue of waiting items. The first one
    of each epoch begins with its EpochStarted, as a shard's does."""

    def __init__(self, shard: str, *, epoch: int = 1, time: int = 1_000) -> None:
        self.shard = shard
        self.epoch = epoch
        self.time = time
        self.last = 0
        self.link = ""
        self._started = 0
        self._items = 0

    def seal(self, count: int = 1, *, time: int | None = None, text: str = "table") -> Sealed:
        """The next envelope, of `count` records; ten milliseconds later unless told."""
        records: list[Record] = []
        pending: list[int] = []
        for _ in range(count):
            records.append(self._record(text))
            pending.append(self._items)
        self.time = self.time + 10 if time is None else time
        sealed = seal(
            records,
            (pending, [0] * count),
            head=(self.shard, self.epoch, f"node-{self.epoch}"),
            first=self.last + 1,
            time=self.time,
            prev=self.link,
        )
        self.last, self.link = sealed.last, sealed.checksum
        return sealed

    def _record(self, text: str) -> Record:
        if self._started < self.epoch:
            self._started = self.epoch
            return EpochStarted(self.epoch, f"node-{self.epoch}", "origin-1", Rules())
        self._items += 1
        return Enqueued(self._items, Payload(text, f"{self.shard}-{self._items}", body=b"\x00\xff"))

    def rival(self, epoch: int | None = None) -> "Scribe":
        """Another writer that knows the same past and nothing of what this one does next."""
        twin = copy(self)
        twin.epoch = self.epoch if epoch is None else epoch
        return twin


async def scan(
    reader: JournalReader, shard: str, *, after: int = 0, limit: int = 4
) -> list[Envelope]:
    """Read everything after `after`, link by link, and hold it against the head.

    Raises Corrupt as a recovery would. `after` is the end of an envelope, or of what was pruned.
    """
    chain = Chain(shard, last=after, link=None if after else "")
    envelopes: list[Envelope] = []
    while bodies := await reader.read(chain.last, limit):
        envelopes.extend(chain.accept_all(bodies))
    head = await reader.head()
    if head.last != chain.last or (envelopes and head.checksum != chain.link):
        raise Corrupt(shard, chain.last + 1, f"read to {chain.last}, the journal says {head.last}")
    return envelopes
