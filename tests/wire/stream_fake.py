"""A node that may say anything to its callers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from omnirelay.transports.stream_frames import (
    FROM_CALLER,
    VERSION,
    CallFrame,
    Frame,
    FromCaller,
    Hello,
    Splitter,
    Welcome,
    pack,
)

F = TypeVar("F")


class Guest:
    """One caller's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter: Splitter[FromCaller] = Splitter(FROM_CALLER)
        self._frames: list[FromCaller] = []

    async def next(self, kind: type[F]) -> F:
        async with asyncio.timeout(8):
            while not self._frames:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise ConnectionError("the caller is gone")
                self._frames += self._splitter.feed(data)
        frame = self._frames.pop(0)
        assert isinstance(frame, kind), frame
        return frame

    async def call(self) -> CallFrame:
        """Welcome it, if that is still to be done, and hear what it wants."""
        frame: object = await self.next(object)
        if isinstance(frame, Hello):
            await self.send(Welcome(VERSION))
            frame = await self.next(object)
        assert isinstance(frame, CallFrame), frame
        return frame

    async def send(self, *said: Frame | bytes) -> None:
        self._writer.write(b"".join(one if isinstance(one, bytes) else pack(one) for one in said))
        await self._writer.drain()

    async def gone(self) -> None:
        """Until the caller has closed."""
        async with asyncio.timeout(8):
            while await self._reader.read(1 << 16):
                pass

    def hang_up(self) -> None:
        self._writer.transport.abort()


class Fake:
    def __init__(self) -> None:
        self.url = ""
        self.guests = 0


@asynccontextmanager
async def fake_node(play: Callable[[Guest], Awaitable[None]]) -> AsyncGenerator[Fake]:
    """Plays the same for every caller that connects; what goes wrong there fails the test."""
    fake = Fake()
    failures: list[BaseException] = []
    tasks: set[asyncio.Task[None]] = set()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fake.guests += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await play(Guest(reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        except Exception as failure:
            failures.append(failure)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    fake.url = f"stream://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not failures, failures
