"""Feeds one sink from the journal: from its checkpoint on, in order, without gaps."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from omnirelay.journal.backend import JournalReader
from omnirelay.journal.bell import Bell
from omnirelay.journal.checkpoint import Checkpoint, CheckpointingSink
from omnirelay.journal.events import Event, events_of
from omnirelay.journal.format import Chain, first_of, unseal
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import Clock

log = logging.getLogger(__name__)

POLL_S = 0.5
"""How long a reader trusts the bell: a writer in another process rings another bell."""
WAIT_S = 5.0
"""How long a reader without a bell trusts the store to tell it."""


class FollowerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    shard: str
    position: int
    sequence_lag: int
    lag_ms: int
    """Age of the oldest event not yet applied; 0 when there is none."""
    failures: int
    last_error: str | None


async def outside_status(
    reader: JournalReader, checkpoint: Checkpoint, clock: Clock
) -> FollowerStatus:
    """Of a reader that runs elsewhere: all that is known of it is what it stored."""
    head = await reader.head()
    behind = max(0, head.last - checkpoint.position)
    lag, trouble = 0, None
    if behind:
        since = head.time
        try:
            waiting = await reader.read(checkpoint.position, 1)
            since = unseal(waiting[0], shard=checkpoint.shard, at=first_of(waiting[0])).time
        except Corrupt as error:  # pruned or damaged: the reader will not get past it
            trouble = error.message
        lag = max(0, clock.wall_ms() - since)
    return FollowerStatus(
        checkpoint.name, checkpoint.shard, checkpoint.position, behind, lag, 0, trouble
    )


async def tail(
    reader: JournalReader, shard: str, after: int, *, bell: Bell | None = None, follow: bool = True
) -> AsyncGenerator[list[Event]]:
    """Committed events after `after`, an envelope at a time, every link of the chain checked.

    Raises Corrupt rather than skip: on a gap, a bad link, or a range that was pruned away.
    """
    chain: Chain | None = None
    while True:
        # Asked first: what came before the end is still read.
        is_last = not follow or (bell is not None and bell.is_over)
        bodies = await reader.read(after, limits.READ_ENVELOPES_MAX)
        for body in bodies:
            if chain is None:
                # The first envelope may begin before `after + 1`; what it follows is not known.
                chain = Chain(shard, first_of(body) - 1, None)
            envelope = chain.accept(body)
            yield [event for event in events_of(envelope) if event.sequence_number > after]
            after = envelope.last
        if not bodies:
            if is_last:
                return
            if bell is not None:
                await bell.wait(after, POLL_S)
            else:
                await reader.wait_for_more(after, WAIT_S)


class Trouble:
    """How a sink has failed so far; its status shows it."""

    def __init__(self, name: str) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self._name = name
        self._in_a_row = 0

    def is_over(self) -> None:
        self.last_error, self._in_a_row = None, 0

    async def note(self, error: Exception) -> None:
        """Returns when it is time for the next try."""
        self.failures += 1
        self._in_a_row += 1
        self.last_error = f"{type(error).__name__}: {error}"
        log.warning("sink %s fails: %s", self._name, self.last_error)
        await asyncio.sleep(min(0.05 * 2 ** min(self._in_a_row, 10), 5.0))


async def feed_until(
    is_over: Callable[[], bool], feed: Callable[[], Awaitable[None]], trouble: Trouble
) -> None:
    """A sink that fails is tried again with growing pauses, from where it was."""
    while not is_over():
        try:
            await feed()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await trouble.note(error)


class Follower:
    """A sink that fails is retried with growing pauses and stays behind alone: nothing else waits
    for it, except pruning."""

    def __init__(
        self, reader: JournalReader, sink: CheckpointingSink, *, bell: Bell, clock: Clock
    ) -> None:
        self._reader = reader
        self._sink = sink
        self._bell = bell
        self._clock = clock
        self._trouble = Trouble(sink.checkpoint.name)
        self._oldest_waiting_ms: int | None = None

    async def run(self) -> None:
        try:
            await feed_until(lambda: self._bell.is_over, self._feed, self._trouble)
        finally:
            await self._reader.close()

    async def _feed(self) -> None:
        checkpoint = self._sink.checkpoint
        if not checkpoint.updated_at and await self._reader.first() == 1:
            # A newcomer that can still read everything must be able to tomorrow. One that came
            # too late for that holds nothing back: it fails, and says what is gone.
            await self._sink.hold()
        async for events in tail(
            self._reader, checkpoint.shard, self._sink.position, bell=self._bell
        ):
            if not events:
                continue
            self._oldest_waiting_ms = int(events[0].timestamp.timestamp() * 1000)
            for start in range(0, len(events), limits.SINK_BATCH_EVENTS_MAX):
                await self._sink.deliver(events[start : start + limits.SINK_BATCH_EVENTS_MAX])
            self._oldest_waiting_ms = None
            self._trouble.is_over()

    async def status(self) -> FollowerStatus:
        head = await self._reader.head()
        position = self._sink.position
        behind = max(0, head.last - position)
        waiting = self._oldest_waiting_ms
        lag = 0
        if behind:
            lag = max(0, self._clock.wall_ms() - (waiting if waiting is not None else head.time))
        checkpoint = self._sink.checkpoint
        return FollowerStatus(
            checkpoint.name,
            checkpoint.shard,
            position,
            behind,
            lag,
            self._trouble.failures,
            self._trouble.last_error,
        )
