"""One caller's connection, as the node sees it: many calls in flight, each answered by itself."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError, Overloaded, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Certificate, Request
from omnirelay.rpc.procedure import Handler, Kind
from omnirelay.rpc.prompt import Prompt
from omnirelay.rpc.status import body_of
from omnirelay.transports.stream_call import Call
from omnirelay.transports.stream_doubles import check_doubles
from omnirelay.transports.stream_frames import (
    FROM_CALLER,
    OVERHEAD_BYTES,
    VERSION,
    CallFrame,
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    FromCaller,
    Goodbye,
    Hello,
    MessageFrame,
    Ping,
    Pong,
    Splitter,
    Welcome,
    pack,
)
from omnirelay.transports.stream_meta import Greeting
from omnirelay.transports.stream_traffic import CALL_BYTES, Share, Traffic

PROGRESS_BYTES = 64 << 10
"""So much of an unfinished frame counts as a sign of life; a byte now and then does not."""
FLUSH_BYTES = 64 << 10
"""More than this does not wait for the rest of what is said in this turn: its caller reads it
meanwhile."""
_CALLS_MAX = limits.CALLS_PER_CONNECTION_MAX
_FULL = "this node holds too much for its callers: come again"


class Host(Protocol):
    """The inbound a connection belongs to."""

    handler: Handler
    clock: Clock
    read_certificate: Callable[[bytes], Certificate] | None
    traffic: Traffic
    hello_ms: int
    silence_ms: int

    @property
    def prompt(self) -> Callable[[Request], Handler | None]:
        """The way for a call that needs no task, if it is one."""

    def kind_of(self, procedure: str) -> Kind | None:
        """None for one that is not served here."""


class Connection(asyncio.Protocol):
    def __init__(self, host: Host) -> None:
        self.share = Share(host.traffic)
        self._host = host
        self._loop = asyncio.get_running_loop()
        # Whoever has not said hello is worth no more memory than a hello takes.
        self._splitter: Splitter[FromCaller] = Splitter(FROM_CALLER, OVERHEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._greeting: Greeting | None = None
        self._certificate: Certificate | None = None
        self.address = ""
        self._calls: dict[int, Call] = {}
        self._last_id: int | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._unsent = 0
        self._partial = 0
        self._fresh = 0
        """Bytes since the last sign of life."""
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_leaving = False
        self._heard_ms = host.clock.monotonic_ms()
        self._stuck_since_ms = 0
        self._closing_since_ms: int | None = None

    # -- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of other loops, such as uvloop's, are no subclass of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        try:
            self._host.traffic.admit(self)
            self._certificate = self._proved(transport)
        except OmniRelayError as error:
            self.abort(error)

    def _proved(self, transport: asyncio.Transport) -> Certificate | None:
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is None or self._host.read_certificate is None:
            return None
        der = ssl_object.getpeercert(binary_form=True)
        return self._host.read_certificate(der) if der else None

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._closing_since_ms = self._closing_since_ms or 0
        self._host.traffic.forget(self)
        for call in list(self._calls.values()):
            call.drop()
        self._can_write.set()
        self._hold_unsent(0)
        self._hold_partial(0)

    def pause_writing(self) -> None:
        """A caller that does not read its answers gets to ask nothing new."""
        self._stuck_since_ms = self._host.clock.monotonic_ms()
        self._can_write.clear()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._can_write.set()
        if self._transport is not None:
            self._transport.resume_reading()
        self._hold_unsent(0)

    def data_received(self, data: bytes) -> None:
        if self._closing_since_ms is not None:
            return  # TLS still hands over what was on its way
        is_whole = False
        if self._partial:
            self._hold_partial(0)  # what becomes whole now is counted as a call or a message
        try:
            for frame in self._splitter.feed(data):
                is_whole = True
                self._take(frame)
            self._fresh += len(data)
            if is_whole or self._fresh >= PROGRESS_BYTES:
                self._heard_ms = self._host.clock.monotonic_ms()
                self._fresh = 0
            held = self._splitter.held
            if held:
                # Not measured by the share: a frame that is whole can be refused by itself.
                if not self.share.fits(held):
                    raise Overloaded(_FULL)
                self._hold_partial(held)
        except OmniRelayError as error:
            self.abort(error)

    def _hold_partial(self, held: int) -> None:
        self.share.add(held - self._partial)
        self._partial = held

    # -- frames -------------------------------------------------------------------------------

    def _take(self, frame: FromCaller) -> None:
        if type(frame) is CallFrame and self._greeting is not None:
            self._begin(frame)
            return
        match frame:
            case Hello() if self._greeting is None:
                self._greet(frame)
            case _ if self._greeting is None:
                raise InvalidArgument("the first frame must be a hello")
            case Ping():
                self.send(Pong(frame.number))
            case Pong():
                pass
            case Hello():
                raise InvalidArgument("a caller says hello once")
            case _:
                call = self._calls.get(frame.id)
                if call is not None:  # else it has ended here already
                    self._pass_on(frame, call)

    def _pass_on(
        self, frame: MessageFrame | EndFrame | CancelFrame | CreditFrame | CallFrame, call: Call
    ) -> None:
        match frame:
            case CancelFrame():
                call.drop()
            case CreditFrame():
                if call.outgoing is None:
                    raise InvalidArgument("this call has no stream to allow more of")
                call.outgoing.add(frame)
            case _ if call.incoming is None:
                raise InvalidArgument("this procedure takes no messages after its call")
            case EndFrame():
                call.incoming.end()
            case MessageFrame():
                size = len(frame.body)
                if not self.share.has_room(size):
                    call.refuse(Overloaded(_FULL))
                    return
                call.incoming.put(frame.body)
                self.share.add(size)

    def _greet(self, hello: Hello) -> None:
        check_doubles(hello, self._splitter.current())
        self._greeting = Greeting(
            hello,
            clock=self._host.clock,
            address=self.address,
            certificate=self._certificate,
        )
        self._splitter.bytes_max = limits.MESSAGE_BYTES_MAX + OVERHEAD_BYTES
        self.send(Welcome(VERSION))

    def _begin(self, frame: CallFrame) -> None:
        if self._last_id is not None and frame.id <= self._last_id:
            raise InvalidArgument(f"call {frame.id} after call {self._last_id}: ids must increase")
        self._last_id = frame.id
        calls, cost = self._calls, CALL_BYTES + len(frame.body)
        if self._is_leaving or len(calls) >= _CALLS_MAX or not self.share.take(cost):
            self.send(ErrorFrame(frame.id, body_of(self._refusal())))
            return
        kind = self._host.kind_of(frame.procedure)
        call = calls[frame.id] = Call(self, frame, cost, kind)
        try:
            if frame.headers:
                check_doubles(frame, self._splitter.current())
            request = call.read()
        except OmniRelayError as error:
            call.refuse(error)
            self._over(call, None)
            return
        prompt = self._host.prompt(request)
        if prompt is None:
            self._start(call, request)
            return
        running = call.running = Prompt(call.serve(prompt, request), partial(self._over, call))
        self._host.traffic.under_way.add(running)
        running.begin()

    def _start(self, call: Call, request: Request) -> None:
        task = self._loop.create_task(call.serve(self._host.handler, request))
        call.running = task
        self._host.traffic.under_way.add(task)
        task.add_done_callback(partial(self._task_over, call))

    def _refusal(self) -> OmniRelayError:
        if self._is_leaving:
            return Unavailable("this node is going away: call another")
        if len(self._calls) >= _CALLS_MAX:
            return Overloaded(f"{_CALLS_MAX} calls are under way on this connection")
        return Overloaded(_FULL)

    def _task_over(self, call: Call, task: "asyncio.Task[None]") -> None:
        self._over(call, None if task.cancelled() else task.exception())

    def _over(self, call: Call, bug: BaseException | None) -> None:
        if call.running is not None:
            self._host.traffic.ended(call.running)
        self._calls.pop(call.id, None)
        call.ended(bug)

    @property
    def greeting(self) -> Greeting:
        assert self._greeting is not None
        return self._greeting

    # -- answers ------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """What is said in one turn of the loop leaves in one write, unless it is a lot, or there
        is nobody else to wait for."""
        packed = pack(frame)
        is_alone = len(self._calls) <= 1
        if not self._out and not is_alone:
            self._loop.call_soon(self._flush)
        self._out.append(packed)
        self._out_bytes += len(packed)
        if is_alone or self._out_bytes > FLUSH_BYTES:
            self._flush()

    @property
    def is_writable(self) -> bool:
        return self._can_write.is_set()

    async def writable(self) -> None:
        await self._can_write.wait()

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if self._transport is None or not out or self._closing_since_ms is not None:
            return
        self._transport.write(b"".join(out))
        if not self._can_write.is_set():
            self._hold_unsent(self._transport.get_write_buffer_size())

    def _hold_unsent(self, unsent: int) -> None:
        self.share.add(unsent - self._unsent)
        self._unsent = unsent

    # -- the end ------------------------------------------------------------------------------

    def sweep(self, now: int) -> None:
        """Half-open connections and callers that never read are found and closed."""
        silent_ms = now - self._heard_ms
        if self._closing_since_ms is not None:
            if now - self._closing_since_ms > self._host.hello_ms:
                self.cut()
        elif not self._can_write.is_set():
            self._look_whether_it_reads(now)
        elif silent_ms > (self._host.hello_ms if self._greeting is None else self._host.silence_ms):
            self.abort(Unavailable("nothing was heard for too long"))
        elif self._greeting is not None and silent_ms > self._host.silence_ms / 3:
            self.send(Ping(now))

    def _look_whether_it_reads(self, now: int) -> None:
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._stuck_since_ms = now  # slowly, but it does
            self._hold_unsent(unsent)
        elif now - self._stuck_since_ms > self._host.silence_ms:
            self.cut()

    def leave(self) -> None:
        """Take no new calls; those under way go on."""
        if not self._is_leaving:
            self._is_leaving = True
            self.send(Goodbye())

    def abort(self, error: OmniRelayError | None = None) -> None:
        """Say why, and close. What is under way is cancelled."""
        if self._transport is None or self._closing_since_ms is not None:
            return
        for call in list(self._calls.values()):
            call.drop()
        if error is not None:
            self.send(Goodbye(body_of(error)))
        self._flush()
        self._closing_since_ms = self._host.clock.monotonic_ms()
        self._splitter.clear()
        self._hold_partial(0)
        if error is not None and self._transport.can_write_eof():
            # A socket closed with unread bytes takes back what was said last: let the caller hear
            # it and go. One that stays is cut by the next sweep but one.
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    def cut(self) -> None:
        """Close without waiting for a caller that does not read."""
        if self._transport is not None:
            self._transport.abort()
