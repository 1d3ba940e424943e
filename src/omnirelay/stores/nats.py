"""`nats://h1:4222,h2:4222/STREAM` — one stream, one subject a shard, one message an envelope.

The append is conditional on the place of the message before it, so a rival's append makes it fail,
whatever the two believe. That also makes it safe to send again when no answer came: it is then
stored, or refused because it, or a rival's, is there already, and the message there says which.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import takewhile

import nats.errors
import nats.js.errors

from omnirelay.journal.backend import Durability, JournalSource, SnapshotRef, one_by_one
from omnirelay.journal.format import Sealed
from omnirelay.model.errors import (
    DiskFull,
    Fenced,
    OmniRelayError,
    OutcomeUnknown,
    SequenceTaken,
    Unavailable,
)
from omnirelay.model.ports import failpoint
from omnirelay.stores.nats_address import NatsAddress
from omnirelay.stores.nats_durability import durability_of
from omnirelay.stores.nats_parts import EXPECTED, PIECES, WRONG_LAST
from omnirelay.stores.nats_read import (
    CHECKSUM,
    EPOCH,
    FIRST,
    LAST,
    TIME,
    Marks,
    NatsReader,
    pieces_of,
)
from omnirelay.stores.nats_streams import ensure_streams

ATTEMPT_S = 2.0
APPEND_S = 10.0
"""A cluster that lost its leader chooses another within this; then the outcome is unknown."""
PAUSE_S = 0.05
_NOT_NOW = (409, 503)
"""Statuses of a server that did not store it and may in a moment."""
_FULL = (10023, 10047, 10077)

_EMPTY = Marks(0, 0, 0, 0, 0, "", 0)


class NatsJournal(NatsReader):
    """The writer's handle."""

    name = "nats"

    def __init__(self, address: NatsAddress, shard: str) -> None:
        super().__init__(address, shard)
        self._end: Marks | None = None
        """The shard's last message, as far as this handle knows."""
        self._takes_batches = False

    async def open(self) -> None:
        await self.close()
        await self._link.open()
        info = await ensure_streams(self._link)
        self._takes_batches = bool(info.config.allow_atomic) and self._link.knows_batches

    async def close(self) -> None:
        self._end = None
        await super().close()

    async def durability(self) -> Durability:
        with self._link.errors():
            info = await self._link.manager.stream_info(self.address.stream)
        return await durability_of(info, self.address)

    def reader(self) -> JournalSource:
        return NatsReader(self.address, self.shard)

    # -- appending ----------------------------------------------------------------------------

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        assert sealed.first == expected + 1
        await self._put(sealed, expected)

    async def begin(self, sealed: Sealed) -> None:
        await self._put(sealed, 0)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        """As one batch under one condition, where the stream takes batches. Not as many messages
        under way, each with its own: a place is only known from the answer, and with a guess a
        later one may fit where an earlier one was refused."""
        is_whole = all(len(sealed.body) <= self._parts.piece_bytes for sealed in envelopes)
        if not self._takes_batches or not is_whole or len(envelopes) < 2:
            await one_by_one(self, envelopes, expected=expected)
        elif not await self._put_together(envelopes, expected):
            self._takes_batches = False
            await one_by_one(self, envelopes, expected=expected)

    async def _put_together(self, envelopes: Sequence[Sealed], expected: int) -> bool:
        """False: the server refused the batch as such, and has stored none of it."""
        end = await self._check_turn(envelopes[0], expected)
        messages = [(_headers(sealed), sealed.body) for sealed in envelopes]
        messages[0][0][EXPECTED] = str(end.place)
        failpoint("nats.before_batch")
        self._end = None
        try:
            place = await self._link.publish_together(self._subject, messages, timeout_s=APPEND_S)
        except nats.js.errors.APIError as error:
            if error.err_code not in WRONG_LAST:
                return False
            tip = await self._tip() or _EMPTY
            _refuse(envelopes[0], expected, tip)
            raise SequenceTaken(self.shard, expected, tip.last) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            words = f"{self.address.shown} did not answer a batch: {type(error).__name__}"
            raise OutcomeUnknown(words) from error
        self._end = _marks_of(envelopes[-1], place, pieces=0)
        failpoint("nats.after_batch")
        return True

    async def _put(self, sealed: Sealed, expected: int) -> None:
        end = await self._check_turn(sealed, expected)
        headers = {EXPECTED: str(end.place), **_headers(sealed)}
        data, pieces = sealed.body, 0
        if len(data) > self._parts.piece_bytes:
            pieces = await self._parts.put(pieces_of(sealed.first, sealed.checksum), data)
            headers[PIECES], data = str(pieces), b""
        failpoint("nats.before_publish")
        self._end = None
        place = await self._publish(sealed, data, headers, end)
        self._end = _marks_of(sealed, place, pieces=pieces)
        failpoint("nats.after_publish")

    async def _check_turn(self, sealed: Sealed, expected: int) -> Marks:
        """The end that `expected` names. If what this handle knows is another, the server is asked:
        a rival may have written, or this handle has only read so far."""
        end = self._end
        if end is None or end.last != expected or end.epoch > sealed.epoch:
            end = self._end = await self._tip() or _EMPTY
        _refuse(sealed, expected, end)
        return end

    async def _publish(
        self, sealed: Sealed, data: bytes, headers: dict[str, str], end: Marks
    ) -> int:
        """The place where it is stored now."""
        until = time.monotonic() + APPEND_S
        is_unsure = False
        while True:
            try:
                return await self._try(sealed, data, headers, end)
            except (DiskFull, Unavailable) as trouble:
                is_unsure = is_unsure or isinstance(trouble, OutcomeUnknown)
                if isinstance(trouble, DiskFull) or time.monotonic() > until:
                    raise _last_word(trouble, is_unsure) from trouble
            await asyncio.sleep(PAUSE_S)

    async def _try(self, sealed: Sealed, data: bytes, headers: dict[str, str], end: Marks) -> int:
        """Raises Unavailable if it was not stored this time, OutcomeUnknown if nobody can tell;
        both may be tried again. DiskFull, Fenced and SequenceTaken are final."""
        shown = self.address.shown
        try:
            return await self._link.publish(
                self._subject, data, headers=headers, timeout_s=ATTEMPT_S
            )
        except nats.js.errors.APIError as error:
            words = f"{shown}: {error.description or error}"
            if error.err_code in WRONG_LAST:
                return await self._ours(sealed, end)
            if error.err_code in _FULL:
                raise DiskFull(f"{words}: give JetStream more room; nothing was changed") from error
            raise (Unavailable if error.code in _NOT_NOW else OutcomeUnknown)(words) from error
        except nats.errors.NoRespondersError as error:
            raise Unavailable(f"{shown}: no server leads the stream") from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            words = f"{shown} did not answer an append: {type(error).__name__}"
            raise OutcomeUnknown(words) from error

    async def _ours(self, sealed: Sealed, end: Marks) -> int:
        """Another message follows the end we knew. An earlier try of ours, unanswered, or a
        rival's, which ends the term. Raises Unavailable if it is still being stored: it may fail
        yet."""
        found = await self._leader_next(end.place + 1)
        if found is None:
            raise Unavailable(f"{self.address.shown}: another append is under way")
        if self._marks(found).checksum == sealed.checksum:
            return found.sequence
        tip = await self._tip() or _EMPTY
        _refuse(sealed, end.last, tip)
        raise SequenceTaken(self.shard, end.last, tip.last)

    # -- keeping ------------------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        await self._parts.write_part(sequence, part, body)

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        await self._parts.finish(ref)

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        rows = await self._oldest(limit + 1, through, before_ms)
        # Up to the first that must stay and never past it, whatever the times behind it say. One
        # more than the limit was asked for, so that the last one stays.
        old = takewhile(lambda row: row.last <= through and row.time <= before_ms, rows[:-1])
        gone = list(old)
        if not gone:
            return 0
        with self._link.errors():
            await self._link.manager.purge_stream(
                self.address.stream, seq=rows[len(gone)].place, subject=self._subject
            )
        for row in gone:
            if row.pieces:
                await self._parts.drop(f"e.{row.first}")
        return len(gone)

    async def _oldest(self, count: int, through: int, before_ms: int) -> list[Marks]:
        """Up to `count`, ending with the first that must stay."""
        oldest = await self._leader_next(1)
        rows: list[Marks] = []
        place = 1 if oldest is None else oldest.sequence
        while len(rows) < count:
            found = [self._marks(one) for one in await self._from(place, count - len(rows))]
            rows += found
            if not found or found[-1].last > through or found[-1].time > before_ms:
                break
            place = found[-1].place + 1
        return rows


def _headers(sealed: Sealed) -> dict[str, str]:
    return {
        FIRST: str(sealed.first),
        LAST: str(sealed.last),
        EPOCH: str(sealed.epoch),
        TIME: str(sealed.time),
        CHECKSUM: sealed.checksum,
    }


def _marks_of(sealed: Sealed, place: int, *, pieces: int) -> Marks:
    return Marks(
        place, sealed.first, sealed.last, sealed.epoch, sealed.time, sealed.checksum, pieces
    )


def _refuse(sealed: Sealed, expected: int, end: Marks) -> None:
    if end.epoch > sealed.epoch:
        raise Fenced(sealed.shard, sealed.epoch, end.epoch)
    if end.last != expected:
        raise SequenceTaken(sealed.shard, expected, end.last)


def _last_word(trouble: OmniRelayError, is_unsure: bool) -> OmniRelayError:
    """Once a try went unanswered, no later refusal makes it undone."""
    if is_unsure and not isinstance(trouble, OutcomeUnknown):
        return OutcomeUnknown(f"{trouble.message}; an earlier try may have been stored")
    return trouble
