"""Headers that stand twice in one frame, which a decoded map does not show.

Of a key that comes twice MessagePack's readers keep the last, each silently and each its own way:
a proxy might check one `authorization` and a node believe the other.
"""

from typing import Final

import msgspec

from omnirelay.model.errors import InvalidArgument
from omnirelay.transports.stream_frames import CallFrame, Hello

_NONE: Final = msgspec.Raw(b"\xc0")


class _AsItCame(msgspec.Struct, frozen=True, array_like=True):
    pass


class _Hello(_AsItCame, frozen=True, tag=0):
    version: int
    headers: msgspec.Raw = _NONE


class _Call(_AsItCame, frozen=True, tag=2):
    id: int
    procedure: str
    body: msgspec.Raw
    ttl_ms: int | None = None
    headers: msgspec.Raw = _NONE


_decoder: Final = msgspec.msgpack.Decoder(_Hello | _Call)


def check_doubles(frame: Hello | CallFrame, packed: bytes) -> None:
    """`packed` is what `frame` was read from. Raises InvalidArgument."""
    if _pairs_in(bytes(memoryview(_decoder.decode(packed).headers)[:5])) != len(
        frame.headers or {}
    ):
        raise InvalidArgument("a header stands twice in one frame")


def _pairs_in(map_head: bytes) -> int:
    """How many pairs a map announces by its first bytes."""
    match map_head[0]:
        case 0xDE:
            return int.from_bytes(map_head[1:3])
        case 0xDF:
            return int.from_bytes(map_head[1:5])
        case first:
            return first & 0x0F if first & 0xF0 == 0x80 else 0
