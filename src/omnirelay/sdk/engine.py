"""An embedded queue: a shard on its own thread, and the followers of its journal on another.

The shard has a thread to itself so that its syncs never block a caller's loop, and so that a caller
who blocks that loop still keeps its leases (docs/adr/0002).
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from omnirelay.journal.backend import Head, JournalReader
from omnirelay.journal.checkpoint import Apply, CheckpointingSink
from omnirelay.journal.events import Event
from omnirelay.journal.follower import Follower, FollowerStatus, outside_status, tail
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.rest import ThreadRest, run_now
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import Closed, InvalidArgument, OmniRelayError
from omnirelay.model.ports import Clock, Ids, RandomIds, SystemClock
from omnirelay.sdk.threads import LoopThread
from omnirelay.stores.registry import Opened, open_address

if TYPE_CHECKING:
    from concurrent.futures import Future


class Engine:
    """`open` returns when the shard serves, or raises why it cannot."""

    def __init__(self, opened: Opened, options: ShardOptions, clock: Clock, ids: Ids) -> None:
        self._opened = opened
        self._clock = clock
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._followers_thread: LoopThread | None = None
        self._followers: dict[str, tuple[Follower, Future[None]]] = {}
        self._closed = False
        self.shard = Shard(
            opened.journal,
            options,
            clock=clock,
            ids=ids,
            slowest=self._slowest,
            rest=ThreadRest(),
            on_ready=self._settled.set,
            on_trouble=self._give_up_opening,
        )
        self._thread = threading.Thread(
            target=self._run, name=f"omnirelay-{self.shard.name}", daemon=True
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
        shard_options = ShardOptions(
            node=node or f"{socket.gethostname()}-{os.getpid()}",
            queue=options or QueueOptions(),
            keep=keep or KeepOptions(),
            require=require,
        )
        engine = cls(open_address(url, namespace), shard_options, SystemClock(), RandomIds())
        engine._thread.start()
        engine._settled.wait()
        if engine._failure is not None:
            engine.close()
            raise engine._failure
        return engine

    def _run(self) -> None:
        try:
            run_now(self.shard.run())
        except BaseException as error:
            self._failure = error
            if not isinstance(error, OmniRelayError):
                raise
        finally:
            self._settled.set()

    def _give_up_opening(self, error: OmniRelayError) -> None:
        """A queue that serves mends itself; one that never did says why to whoever opens it."""
        if not self._settled.is_set():
            self._failure = error
            self.shard.stop()

    async def _slowest(self) -> int | None:
        return await self._opened.checkpoints.slowest(self.shard.name)

    def offer(self, call: AnyCall) -> None:
        self.shard.offer(call)

    @property
    def journal_name(self) -> str:
        return self._opened.journal.name

    def offer_and_drive(self, call: AnyCall) -> None:
        self.shard.offer_and_drive(call)

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

    async def _follower(self, name: str, apply: Apply) -> Follower:
        store = self._opened.checkpoints
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
            thread.call(self._opened.checkpoints.forget(name, self.shard.name))

    def follower_status(self) -> list[FollowerStatus]:
        return self._thread_of_followers().call(self._statuses())

    async def _statuses(self) -> list[FollowerStatus]:
        return [await follower.status() for follower, _ in list(self._followers.values())]

    def outside_status(self) -> list[FollowerStatus]:
        """Of readers that keep their position here and run elsewhere, as a pipeline does."""
        return self._thread_of_followers().call(self._outside())

    async def _outside(self) -> list[FollowerStatus]:
        stored = await self._opened.checkpoints.readers(self.shard.name)
        others = [one for one in stored if one.name not in self._followers]
        if not others:
            return []
        reader = self._opened.journal.reader()
        try:
            return [await outside_status(reader, one, self._clock) for one in others]
        finally:
            await reader.close()

    async def events(
        self, after: int, *, follow: bool, blocking: bool = False
    ) -> AsyncGenerator[Event]:
        """Committed events; unless `blocking`, read so that the caller's loop never blocks."""
        self._check_open()
        reader = self._opened.journal.reader()
        if reader.blocks and not blocking:
            reader = _OffLoop(reader)
        try:
            bell = self.shard.bell
            async for events in tail(reader, self.shard.name, after, bell=bell, follow=follow):
                for event in events:
                    yield event
        finally:
            await reader.close()

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
        self._thread.join()  # it answers what is in hand and closes the journal before it ends
        self.shard.bell.close()
        run_now(self._opened.checkpoints.close())


class _OffLoop:
    """A reader that blocks, moved off the loop that awaits it."""

    blocks = False

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    async def head(self) -> Head:
        return await asyncio.to_thread(lambda: run_now(self._reader.head()))

    async def first(self) -> int:
        return await asyncio.to_thread(lambda: run_now(self._reader.first()))

    async def read(self, after: int, limit: int) -> list[bytes]:
        return await asyncio.to_thread(lambda: run_now(self._reader.read(after, limit)))

    async def close(self) -> None:
        await asyncio.to_thread(lambda: run_now(self._reader.close()))
