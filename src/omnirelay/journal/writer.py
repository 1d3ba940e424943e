"""Numbers, chains and appends. One writer a shard and epoch; any failure ends its term."""

from omnirelay.journal.backend import Head, JournalBackend
from omnirelay.journal.format import seal
from omnirelay.lease.records import Record
from omnirelay.model.ports import stopwatch


class Writer:
    def __init__(self, backend: JournalBackend, head: Head, *, epoch: int, node: str) -> None:
        self._backend = backend
        self._identity = (backend.shard, epoch, node)
        self.last = head.last
        self.link = head.checksum
        self.append_s = 0.0
        """How long the store took for the last envelope."""

    async def append(
        self, records: list[Record], depths: tuple[list[int], list[int]], time: int
    ) -> None:
        """One envelope, durable or not at all. Raises what `JournalBackend.append` raises."""
        sealed = seal(
            records, depths, head=self._identity, first=self.last + 1, time=time, prev=self.link
        )
        began = stopwatch()
        await self._backend.append(sealed, expected=self.last)
        self.append_s = stopwatch() - began
        self.last, self.link = sealed.last, sealed.checksum
