"""One call under way, as its caller sees it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Protocol

from omnirelay.model.errors import InvalidArgument, TooLarge
from omnirelay.rpc.status import error_of
from omnirelay.transports.stream_flow import Incoming, Outgoing
from omnirelay.transports.stream_frames import (
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    FromNode,
    MessageFrame,
    OpenFrame,
    ReplyFrame,
)


class Line(Protocol):
    """The connection a call goes over."""

    loop: asyncio.AbstractEventLoop
    body_bytes_max: int

    def send(self, frame: Frame) -> None: ...

    @property
    def is_writable(self) -> bool: ...

    async def writable(self) -> None:
        """Waits while the node does not read."""

    def forget(self, call_id: int) -> bool:
        """False: it was over already."""


class Calling:
    def __init__(self, line: Line, call_id: int) -> None:
        self.answered: asyncio.Future[ReplyFrame | None] = line.loop.create_future()
        """The one answer; None when a stream begins instead."""
        self.incoming: Incoming | None = None
        self._line = line
        self._id = call_id
        self._outgoing: Outgoing | None = None
        self._sending: asyncio.Task[None] | None = None

    def take(self, frame: FromNode) -> None:
        """Raises InvalidArgument for what a node may not say now."""
        match frame:
            case ReplyFrame() if self.incoming is None:
                self._line.forget(self._id)
                if not self.answered.done():
                    self.answered.set_result(frame)
            case OpenFrame() if self.incoming is None:
                self.incoming = Incoming(self._id, self._line.send)
                if not self.answered.done():
                    self.answered.set_result(None)
            case MessageFrame() if self.incoming is not None:
                self.incoming.put(frame.body)
            case EndFrame() if self.incoming is not None:
                self._line.forget(self._id)
                self.incoming.end()
            case CreditFrame() if self._outgoing is not None:
                self._outgoing.add(frame)
            case ErrorFrame():
                self.fail(error_of(frame.error))
            case _:
                raise InvalidArgument(f"{type(frame).__name__} does not belong here")

    def fail(self, error: Exception) -> None:
        self._line.forget(self._id)
        if self.incoming is not None:
            self.incoming.end(error)
        if not self.answered.done():
            self.answered.set_exception(error)

    def cancel(self) -> None:
        """To cancel what has ended tells the node nothing."""
        if self._line.forget(self._id):
            self._line.send(CancelFrame(self._id))
        self.stop_sending()

    # -- what the caller streams --------------------------------------------------------------

    def send_all(self, messages: AsyncIterator[bytes]) -> None:
        self._outgoing = Outgoing()
        self._sending = asyncio.create_task(self._send_all(messages, self._outgoing))

    def stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self, messages: AsyncIterator[bytes], window: Outgoing) -> None:
        try:
            async for message in messages:
                await self._send(message, window)
        except Exception as failure:
            # Not the end of what it had to say: the node must not take half of it for all, and
            # whoever waits for the answer must hear what went wrong.
            if self._line.forget(self._id):
                self._line.send(CancelFrame(self._id))
            self.fail(failure)
        else:
            self._line.send(EndFrame(self._id))
        finally:
            if isinstance(messages, AsyncGenerator):
                await messages.aclose()

    async def _send(self, message: bytes, window: Outgoing) -> None:
        size, size_max = len(message), self._line.body_bytes_max
        if size > size_max:
            raise TooLarge(f"the message has {size} bytes, the limit is {size_max}")
        if not window.take_now(size):
            await window.take(size)
        if not self._line.is_writable:
            await self._line.writable()
        self._line.send(MessageFrame(self._id, message))


class Reading(AsyncGenerator[bytes, None]):
    """What the node streams. A class and not a generator function: one that was never asked for a
    message must end the call too when it is closed."""

    def __init__(self, calling: Calling) -> None:
        assert calling.incoming is not None
        self._calling = calling
        self._incoming = calling.incoming
        self._is_over = False

    def __anext__(self) -> Coroutine[Any, Any, bytes]:
        return self.asend(None)  # without another coroutine around it

    async def asend(self, value: None) -> bytes:  # codespell:ignore asend
        if self._incoming.has_held:
            return self._incoming.next_held()
        if self._is_over:
            raise StopAsyncIteration
        try:
            return await anext(self._incoming)
        except BaseException:
            await self.aclose()
            raise

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> bytes:
        await self.aclose()
        raise typ if isinstance(typ, BaseException) else typ()

    async def aclose(self) -> None:
        self._is_over = True
        self._calling.cancel()
        self._incoming.drop()
