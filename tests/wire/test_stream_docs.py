"""docs/stream.md says what the code does: kinds, places, bounds and a conversation in bytes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from omnirelay.model import limits
from omnirelay.node.node import Node
from omnirelay.node.settings import NodeSettings
from omnirelay.transports import stream_frames
from omnirelay.transports.stream_flow import WINDOW_BYTES, WINDOW_MESSAGES
from omnirelay.transports.stream_frames import OVERHEAD_BYTES, FromCaller, FromNode
from omnirelay.transports.stream_meta import TTL_MS_HIGHEST
from tests.wire.stream_raw import RawStream

PAGE = (Path(__file__).parents[2] / "docs" / "stream.md").read_text()
SIDES = {"caller": (True, False), "node": (False, True), "both": (True, True)}


def rows(first: str) -> Iterator[list[str]]:
    """Cells of the table whose heading begins so."""
    table = PAGE.partition(f"| {first} |")[2].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def struct_of(name: str) -> type[msgspec.Struct]:
    found: type[msgspec.Struct] = getattr(stream_frames, name, None) or getattr(
        stream_frames, f"{name}Frame"
    )
    return found


def element(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return f"`{field.name}`"
    default = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    return f"`{field.name}` = {'nil' if default is None else default}"


def test_every_frame_is_listed_as_it_is() -> None:
    listed = {}
    for kind, name, side, elements in rows("kind"):
        struct = struct_of(name)
        listed[struct] = True
        assert struct.__struct_config__.tag == int(kind)
        assert ", ".join(map(element, msgspec.structs.fields(struct))) == elements
        assert (struct in get_args(FromCaller), struct in get_args(FromNode)) == SIDES[side]
    assert listed.keys() == {*get_args(FromCaller), *get_args(FromNode)}


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("a Hello", OVERHEAD_BYTES),
        ("any other frame", limits.MESSAGE_BYTES_MAX + OVERHEAD_BYTES),
        ("a body", limits.MESSAGE_BYTES_MAX),
        ("headers of a call with those of the hello", limits.HEADERS_MAX),
        ("headers of a call with those of the hello", limits.HEADER_BYTES_MAX),
        ("headers in one frame", 10 * limits.HEADERS_MAX),
        ("a name such as the peer id", limits.NAME_CHARS_MAX),
        ("calls under way on a connection", limits.CALLS_PER_CONNECTION_MAX),
        ("connections", limits.CONNECTIONS_MAX),
        ("connections of one address", limits.CONNECTIONS_PER_ADDRESS_MAX),
    ],
)
def test_every_bound_is_the_one_in_the_code(what: str, value: int) -> None:
    bounds = {cells[0]: cells[1] for cells in rows("what")}
    assert f"{value:,}" in bounds[what]


def test_the_window_and_the_longest_wait_are_those_in_the_code() -> None:
    assert f"{WINDOW_MESSAGES} messages and {WINDOW_BYTES:,} bytes" in PAGE
    assert f"from 0 to {TTL_MS_HIGHEST:,}" in PAGE


def conversation() -> list[tuple[str, bytes]]:
    block = PAGE.partition("```text\n")[2].partition("```")[0]
    found = re.findall(r"^([<>]) ([0-9a-f]{8}) ([0-9a-f]+)$", block, re.MULTILINE)
    return [(side, bytes.fromhex(length + body)) for side, length, body in found]


async def test_the_conversation_in_bytes_happens_as_it_is_printed() -> None:
    settings = NodeSettings(
        http="", grpc="", stream="127.0.0.1:0", journal="memory:", node_id="node-1", grace_s=0.1
    )
    said = conversation()
    assert len(said) == 10
    async with Node(settings) as node, RawStream(node.urls["stream"]) as raw:
        for side, expected in said:
            if side == ">":
                await raw.send(expected)
                continue
            assert await raw.exactly(len(expected)) == expected
        assert await raw.some(1) == b"", "after a goodbye it closes"
