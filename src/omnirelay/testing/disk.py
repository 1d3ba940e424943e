"""A disk that forgets what was not synced, and a journal that has to live with it.

`SimDisk` keeps bytes under names, twice: as a reader of the running machine sees them and as a
power cut would leave them. `SimJournal` is an honest journal on top: conditional append, one sync
a commit, repair on open. Everything takes virtual time and draws its chance from one seed, so the
moment of a crash decides what is left, and the same seed leaves the same.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from itertools import takewhile
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from omnirelay.journal.backend import Durability, Head, JournalReader, SnapshotRef
from omnirelay.journal.format import Envelope, Sealed, unseal
from omnirelay.model.errors import Corrupt, DiskFull, Fenced, OutcomeUnknown, SequenceTaken
from omnirelay.testing.loop import sim_loop

if TYPE_CHECKING:
    from collections.abc import Callable

SECTOR = 512
"""A torn write ends at a sector, and any of its sectors may be missing."""

# How an append may go wrong though nobody crashed; each a key of `SimDisk.mishaps`.
UNCONFIRMED = "append_unconfirmed"
LOST = "append_lost"
LATE = "append_late"

NOT_FAULTS = ("snapshots", "pruned", "envelope_dropped", "append_landed_late")
"""What `SimDisk.counts` counts beside faults."""

_refs = msgspec.json.Decoder(SnapshotRef)


class SimDisk:
    """Bytes by name. `durable` survives everything; `unsynced` is what was written since, with
    None for a removal."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.durable: dict[str, bytes] = {}
        self.unsynced: dict[str, bytes | None] = {}
        self.suspects: dict[str, None] = {}
        """Names whose bytes a power cut may have damaged; whoever opens next must look at them."""
        self.counts: Counter[str] = Counter()
        self.latency_s = (0.0, 0.0)
        self.slow_until = 0.0
        self.slow_factor = 1.0
        self.full_until = 0.0
        self.mishaps: dict[str, float] = {}
        self.at_next_write: Callable[[], None] | None = None
        """Called once, when something is written and not yet synced: a good moment to strike."""
        self.writing = asyncio.Lock()
        self.index = _Index()

    async def work(self) -> None:
        """One trip to the platter. A disk without latency answers in the same breath, as a cache
        with its own power would."""
        low, high = self.latency_s
        trip = self.chance.uniform(low, high) if high else 0.0
        if self.slow_until and sim_loop().time() < self.slow_until:
            trip = (trip + 0.001) * self.slow_factor
        if trip:
            await asyncio.sleep(trip)

    def write(self, name: str, body: bytes) -> None:
        """Seen by this machine at once, safe only after `sync`. Raises DiskFull."""
        if self.full_until and sim_loop().time() < self.full_until:
            self.counts["disk_full"] += 1
            raise DiskFull("the simulated disk is full")
        self.unsynced[name] = body
        if self.at_next_write is not None:
            alarm, self.at_next_write = self.at_next_write, None
            alarm()

    def remove(self, name: str) -> None:
        self.unsynced[name] = None

    def forget(self, name: str) -> None:
        """A sync that failed: the kernel drops the pages and says so only once."""
        self.unsynced.pop(name, None)

    def sync(self, *names: str) -> None:
        """Make these names, or all, durable as they are now."""
        for name in names or tuple(self.unsynced):
            if name in self.unsynced:
                self._settle(name, self.unsynced.pop(name))

    def _settle(self, name: str, body: bytes | None) -> None:
        if body is None:
            self.durable.pop(name, None)
        else:
            self.durable[name] = body

    def cut_power(self) -> None:
        """Each unsynced write is kept, lost or torn by itself, so a later one may survive an
        earlier one."""
        for name, body in self.unsynced.items():
            fate = self.chance.random()
            self.suspects[name] = None
            if fate < 0.4:
                self.counts["write_lost"] += 1
            elif fate < 0.7 or not body:
                self._settle(name, body)
            else:
                self.counts["write_torn"] += 1
                self._settle(name, self._torn(body))
        self.unsynced.clear()

    def _torn(self, body: bytes) -> bytes:
        end = self.chance.randrange(len(body))
        if self.chance.random() < 0.5:
            return body[:end]
        start = end - end % SECTOR
        return body[:start] + bytes(len(body[start : start + SECTOR])) + body[start + SECTOR :]

    def draw(self) -> str | None:
        """Which mishap this append meets, if any."""
        if not self.mishaps:
            return None
        roll = self.chance.random()
        for kind, share in self.mishaps.items():
            roll -= share
            if roll < 0:
                self.counts[kind] += 1
                return kind
        return None


