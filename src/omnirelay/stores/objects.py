"""`file:///dir`, `s3://bucket/prefix`, `gs://…`, `az://…` — one object an envelope, written only if
none is there.

An envelope's key is the sequence it begins at. A writer's next one begins where the last one it
knows of ended, and so does every rival's: whoever creates that object first has appended, the other
finds it taken. Nothing is ever overwritten. The one place where a key is free again is under the
floor (objects_layout.py), where nothing counts. So a writer asks for the floor after its first
append. Within an epoch that it began it need not: whoever replaces it begins an epoch in its very
place, and that object stays.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from omnirelay.journal.backend import Durability, Head, JournalSource, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.model import limits
from omnirelay.model.errors import Fenced, OmniRelayError, OutcomeUnknown, SequenceTaken
from omnirelay.model.ports import failpoint
from omnirelay.stores.objects_bucket import Bucket
from omnirelay.stores.objects_layout import VERSION, Floor, floor_of
from omnirelay.stores.objects_read import ObjectReader
from omnirelay.stores.objects_roll import prune, roll

log = logging.getLogger(__name__)


class ObjectJournal(ObjectReader):
    """The writer's handle. Envelopes are rolled up `roll` at a time, beside the appends; as many
    of the newest stay objects of their own, so that who follows closely never meets a segment."""

    def __init__(
        self, bucket: Bucket, shard: str, *, roll: int = limits.SEGMENT_ENVELOPES_MAX
    ) -> None:
        super().__init__(bucket, shard)
        self.name = bucket.name
        self._end: Head | None = None
        """As this handle's own last append left it; None if that may not be the journal's end."""
        self._begun = 0
        """The newest epoch that this handle began, or copies: nobody appends other things in it."""
        self._roll = roll
        self._alone = 0
        """About how many envelopes have an object of their own."""
        self._rolling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.close()
        marked = await self._check_version()
        await self._bucket.prepare(self._layout.word)
        if marked < VERSION:
            await self._bucket.create(self._layout.version(VERSION), b"")
            await self._check_version()  # a later program may have opened it in the same moment
        self._alone = len((await self._look()).firsts)

    async def close(self) -> None:
        task, self._rolling = self._rolling, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._end = None
        await super().close()

    async def durability(self) -> Durability:
        return await self._bucket.durability()

    def reader(self) -> JournalSource:
        return ObjectReader(self._bucket, self.shard)

    # -- appending ----------------------------------------------------------------------------

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        assert sealed.first == expected + 1
        await self._put(sealed, expected)

    async def begin(self, sealed: Sealed) -> None:
        """The floor first: until the envelope is there, the journal is as empty as before."""
        await self._check_turn(sealed, 0)
        await self._bucket.create(self._layout.floor(Floor(0, sealed.first - 1)), b"")
        failpoint("objects.after_first_floor")
        await self._put(sealed, 0)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        """One object each, one after another: of several under way a later one could be stored
        and an earlier one not. Whoever else makes the same copy writes the same bytes, so that
        nothing else of their epoch can have stood where one of them belongs."""
        for sealed in envelopes:
            await self._put(sealed, expected)
            self._begun, expected = sealed.epoch, sealed.last

    async def _put(self, sealed: Sealed, expected: int) -> None:
        before = await self._check_turn(sealed, expected)
        # What this handle did not append itself may have been followed by its writer's next one,
        # which begins no epoch and does not stay.
        is_held = before is self._end and before.epoch == self._begun
        self._end = None
        key = self._layout.envelope(sealed.first)
        failpoint("objects.before_put")
        is_new = await self._bucket.create(key, sealed.body)
        if not is_new:
            await self._check_ours(sealed, expected)
        failpoint("objects.after_put")
        if not is_held:
            await self._check_floor(sealed, expected, is_new=is_new)
        if sealed.epoch > before.epoch:
            self._begun = sealed.epoch
        self._end = Head(sealed.last, sealed.epoch, sealed.checksum, sealed.time)
        self._alone += 1
        if self._alone > 2 * self._roll and (self._rolling is None or self._rolling.done()):
            self._rolling = asyncio.create_task(self._roll_up())

    async def _check_turn(self, sealed: Sealed, expected: int) -> Head:
        """If the end that this handle knows is not the one expected, the store is asked: a rival
        may have written, or this handle has only read so far."""
        end = self._end
        if end is None or end.last != expected or end.epoch > sealed.epoch:
            end = await self.head()
        self._refuse(sealed, expected, end)
        return end

    def _refuse(self, sealed: Sealed, expected: int, end: Head) -> None:
        if end.epoch > sealed.epoch:
            raise Fenced(self.shard, sealed.epoch, end.epoch)
        if end.last != expected:
            raise SequenceTaken(self.shard, expected, end.last)

    async def _check_ours(self, sealed: Sealed, expected: int) -> None:
        """Something is there already. Our own, if a try that got no answer was repeated below us;
        no two writers seal the same bytes."""
        try:
            there = await self._bucket.get(self._layout.envelope(sealed.first))
            if there == sealed.body:
                return
            end = await self.head()
        except OmniRelayError as error:
            raise OutcomeUnknown(f"the place is taken, by whom is unknown: {error}") from error
        self._refuse(sealed, expected, end)
        raise SequenceTaken(self.shard, expected, end.last)

    async def _check_floor(self, sealed: Sealed, expected: int, *, is_new: bool) -> None:
        """A writer that slept for long may find its place free because what was there has been
        rolled up or pruned. Then it has appended nothing."""
        try:
            floor = floor_of(await self._bucket.keys(self._layout.floors))
        except OmniRelayError as error:
            raise OutcomeUnknown(f"stored, but not known to count: {error}") from error
        if floor.height < sealed.first:
            return
        self._floor = floor
        if is_new:
            with suppress(OmniRelayError):  # what lies under the floor may stay there
                await self._bucket.delete([self._layout.envelope(sealed.first)])
        end = await self.head()
        self._refuse(sealed, expected, end)
        raise SequenceTaken(self.shard, expected, end.last)

    # -- keeping ------------------------------------------------------------------------------

    async def _roll_up(self) -> None:
        """Nobody waits for it and a failure changes nothing: the next append tries again."""
        try:
            rolled = await roll(self._bucket, self.shard, count=self._roll)
            self._alone -= rolled
        except OmniRelayError as error:
            log.warning("journal %s: old envelopes stay as they are: %s", self.shard, error.message)
            self._alone = self._roll

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        await self._snapshots.write_part(sequence, part, body)

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        await self._snapshots.finish(ref)

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        return await prune(self._bucket, self.shard, through, before_ms=before_ms, limit=limit)
