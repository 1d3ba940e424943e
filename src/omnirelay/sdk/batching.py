"""Calls made in the same turn of a loop travel together. No timer: a lone call leaves at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from omnirelay.mesh.calls import Outcome
from omnirelay.model import limits
from omnirelay.sdk.alone import Alone

C = TypeVar("C")
Answers = asyncio.Future[Sequence[Outcome]]

MESSAGE_BYTES = limits.MESSAGE_BYTES_MAX // 2
"""Sizes are estimates, and the wire has words of its own."""


class _Asked(Generic[C]):
    __slots__ = ("commands", "future", "size")

    def __init__(self, commands: Sequence[C], size: int, future: Answers) -> None:
        self.commands = commands
        self.size = size
        self.future = future


class Batcher(Generic[C]):
    """`send` takes at most BATCH_MAX of what was asked and gives one outcome each, in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[Sequence[C]], Awaitable[Sequence[Outcome]]],
        size: Callable[[C], int] | None = None,
    ) -> None:
        self._loop = loop
        self._send = send
        self._size = size
        self._waiting: list[_Asked[C]] = []
        self._alone = Alone()
        self.tasks: set[asyncio.Task[None]] = set()
        """What is under way."""

    async def call(self, commands: Sequence[C]) -> Sequence[Outcome]:
        """One outcome each. What does not fit into one message goes in several."""
        sizes = [0] * len(commands) if self._size is None else list(map(self._size, commands))
        if len(commands) <= limits.BATCH_MAX and sum(sizes) <= MESSAGE_BYTES:
            if self._alone.may_leave(others_wait=bool(self._waiting)):
                return await self._alone.leave(self._send(commands))
            return await self._add(commands, sum(sizes))
        outcomes: list[Outcome] = []
        start, total = 0, 0
        for index, size in enumerate(sizes):
            if index > start and not _fits(index - start + 1, total + size):
                # One after the other: what one caller asks for is taken in its order.
                outcomes += await self._add(commands[start:index], total)
                start, total = index, 0
            total += size
        return outcomes + list(await self._add(commands[start:], total))

    def _add(self, commands: Sequence[C], size: int) -> Answers:
        future: Answers = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._go)
        self._waiting.append(_Asked(commands, size, future))
        return future

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._alone.gathered(len(waiting))
        start, count, size = 0, 0, 0
        for index, asked in enumerate(waiting):
            if index > start and not _fits(count + len(asked.commands), size + asked.size):
                self._start(waiting[start:index])
                start, count, size = index, 0, 0
            count += len(asked.commands)
            size += asked.size
        self._start(waiting[start:])

    def _start(self, together: list[_Asked[C]]) -> None:
        task = self._loop.create_task(self._carry(together))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _carry(self, together: list[_Asked[C]]) -> None:
        try:
            outcomes = await self._send([one for asked in together for one in asked.commands])
        except asyncio.CancelledError:
            for asked in together:
                asked.future.cancel()
            raise
        except Exception as error:
            for asked in together:
                if not asked.future.done():
                    asked.future.set_exception(error)
            return
        at = 0
        for asked in together:
            if not asked.future.done():
                asked.future.set_result(outcomes[at : at + len(asked.commands)])
            at += len(asked.commands)


def _fits(count: int, size: int) -> bool:
    return count <= limits.BATCH_MAX and size <= MESSAGE_BYTES
