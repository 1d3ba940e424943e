"""One shard that a hub keeps for others: its journal, and who waits for it to grow.

The store decides which append wins; a hub adds no opinion. It only keeps callers from holding up
one another: appends, reads and positions each have a lane of their own.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from omnirelay.journal.backend import Head, JournalReader, JournalTarget
from omnirelay.journal.bell import Bell
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.journal.follower import WAIT_S
from omnirelay.journal.format import Sealed
from omnirelay.mesh.hub_lane import Lane
from omnirelay.model.errors import Corrupt, OmniRelayError

T = TypeVar("T")

AGAIN_S = 0.2
"""Before a store that could not be reached is asked again."""


class HubShard:
    def __init__(
        self, journal: JournalTarget, checkpoints: CheckpointStore, threads: Executor
    ) -> None:
        self.name = journal.shard
        self.store = journal.name
        self.bell = Bell()
        self._journal = journal
        self._checkpoints = checkpoints
        aside = threads if journal.blocks else None
        self._writing = Lane(f"shard {self.name}", aside)
        self._reading = Lane(f"shard {self.name}", aside)
        self._noting = Lane(f"positions of shard {self.name}", aside)
        self._reader: JournalReader | None = None
        self._is_open = False
        self._was_open = False
        self._listeners = 0
        self._listening: asyncio.Task[None] | None = None

    # -- the writer's handle --------------------------------------------------------------------

    async def open(self) -> tuple[Head, int]:
        """Start anew from what is stored. Returns where the journal ends and begins."""

        async def work() -> tuple[Head, int]:
            await self._reopen()
            head = await self._journal.head()
            self.bell.ring(head.last)  # in its turn: what is stored may be less than was heard of
            return head, await self._journal.first()

        await self._reading.run(self._drop_reader)
        return await self._writing.run(work, is_long=True)

    async def _reopen(self) -> None:
        self._is_open = False
        await self._journal.open()
        self._is_open = self._was_open = True

    async def write(self, ask: Callable[[JournalTarget], Coroutine[Any, Any, T]]) -> T:
        """After any failure the store is opened anew before it is used again."""

        async def work() -> T:
            if not self._is_open:
                await self._reopen()
            try:
                return await ask(self._journal)
            except BaseException:
                self._is_open = False
                raise

        return await self._writing.run(work)

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        async def work(journal: JournalTarget) -> None:
            await journal.append(sealed, expected=expected)
            self._ring(sealed.last)

        await self.write(work)

    async def begin(self, sealed: Sealed) -> None:
        async def work(journal: JournalTarget) -> None:
            await journal.begin(sealed)
            self._ring(sealed.last)

        await self.write(work)

    def _ring(self, last: int) -> None:
        if last > self.bell.sequence:
            self.bell.ring(last)

    # -- readers --------------------------------------------------------------------------------

    async def read(self, ask: Callable[[JournalReader], Coroutine[Any, Any, T]]) -> T:
        if not self._was_open:
            await self.open()

        async def work() -> T:
            if self._reader is None:
                self._reader = self._journal.reader()
            try:
                return await ask(self._reader)
            except Corrupt:
                raise
            except BaseException:
                await self._drop_reader()
                raise

        return await self._reading.run(work)

    async def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def note(self, ask: Callable[[CheckpointStore], Coroutine[Any, Any, T]]) -> T:
        if not self._was_open:
            await self.open()
        return await self._noting.run(lambda: ask(self._checkpoints))

    # -- waiting --------------------------------------------------------------------------------

    async def listen(self) -> int:
        """From now on, until `leave`, the bell rings for every append, by this hub or another.
        Returns how far the journal is."""
        self._listeners += 1
        if self._listening is None and not self._journal.blocks:
            # A store that blocks is a file, and this process its only writer.
            self._listening = asyncio.create_task(self._listen())
        head = await self.read(lambda reader: reader.head())
        self._ring(head.last)
        return head.last

    def leave(self) -> None:
        self._listeners -= 1
        if not self._listeners and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def _listen(self) -> None:
        reader = self._journal.reader()
        try:
            while True:
                try:
                    await reader.wait_for_more(self.bell.sequence, WAIT_S)
                    self._ring((await reader.head()).last)
                except OmniRelayError:
                    await asyncio.sleep(AGAIN_S)
        finally:
            await reader.close()

    # -- the end --------------------------------------------------------------------------------

    def end_waiting(self) -> None:
        self.bell.close()

    async def close(self) -> None:
        self.bell.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        await self._reading.run(self._drop_reader)
        await self._noting.run(self._checkpoints.close)
        await self._writing.run(self._journal.close)
