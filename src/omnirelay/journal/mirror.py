"""A second journal kept the same as the one that is written, in another place.

The writer never waits for it: what is committed is read from the journal like any follower reads
it, and appended there under the same numbers. A mirror that cannot be reached is tried again and
catches up by itself. One that holds something else, or in which a newer epoch was begun, stops.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from omnirelay.journal.backend import JournalSource, JournalTarget
from omnirelay.journal.bell import Bell
from omnirelay.journal.checkpoint import Checkpoint, CheckpointStore
from omnirelay.journal.copying import MIRROR, PRIMARY, Copy, copy_snapshot, find_rival, is_own, meet
from omnirelay.journal.follower import FollowerStatus, Trouble, feed_until, outside_status
from omnirelay.journal.format import Chain
from omnirelay.lease.records import EpochStarted
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, OtherJournal
from omnirelay.model.ports import Clock, failpoint

log = logging.getLogger(__name__)

IDLE_S = 0.25
"""How long a mirror of a journal that somebody else writes waits before it looks again."""

LAST_LOOKS_S = 0.02


class MirrorOptions(msgspec.Struct, frozen=True, kw_only=True):
    beat_ms: int = 1_000
    """How often it notes its position, tells the target how far the journal is, and looks whether
    the target is still as it left it."""
    keep_ms: int = 30_000
    """How often it looks for a new snapshot, and prunes the target."""
    hold_ms: int = 7 * 24 * 3600 * 1000
    """How long pruning waits for a mirror that does not come on."""
    retain_ms: int = 7 * 24 * 3600 * 1000
    """Envelopes of the target younger than this are never pruned."""


OnRival = Callable[[EpochStarted], None]


class Place(msgspec.Struct, frozen=True):
    """A journal and where positions are kept beside it."""

    journal: JournalTarget
    positions: CheckpointStore


class Mirror:
    """Lives on one loop. `positions` belong to the journal that is mirrored."""

    def __init__(
        self,
        where: str,
        source: Callable[[], JournalSource],
        positions: CheckpointStore,
        target: Place,
        *,
        bell: Bell,
        clock: Clock,
        is_ours: Callable[[], bool] = lambda: True,
        on_rival: OnRival = lambda _: None,
        options: MirrorOptions | None = None,
    ) -> None:
        """`where` is the target's address without secrets. Only while `is_ours` is anything
        written: of several nodes over one journal, its writer alone mirrors it. `on_rival` is told
        when the target was promoted: the queue is served from there now."""
        self.name = f"{MIRROR}{where}"
        self.stopped: OtherJournal | None = None
        """Why it writes no more, if it gave up."""
        self._open_source = source
        self._source = source()
        self.shard = self._source.shard
        self._positions = positions
        self._target = target
        self._bell = bell
        self._clock = clock
        self._is_ours = is_ours
        self._on_rival = on_rival
        self._options = options or MirrorOptions()
        self._trouble = Trouble(self.name)
        self._position = 0
        self._moved_ms = clock.wall_ms()
        """When it was last known to hold everything, or to come on."""
        self._is_held = True
        """Pruning waits for it."""
        self._beat_at = self._kept_at = -(1 << 40)

    async def run(self) -> None:
        """Until it is cancelled, or stops by itself."""
        try:
            await feed_until(lambda: self.stopped is not None, self._feed, self._trouble)
        finally:
            await self._source.close()
            await self._target.positions.close()
            await self._target.journal.close()

    async def _feed(self) -> None:
        if not self._is_ours():
            await asyncio.sleep(IDLE_S)
            return
        await self._hold()
        try:
            await self._target.journal.open()
            await self._go_along(Copy(self._source, self._target.journal, await self._met()))
        except OtherJournal as error:
            await self._stop(error)

    async def _go_along(self, copy: Copy) -> None:
        while self._is_ours() and self.stopped is None:
            count = await copy.step()
            self._position = copy.chain.last
            if count:
                self._moved_ms = self._clock.wall_ms()
            failpoint("mirror.after_step")
            await self._beat(copy)
            await self._keep(copy)
            self._trouble.is_over()
            if not count:
                await self._wait(copy.chain.last)

    async def _wait(self, last: int) -> None:
        if self._bell.is_over:  # the node stops, and rings no more
            await asyncio.sleep(LAST_LOOKS_S)
        else:
            await self._bell.wait(last, self._options.beat_ms / 1000)

    async def _met(self) -> Chain:
        chain = await meet(self._source, self._target.journal, self.shard)
        self._position = chain.last
        return chain

    async def _stop(self, error: OtherJournal) -> None:
        """For good: a target that another region writes must never be written by this one."""
        rival = await self._rival()
        self.stopped = error
        self._trouble.last_error = f"stopped: {error.message}"
        log.error("%s of %s stopped: %s", self.name, self.shard, error.message)
        if rival is None:
            await self._positions.forget(self.name, self.shard)
        else:
            # The position stays: it is what proves to the next owner that the target was promoted.
            self._on_rival(rival)

    async def _rival(self) -> EpochStarted | None:
        """Only a target that this very mirror has filled can take the queue away: an address that
        was mistaken for it proves nothing."""
        known = await self._positions.read(self.name, self.shard)
        at = 0 if known is None else known.position
        try:
            return await find_rival(self._source, self._target.journal, self.shard, at)
        except Corrupt as error:
            log.warning("%s of %s: who writes there is not known: %s", *self._names, error.message)
            return None

    # -- now and then ---------------------------------------------------------------------------

    async def _beat(self, copy: Copy) -> None:
        now = self._clock.monotonic_ms()
        if now - self._beat_at < self._options.beat_ms:
            return
        self._beat_at = now
        head = await self._source.head()
        held = await self._target.journal.head()
        if (held.last, held.checksum) != (copy.chain.last, copy.chain.link or ""):
            copy.chain = await self._met()
        if self._position >= head.last:
            self._moved_ms = self._clock.wall_ms()
        at = self._clock.wall_ms()
        await self._note_position(at)
        known = Checkpoint(PRIMARY, self.shard, head.last, {"time": head.time}, at)
        await self._target.positions.write(known)

    async def _note_position(self, at: int) -> None:
        await self._positions.write(Checkpoint(self.name, self.shard, self._position, {}, at))
        if not self._is_held:
            log.warning("%s of %s has caught up: pruning waits for it again", *self._names)
        self._is_held = True

    @property
    def _names(self) -> tuple[str, str]:
        return self.name, self.shard

    async def _hold(self) -> None:
        """Before each try: pruning waits for this mirror from now on, but not for ever."""
        known = await self._positions.read(self.name, self.shard)
        if known is not None and not self._position:
            self._position, self._moved_ms = known.position, known.updated_at
        silent_ms = self._clock.wall_ms() - self._moved_ms
        if known is None and self._is_held:
            first = await self._source.first()
            at = self._clock.wall_ms()
            await self._positions.write(Checkpoint(self.name, self.shard, first - 1, {}, at))
        elif known is not None and silent_ms > self._options.hold_ms:
            await self._positions.forget(self.name, self.shard)
            self._is_held = False
            log.error(
                "%s of %s did not come on for %d s: pruning waits for it no more; once what it "
                "needs is pruned, it must be emptied and is filled anew",
                *self._names,
                silent_ms // 1000,
            )

    async def _keep(self, copy: Copy) -> None:
        """The target needs no more than the journal does: a snapshot, and what came after it."""
        now = self._clock.monotonic_ms()
        if now - self._kept_at < self._options.keep_ms:
            return
        self._kept_at = now
        target = self._target
        through = await copy_snapshot(self._source, target.journal, copy.chain)
        if not through:
            self._kept_at = now - self._options.keep_ms + self._options.beat_ms
            return
        readers = await target.positions.readers(self.shard)
        others = [one.position for one in readers if not is_own(one.name)]
        await target.journal.prune(
            min([through, *others]),
            before_ms=self._clock.wall_ms() - self._options.retain_ms,
            limit=limits.PRUNE_ENVELOPES_MAX,
        )

    # -- from elsewhere on its loop -------------------------------------------------------------

    async def status(self) -> FollowerStatus:
        reader = self._open_source()
        try:
            at = Checkpoint(self.name, self.shard, self._position)
            found = await outside_status(reader, at, self._clock)
        finally:
            await reader.close()
        error = self._trouble.last_error or found.last_error
        if not self._is_held and error is not None:
            error = f"{error}; pruning waits for it no more"
        return msgspec.structs.replace(found, failures=self._trouble.failures, last_error=error)

    async def caught_up(self, timeout_s: float) -> bool:
        """Whether it holds all that the journal does, by then."""
        until = self._clock.monotonic_ms() + round(timeout_s * 1000)
        reader = self._open_source()
        try:
            while self.stopped is None and self._clock.monotonic_ms() < until:
                if self._position >= (await reader.head()).last:
                    return True
                await asyncio.sleep(0.01)
        finally:
            await reader.close()
        return False
