"""What hostile callers make a node hold: measured from outside, in its own process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from omnirelay.model import limits
from omnirelay.rpc.codec import MSGPACK
from omnirelay.testing import figures
from omnirelay.testing.transport_echo import Said
from omnirelay.transports.stream_frames import (
    CallFrame,
    Hello,
    MessageFrame,
    Ping,
    ReplyFrame,
    pack,
)
from tests.wire.stream_process import Process
from tests.wire.stream_raw import EMPTY, HELLO, RawStream, until

MIB = 1 << 20
HELD_KIB = 300 << 10
"""What the node may hold for all its callers, and a little for holding it."""
SETTLED_KIB = 192 << 10
"""Afterwards; all storms blow at the same process, so what one of them left behind adds up."""


@pytest.fixture(scope="module")
def node() -> Iterator[Process]:
    with Process() as process:
        yield process


async def still_serves(node: Process) -> None:
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(CallFrame(1, "echo::say", EMPTY))
        await raw.next(ReplyFrame)


async def _say(node: Process, *said: bytes) -> None:
    """All of it, as far as the node takes it within a moment; then go."""
    async with RawStream(node.url) as raw:
        try:
            async with asyncio.timeout(0.6):
                for one in said:
                    await raw.send(one)
        except (TimeoutError, ConnectionError):
            return


async def long_names(node: Process) -> None:
    calls = [pack(CallFrame(n, f"{n}" * MIB, b"")) for n in range(60)]
    await _say(node, HELLO, *calls)


async def waiting_bodies(node: Process) -> None:
    """Unknown members of a body are passed by, and so could hold anything while the call waits."""
    body = MSGPACK.encode({"x": bytes(7 * MIB)})
    calls = [pack(CallFrame(n, "echo::wait", body)) for n in range(60)]
    await asyncio.gather(*(_say(node, HELLO, *calls) for _ in range(2)))


async def unread_answers(node: Process) -> None:
    swell = MSGPACK.encode(Said(number=4 * MIB))
    calls = b"".join(pack(CallFrame(n, "echo::swell", swell)) for n in range(400))
    async with RawStream(node.url, receive_bytes=4096) as raw:
        await raw.send(HELLO, calls)
        await asyncio.sleep(0.5)


async def unread_pongs(node: Process) -> None:
    async with RawStream(node.url, receive_bytes=4096) as raw:
        await raw.send(HELLO)
        try:
            async with asyncio.timeout(0.6):
                while True:
                    await raw.send(pack(Ping(1)) * 20_000)
        except TimeoutError:
            return  # it stopped reading, as it should


async def unfinished_frames(node: Process) -> None:
    part = (8 * MIB).to_bytes(4) + bytes(7 * MIB)
    await asyncio.gather(*(_say(node, HELLO, part) for _ in range(60)))


async def unfinished_hellos(node: Process) -> None:
    part = (1 << 20).to_bytes(4) + bytes(MIB)
    await asyncio.gather(*(_say(node, part) for _ in range(60)))


async def unread_messages(node: Process) -> None:
    message = MSGPACK.encode(Said(body=bytes(MIB - 100)))
    streams = [
        pack(CallFrame(n, "echo::chat", EMPTY)) + pack(MessageFrame(n, message)) * 2
        for n in range(200)
    ]
    await asyncio.gather(*(_say(node, HELLO, *streams) for _ in range(2)))


async def huge_maps(node: Process) -> None:
    headers = {f"{n:x}": "" for n in range(300_000)}
    await _say(node, HELLO, pack(CallFrame(1, "echo::say", EMPTY, None, headers)))
    await _say(node, pack(Hello(1, headers)))


async def huge_details(node: Process) -> None:
    """Eight million empty lists would be half a gigabyte of Python."""
    lists = b"\xdd" + (8 * MIB - 100).to_bytes(4) + b"\x90" * (8 * MIB - 100)
    body = b"\x93\x04\x01\x81\xa7details\x81\xa1a" + lists
    await _say(node, HELLO, len(body).to_bytes(4) + body)
    behind = b"\x93\x09\x01" + lists
    await _say(node, HELLO, len(behind).to_bytes(4) + behind)


async def silent_connections(node: Process) -> None:
    await asyncio.gather(*(_hold_open(node) for _ in range(300)))


async def _hold_open(node: Process) -> None:
    async with RawStream(node.url) as raw:
        await raw.ending()


async def many_calls(node: Process) -> None:
    calls = b"".join(pack(CallFrame(n, "echo::wait", EMPTY)) for n in range(10_000))
    await asyncio.gather(*(_say(node, HELLO, calls) for _ in range(2)))


STORMS = [
    long_names,
    waiting_bodies,
    unread_answers,
    unread_pongs,
    unfinished_frames,
    unfinished_hellos,
    unread_messages,
    huge_maps,
    huge_details,
    silent_connections,
    many_calls,
]


@pytest.mark.parametrize("storm", STORMS, ids=lambda storm: storm.__name__)
async def test_a_storm_passes_and_memory_stays_flat(
    node: Process, storm: Callable[[Process], Awaitable[None]]
) -> None:
    for _ in range(2):
        await storm(node)
        assert node.resident_kib() < HELD_KIB
        await still_serves(node)
    # It lets go of a caller in its own time, and the allocator of what was freed in its own way.
    await until(lambda: node.resident_kib() < SETTLED_KIB)
    figures.record("inputs", tried=2)


def test_the_bounds_add_up() -> None:
    """A caller cannot make a frame that is larger than the share it is measured by."""
    assert limits.MESSAGE_BYTES_MAX * 4 < 256 * MIB // 4
