"""Calls made in the same turn of a loop travel together. No timer: a lone call leaves at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from omnirelay.mesh.calls import Outcome
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError

C = TypeVar("C")


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
        self._waiting: list[tuple[Sequence[C], asyncio.Future[Sequence[Outcome]]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, asked: Sequence[C]) -> "asyncio.Future[Sequence[Outcome]]":
        """What one caller asks: at most BATCH_MAX."""
        future: asyncio.Future[Sequence[Outcome]] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._go)
        self._waiting.append((asked, future))
        return future

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        start, count, size = 0, 0, 0
        for index, (asked, _) in enumerate(waiting):
            more = sum(map(self._size, asked)) if self._size is not None else 0
            if index > start and (
                count + len(asked) > limits.BATCH_MAX or size + more > limits.MESSAGE_BYTES_MAX // 2
            ):
                self._start(waiting[start:index])
                start, count, size = index, 0, 0
            count += len(asked)
            size += more
        self._start(waiting[start:])

    def _start(
        self, together: "list[tuple[Sequence[C], asyncio.Future[Sequence[Outcome]]]]"
    ) -> None:
        task = self._loop.create_task(self._carry(together))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, together: "list[tuple[Sequence[C], asyncio.Future[Sequence[Outcome]]]]"
    ) -> None:
        asked = [one for several, _ in together for one in several]
        try:
            outcomes = await self._send(asked)
        except OmniRelayError as error:
            for _, future in together:
                if not future.done():
                    future.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, future in together:
                future.cancel()
            raise
        at = 0
        for several, future in together:
            if not future.done():
                future.set_result(outcomes[at : at + len(several)])
            at += len(several)
