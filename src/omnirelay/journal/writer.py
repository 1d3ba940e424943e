"""Numbers, chains and appends. One writer a shard and epoch; any failure ends its term."""

import logging

from omnirelay.journal.backend import Head, JournalBackend
from omnirelay.journal.format import seal
from omnirelay.lease.records import Record
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown
from omnirelay.model.ports import stopwatch

log = logging.getLogger(__name__)


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
        try:
            await self._backend.append(sealed, expected=self.last)
        except OmniRelayError:
            raise
        except Exception as error:
            # Its text may name files or hold what others wrote, so callers do not hear it.
            log.exception("shard %s: the journal failed", self._backend.shard)
            raise OutcomeUnknown(f"the journal failed: {type(error).__name__}") from error
        self.append_s = stopwatch() - began
        self.last, self.link = sealed.last, sealed.checksum
