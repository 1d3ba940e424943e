"""Frames of the stream transport: four bytes of length, then one MessagePack array.

docs/stream.md specifies them for other languages. The first element of every array is its kind.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, TooLarge
from omnirelay.rpc.status import ErrorBody

VERSION: Final = 1
LENGTH_BYTES: Final = 4
OVERHEAD_BYTES: Final = limits.HEADER_BYTES_MAX + 1024
"""What a frame may add to its body; also the largest hello."""
COPIED_BYTES: Final = 64 << 10
"""To copy what is no longer than this costs less than to look at it in place."""

Pairs = Annotated[dict[str, str], Meta(max_length=10 * limits.HEADERS_MAX)]
"""Headers. A few too many are refused by name; a map that is far longer is not even built, since it
would take many times the memory of its bytes."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Hello(_Frame, frozen=True, tag=0, gc=False):
    """The first frame of a caller. Its headers hold for every call of the connection."""

    version: int
    headers: Pairs = {}


class Welcome(_Frame, frozen=True, tag=1, gc=False):
    """The first frame of a node: how large a body may be and how many calls may be under way."""

    version: int
    body_bytes: int = limits.MESSAGE_BYTES_MAX
    calls: int = limits.CALLS_PER_CONNECTION_MAX


class CallFrame(_Frame, frozen=True, tag=2, gc=False):
    """`id` is greater than that of every call before it on this connection."""

    id: int
    procedure: str
    body: bytes
    ttl_ms: int | None = None
    headers: Pairs | None = None


class ReplyFrame(_Frame, frozen=True, tag=3, gc=False):
    """`body` is None for the empty reply."""

    id: int
    body: bytes | None = None
    headers: Pairs | None = None


class ErrorFrame(_Frame, frozen=True, tag=4, gc=False):
    id: int
    error: ErrorBody


class MessageFrame(_Frame, frozen=True, tag=5, gc=False):
    """One message of a stream, in either direction."""

    id: int
    body: bytes


class EndFrame(_Frame, frozen=True, tag=6, gc=False):
    """No more messages from this side."""

    id: int


class CancelFrame(_Frame, frozen=True, tag=7, gc=False):
    """The caller does not want the answer any more."""

    id: int


class CreditFrame(_Frame, frozen=True, tag=8, gc=False):
    """So many more messages, and bytes of them, may come on this stream."""

    id: int
    messages: int
    bytes: int


class Ping(_Frame, frozen=True, tag=9, gc=False):
    number: int


class Pong(_Frame, frozen=True, tag=10, gc=False):
    number: int


class Goodbye(_Frame, frozen=True, tag=11, gc=False):
    """No new calls on this connection; those under way will be answered, unless `error` says that
    it is over."""

    error: ErrorBody | None = None


class OpenFrame(_Frame, frozen=True, tag=12, gc=False):
    """The answer is a stream, which begins now."""

    id: int


FromCaller = Hello | CallFrame | MessageFrame | EndFrame | CancelFrame | CreditFrame | Ping | Pong
FromNode = (
    Welcome
    | ReplyFrame
    | ErrorFrame
    | MessageFrame
    | EndFrame
    | CreditFrame
    | Ping
    | Pong
    | Goodbye
    | OpenFrame
)
Frame = FromCaller | FromNode

F = TypeVar("F")

_encoder = msgspec.msgpack.Encoder()
# Each side reads only what the other may say. An error has details of any shape, and a byte of
# MessagePack can become a hundred of Python: a caller has no way to make a node build them.
FROM_CALLER: Final[msgspec.msgpack.Decoder[FromCaller]] = msgspec.msgpack.Decoder(FromCaller)
FROM_NODE: Final[msgspec.msgpack.Decoder[FromNode]] = msgspec.msgpack.Decoder(FromNode)


def pack(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES) + body


class Splitter(Generic[F]):
    """Bytes as they come in, frames as they are whole. Holds at most one unfinished frame."""

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[F],
        bytes_max: int = limits.MESSAGE_BYTES_MAX + OVERHEAD_BYTES,
    ) -> None:
        self.bytes_max = bytes_max
        self._decoder = decoder
        self._buffer = bytearray()
        self._source: bytes | bytearray = b""
        self._start = 0

    @property
    def held(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[F]:
        """Raises TooLarge before a frame beyond the limit is read, InvalidArgument for one that is
        none. After either nothing that follows can be trusted: close the connection."""
        buffer = self._buffer
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        start, end = 0, len(source)
        self._source = source
        try:
            while end - start >= LENGTH_BYTES:
                size = int.from_bytes(source[start : start + LENGTH_BYTES])
                if size > self.bytes_max:
                    raise TooLarge(f"a frame of {size} bytes; the limit is {self.bytes_max}")
                after = start + LENGTH_BYTES + size
                if end < after:
                    break
                self._start = start
                yield self._unpack(source, start + LENGTH_BYTES, after)
                start = after
        finally:
            self._source = b""
            if source is buffer:
                del buffer[:start]
            elif start < end:
                buffer += source[start:]

    def current(self) -> bytes:
        """The frame that `feed` has just given, as it came."""
        body = self._start + LENGTH_BYTES
        size = int.from_bytes(self._source[self._start : body])
        return bytes(self._source[body : body + size])

    def clear(self) -> None:
        """Forget what is unfinished; for who will read nothing more."""
        self._buffer = bytearray()

    def _unpack(self, source: bytes | bytearray, start: int, end: int) -> F:
        try:
            if end - start <= COPIED_BYTES:
                return self._decoder.decode(source[start:end])
            with memoryview(source) as view, view[start:end] as body:
                return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"not a frame that belongs here: {error}") from None