class _Place(NamedTuple):
    name: str
    first: int
    last: int
    time: int


class _Index:
    """Where the journal's committed envelopes are. Follows from the durable bytes."""

    def __init__(self) -> None:
        self.places: list[_Place] = []
        self.lasts: list[int] = []
        self.head = Head()
        self.archive: list[bytes] = []
        """Every envelope ever committed, pruned or not. Only for the judge: no journal reads it."""

    def add(self, name: str, sealed: Sealed | Envelope, body: bytes) -> None:
        self.places.append(_Place(name, sealed.first, sealed.last, sealed.time))
        self.lasts.append(sealed.last)
        self.head = Head(sealed.last, sealed.epoch, sealed.checksum, sealed.time)
        self.archive.append(body)

    @property
    def first(self) -> int:
        return self.places[0].first if self.places else 1

    def drop(self, count: int) -> list[_Place]:
        gone = self.places[:count]
        del self.places[:count]
        del self.lasts[:count]
        return gone


class SimJournal:
    """A `JournalBackend` on a `SimDisk`. Reads see what is durable; an append is written, synced,
    and only then counted."""

    name = "simulated"
    blocks = False

    def __init__(self, shard: str, disk: SimDisk, *, is_writer: bool = True) -> None:
        self.shard = shard
        self.disk = disk
        self._is_writer = is_writer

    async def open(self) -> None:
        async with self.disk.writing:
            await self.disk.work()
            if self.disk.unsynced or self.disk.suspects:
                self._repair()

    async def close(self) -> None:
        return None

    async def durability(self) -> Durability:
        return Durability(True, True, False, "simulated: synced before it is acknowledged")

    # -- envelopes ----------------------------------------------------------------------------

    async def head(self) -> Head:
        if self._is_writer:
            await asyncio.sleep(0)
        return self.disk.index.head

    async def first(self) -> int:
        return self.disk.index.first

    async def read(self, after: int, limit: int) -> list[bytes]:
        if self._is_writer:
            await asyncio.sleep(0)  # another writer may come between two reads
        disk = self.disk
        if after + 1 < disk.index.first:
            raise Corrupt(self.shard, after + 1, "it was pruned")
        at = bisect_right(disk.index.lasts, after)
        return [disk.durable[place.name] for place in disk.index.places[at : at + limit]]

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.05))

    def reader(self) -> JournalReader:
        return SimJournal(self.shard, self.disk, is_writer=False)

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        disk = self.disk
        async with disk.writing:
            self._admit(sealed, expected)
            mishap = disk.draw()
            if mishap == LATE:
                # The request is still under way, as to a store behind a network.
                delay = disk.chance.uniform(0.0, 0.3)
                sim_loop().call_later(delay, self._land_late, sealed, expected)
                raise OutcomeUnknown("no answer from the simulated store")
            name = _envelope(sealed)
            disk.write(name, sealed.body)
            await disk.work()
            if mishap == LOST:
                disk.forget(name)
                raise OutcomeUnknown("the simulated sync failed")
            self._commit(name, sealed)
        if mishap == UNCONFIRMED:
            raise OutcomeUnknown("the simulated store did not answer")

    def _admit(self, sealed: Sealed, expected: int) -> None:
        head = self.disk.index.head
        if head.epoch > sealed.epoch:
            raise Fenced(self.shard, sealed.epoch, head.epoch)
        # What a killed writer left in the cache will be committed by the next open.
        is_taken = any(body and _is_envelope(name) for name, body in self.disk.unsynced.items())
        if head.last != expected or is_taken:
            raise SequenceTaken(self.shard, expected, head.last + is_taken)
        assert sealed.first == expected + 1

    def _commit(self, name: str, sealed: Sealed) -> None:
        assert self.disk.unsynced.get(name) == sealed.body, "a dead writer goes on writing"
        self.disk.sync(name)
        self.disk.index.add(name, sealed, sealed.body)

    def _land_late(self, sealed: Sealed, expected: int) -> None:
        disk = self.disk
        if disk.writing.locked():
            sim_loop().call_later(0.001, self._land_late, sealed, expected)
            return
        try:
            self._admit(sealed, expected)
            disk.write(_envelope(sealed), sealed.body)
        except (Fenced, SequenceTaken, DiskFull):
            return
        disk.counts["append_landed_late"] += 1
        self._commit(_envelope(sealed), sealed)

    def _repair(self) -> None:
        """Keep what is whole and in line, drop the rest, and sync before believing any of it."""
        disk, index = self.disk, self.disk.index
        doubtful = sorted(filter(_is_envelope, [*disk.suspects, *disk.unsynced]))
        disk.sync()
        known = {place.name for place in index.places}
        for name in doubtful:
            body = disk.durable.get(name)
            if body is None or name in known:
                continue
            envelope = self._next_whole(body)
            if envelope is None:  # torn, out of line, or pruned already
                disk.counts["envelope_dropped"] += 1
                disk.remove(name)
            else:
                index.add(name, envelope, body)
        disk.sync()
        disk.suspects.clear()

    def _next_whole(self, body: bytes) -> Envelope | None:
        head = self.disk.index.head
        try:
            envelope = unseal(body, shard=self.shard, at=head.last + 1)
        except Corrupt:
            return None
        return envelope if envelope.prev == head.checksum else None

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        disk = self.disk
        async with disk.writing:
            places = disk.index.places
            most = min(bisect_right(disk.index.lasts, through), limit, len(places) - 1)
            old = (place.time <= before_ms for place in places[: max(0, most)])
            count = sum(takewhile(bool, old))
            for place in disk.index.drop(count):
                disk.remove(place.name)
            if count:
                disk.counts["pruned"] += count
                await disk.work()
                disk.sync()
            return count

    # -- snapshots ----------------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        self.disk.write(_part(sequence, part), body)

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        """The parts are safe before anything names them."""
        disk = self.disk
        parts = [_part(ref.sequence, part) for part in range(ref.parts)]
        await disk.work()
        disk.sync(*parts)
        name = f"{_REF}{ref.sequence:09d}"
        disk.write(name, msgspec.json.encode(ref))
        await disk.work()
        disk.sync(name)
        disk.counts["snapshots"] += 1
        for old in [*disk.durable, *disk.unsynced]:
            if not _is_envelope(old) and _sequence(old) < ref.sequence:
                disk.remove(old)

    async def snapshot(self) -> SnapshotRef | None:
        found: SnapshotRef | None = None
        for name, body in self.disk.durable.items():
            if name.startswith(_REF) and (ref := _whole_ref(body)) is not None:
                found = ref if found is None or found.sequence < ref.sequence else found
        return found

    async def read_part(self, sequence: int, part: int) -> bytes:
        body = self.disk.durable.get(_part(sequence, part))
        if body is None:
            raise Corrupt(self.shard, sequence, f"part {part} of its snapshot is missing")
        return body


_ENVELOPE = "envelope/"
_REF = "snapshot/"


def _envelope(sealed: Sealed) -> str:
    return f"{_ENVELOPE}{sealed.first:09d}"


def _is_envelope(name: str) -> bool:
    return name.startswith(_ENVELOPE)


def _part(sequence: int, part: int) -> str:
    return f"part/{sequence:09d}/{part:03d}"


def _sequence(name: str) -> int:
    return int(name.split("/")[1])


def _whole_ref(body: bytes) -> SnapshotRef | None:
    try:
        return _refs.decode(body)
    except msgspec.DecodeError:
        return None
