"""One call under way, as the node sees it."""

import asyncio
import logging
from contextlib import aclosing
from typing import Protocol

from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown, ResourceExhausted
from omnirelay.rpc.headers import SHARD_KEY, codec_of, own_headers
from omnirelay.rpc.meta import Request, Response, Stream
from omnirelay.rpc.procedure import Handler, Kind
from omnirelay.rpc.status import body_of
from omnirelay.transports.stream_flow import Incoming, Outgoing
from omnirelay.transports.stream_frames import (
    CallFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    MessageFrame,
    OpenFrame,
    ReplyFrame,
)
from omnirelay.transports.stream_meta import Greeting
from omnirelay.transports.stream_traffic import CALL_BYTES, Running, Share

log = logging.getLogger(__name__)


class Line(Protocol):
    """The connection a call came over."""

    share: Share

    def send(self, frame: Frame) -> None: ...

    @property
    def is_writable(self) -> bool: ...

    async def writable(self) -> None:
        """Waits while the caller does not read."""

    @property
    def greeting(self) -> Greeting: ...


_SENDING = (Kind.CLIENT_STREAM, Kind.DUPLEX)


class Call:
    __slots__ = (
        "_cost",
        "_frame",
        "_is_wanted",
        "_kind",
        "_line",
        "id",
        "incoming",
        "outgoing",
        "running",
    )

    def __init__(self, line: Line, frame: CallFrame, cost: int, kind: Kind | None) -> None:
        """`cost` was taken from the share of the line; a procedure without a kind is not served."""
        self.id = frame.id
        self.incoming: Incoming | None = None
        if kind in _SENDING:
            self.incoming = Incoming(frame.id, line.send, line.share.give)
        self.outgoing: Outgoing | None = None
        self.running: Running | None = None
        self._line = line
        self._frame = frame
        self._cost = cost
        self._kind = kind
        self._is_wanted = True

    def drop(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_wanted = False
        if self.running is not None:
            self.running.cancel()

    def refuse(self, error: OmniRelayError) -> None:
        """End it now, whatever it was about to say."""
        self._say(ErrorFrame(self.id, body_of(error)))
        self.drop()

    def read(self) -> Request:
        """Raises InvalidArgument or TooLarge for headers that cannot be meant."""
        frame = self._frame
        meta = self._line.greeting.meta(frame, is_known=self._kind is not None)
        return Request(meta, frame.body, codec_of(meta), self.incoming)

    async def serve(self, handler: Handler, request: Request) -> None:
        try:
            reply = await handler(request)
            if isinstance(reply, Response):
                self._answer(reply, request.meta.shard_key)
            else:
                await self._stream(reply)
        except OmniRelayError as error:
            self._say(ErrorFrame(self.id, body_of(error)))
        except asyncio.CancelledError:
            # Not by the caller, then: the node is closing, and somebody still waits.
            unknown = OutcomeUnknown("the node ended the call: it may or may not have happened")
            self._say(ErrorFrame(self.id, body_of(unknown)))
            raise

    def _answer(self, reply: Response, shard_key: str | None) -> None:
        size = len(reply.body)
        if size > CALL_BYTES:
            self._check(size)
            if not self._line.share.has_room(size):
                raise ResourceExhausted("too many answers wait to be read: ask for less at once")
        body = None if reply.empty else reply.body
        headers = None
        if reply.headers or shard_key is not None:
            headers = own_headers(reply.headers)
            if shard_key is not None:
                headers[SHARD_KEY] = shard_key
        self._say(ReplyFrame(self.id, body, headers or None))

    async def _stream(self, reply: Stream) -> None:
        outgoing = self.outgoing = Outgoing()
        async with aclosing(reply.messages) as messages:
            self._say(OpenFrame(self.id))
            async for message in messages:
                size = len(message)
                self._check(size)
                if not outgoing.take_now(size):
                    await outgoing.take(size)
                if not self._line.is_writable:
                    await self._line.writable()
                self._say(MessageFrame(self.id, message))
        self._say(EndFrame(self.id))

    def _check(self, size: int) -> None:
        """One that is too large would end the whole connection at the other side."""
        if size > limits.MESSAGE_BYTES_MAX:
            raise ResourceExhausted(
                f"the answer has {size} bytes, the limit is {limits.MESSAGE_BYTES_MAX}"
            )

    def _say(self, frame: Frame) -> None:
        if self._is_wanted:
            self._line.send(frame)

    def ended(self, bug: BaseException | None) -> None:
        """A bug is told without its text, as by the middleware that should have caught it."""
        self.running = None  # it leads back here, and bodies would wait for the garbage collector
        self._line.share.give(self._cost)
        if self.incoming is not None:
            self.incoming.drop()
        if bug is not None and not isinstance(bug, asyncio.CancelledError):
            log.error("a call of %.200r failed", self._frame.procedure, exc_info=bug)
            self._say(ErrorFrame(self.id, body_of(OmniRelayError("internal error"))))
