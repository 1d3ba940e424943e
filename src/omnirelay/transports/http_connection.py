"""One HTTP/1.1 connection on httptools' parser (llhttp): requests out of bytes, one at a time.

Written on the parser itself: a server framework alone was measured to cost what the whole call
costs here, and what matters lies between socket and parser. Every wait has a deadline, every buffer
a bound, and a caller that goes away ends its call at once, so reading goes on while a call waits.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import cast

import httptools

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError
from omnirelay.rpc.meta import Certificate
from omnirelay.transports.half_open import ask_whether_alive
from omnirelay.transports.http_exchange import Exchange
from omnirelay.transports.http_options import HeadersTooLarge, HttpOptions, TooSlow
from omnirelay.transports.http_traffic import Traffic

ReadCertificate = Callable[[bytes], Certificate]
Answer = Callable[[Exchange], Awaitable[None]]

_SLICE_BYTES = 16 << 10


class Connection(asyncio.Protocol):
    def __init__(
        self, traffic: Traffic, answer: Answer, read_certificate: ReadCertificate | None
    ) -> None:
        self.options: HttpOptions = traffic.options
        self.address = ""
        self._loop = asyncio.get_running_loop()
        self._traffic = traffic
        self._answer = answer
        self._read_certificate = read_certificate
        self._certificate: Certificate | None = None
        self._der: bytes | None = None
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None

        self._parser = httptools.HttpRequestParser(self)
        self._is_in_head = False
        self._unframed = 0
        """Bytes since the parser last got somewhere: an endless header or trailer shows here."""
        self._raw_left = 0
        self._url = b""
        self._raw_pairs: list[tuple[bytes, bytes]] = []
        self._reading: Exchange | None = None
        self._current: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_paused = False
        self._is_over = False
        """Nothing more is read from this connection."""
        self._deadline = inf
        self._untaken = -1
        """Bytes the caller had not taken when last looked at; -1 while writing is possible."""
        self._take_by = inf
        self._drain: asyncio.Future[None] | None = None

    # -- the socket -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of other loops, such as uvloop's, are no subclass of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        line = transport.get_extra_info("socket")
        ask_whether_alive(line, first_s=60, every_s=15, times=4)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        secured = transport.get_extra_info("ssl_object")
        self._der = secured.getpeercert(binary_form=True) if secured is not None else None
        self._deadline = self._loop.time() + self.options.head_s
        self._task = self._loop.create_task(self._serve())
        try:
            self._traffic.add(self, self._task)
        except OmniRelayError as error:
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._traffic.remove(self)
        for exchange in self._queue:
            exchange.release()
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        return False  # who cannot say more is taken for gone: a closed socket looks the same

    def data_received(self, data: bytes) -> None:
        """In slices, since the parser cannot be stopped: so many requests at most are taken before
        the first of them is answered, however many came at once."""
        if len(data) <= _SLICE_BYTES and not self._is_over and not self._is_busy():
            self._feed(data)
            return
        for start in range(0, len(data), _SLICE_BYTES):
            if self._is_over:
                return
            if self._is_busy():
                self._hold(data[start:])
                return
            self._feed(data[start : start + _SLICE_BYTES])

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > self.options.held_bytes_max:
            self.pause_reading()

    def _is_busy(self) -> bool:
        """Whether the next bytes belong to a request whose turn has not come."""
        first = self._current or (self._queue[0] if self._queue else None)
        return first is not None and first is not self._reading

    def _feed(self, data: bytes) -> None:
        if self._raw_left:
            self._feed_raw(data)
            return
        self._unframed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_raw(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            raise  # a bug of ours, for the log; the loop then closes the connection
        except httptools.HttpParserError as error:
            self._refuse(InvalidArgument(f"malformed request: {error}"))
        if self._unframed > 2 * limits.HEADER_BYTES_MAX:
            self._refuse(HeadersTooLarge(f"headers of more than {limits.HEADER_BYTES_MAX} bytes"))

    def _feed_raw(self, data: bytes) -> None:
        """We never switch protocols, as a server may; but the parser then leaves the body to us."""
        body, rest = data[: self._raw_left], data[self._raw_left :]
        if body:
            self._raw_left -= len(body)
            self.on_body(body)
        if not self._raw_left and self._reading is not None:
            self.on_message_complete()
        if rest:
            self.data_received(rest)

    # -- the parser -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._url = b""
        self._raw_pairs = []
        if self._current is None and not self._queue:
            self._deadline = self._loop.time() + self.options.head_s

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer, which nobody asked for, or one of too many: the request is refused anyway.
        if self._is_in_head and len(self._raw_pairs) <= limits.HEADERS_MAX:
            self._raw_pairs.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._is_in_head = False
        self._unframed = 0
        pairs = _decoded(self._raw_pairs)
        exchange = Exchange(self, parser.get_method().decode(), self._url, pairs)
        exchange.stays_open = parser.should_keep_alive()
        exchange.is_old = parser.get_http_version() == "1.0"
        if len(pairs) > limits.HEADERS_MAX:
            exchange.refusal = HeadersTooLarge(f"more than {limits.HEADERS_MAX} headers")
        if parser.should_upgrade():
            self._expect_raw(exchange)
        self._reading = exchange
        self._enqueue(exchange)

    def _expect_raw(self, exchange: Exchange) -> None:
        if exchange.header("transfer-encoding") is not None:
            exchange.refusal = InvalidArgument("no other protocol is spoken here")
            self._is_over = True
        self._raw_left = int(exchange.header("content-length") or 0)

    def on_body(self, body: bytes) -> None:
        self._unframed = 0
        assert self._reading is not None
        if self._reading.is_streamed:
            self._deadline = self._loop.time() + self.options.body_s
        self._reading.feed(body)

    def on_message_complete(self) -> None:
        if self._raw_left:
            return
        assert self._reading is not None
        self._unframed = 0
        self._reading.complete()
        if self._reading is self._current:
            self._deadline = inf
        self._reading = None

    def _enqueue(self, exchange: Exchange) -> None:
        self._queue.append(exchange)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _refuse(self, error: OmniRelayError) -> None:
        """After those that came before it are answered."""
        if self._is_over:
            return
        self._is_over = True
        if self._reading is not None:
            self._reading.fail(error)
            return
        exchange = Exchange(self, "", b"", [])
        exchange.refusal = error
        self._enqueue(exchange)

    # -- one request after the other --------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            await self._answer_all()
        finally:
            self._transport.close()

    async def _answer_all(self) -> None:
        while (exchange := await self._next()) is not None:
            self._current = exchange
            self._deadline = (
                inf if exchange.is_complete else self._loop.time() + self.options.body_s
            )
            self._traffic.enter()
            try:
                await self._answer(exchange)
            finally:
                self._traffic.leave()
                exchange.release()
            if self._untaken >= 0:
                await self.drained()
            if not exchange.stays_open:
                break
            self._current = None
            waits_s = self.options.head_s if self._is_in_head else self.options.idle_s
            self._deadline = self._loop.time() + waits_s
        await self._leave()

    async def _next(self) -> Exchange | None:
        if self._held and not self._queue:
            data = b"".join(self._held)
            self._held, self._held_bytes = [], 0
            self.data_received(data)
        self.resume_reading()
        while not self._queue:
            if self._is_over:
                return None
            self._arrival = self._loop.create_future()
            await self._arrival
        return self._queue.popleft()

    async def _leave(self) -> None:
        has_unread = self._is_over or self._reading is not None or bool(self._held)
        self._is_over = True
        if has_unread and not self._transport.is_closing():
            self.resume_reading()
            if self._transport.can_write_eof():
                self._transport.write_eof()
            await asyncio.sleep(self.options.linger_s)

    def close(self) -> None:
        """What is written still goes out."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # -- time -------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Called now and then instead of a timer for every wait."""
        if self._untaken >= 0:
            untaken = self._transport.get_write_buffer_size()
            if untaken < self._untaken:
                self._untaken, self._take_by = untaken, now + self.options.write_s
            elif now >= self._take_by:
                self._transport.abort()
        elif now >= self._deadline and not self._is_paused:
            self._deadline = inf
            self._end_wait()

    def _end_wait(self) -> None:
        if self._reading is not None:
            self._refuse(TooSlow("the body did not come in time"))
        elif self._is_in_head:
            self._refuse(TooSlow("the headers did not come in time"))
        else:
            self._transport.close()

    # -- what an exchange needs -------------------------------------------------------------------

    @property
    def certificate(self) -> Certificate | None:
        if self._der is not None and self._read_certificate is not None:
            self._certificate = self._read_certificate(self._der)
            self._der = None
        return self._certificate

    @property
    def ends(self) -> bool:
        return (self._is_over and not self._queue) or self._traffic.is_draining

    @property
    def dated(self) -> bytes:
        return self._traffic.dated

    def keep(self, size: int) -> bool:
        self._traffic.body_bytes += size
        return self._traffic.body_bytes <= self.options.bodies_bytes_max

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        while self._untaken >= 0:
            self._drain = self._loop.create_future()
            await self._drain

    def pause_writing(self) -> None:
        self._untaken = self._transport.get_write_buffer_size()
        self._take_by = self._loop.time() + self.options.write_s

    def resume_writing(self) -> None:
        self._untaken = -1
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and self._held_bytes <= self.options.held_bytes_max:
            self._is_paused = False
            self._transport.resume_reading()
            if self._reading is not None:
                # The silence was of our making.
                self._deadline = self._loop.time() + self.options.body_s


def _decoded(pairs: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    try:
        return [(name.decode("latin-1"), value.decode()) for name, value in pairs]
    except UnicodeDecodeError:
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]
