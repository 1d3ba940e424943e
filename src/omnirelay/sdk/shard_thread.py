"""The thread that a shard has to itself: bare, over a store that blocks; with an event loop, over
one that waits for a server (docs/adr/0002)."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from omnirelay.journal.checkpoint import Checkpoint, CheckpointStore
from omnirelay.mesh.rest import LoopRest, Rest, ThreadRest, run_now
from omnirelay.model.errors import OmniRelayError
from omnirelay.sdk.threads import LoopThread

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class ShardThread(Protocol):
    def rest(self) -> Rest:
        """How a shard waits on it."""

    def start(self, work: Coroutine[Any, Any, None]) -> None: ...

    def from_elsewhere(self, store: CheckpointStore) -> CheckpointStore:
        """The store, for use from another thread."""

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        """Returns when what was started is over and `last` is done."""


def shard_thread(name: str, *, suspends: bool) -> ShardThread:
    return _LoopedThread(name) if suspends else _BareThread(name)


class _BareThread:
    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None

    def rest(self) -> Rest:
        return ThreadRest()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._thread = threading.Thread(target=run_now, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def from_elsewhere(self, store: CheckpointStore) -> CheckpointStore:
        return store

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        if self._thread is not None:
            self._thread.join()
        run_now(last)


class _LoopedThread:
    def __init__(self, name: str) -> None:
        self._thread = LoopThread(name)
        self._running: Future[None] | None = None

    def rest(self) -> Rest:
        return LoopRest()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._running = self._thread.start(work)

    def from_elsewhere(self, store: CheckpointStore) -> CheckpointStore:
        return _Elsewhere(store, self._thread)

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        if self._running is not None:
            self._running.exception()  # waits; whoever opened the queue was told
        try:
            self._thread.call(last)
        finally:
            self._thread.stop()


class _Elsewhere:
    """A store that belongs to one loop, used from another."""

    def __init__(self, store: CheckpointStore, thread: LoopThread) -> None:
        self._store = store
        self._thread = thread

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        outcome = await asyncio.wrap_future(self._thread.start(_outcome(work)))
        if isinstance(outcome, OmniRelayError):
            raise outcome
        return outcome

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        return await self._there(self._store.read(name, shard))

    async def write(self, checkpoint: Checkpoint) -> None:
        await self._there(self._store.write(checkpoint))

    async def readers(self, shard: str) -> list[Checkpoint]:
        return await self._there(self._store.readers(shard))

    async def slowest(self, shard: str) -> int | None:
        return await self._there(self._store.slowest(shard))

    async def forget(self, name: str, shard: str) -> None:
        await self._there(self._store.forget(name, shard))

    async def close(self) -> None:
        await self._there(self._store.close())


async def _outcome(work: Coroutine[Any, Any, T]) -> T | OmniRelayError:
    """An error as a value: a follower that was stopped meanwhile does not come for it."""
    try:
        return await work
    except OmniRelayError as error:
        return error
