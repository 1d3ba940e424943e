"""Flow control of the stream transport: windows, slow readers, and what a node may hold for all."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, ResourceExhausted, TooLarge
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.meta import RequestMeta, Stream
from omnirelay.testing.transport_echo import Said
from omnirelay.transports.stream_flow import WINDOW_BYTES, WINDOW_MESSAGES, Incoming, Outgoing
from omnirelay.transports.stream_frames import (
    CallFrame,
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Goodbye,
    MessageFrame,
    OpenFrame,
    ReplyFrame,
)
from tests.wire.stream_raw import EMPTY, RawStream, Served, ask, asking, served, soon, until

MIB = 1 << 20
sizes = st.lists(st.integers(0, 3 * MIB), max_size=12) | st.lists(
    st.integers(0, 5000), min_size=260, max_size=400
)


@settings(max_examples=25)
@given(sizes)
def test_a_sender_never_waits_for_a_reader_that_has_read_everything(sent: list[int]) -> None:
    """And the reader never holds more than the window and one message."""
    asyncio.run(_both_ends(sent))


async def _both_ends(sent: list[int]) -> None:
    outgoing = Outgoing()
    held = most = 0
    reader: Incoming = Incoming(1, outgoing.add)

    async def send() -> None:
        nonlocal held, most
        for size in sent:
            await outgoing.take(size)
            reader.put(bytes(size))
            held += size
            most = max(most, held)
        reader.end()

    sending = asyncio.create_task(send())
    read = []
    async with asyncio.timeout(8):
        async for body in reader:
            read.append(len(body))
            held -= len(body)
        await sending
    assert read == sent
    assert most <= WINDOW_BYTES + max(sent, default=0)


async def test_both_sides_count_the_same() -> None:
    granted: list[CreditFrame] = []
    reader = Incoming(1, granted.append)
    reader.put(bytes(WINDOW_BYTES))
    with pytest.raises(InvalidArgument):
        reader.put(b"x")
    await anext(reader)
    assert granted == [CreditFrame(1, 1, WINDOW_BYTES)]
    for _ in range(WINDOW_MESSAGES):
        reader.put(b"")
    with pytest.raises(InvalidArgument):
        reader.put(b"")


async def test_nothing_is_granted_after_the_end() -> None:
    granted: list[CreditFrame] = []
    reader = Incoming(1, granted.append)
    for _ in range(WINDOW_MESSAGES):
        reader.put(b"x")
    reader.end()
    assert len([body async for body in reader]) == WINDOW_MESSAGES
    assert granted == []


async def test_a_reader_hears_an_error_after_what_came_before_it() -> None:
    reader = Incoming(1, lambda credit: None)
    reader.put(b"a")
    reader.end(TooLarge("no"))
    assert await anext(reader) == b"a"
    with pytest.raises(TooLarge):
        await anext(reader)
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


class Heap:
    """Procedures that are slow to read or quick to send."""

    def __init__(self, node: Served) -> None:
        self.read_on = asyncio.Event()
        self.sent = 0
        self.closed = asyncio.Event()
        node.echo.registry.duplex("heap::ignore", self._ignore, Said, Said)
        node.echo.registry.server_stream("heap::pour", self._pour, Said, Said)

    async def _ignore(
        self, meta: RequestMeta, messages: AsyncIterator[Said]
    ) -> AsyncGenerator[Said]:
        await self.read_on.wait()
        async for said in messages:
            yield Said(number=len(said.body))

    async def _pour(self, meta: RequestMeta, said: Said) -> AsyncGenerator[Said]:
        try:
            while True:
                self.sent += 1
                yield Said(body=bytes(said.number))
        finally:
            self.closed.set()


async def test_bytes_beyond_the_window_end_the_connection() -> None:
    async with served() as node:
        Heap(node)
        big = MessageFrame(1, bytes(WINDOW_BYTES))
        async with RawStream(node.url) as raw:
            await raw.greet()
            await raw.send(CallFrame(1, "heap::ignore", EMPTY), big)
            await raw.next(OpenFrame)
            await raw.send(big)
            assert await raw.farewell() == "error.invalid_argument"
        await node.still_serves()
        assert node.inbound.held_bytes == 0


async def test_a_node_sends_no_more_than_the_window_to_a_reader_that_grants_nothing() -> None:
    async with served() as node:
        heap = Heap(node)
        async with RawStream(node.url) as raw:
            await raw.greet()
            await raw.send(CallFrame(1, "heap::pour", MSGPACK.encode(Said(number=10))))
            await raw.next(OpenFrame)
            for _ in range(WINDOW_MESSAGES):
                await raw.next(MessageFrame)
            await raw.send(CallFrame(2, "echo::say", EMPTY))
            await raw.next(ReplyFrame)  # others go on; of the stream nothing more came
            assert heap.sent == WINDOW_MESSAGES + 1
            await raw.send(CreditFrame(1, 2, 100))
            await raw.next(MessageFrame)
            await raw.next(MessageFrame)
            await raw.send(CancelFrame(1))
            await soon(heap.closed)


async def test_a_node_waits_for_a_reader_that_leaves_bytes_in_the_socket() -> None:
    async with served() as node:
        heap = Heap(node)
        async with RawStream(node.url) as raw:
            await raw.greet()
            pour = MSGPACK.encode(Said(number=WINDOW_BYTES // 4))
            await raw.send(*(CallFrame(n, "heap::pour", pour) for n in range(100)))
            await until(lambda: heap.sent >= 100)
            # Every stream had its turn; what it makes is not piled up before the socket.
            assert heap.sent < 400
            assert node.inbound.held_bytes < 64 * MIB
        await node.still_serves()


async def test_a_stream_goes_through_a_small_window_in_both_directions() -> None:
    async def many() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield MSGPACK.encode(Said(body=bytes(300_000)))

    async with served() as node, node.outbound() as outbound:
        Heap(node).read_on.set()
        request = asking("", inbound=many())
        meta = RequestMeta(procedure="heap::ignore", transport="stream")
        reply = await outbound(type(request)(meta, EMPTY, MSGPACK, request.inbound))
        assert isinstance(reply, Stream)
        seen = [MSGPACK.decode(body, Said).number async for body in reply.messages]
        assert seen == [300_000] * 40
        assert node.inbound.held_bytes == 0


async def test_a_connection_has_a_share_of_the_memory_and_no_more() -> None:
    async with served(held_bytes_max=16 * MIB) as node:
        body = MSGPACK.encode(Said(body=bytes(MIB)))
        async with RawStream(node.url) as greedy:
            await greedy.greet()
            await greedy.send(*(CallFrame(n, "echo::wait", body) for n in range(8)))
            refused = [await greedy.next(ErrorFrame) for _ in range(5)]
            assert {one.error.code for one in refused} == {"error.overloaded"}
            assert {one.id for one in refused} == {3, 4, 5, 6, 7}
            await node.still_serves()
        await until(lambda: not node.inbound.held_bytes)


async def test_what_is_small_still_fits_when_large_bodies_have_filled_their_half() -> None:
    async with served(held_bytes_max=16 * MIB) as node:
        unfinished = CallFrame(1, "echo::say", bytes(3 * MIB))
        async with (
            RawStream(node.url) as one,
            RawStream(node.url) as two,
            RawStream(node.url) as three,
        ):
            for raw in (one, two):
                await raw.greet()
                await raw.send(*(CallFrame(n, "echo::wait", EMPTY) for n in range(100)))
                # A frame announced and never finished counts by what came of it.
                await raw.send((4 * MIB).to_bytes(4) + bytes(3 * MIB + MIB // 2))
            await three.greet()
            await until(lambda: node.inbound.held_bytes >= 7 * MIB)
            await three.send(unfinished)
            assert await three.farewell() == "error.overloaded"
            await node.still_serves()


async def test_messages_beyond_the_memory_end_their_call_alone() -> None:
    async with served(held_bytes_max=8 * MIB) as node:
        Heap(node)
        async with RawStream(node.url) as raw:
            await raw.greet()
            body = bytes(WINDOW_BYTES * 3 // 4)
            for n in range(3):
                await raw.send(CallFrame(n, "heap::ignore", EMPTY), MessageFrame(n, body))
            frames = [await raw.next(object) for _ in range(4)]
            refused = [frame for frame in frames if isinstance(frame, ErrorFrame)]
            assert [(one.id, one.error.code) for one in refused] == [(2, "error.overloaded")]
            await raw.send(CallFrame(9, "echo::say", EMPTY))
            assert (await raw.next(ReplyFrame)).id == 9


async def test_answers_that_nobody_reads_are_refused_before_they_fill_the_memory() -> None:
    async with served(held_bytes_max=64 * MIB) as node:
        async with RawStream(node.url) as raw:
            await raw.greet()
            swell = MSGPACK.encode(Said(number=4 * MIB))
            await raw.send(*(CallFrame(n, "echo::swell", swell) for n in range(60)))
            frames = [await raw.next(object) for _ in range(60)]
        refused = [frame for frame in frames if isinstance(frame, ErrorFrame)]
        assert len(refused) > 40
        assert {one.error.status for one in refused} == {"RESOURCE_EXHAUSTED"}
        await node.still_serves()


async def test_a_message_too_large_for_a_frame_is_the_error_of_its_stream() -> None:
    async with served() as node, node.outbound() as outbound:
        Heap(node)
        meta = RequestMeta(procedure="heap::pour", transport="stream")
        said = MSGPACK.encode(Said(number=limits.MESSAGE_BYTES_MAX + 1))
        reply = await outbound(type(asking("say"))(meta, said, MSGPACK))
        assert isinstance(reply, Stream)
        with pytest.raises(ResourceExhausted):
            await anext(reply.messages)
        await ask(outbound, "say")


async def test_a_callers_message_that_is_too_large_is_not_sent() -> None:
    async def huge() -> AsyncIterator[bytes]:
        yield bytes(limits.MESSAGE_BYTES_MAX + 1)

    async with served() as node, node.outbound() as outbound:
        with pytest.raises(TooLarge):
            await outbound(asking("sum", inbound=huge()))
        await ask(outbound, "say")


async def test_who_never_reads_is_cut_off_and_who_reads_slowly_is_not() -> None:
    async with served(silence_s=0.5) as node:
        swell = MSGPACK.encode(Said(number=6 * MIB))
        never = RawStream(node.url, receive_bytes=64 << 10)
        slow = RawStream(node.url, receive_bytes=64 << 10)
        async with never, slow:
            for raw in (never, slow):
                await raw.greet()
                await raw.send(CallFrame(1, "echo::swell", swell))
            read, began = 0, asyncio.get_running_loop().time()
            # As long as bytes leave the node, it waits: several times the silence it allows.
            while read < 6 * MIB:
                part = await slow.some(MIB)
                assert part, f"cut off after {read} bytes"
                read += len(part)
                await asyncio.sleep(0.03)
            assert asyncio.get_running_loop().time() - began > 0.5
            await until(lambda: node.inbound.connection_count == 1)
            assert node.inbound.held_bytes < MIB
        await node.still_serves()


async def test_half_a_frame_and_then_a_byte_now_and_then_is_no_life() -> None:
    async with served(silence_s=0.4) as node, RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(b"\0\1\0\0")
        dripping = asyncio.create_task(_drip(raw))
        async with asyncio.timeout(8):
            frames = await raw.ending()
        dripping.cancel()
        last = frames[-1]
        assert isinstance(last, Goodbye)
        assert last.error is not None
        await node.still_serves()


async def _drip(raw: RawStream) -> None:
    while True:
        await raw.send(b"x")
        await asyncio.sleep(0.02)


async def test_a_hello_that_comes_byte_by_byte_comes_too_late() -> None:
    async with served(hello_s=0.2) as node, RawStream(node.url) as raw:
        await raw.send(b"\0\0\1\0")
        dripping = asyncio.create_task(_drip(raw))
        assert await raw.farewell() == "error.unavailable"
        dripping.cancel()
        await node.still_serves()


async def test_a_stream_of_a_caller_ends_with_it() -> None:
    async with served() as node:
        async with RawStream(node.url) as raw:
            await raw.greet()
            await raw.send(CallFrame(1, "echo::chat", EMPTY), MessageFrame(1, EMPTY))
            await raw.next(OpenFrame)
            await raw.next(MessageFrame)
            await raw.send(EndFrame(1))
            await raw.next(EndFrame)
        assert node.inbound.held_bytes == 0
