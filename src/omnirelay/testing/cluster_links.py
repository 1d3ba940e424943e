"""A TCP link that can be cut one way or both ways, hung up, or made slow, in place of a network
that is, on any machine and for any user.

It always takes a connection, which a host that is gone does not: for that there is `cluster_hosts`.
What is cut is held back and not dropped, as TCP would send it again: connections stay open and say
nothing, until they are hung up. It runs on a thread of its own, so that a test that is busy does
not slow it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnirelay.cli.free_ports import LOOPBACK
from omnirelay.sdk.threads import LoopThread
from omnirelay.testing.host import HERE, Host

if TYPE_CHECKING:
    from collections.abc import Coroutine

_CHUNK = 1 << 16


class _Way:
    """One direction of a link."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay_s = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self.is_open.wait()
                writer.write(data)
                await writer.drain()
            await self.is_open.wait()  # that it has ended is news too
        except OSError:
            return
        finally:
            writer.transport.abort()


class Link:
    """From whoever connects to `place`, to `target`. Its methods may be called from any thread."""

    def __init__(self, target: tuple[str, int], thread: LoopThread) -> None:
        self.place = ""
        self._target = target
        self._thread = thread
        self._there = _Way()
        self._back = _Way()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.place = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._hang_up()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Nothing arrives there, or back here, or neither."""
        if there:
            self._thread.soon(self._there.is_open.clear)
        if back:
            self._thread.soon(self._back.is_open.clear)

    def heal(self) -> None:
        self._thread.soon(self._there.is_open.set)
        self._thread.soon(self._back.is_open.set)
        self.slow_down(0.0)

    def hang_up(self) -> None:
        """Every connection ends, with what was held back; new ones are as good as the link."""
        self._thread.soon(self._hang_up)

    def _hang_up(self) -> None:
        for task in list(self._serving):
            task.cancel()

    def slow_down(self, delay_s: float) -> None:
        """Every piece takes so much longer, in either direction."""
        self._there.delay_s = self._back.delay_s = delay_s

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._there.is_open.wait()
            from_target, to_target = await asyncio.open_connection(*self._target)
            carrying: list[Coroutine[None, None, None]] = [
                self._there.carry(reader, to_target),
                self._back.carry(from_target, writer),
            ]
            await asyncio.gather(*carrying)
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._serving.discard(task)
            writer.transport.abort()


class Links:
    callers = HERE

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.all: list[Link] = []

    def host(self) -> Host:
        return HERE

    def road(self, here: Host, there: Host, port: int) -> Link:
        """One for each who asks."""
        link = Link((there.address, port), self._thread)
        self._thread.call(link.open())
        self.all.append(link)
        return link


@contextmanager
def links() -> Iterator[Links]:
    thread = LoopThread("cluster-links")
    opened = Links(thread)
    try:
        yield opened
    finally:
        for link in opened.all:
            with contextlib.suppress(OSError):
                thread.call(link.close())
        thread.stop()
