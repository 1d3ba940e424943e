"""Numbers, chains and appends. One writer a shard and epoch; any failure ends its term."""

import logging

from omnirelay.journal.backend import Head, JournalBackend
from omnirelay.journal.format import Sealed, seal
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
        """Of what is durable."""
        self._sealed_last = head.last
        self._sealed_link = head.checksum
        self.append_s = 0.0
        """How long the store took for the last envelope."""

    def seal(self, records: list[Record], depths: tuple[list[int], list[int]], time: int) -> Sealed:
        """The envelope that follows the last sealed one, which may still be on its way. They are
        appended in the order they were sealed."""
        sealed = seal(
            records,
            depths,
            head=self._identity,
            first=self._sealed_last + 1,
            time=time,
            prev=self._sealed_link,
        )
        self._sealed_last, self._sealed_link = sealed.last, sealed.checksum
        return sealed

    async def append(self, sealed: Sealed) -> None:
        """One envelope, durable or not at all. Raises what `JournalBackend.append` raises."""
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
