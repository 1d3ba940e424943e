"""Keeps restart short and the journal bounded: snapshots and pruning, a small step at a time, so
that neither ever holds up a commit for long."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from omnirelay.journal.backend import JournalBackend, SnapshotRef
from omnirelay.journal.format import CHECKSUM_BYTES
from omnirelay.lease.image import Part, freeze
from omnirelay.lease.state import QueueState
from omnirelay.model import limits

_encoder = msgspec.json.Encoder()
FEW_MEMORIES = 10_000
MEMORY_WEIGHT = 16

Slowest = Callable[[], Awaitable[int | None]]
"""The slowest durable checkpoint of any follower; None if nobody follows."""


async def nobody() -> int | None:
    return None


class KeepOptions(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_every: int = 100_000
    """Records between snapshots, at the least; a large state waits longer, so that writing
    snapshots stays a small part of the work."""
    retain_ms: int = 7 * 24 * 3600 * 1000
    """Envelopes younger than this are never pruned."""


class Keeper:
    def __init__(self, backend: JournalBackend, options: KeepOptions, slowest: Slowest) -> None:
        self._backend = backend
        self._options = options
        self._slowest = slowest
        self._parts: Iterator[Part] | None = None
        self._pending: SnapshotRef | None = None
        self._written = 0
        self._digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
        self.snapshot_sequence = 0
        self._prune_through = 0

    @property
    def is_busy(self) -> bool:
        return self._parts is not None or self._prune_through > 0

    @property
    def is_writing(self) -> bool:
        """A snapshot is on its way."""
        return self._parts is not None

    def is_wanted(self, state: QueueState) -> bool:
        """Whether there is anything to do, which goes on between turns."""
        return self.is_busy or self.is_due(state)

    def is_due(self, state: QueueState) -> bool:
        """Whether a snapshot should be begun."""
        since = state.sequence - self.snapshot_sequence
        if since < self._options.snapshot_every or self._parts is not None:
            return False
        return 2 * since >= _size(state)

    def watch(self, state: QueueState, link: str) -> None:
        """Start a snapshot of `state` if one is due. Copies references only."""
        if self.is_due(state):
            self.start(state, link)

    def start(self, state: QueueState, link: str) -> None:
        parts = freeze(state, limits.SNAPSHOT_PART_ITEMS_MAX)
        first = next(parts)  # everything that can change is copied here
        self._parts = _chain(first, parts)
        self._digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
        self._written = 0
        self._pending = SnapshotRef(state.sequence, state.epoch, link, state.at, 0, "")

    async def step(self, now: int) -> None:
        """Write one part, or finish, or prune a little."""
        if self._parts is None:
            if self._prune_through:
                await self._prune(now)
            return
        assert self._pending is not None
        part = next(self._parts, None)
        if part is not None:
            body = _encoder.encode(part)
            self._digest.update(body)
            await self._backend.write_part(self._pending.sequence, self._written, body)
            self._written += 1
            return
        done = msgspec.structs.replace(
            self._pending, parts=self._written, checksum=self._digest.hexdigest()
        )
        await self._backend.finish_snapshot(done)
        self._parts, self._pending = None, None
        self.snapshot_sequence = self._prune_through = done.sequence

    async def _prune(self, now: int) -> None:
        slowest = await self._slowest()
        through = self._prune_through if slowest is None else min(self._prune_through, slowest)
        before = now - self._options.retain_ms
        most = limits.PRUNE_ENVELOPES_MAX
        gone = await self._backend.prune(through, before_ms=before, limit=most)
        if gone < most:
            self._prune_through = 0


def _size(state: QueueState) -> int:
    """How many entries of a snapshot count. What is remembered of the past is most of a queue that
    is kept short, and all of it is new after as many records: a little of it makes no snapshot
    dear, and a lot of it waits until there is more to save."""
    memories = state.requests.runs + len(state.lease_requests) + len(state.finished)
    kept = max(0, memories - FEW_MEMORIES)
    return len(state.pending) + len(state.active) + MEMORY_WEIGHT * kept


def _chain(first: Part, rest: Iterator[Part]) -> Iterator[Part]:
    yield first
    yield from rest
