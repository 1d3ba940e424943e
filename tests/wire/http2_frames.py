"""HTTP/2 by hand, to say over a gRPC port what no gRPC library would say."""

import asyncio
import struct
from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
CONTINUATION = 9
END_STREAM, END_HEADERS = 1, 4
FRAME_BYTES = 16_384

Frame = tuple[int, bytes]
"""Type and payload."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def opening(
    path: bytes,
    *extra: tuple[bytes, bytes],
    content_type: bytes = b"application/grpc",
    ends: bool = False,
) -> bytes:
    """The head of a call on stream 1."""
    pairs = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"node"),
        (b"content-type", content_type),
        (b"te", b"trailers"),  # codespell:ignore te
        *extra,
    ]
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in pairs)
    parts = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    ending = END_STREAM if ends else 0
    if len(parts) == 1:
        return frame(HEADERS, END_HEADERS | ending, 1, block)
    middle = (frame(CONTINUATION, 0, 1, part) for part in parts[1:-1])
    last = frame(CONTINUATION, END_HEADERS, 1, parts[-1])
    return frame(HEADERS, ending, 1, parts[0]) + b"".join(middle) + last


def message(body: bytes, *, ends: bool = True, size: int | None = None, flag: int = 0) -> bytes:
    """One message of a call; `size` is what its head claims."""
    head = struct.pack(">BI", flag, len(body) if size is None else size)
    return frame(DATA, END_STREAM if ends else 0, 1, head + body)


def _text(text: bytes) -> bytes:
    """As HPACK writes it plainly."""
    if len(text) < 127:
        return bytes((len(text),)) + text
    rest, length = len(text) - 127, b"\x7f"
    while rest >= 128:
        length += bytes((rest % 128 | 128,))
        rest //= 128
    return length + bytes((rest,)) + text


async def said(port: int, *frames: bytes) -> Sequence[Frame]:
    """What comes back until the call or the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(PREFACE + frame(SETTINGS, 0, 0) + b"".join(frames))
        async with asyncio.timeout(8):
            return await _until_the_end(reader)
    finally:
        writer.close()


async def _until_the_end(reader: asyncio.StreamReader) -> Sequence[Frame]:
    seen: list[Frame] = []
    while True:
        try:
            head = await reader.readexactly(9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            seen.append((kind, await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return seen
        if kind in (RST_STREAM, GOAWAY) or (kind in (DATA, HEADERS) and flags & END_STREAM):
            return seen


def status(frames: Sequence[Frame]) -> int | None:
    """The gRPC status that ended the call; None if nothing did."""
    name = b"grpc-status"
    for kind, payload in frames:
        if kind == HEADERS and name in payload:
            at = payload.index(name) + len(name)
            return int(payload[at + 1 : at + 1 + payload[at]])
    return None
