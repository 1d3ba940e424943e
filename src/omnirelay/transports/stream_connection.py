"""One caller's connection, as the node sees it: many calls in flight, each answered by itself."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Protocol

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError, Overloaded, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.headers import Headers, codec_of, meta_of
from omnirelay.rpc.meta import Certificate, Request, RequestMeta, Response
from omnirelay.rpc.procedure import Handler
from omnirelay.rpc.status import body_of
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


class Host(Protocol):
    """The inbound a connection belongs to."""

    handler: Handler
    clock: Clock
    read_certificate: Callable[[bytes], Certificate] | None

    def takes_stream(self, procedure: str) -> bool:
        """Whether the caller of this procedure sends messages after the call."""

    def admit(self, connection: "Connection") -> bool:
        """False: there are too many already."""

    def forget(self, connection: "Connection") -> None: ...


class _Call:
    __slots__ = ("incoming", "outgoing", "task")

    def __init__(self, incoming: Incoming | None) -> None:
        self.incoming = incoming
        self.outgoing: Outgoing | None = None
        self.task: asyncio.Task[None] | None = None


class Connection(asyncio.Protocol):
    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._base: RequestMeta | None = None
        """What the hello said; None until it has come."""
        self._metas: dict[str, RequestMeta] = {}
        self._certificate: Certificate | None = None
        self._address = ""
        self._calls: dict[int, _Call] = {}
        self._out: list[bytes] = []
        self._is_leaving = False
        self.heard_ms = host.clock.monotonic_ms()
        self.stuck_since_ms: int | None = None
        """Since when the caller has not read what we send."""
        self.quiet = asyncio.Event()
        """Set while no call is under way."""
        self.quiet.set()

    @property
    def is_greeted(self) -> bool:
        return self._base is not None

    # -- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._host.admit(self):
            self.abort(Overloaded(f"{limits.CONNECTIONS_MAX} connections are open"))
            return
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None and self._host.read_certificate is not None:
            der = ssl_object.getpeercert(binary_form=True)
            self._certificate = self._host.read_certificate(der) if der else None

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._host.forget(self)
        for call in self._calls.values():
            if call.task is not None:
                call.task.cancel()
        self._calls.clear()
        self.quiet.set()

    def pause_writing(self) -> None:
        """A caller that does not read its answers gets to ask nothing new."""
        self.stuck_since_ms = self._host.clock.monotonic_ms()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.stuck_since_ms = None
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.heard_ms = self._host.clock.monotonic_ms()
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except OmniRelayError as error:
            self.abort(error)

    # -- frames -------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        if self._base is None:
            self._greet(frame)
            return
        match frame:
            case CallFrame():
                self._begin(frame)
            case MessageFrame():
                call = self._calls.get(frame.id)
                if call is not None:  # else it has ended here already
                    _incoming(call).put(frame.body)
            case EndFrame():
                call = self._calls.get(frame.id)
                if call is not None:
                    _incoming(call).end()
            case CancelFrame():
                call = self._calls.get(frame.id)
                if call is not None and call.task is not None:
                    call.task.cancel()
            case CreditFrame():
                call = self._calls.get(frame.id)
                if call is not None and call.outgoing is not None:
                    call.outgoing.add(frame.messages)
            case Ping():
                self.send(Pong(frame.number))
            case Pong():
                pass
            case _:
                raise InvalidArgument(f"a caller does not send {type(frame).__name__}")

    def _greet(self, frame: Frame) -> None:
        if not isinstance(frame, Hello):
            raise InvalidArgument("the first frame must be a hello")
        if frame.version != VERSION:
            raise InvalidArgument(f"version {frame.version} is not spoken here, {VERSION} is")
        headers = Headers(frame.headers.items())
        headers.values.setdefault("rpc-encoding", MSGPACK.name)
        self._base = meta_of(
            "",
            headers,
            transport="stream",
            clock=self._host.clock,
            address=self._address,
            certificate=self._certificate,
        )
        self.send(Welcome(VERSION))

    def _begin(self, frame: CallFrame) -> None:
        if frame.id in self._calls:
            raise InvalidArgument(f"call {frame.id} is under way already")
        if self._is_leaving:
            self._refuse(frame.id, Unavailable("this node is going away: call another"))
            return
        if len(self._calls) >= limits.CALLS_PER_CONNECTION_MAX:
            full = f"{limits.CALLS_PER_CONNECTION_MAX} calls are under way on this connection"
            self._refuse(frame.id, Overloaded(full))
            return
        incoming = None
        if self._host.takes_stream(frame.procedure):
            incoming = Incoming(frame.id, self.send)
        call = self._calls[frame.id] = _Call(incoming)
        self.quiet.clear()
        call.task = self._loop.create_task(self._serve(frame, call))
        call.task.add_done_callback(partial(self._ended, frame.id))

    def _ended(self, call_id: int, task: "asyncio.Task[None]") -> None:
        self._calls.pop(call_id, None)
        if not self._calls:
            self.quiet.set()

    async def _serve(self, frame: CallFrame, call: _Call) -> None:
        try:
            meta = self._meta(frame)
            incoming = None if call.incoming is None else call.incoming.read()
            reply = await self._host.handler(Request(meta, frame.body, codec_of(meta), incoming))
            if isinstance(reply, Response):
                body = None if reply.empty else reply.body
                self.send(ReplyFrame(frame.id, body, dict(reply.headers) or None))
                return
            call.outgoing = Outgoing()
            self.send(OpenFrame(frame.id))
            async with aclosing(reply.messages) as messages:
                async for message in messages:
                    await call.outgoing.take()
                    self.send(MessageFrame(frame.id, message))
            self.send(EndFrame(frame.id))
        except OmniRelayError as error:
            self._refuse(frame.id, error)

    def _meta(self, frame: CallFrame) -> RequestMeta:
        """Most calls bring no headers of their own and look like the last one of their kind."""
        assert self._base is not None
        if frame.headers:
            meta = meta_of(
                frame.procedure,
                self._merged(frame.headers),
                transport="stream",
                clock=self._host.clock,
                address=self._address,
                certificate=self._certificate,
            )
        else:
            found = self._metas.get(frame.procedure)
            if found is None:
                found = msgspec.structs.replace(self._base, procedure=frame.procedure)
                if len(self._metas) < limits.HEADERS_MAX:
                    self._metas[frame.procedure] = found
            meta = found
        if frame.ttl_ms is None:
            return meta
        expires_ms = self._host.clock.monotonic_ms() + max(0, frame.ttl_ms)
        return msgspec.structs.replace(meta, expires_ms=expires_ms)

    def _merged(self, own: dict[str, str]) -> Headers:
        """A call's own headers over those of the hello; what came twice in either stays marked."""
        assert self._base is not None
        called = Headers(own.items())
        merged = Headers({**self._base.headers, **called.values}.items())
        merged.doubled |= self._base.doubled | called.doubled
        return merged

    # -- answers ------------------------------------------------------------------------------

    def _refuse(self, call_id: int, error: OmniRelayError) -> None:
        self.send(ErrorFrame(call_id, body_of(error)))

    def send(self, frame: Frame) -> None:
        """All that is said in one turn of the loop leaves in one write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(pack(frame))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    def leave(self) -> None:
        """Take no new calls; those under way go on."""
        if not self._is_leaving:
            self._is_leaving = True
            self.send(Goodbye())

    def abort(self, error: OmniRelayError | None = None) -> None:
        """Say why, and close. What is under way is cancelled."""
        if self._transport is None:
            return
        if error is not None:
            self.send(Goodbye(body_of(error)))
        self._flush()
        self._transport.close()

    def cut(self) -> None:
        """Close without waiting for a caller that does not read."""
        if self._transport is not None:
            self._transport.abort()


def _incoming(call: _Call) -> Incoming:
    if call.incoming is None:
        raise InvalidArgument("this procedure takes no messages after its call")
    return call.incoming
