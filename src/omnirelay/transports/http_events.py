"""Event streams (server-sent events), written and read."""

from collections.abc import Iterator

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import TooLarge

CONTENT_TYPE = "text/event-stream"
COMMENT = b": still here\n\n"
ERROR = "error"
"""The event that ends a stream whose call failed; its data is an error body."""


class _Numbered(msgspec.Struct, rename="camel"):
    sequence_number: int | None = None


_numbered = msgspec.json.Decoder(_Numbered)


def event_of(message: bytes, *, name: str | None = None) -> bytes:
    """A message with a `sequenceNumber` gets it as the id that a reader resumes from."""
    head = f"event: {name}\n".encode() if name else b""
    number = _number_of(message)
    if number is not None:
        head += b"id: %d\n" % number
    if b"\n" in message or b"\r" in message:
        # A reader puts the lines together again; in JSON it does not matter where they part.
        message = message.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"%bdata: %b\n\n" % (head, message)


def _number_of(message: bytes) -> int | None:
    if b'"sequenceNumber"' not in message:
        return None
    try:
        return _numbered.decode(message).sequence_number
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class EventReader:
    """Bytes in, whole events out as (name, data). Comments and unknown fields are passed over."""

    def __init__(self, bytes_max: int = limits.MESSAGE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """Raises TooLarge for an event beyond the limit."""
        searched = len(self._rest)
        self._rest += data
        start = 0
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            line = bytes(self._rest[start:end]).removesuffix(b"\r")
            start = end + 1
            if line:
                self._take(line)
            elif self._data:
                yield self._name, b"\n".join(self._data)
                self._begin()
            else:
                self._begin()
        del self._rest[:start]
        self._check(len(self._rest))

    def _begin(self) -> None:
        self._name, self._data, self._size = "", [], 0

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            self._check(0)
        elif field == b"event":
            self._name = value.decode("utf-8", errors="replace")

    def _check(self, more: int) -> None:
        # The limit is the message's; its field names and line ends are ours to give.
        if self._size + more > self._bytes_max + 64:
            raise TooLarge(f"an event of more than {self._bytes_max} bytes")
