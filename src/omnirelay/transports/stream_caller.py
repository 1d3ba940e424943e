"""One connection to a node, as its caller sees it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from omnirelay.model.errors import InvalidArgument, OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.rpc.status import error_of
from omnirelay.transports.stream_flow import Incoming, Outgoing
from omnirelay.transports.stream_frames import (
    VERSION,
    CallFrame,
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    Goodbye,
    Hello,
    MessageFrame,
    OpenFrame,
    Ping,
    Pong,
    ReplyFrame,
    Splitter,
    Welcome,
    pack,
)


class Calling:
    """One call under way."""

    def __init__(self, connection: "CallerConnection", call_id: int) -> None:
        self._connection = connection
        self._id = call_id
        self.answered: asyncio.Future[ReplyFrame | None] = connection.loop.create_future()
        """The one answer; None when a stream begins instead."""
        self.incoming: Incoming | None = None
        self._outgoing = Outgoing()

    @property
    def is_stream(self) -> bool:
        return self.incoming is not None

    def messages(self) -> AsyncGenerator[bytes]:
        assert self.incoming is not None
        return self.incoming.read()

    async def send(self, body: bytes) -> None:
        await self._outgoing.take()
        self._connection.send(MessageFrame(self._id, body))

    def end(self) -> None:
        if self._id in self._connection.calls:
            self._connection.send(EndFrame(self._id))

    def cancel(self) -> None:
        """To cancel what has ended does nothing."""
        if self._connection.calls.pop(self._id, None) is not None:
            self._connection.send(CancelFrame(self._id))

    def take(self, frame: Frame) -> None:
        match frame:
            case ReplyFrame():
                self._connection.calls.pop(self._id, None)
                if not self.answered.done():
                    self.answered.set_result(frame)
            case OpenFrame():
                self.incoming = Incoming(self._id, self._connection.send)
                if not self.answered.done():
                    self.answered.set_result(None)
            case MessageFrame() if self.incoming is not None:
                self.incoming.put(frame.body)
            case EndFrame() if self.incoming is not None:
                self._connection.calls.pop(self._id, None)
                self.incoming.end()
            case CreditFrame():
                self._outgoing.add(frame.messages)
            case ErrorFrame():
                self.fail(error_of(frame.error))
            case _:
                raise InvalidArgument(f"{type(frame).__name__} does not belong here")

    def fail(self, error: OmniRelayError) -> None:
        self._connection.calls.pop(self._id, None)
        if self.incoming is not None:
            self.incoming.end(error)
        if not self.answered.done():
            self.answered.set_exception(error)


class CallerConnection(asyncio.Protocol):
    def __init__(self, headers: Mapping[str, str]) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls: dict[int, Calling] = {}
        self.is_open = True
        self.greeted: asyncio.Future[None] = self.loop.create_future()
        self._headers = dict(headers)
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self._why: OmniRelayError | None = None
        self._out: list[bytes] = []
        self._ids = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(pack(Hello(VERSION, self._headers)))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        why = self._why or OutcomeUnknown(
            "the connection was lost before an answer came: the call may or may not have happened"
        )
        for calling in list(self.calls.values()):
            calling.fail(why)
        if not self.greeted.done():
            self.greeted.set_exception(why)
        if not self._closed.done():
            self._closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except OmniRelayError as error:
            self._why = OutcomeUnknown(f"the node does not speak our language: {error.message}")
            self._cut()

    def _take(self, frame: Frame) -> None:
        match frame:
            case Welcome():
                if not self.greeted.done():
                    self.greeted.set_result(None)
            case Ping():
                self.send(Pong(frame.number))
            case Pong():
                pass
            case Goodbye():
                # Calls under way are still answered; new ones open another connection.
                self.is_open = False
                if frame.error is not None:
                    self._why = error_of(frame.error)
                    if not isinstance(self._why, Unavailable):
                        self._why = OutcomeUnknown(self._why.message)
                elif not self.calls:
                    self._cut()
            case Hello() | CallFrame() | CancelFrame():
                raise InvalidArgument(f"a node does not send {type(frame).__name__}")
            case _:
                calling = self.calls.get(frame.id)
                if calling is not None:  # else it was cancelled while this was on its way
                    calling.take(frame)
                if not self.is_open and not self.calls:
                    self._cut()

    def begin(
        self,
        procedure: str,
        body: bytes,
        ttl_ms: int | None,
        headers: dict[str, str] | None,
    ) -> Calling:
        self._ids += 1
        calling = self.calls[self._ids] = Calling(self, self._ids)
        self.send(CallFrame(self._ids, procedure, body, ttl_ms, headers))
        return calling

    def send(self, frame: Frame) -> None:
        if not self._out:
            # One turn later than need be: what a caller asks next, such as the lease that follows
            # a completion, then travels in the same write and meets the same commit.
            self.loop.call_soon(self.loop.call_soon, self._flush)
        self._out.append(pack(frame))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None:
            self._transport.write(b"".join(out))

    def _cut(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        self.is_open = False
        self._flush()
        self._cut()
        if not self.greeted.done():
            self.greeted.cancel()
        await self._closed
