"""One request of an HTTP connection, and the answer to it."""

import asyncio
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

from omnirelay.model.errors import OmniRelayError, Overloaded, TooLarge
from omnirelay.rpc.meta import Certificate
from omnirelay.transports.http_options import HttpOptions


class Wire(Protocol):
    """The connection, as an exchange sees it."""

    options: HttpOptions
    address: str

    @property
    def certificate(self) -> Certificate | None: ...

    @property
    def ends(self) -> bool:
        """No request after this one is answered."""

    @property
    def dated(self) -> bytes:
        """The header with the time."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Returns when the caller has taken most of what was written to it."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def keep(self, size: int) -> bool:
        """Account for body bytes, negative ones for those let go. False if there are too many."""


def _status_line(status: int) -> bytes:
    known = {499: "Client Closed Request", **{s.value: s.phrase for s in HTTPStatus}}
    return f"HTTP/1.1 {status} {known.get(status, '')}\r\n".encode()


_STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}
_CLOSE = b"connection: close\r\n"
_LARGE = 64 << 10


class Exchange:
    """The body can be read whole or message by message, the answer given at once or in parts."""

    __slots__ = (
        "_arrival",
        "_chunks",
        "_high",
        "_is_chunked",
        "_kept",
        "is_answered",
        "is_begun",
        "is_complete",
        "is_old",
        "is_streamed",
        "method",
        "pairs",
        "query",
        "raw_path",
        "refusal",
        "stays_open",
        "wire",
    )

    def __init__(
        self, wire: Wire, method: str, target: bytes, pairs: list[tuple[str, str]]
    ) -> None:
        self.wire = wire
        self.method = method
        if not target.startswith(b"/"):
            target = _without_host(target)
        path, _, query = target.partition(b"?")
        self.raw_path = path.decode("latin-1")
        self.query = query.decode("latin-1")
        self.pairs = pairs
        self.refusal: OmniRelayError | None = None
        """What the connection found wrong with the request before anybody looked at it."""
        self.stays_open = True
        self.is_old = False
        """HTTP/1.0, whose answers end with the connection."""

        self.is_complete = False
        self.is_streamed = False
        self._chunks: list[bytes] = []
        self._kept = 0
        self._high = wire.options.held_bytes_max
        self._arrival: asyncio.Future[None] | None = None

        self.is_begun = False
        self.is_answered = False
        self._is_chunked = False

    @property
    def path(self) -> str:
        return unquote(self.raw_path) if "%" in self.raw_path else self.raw_path

    @property
    def is_last(self) -> bool:
        """An unread body stands between this request and the next."""
        return not self.stays_open or not self.is_complete or self.is_old or self.wire.ends

    # -- the body, as it comes --------------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        if self.is_answered:
            return
        self._chunks.append(chunk)
        self._kept += len(chunk)
        if not self.wire.keep(len(chunk)):
            self.fail(Overloaded("too many bodies are being read at the same time"))
        if self._kept > self._high:
            self.wire.pause_reading()
        self._wake()

    def complete(self) -> None:
        self.is_complete = True
        self._wake()

    def fail(self, error: OmniRelayError) -> None:
        """The body will not come, or not as promised."""
        self.refusal = error
        self._wake()

    def release(self) -> None:
        """Forget the body."""
        if self._kept:
            self.wire.keep(-self._kept)
            self._chunks, self._kept = [], 0

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # -- the body, as it is read ------------------------------------------------------------------

    async def read(self) -> bytes:
        """Raises TooLarge as soon as too much has come or was announced, and `refusal`."""
        bytes_max = self._high = self.wire.options.body_bytes_max
        if not self.is_complete:
            self._check_announced(bytes_max)
        while not self.is_complete and self._kept <= bytes_max and self.refusal is None:
            await self._more()
        if self.refusal is not None:
            raise self.refusal
        if self._kept > bytes_max:
            raise self._too_large(bytes_max)
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    async def lines(self) -> AsyncGenerator[bytes]:
        """Messages parted by line ends; empty lines are signs of life."""
        self.is_streamed = True
        rest = bytearray()
        while True:
            begun = len(rest)
            rest += self._take()
            *whole, last = rest.split(b"\n") if rest.find(b"\n", begun) >= 0 else (rest,)
            rest = last
            for line in whole:
                if line.strip():
                    yield bytes(line)
            if len(rest) > self.wire.options.body_bytes_max:
                raise self._too_large(self.wire.options.body_bytes_max)
            if self.refusal is not None:
                raise self.refusal
            if self.is_complete and not self._chunks:
                break
            if not self._chunks:
                await self._more()
        if rest.strip():
            yield bytes(rest)

    def _take(self) -> bytes:
        taken = b"".join(self._chunks)
        self.release()
        return taken

    def _check_announced(self, bytes_max: int) -> None:
        # Every digit string is a length here: the parser has refused the others.
        announced = self.header("content-length")
        if announced is not None and int(announced) > bytes_max:
            raise self._too_large(bytes_max)

    async def _more(self) -> None:
        if (self.header("expect") or "").lower() == "100-continue" and not self._kept:
            self.wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.pairs = [pair for pair in self.pairs if pair[0].lower() != "expect"]
        self.wire.resume_reading()
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def header(self, name: str) -> str | None:
        """For the rare places that look at one header only."""
        return next((value for key, value in self.pairs if key.lower() == name), None)

    def _too_large(self, bytes_max: int) -> TooLarge:
        return TooLarge(f"the body has more than {bytes_max} bytes")

    # -- the answer -------------------------------------------------------------------------------

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """The whole answer; `head` is header lines with their ends."""
        length = b"" if status == HTTPStatus.NO_CONTENT else b"content-length: %d\r\n" % len(body)
        head = self._head(status, head) + length + b"\r\n"
        self.is_answered = True
        if self.method == "HEAD":
            body = b""
        if len(body) > _LARGE:
            self.wire.write(head)
            self.wire.write(body)
        else:
            self.wire.write(head + body)

    def begin(self, status: int, head: bytes) -> None:
        """An answer in parts, which `send` and `finish` go on with."""
        self._is_chunked = not self.is_old
        framing = b"transfer-encoding: chunked\r\n" if self._is_chunked else b""
        self.wire.write(self._head(status, head) + framing + b"\r\n")

    def _head(self, status: int, head: bytes) -> bytes:
        assert not self.is_begun, "one request has one answer"
        first = _STATUS_LINES[status] + self.wire.dated + head
        self.is_begun = True
        self.stays_open = not self.is_last
        return first if self.stays_open else first + _CLOSE

    def send(self, data: bytes) -> None:
        assert self.is_begun, "an answer in parts begins with `begin`"
        assert not self.is_answered, "nothing comes after the end"
        self.wire.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def finish(self) -> None:
        assert self.is_begun, "an answer in parts begins with `begin`"
        assert not self.is_answered, "nothing comes after the end"
        self.is_answered = True
        if self._is_chunked:
            self.wire.write(b"0\r\n\r\n")


def _without_host(target: bytes) -> bytes:
    """A caller behind a proxy names the whole address; which of our names it used is no matter."""
    scheme, parted, rest = target.partition(b"://")
    if not parted or scheme.lower() not in (b"http", b"https"):
        return target
    _, slash, path = rest.partition(b"/")
    return slash + path or b"/"


def header_lines(headers: dict[str, str]) -> bytes:
    """Raises OmniRelayError for what would end a header early: whoever answers made a mistake."""
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise OmniRelayError("a header of the answer has a line end in it")
    return text.encode("latin-1", errors="replace")
