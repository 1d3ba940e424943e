"""Old envelopes, many in one object: a line that says what follows, then an envelope a line, each
byte for byte as it was written."""

from collections.abc import Sequence

import msgspec

from omnirelay.journal.format import checksum
from omnirelay.model.errors import Corrupt


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    first: int
    last: int
    time: int
    bytes: int


class _Index(msgspec.Struct, frozen=True):
    v: int
    shard: str
    rows: list[Row]
    checksum: str


class Outline(msgspec.Struct, frozen=True, gc=False):
    """What of an envelope is needed without its records."""

    first: int
    last: int
    time: int
    epoch: int


class Segment(msgspec.Struct, frozen=True):
    rows: list[Row]
    bodies: list[bytes]


def outline(body: bytes) -> Outline | None:
    """None if the bytes are no envelope; whether they are the right one, is for others to check."""
    try:
        return msgspec.json.decode(body, type=Outline)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def encode(shard: str, rows: list[Row], bodies: Sequence[bytes]) -> bytes:
    whole = b"".join(body + b"\n" for body in bodies)
    index = msgspec.json.encode(_Index(1, shard, rows, checksum(whole)))
    return b"".join((index, b"\n", whole))


def decode(data: bytes, shard: str, first: int) -> Segment:
    """Raises Corrupt, naming `first`, unless it is what was written."""
    line, _, whole = data.partition(b"\n")
    try:
        index = msgspec.json.decode(line, type=_Index)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(shard, first, f"its segment cannot be read: {error}") from None
    if index.shard != shard or index.checksum != checksum(whole):
        raise Corrupt(shard, first, "its segment is not what was written")
    bodies: list[bytes] = []
    at = 0
    for row in index.rows:
        bodies.append(whole[at : at + row.bytes])
        at += row.bytes + 1
    return Segment(index.rows, bodies)
