"""An embedded queue: a shard on its own thread, and the followers of its journal on another.

The shard has a thread to itself so that its syncs never block a caller's loop, and so that a caller
who blocks that loop still keeps its leases (docs/adr/0002).
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from omnirelay.journal.backend import Head, JournalReader, JournalSource
from omnirelay.journal.checkpoint import Apply, Checkpoint, CheckpointingSink, CheckpointStore
from omnirelay.journal.copying import MIRROR, PRIMARY
from omnirelay.journal.events import Event
from omnirelay.journal.follower import POLL_S, Follower, FollowerStatus, outside_status, tail
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.driven import DrivenShard
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.office import Rank, ReadByAll, first, newest
from omnirelay.mesh.rest import run_now
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    InvalidArgument,
    OmniRelayError,
    Recovering,
    ResourceExhausted,
    Unavailable,
)
from omnirelay.model.ports import Clock, Ids, RandomIds, SystemClock, stopwatch
from omnirelay.sdk.shard_thread import shard_thread
from omnirelay.sdk.threads import LoopThread
from omnirelay.stores.registry import Opened, open_address

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

T = TypeVar("T")

OPENING_S = 20.0
"""How long a node of a mesh waits for a store that is starting, or choosing a leader of its own."""


class Engine:
    """Nothing runs before `start`."""

    def __init__(
        self,
        opened: Opened,
        options: ShardOptions,
        clock: Clock,
        ids: Ids,
        *,
        rank: Rank = first,
        read_by_all: ReadByAll = newest,
    ) -> None:
        self._opened = opened
        self.suspends = opened.suspends
        """Its store waits for a server: only the shard's own loop can take a turn."""
        self.has_rivals = options.ttl_ms > 0
        """Other nodes may own the queue too."""
        self._clock = clock
        self._settled = threading.Event()
        self._started_at = 0.0
        self._failure: BaseException | None = None
        self._followers_thread: LoopThread | None = None
        self._followers: dict[str, tuple[Follower, Future[None]]] = {}
        self._closed = False
        name = f"omnirelay-{opened.journal.shard}"
        self._thread = shard_thread(name, suspends=opened.suspends)
        self._checkpoints = self._thread.from_elsewhere(opened.checkpoints)
        """For the followers, which have a thread of their own."""
        kind = Shard if opened.suspends else DrivenShard
        self.shard = kind(
            opened.journal,
            options,
            clock=clock,
            ids=ids,
            slowest=self._slowest,
            rest=self._thread.rest(),
            rank=rank,
            read_by_all=read_by_all,
            on_ready=self._settled.set,
            on_trouble=self._give_up_opening,
        )

    @classmethod
    def open(
        cls,
        url: str,
        *,
        namespace: str = "resourcelease",
        options: QueueOptions | None = None,
        keep: KeepOptions | None = None,
        require: str | None = None,
        node: str | None = None,
    ) -> "Engine":
        """A queue that nobody else serves."""
        shard_options = ShardOptions(
            node=node or f"{socket.gethostname()}-{os.getpid()}",
            queue=options or QueueOptions(),
            keep=keep or KeepOptions(),
            require=require,
        )
        engine = cls(open_address(url, namespace), shard_options, SystemClock(), RandomIds())
        engine.start()
        return engine

    def start(self) -> None:
        """Blocks until the shard serves, or follows whoever does. Raises why it cannot; in a mesh
        not before the store had time to come."""
        self._started_at = stopwatch()
        self._thread.start(self._run())
        self._settled.wait()
        if self._failure is not None:
            self.close()
            raise self._failure

    async def _run(self) -> None:
        try:
            await self.shard.run()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, OmniRelayError):
                log.exception("shard %s ended", self.shard.name)
                raise
        finally:
            self._settled.set()

    def _give_up_opening(self, error: OmniRelayError) -> None:
        """A queue that serves mends itself; one that never did says why to whoever opens it."""
        if self._settled.is_set() or self._may_still_open(error):
            return
        self._failure = error
        self.shard.stop()

    def _may_still_open(self, error: OmniRelayError) -> bool:
        is_early = stopwatch() - self._started_at < OPENING_S
        return self.has_rivals and is_early and isinstance(error, Unavailable)

    async def _slowest(self) -> int | None:
        return await self._opened.checkpoints.slowest(self.shard.name)

    def offer(self, call: AnyCall) -> None:
        self.shard.offer(call)

    @property
    def journal_name(self) -> str:
        return self._opened.journal.name

    def offer_and_drive(self, call: AnyCall) -> None:
        if isinstance(self.shard, DrivenShard):
            self.shard.offer_and_drive(call)
        else:
            self.shard.offer(call)

    def source(self) -> JournalSource:
        """Its journal, for a reader on a loop of its own."""
        return self._opened.journal.reader()

    @property
    def checkpoints(self) -> CheckpointStore:
        """For use from any other thread."""
        return self._checkpoints

    # -- followers ----------------------------------------------------------------------------

    def follow(self, name: str, apply: Apply) -> None:
        """Feed `apply` every event from the checkpoint of `name` on, on the followers' thread."""
        thread = self._thread_of_followers()
        if name in self._followers:
            raise InvalidArgument(f"a follower named {name!r} runs already")
        follower = thread.call(self._follower(name, apply))
        self._followers[name] = (follower, thread.start(follower.run()))

    def _thread_of_followers(self) -> LoopThread:
        self._check_open()
        if self._followers_thread is None:
            self._followers_thread = LoopThread(f"omnirelay-{self.shard.name}-followers")
        return self._followers_thread

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the relay is closed")
        if not self._settled.is_set():
            raise Recovering(f"{self.shard.name} is not open yet; try again")

    async def _follower(self, name: str, apply: Apply) -> Follower:
        store = self._checkpoints
        sink = await CheckpointingSink.open(
            name, self.shard.name, store=store, apply=apply, clock=self._clock
        )
        await store.write(sink.checkpoint)  # from now on pruning waits for it
        reader = self._opened.journal.reader()
        return Follower(reader, sink, bell=self.shard.bell, clock=self._clock)

    def unfollow(self, name: str, *, forget: bool = False) -> None:
        """A follower of an earlier process runs here no more, but may be forgotten all the same."""
        thread = self._thread_of_followers()
        found = self._followers.pop(name, None)
        if found is not None:
            found[1].cancel()
        elif not forget:
            raise InvalidArgument(f"no follower named {name!r} runs")
        if forget:
            thread.call(self._checkpoints.forget(name, self.shard.name))

    def follower_status(self) -> list[FollowerStatus]:
        return self._thread_of_followers().call(self._statuses())

    async def _statuses(self) -> list[FollowerStatus]:
        return [await follower.status() for follower, _ in list(self._followers.values())]

    def outside_status(self) -> list[FollowerStatus]:
        """Of readers that keep their position here and run elsewhere, as a pipeline does."""
        return self._thread_of_followers().call(self._outside())

    async def _outside(self) -> list[FollowerStatus]:
        stored = await self._checkpoints.readers(self.shard.name)
        others = [one for one in stored if one.name not in self._followers]
        if not others:
            return []
        reader = self._opened.journal.reader()
        try:
            return [await outside_status(reader, one, self._clock) for one in others]
        finally:
            await reader.close()

    async def position(self, reader: str, sequence: int | None, *, forget: bool) -> int | None:
        """Asked on any loop; the store is on the followers' thread, and blocks only that.

        Raises InvalidArgument for the name of a reader that runs here."""
        if reader in self._followers or reader == PRIMARY or reader.startswith(MIRROR):
            raise InvalidArgument(f"{reader!r} is the name of a reader that the node runs itself")
        work = self._positioned(reader, sequence, forget=forget)
        return await asyncio.wrap_future(self._thread_of_followers().start(work))

    async def _positioned(self, reader: str, sequence: int | None, *, forget: bool) -> int | None:
        store, shard = self._checkpoints, self.shard.name
        if forget:
            await store.forget(reader, shard)
        found = await store.read(reader, shard)
        if sequence is None or forget:
            return None if found is None else found.position
        if found is None and len(await store.readers(shard)) >= limits.READERS_MAX:
            raise ResourceExhausted(
                f"{shard} has {limits.READERS_MAX} readers and takes no more: forget some"
            )
        await store.write(Checkpoint(reader, shard, sequence, {}, self._clock.wall_ms()))
        return max(sequence, 0 if found is None else found.position)

    async def events(
        self, after: int, *, follow: bool, blocking: bool = False
    ) -> AsyncGenerator[Event]:
        """Committed events; unless `blocking`, read so that the caller's loop never blocks."""
        self._check_open()
        reader: JournalReader = self._opened.journal.reader()
        if reader.blocks and not blocking:
            reader = _OffLoop(reader)
        try:
            bell = self.shard.bell
            async for events in tail(reader, self.shard.name, after, bell=bell, follow=follow):
                for event in events:
                    yield event
        finally:
            await reader.close()

    async def events_apart(self, after: int, *, follow: bool) -> AsyncGenerator[Event]:
        """The same for a thread that blocks and has no loop, over a store that needs one."""
        thread = self._thread_of_followers()
        events = self.events(after, follow=follow)
        try:
            while (event := thread.call(_next(events))) is not None:
                yield event
        finally:
            thread.call(_leave(events))

    def end_events(self) -> None:
        """Whoever follows events has seen the last of them here, and resumes elsewhere or later."""
        self.shard.bell.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._followers_thread is not None:
            self._followers_thread.stop()
        self.shard.stop()
        # It answers what is in hand and closes the journal before it ends.
        self._thread.end(self._opened.checkpoints.close())
        self.shard.bell.close()


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


async def _leave(events: AsyncGenerator[Event]) -> None:
    await events.aclose()


class _OffLoop:
    """A reader that blocks, moved off the loop that awaits it. Whoever is cancelled leaves its call
    behind on its thread: the next one, which may be the last, waits for it."""

    blocks = False

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._busy = threading.Lock()

    async def _aside(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        def run() -> T:
            with self._busy:
                return run_now(work())

        return await asyncio.to_thread(run)

    async def head(self) -> Head:
        return await self._aside(self._reader.head)

    async def first(self) -> int:
        return await self._aside(self._reader.first)

    async def read(self, after: int, limit: int) -> list[bytes]:
        return await self._aside(lambda: self._reader.read(after, limit))

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, POLL_S))  # its looks at the file would block this loop

    async def close(self) -> None:
        await self._aside(self._reader.close)
