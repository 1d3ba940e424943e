"""Calls made in the same turn of a loop travel together. No timer: a lone call leaves at once.

When many are made in one turn, the first leave while the rest are still being made: then the node
works on the ones while the callers work on the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from omnirelay.mesh.calls import Outcome
from omnirelay.model import limits
from omnirelay.rpc.prompt import Prompt
from omnirelay.sdk.alone import Alone

C = TypeVar("C")
Answers = asyncio.Future[Sequence[Outcome]]

MESSAGE_BYTES = limits.MESSAGE_BYTES_MAX // 2
"""Sizes are estimates, and the wire has words of its own."""
EARLY_CALLS = 128
"""So many are worth a message of their own, though more may come in the same turn."""


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
        send: Callable[[Sequence[C]], Coroutine[Any, Any, Sequence[Outcome]]],
        size: Callable[[C], int] | None = None,
        *,
        is_prompt: bool = False,
    ) -> None:
        """`is_prompt`: `send` needs no task."""
        self._loop = loop
        self._send = send
        self._size = size
        self._is_prompt = is_prompt
        self._waiting: list[_Asked[C]] = []
        self._commands = 0
        self._alone = Alone()
        self.tasks: set[asyncio.Future[None]] = set()
        """What is under way."""

    def call(self, commands: Sequence[C]) -> Awaitable[Sequence[Outcome]]:
        """One outcome each. What does not fit into one message goes in several."""
        is_alone = self._alone.may_leave(others_wait=bool(self._waiting))
        if is_alone and len(commands) == 1:
            return self._alone.leave(self._send(commands))  # there is nothing to part, or to join
        size = 0 if self._size is None else sum(map(self._size, commands))
        if not _fits(len(commands), size):
            return self._in_parts(commands)
        if is_alone:
            return self._alone.leave(self._send(commands))
        return self._add(commands, size)

    async def _in_parts(self, commands: Sequence[C]) -> Sequence[Outcome]:
        sizes = [0] * len(commands) if self._size is None else list(map(self._size, commands))
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
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self._go)
        waiting.append(_Asked(commands, size, future))
        self._commands += len(commands)
        if len(waiting) >= EARLY_CALLS or self._commands >= limits.TOGETHER_MAX:
            self._go()
        return future

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return  # they left early
        self._commands = 0
        self._alone.gathered(len(waiting))
        start, count, size = 0, 0, 0
        for index, asked in enumerate(waiting):
            if index > start and not _fits(count + len(asked.commands), size + asked.size):
                self._start(waiting[start:index])
                start, count, size = index, 0, 0
            count += len(asked.commands)
            size += asked.size
        self._start(waiting[start:] if start else waiting)

    def _start(self, together: list[_Asked[C]]) -> None:
        over: asyncio.Future[None]
        if self._is_prompt:
            over = self._loop.create_future()
            self.tasks.add(over)
            Prompt(self._carry(together), partial(self._over, over)).begin()
        else:
            over = self._loop.create_task(self._carry(together))
            self.tasks.add(over)
            over.add_done_callback(self.tasks.discard)

    def _over(self, over: "asyncio.Future[None]", _bug: BaseException | None) -> None:
        """Whoever asked has been told; `close` waits for this."""
        self.tasks.discard(over)
        if not over.done():
            over.set_result(None)

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
