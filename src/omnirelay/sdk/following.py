"""Followers of a node's journal in this process: every event once and in order, from a position
that is kept on this side."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from omnirelay.journal.checkpoint import Apply, CheckpointingSink, CheckpointStore
from omnirelay.journal.follower import FollowerStatus, Trouble, feed_until
from omnirelay.mesh import wire
from omnirelay.mesh.rest import run_now
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError
from omnirelay.model.ports import Clock
from omnirelay.sdk.asking import Asking, Patience, Route
from omnirelay.sdk.reading import Gathered, read_events
from omnirelay.sdk.threads import LoopThread

if TYPE_CHECKING:
    from concurrent.futures import Future

STATUS_S = 2.0
"""How long whoever asks for a status waits for the node."""


class RemoteFollower:
    """A sink that fails is tried again with growing pauses, from where it was. The node knows
    nothing of it: pruning does not wait, and a position that was pruned away is an error."""

    def __init__(self, asking: Asking, sink: CheckpointingSink, clock: Clock) -> None:
        self._asking = asking
        self._sink = sink
        self._clock = clock
        self._trouble = Trouble(sink.checkpoint.name)
        self._seen = sink.position
        self._oldest_waiting_ms: int | None = None

    async def run(self) -> None:
        await feed_until(lambda: self._asking.is_closed, self._feed, self._trouble)

    async def _feed(self) -> None:
        events = read_events(self._asking, self._sink.position, follow=True)
        gathered = Gathered(events, limits.SINK_BATCH_EVENTS_MAX)
        async with aclosing(gathered.batches()) as batches:
            async for batch in batches:
                self._seen = batch[-1].sequence_number
                self._oldest_waiting_ms = int(batch[0].timestamp.timestamp() * 1000)
                await self._sink.deliver(batch)
                self._oldest_waiting_ms = None
                self._trouble.is_over()

    async def status(self) -> FollowerStatus:
        checkpoint = self._sink.checkpoint
        behind = max(0, await self._last() - checkpoint.position)
        waiting = self._oldest_waiting_ms
        return FollowerStatus(
            checkpoint.name,
            checkpoint.shard,
            checkpoint.position,
            behind,
            0 if waiting is None or not behind else max(0, self._clock.wall_ms() - waiting),
            self._trouble.failures,
            self._trouble.last_error,
        )

    async def _last(self) -> int:
        """As the node says, or, when it does not answer, as far as we have heard."""
        asking = self._asking
        try:
            async with asyncio.timeout(STATUS_S):
                stats = await asking.ask(
                    "stats",
                    wire.StatsRequest(),
                    wire.StatsResponse,
                    patience=Patience(asking, retry_ms=0),
                )
        except (OmniRelayError, TimeoutError):
            return self._seen
        return self._seen if stats is None else stats.last_sequence


class Following:
    """All followers of one link, on a thread and a connection of their own. Called by one thread
    at a time, none of them its own."""

    def __init__(self, route: Route, positions: CheckpointStore, retry_s: float) -> None:
        self._route = route
        self._positions = positions
        self._retry_s = retry_s
        self._thread: LoopThread | None = None
        self._asking: Asking | None = None
        self._followers: dict[str, tuple[RemoteFollower, Future[None]]] = {}

    def follow(self, name: str, apply: Apply) -> None:
        thread = self._opened()
        if name in self._followers:
            raise InvalidArgument(f"a follower named {name!r} runs already")
        follower = thread.call(self._follower(name, apply))
        self._followers[name] = (follower, thread.start(follower.run()))

    def _opened(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread("omnirelay-followers")
        return self._thread

    async def _follower(self, name: str, apply: Apply) -> RemoteFollower:
        if self._asking is None:
            self._asking = self._route.asking(self._retry_s)
        route = self._route
        sink = await CheckpointingSink.open(
            name, route.namespace, store=self._positions, apply=apply, clock=route.clock
        )
        return RemoteFollower(self._asking, sink, route.clock)

    def unfollow(self, name: str, *, forget: bool) -> None:
        thread = self._opened()
        found = self._followers.pop(name, None)
        if found is not None:
            found[1].cancel()
        elif not forget:
            raise InvalidArgument(f"no follower named {name!r} runs")
        if forget:
            thread.call(self._positions.forget(name, self._route.namespace))

    def status(self) -> list[FollowerStatus]:
        return [] if self._thread is None else self._thread.call(self._statuses())

    async def _statuses(self) -> list[FollowerStatus]:
        return [await follower.status() for follower, _ in list(self._followers.values())]

    def close(self) -> None:
        if self._thread is not None:
            if self._asking is not None:
                self._thread.call(self._asking.close())
            self._thread.stop()
        run_now(self._positions.close())
