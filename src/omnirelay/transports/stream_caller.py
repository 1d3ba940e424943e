"""One connection to a node, as its caller sees it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.rpc.status import error_of
from omnirelay.transports.stream_calling import Calling
from omnirelay.transports.stream_frames import (
    FROM_NODE,
    VERSION,
    CallFrame,
    Frame,
    FromNode,
    Goodbye,
    Hello,
    Ping,
    Pong,
    ReplyFrame,
    Splitter,
    Welcome,
    pack,
)

LONG_BYTES = 4 << 10
_LOST = "the connection was lost before an answer came: the call may or may not have happened"


class CallerConnection(asyncio.Protocol):
    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        silence_s: float,
        on_lost: Callable[["CallerConnection"], None],
    ) -> None:
        """A node that is silent for `silence_s`, though asked, is given up."""
        self.loop = asyncio.get_running_loop()
        self.calls: dict[int, Calling] = {}
        self.calls_max = limits.CALLS_PER_CONNECTION_MAX
        self.body_bytes_max = limits.MESSAGE_BYTES_MAX
        self.is_open = True
        """Takes new calls."""
        self.greeted: asyncio.Future[None] = self.loop.create_future()
        # Whoever waits for it may have gone when it fails.
        self.greeted.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._headers = dict(headers)
        self._silence_s = silence_s
        self._on_lost = on_lost
        self._splitter: Splitter[FromNode] = Splitter(FROM_NODE)
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._why = _LOST
        self._out: list[bytes] = []
        self._ids = 0
        self._heard = self.loop.time()
        self._watch: asyncio.TimerHandle | None = None

    # -- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of other loops, such as uvloop's, are no subclass of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.write(pack(Hello(VERSION, self._headers)))
        self._look()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
        self._can_write.set()
        for calling in list(self.calls.values()):
            calling.fail(OutcomeUnknown(self._why))
        if not self.greeted.done():
            # Nothing was asked yet, so the outcome of nothing is unknown.
            why = "it closed the connection" if self._why is _LOST else self._why
            self.greeted.set_exception(Unavailable(why))
        if not self._closed.done():
            self._closed.set_result(None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except OmniRelayError as error:
            self._give_up(f"the node does not keep to the protocol: {error.message}")

    # -- frames -------------------------------------------------------------------------------

    def _take(self, frame: FromNode) -> None:
        if type(frame) is ReplyFrame and (calling := self.calls.get(frame.id)) is not None:
            calling.take(frame)  # nearly all are: nothing is asked before the welcome
            return
        match frame:
            case Goodbye():
                self._part(frame)
            case Welcome() if not self.greeted.done():
                self._welcome(frame)
            case _ if not self.greeted.done():
                raise InvalidArgument("the first frame must be a welcome")
            case Welcome():
                raise InvalidArgument("a node says welcome once")
            case Ping():
                # Bytes on their way are answer enough; a node that asks on and on without reading
                # must not fill the memory of this process.
                if self._can_write.is_set():
                    self.send(Pong(frame.number))
            case Pong():
                pass
            case _:
                calling = self.calls.get(frame.id)
                if calling is not None:  # else it was cancelled while this was on its way
                    calling.take(frame)

    def _welcome(self, frame: Welcome) -> None:
        if frame.version != VERSION:
            raise InvalidArgument(f"version {frame.version} is not spoken here, {VERSION} is")
        self.calls_max = min(self.calls_max, frame.calls)
        self.body_bytes_max = min(self.body_bytes_max, frame.body_bytes)
        self.greeted.set_result(None)

    def _part(self, goodbye: Goodbye) -> None:
        """Calls under way are still answered, unless it is over; new ones open another."""
        self.is_open = False
        if goodbye.error is not None:
            if not self.greeted.done():
                self.greeted.set_exception(error_of(goodbye.error))
            self._give_up(f"{_LOST}: {goodbye.error.message}")
        elif not self.calls:
            self._give_up(_LOST)

    # -- calls --------------------------------------------------------------------------------

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

    def forget(self, call_id: int) -> bool:
        """False: it was over already."""
        known = self.calls.pop(call_id, None) is not None
        if not self.is_open and not self.calls:
            self.loop.call_soon(self._cut_if_idle)
        return known

    def _cut_if_idle(self) -> None:
        if not self.calls:
            self._give_up(_LOST)

    def send(self, frame: Frame) -> None:
        if not self._out:
            # One turn later than need be: what a caller asks next, such as the lease that follows
            # a completion, then travels in the same write and meets the same commit.
            self.loop.call_soon(self.loop.call_soon, self._flush)
        packed = pack(frame)
        self._out.append(packed)
        if len(packed) >= LONG_BYTES:
            self._flush()  # it is worth a write of its own

    @property
    def is_writable(self) -> bool:
        return self._can_write.is_set()

    async def writable(self) -> None:
        await self._can_write.wait()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    # -- the end ------------------------------------------------------------------------------

    def _look(self) -> None:
        """A node that vanished sends nothing, not even an end."""
        silent_s = self.loop.time() - self._heard
        if silent_s >= self._silence_s:
            self._why = f"{_LOST}: the node has been silent for {silent_s:.0f} s"
            self.cut()
            return
        if silent_s >= self._silence_s / 3 and self.greeted.done() and self._can_write.is_set():
            self.send(Ping(self._ids))
        self._watch = self.loop.call_later(self._silence_s / 3, self._look)

    def _give_up(self, why: str) -> None:
        self.is_open = False
        self._why = why
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def close(self, linger_s: float = 1.0) -> None:
        self._give_up("the outbound was stopped: the call may or may not have happened")
        await asyncio.wait([self._closed], timeout=linger_s)
        self.cut()
        await self._closed
