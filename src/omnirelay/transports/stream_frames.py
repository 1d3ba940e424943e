"""Frames of the stream transport: four bytes of length, then one MessagePack array.

docs/stream.md specifies them for other languages. The first element of every array is its kind.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, TooLarge
from omnirelay.rpc.status import ErrorBody

VERSION: Final = 1
LENGTH_BYTES: Final = 4
OVERHEAD_BYTES: Final = limits.HEADER_BYTES_MAX + 1024
"""What a frame may add to its body."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Hello(_Frame, frozen=True, tag=0, gc=False):
    """The first frame of a caller. Its headers hold for every call of the connection."""

    version: int
    headers: dict[str, str] = {}


class Welcome(_Frame, frozen=True, tag=1, gc=False):
    """The first frame of a node: how large a message may be and how many calls and messages of one
    stream may be under way."""

    version: int
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    calls_max: int = limits.CALLS_PER_CONNECTION_MAX
    window: int = limits.STREAM_WINDOW_MESSAGES_MAX


class CallFrame(_Frame, frozen=True, tag=2, gc=False):
    id: int
    procedure: str
    body: bytes
    ttl_ms: int | None = None
    headers: dict[str, str] | None = None


class ReplyFrame(_Frame, frozen=True, tag=3, gc=False):
    """`body` is None for the empty reply."""

    id: int
    body: bytes | None = None
    headers: dict[str, str] | None = None


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
    """So many more messages of this stream may come."""

    id: int
    messages: int


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


Frame = (
    Hello
    | Welcome
    | CallFrame
    | ReplyFrame
    | ErrorFrame
    | MessageFrame
    | EndFrame
    | CancelFrame
    | CreditFrame
    | Ping
    | Pong
    | Goodbye
    | OpenFrame
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def pack(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES) + body


class Splitter:
    """Bytes as they come in, frames as they are whole. Holds at most one unfinished frame."""

    def __init__(self, bytes_max: int = limits.MESSAGE_BYTES_MAX + OVERHEAD_BYTES) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Raises TooLarge before a frame beyond the limit is read, InvalidArgument for one that is
        none. After either nothing that follows can be trusted: close the connection."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= LENGTH_BYTES:
                size = int.from_bytes(buffer[start : start + LENGTH_BYTES])
                if size > self._bytes_max:
                    raise TooLarge(f"a frame of {size} bytes; the limit is {self._bytes_max}")
                end = start + LENGTH_BYTES + size
                if len(buffer) < end:
                    break
                yield _unpack(buffer, start + LENGTH_BYTES, end)
                start = end
        finally:
            del buffer[:start]


def _unpack(buffer: bytearray, start: int, end: int) -> Frame:
    with memoryview(buffer) as view, view[start:end] as body:
        try:
            frame: Frame = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"not a frame: {error}") from None
    return frame
