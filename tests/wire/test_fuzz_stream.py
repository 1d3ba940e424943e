"""Frames and bytes at random, to a node and to a caller: no bug, no leak, no end of the process."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.model.errors import OmniRelayError
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.meta import Stream
from omnirelay.rpc.status import ErrorBody
from omnirelay.testing import figures
from omnirelay.testing.transport_echo import REFUSALS, Said
from omnirelay.transports.stream_frames import (
    VERSION,
    CallFrame,
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    FromNode,
    Goodbye,
    Hello,
    MessageFrame,
    OpenFrame,
    Ping,
    Pong,
    ReplyFrame,
    Welcome,
    pack,
)
from omnirelay.transports.stream_outbound import StreamOutbound
from tests.wire.stream_fake import Guest, fake_node
from tests.wire.stream_raw import CLOCK, EMPTY, HELLO, RawStream, asking, served, until

VERBS = ["say", "nothing", "refuse", "break", "wait", "tell", "count", "stumble"]
VERBS += ["sum", "chat", "swell", "sing"]
ids = st.integers(0, 6) | st.integers(-(1 << 63), (1 << 64) - 1)
names = st.sampled_from(
    ["rpc-encoding", "rpc-ttl-ms", "rpc-deadline", "rpc-shard-key", "x-peer-id", "Rpc-Caller", "x"]
)
headers = st.dictionaries(names, st.text(max_size=20) | st.sampled_from(["json", "1", "-1"]))
said = st.builds(
    Said,
    text=st.text(max_size=10) | st.sampled_from(sorted(REFUSALS)),
    number=st.integers(0, 2000),
    body=st.binary(max_size=50),
).map(MSGPACK.encode)
bodies = said | st.binary(max_size=60)
procedures = st.sampled_from([f"echo::{verb}" for verb in VERBS]) | st.text(max_size=20)
calls = st.builds(
    CallFrame,
    ids,
    procedures,
    bodies,
    st.none() | st.integers(-5, 10_000) | st.just(1 << 62),
    st.none() | headers,
)
of_caller = st.one_of(
    calls,
    calls,
    st.builds(MessageFrame, ids, bodies),
    st.builds(EndFrame, ids),
    st.builds(CancelFrame, ids),
    st.builds(CreditFrame, ids, st.integers(-1, 300), st.integers(-1, 1 << 21)),
    st.builds(Ping, ids),
    st.builds(Pong, ids),
    st.builds(Hello, st.integers(0, 2), headers),
)
errors = st.builds(
    ErrorBody,
    st.text(max_size=10),
    st.sampled_from(["UNAVAILABLE", "NEW", ""]),
    st.sampled_from(sorted(REFUSALS)) | st.text(max_size=10),
    st.none() | st.dictionaries(st.text(max_size=8), st.none() | st.integers(0, 9) | st.text()),
)
of_node = st.one_of(
    st.builds(ReplyFrame, st.just(1) | ids, st.none() | bodies, st.none() | headers),
    st.builds(OpenFrame, st.just(1) | ids),
    st.builds(MessageFrame, st.just(1) | ids, bodies),
    st.builds(EndFrame, st.just(1) | ids),
    st.builds(ErrorFrame, st.just(1) | ids, errors),
    st.builds(CreditFrame, ids, st.integers(-1, 300), st.integers(-1, 1 << 21)),
    st.builds(Ping, ids),
    st.builds(Goodbye, st.none() | errors),
    st.builds(Welcome, st.integers(0, 2)),
)


def _talk() -> bytes:
    """A conversation as it should be, with something of everything."""
    messages = [MessageFrame(4, MSGPACK.encode(Said(number=n))) for n in range(3)]
    frames: list[Frame] = [
        Hello(VERSION, {"x-peer-id": "w-1", "rpc-caller": "fuzz"}),
        CallFrame(1, "echo::say", MSGPACK.encode(Said("hello", 7, b"body"))),
        CallFrame(2, "echo::count", MSGPACK.encode(Said(number=300)), 5000),
        CallFrame(3, "echo::wait", EMPTY, None, {"rpc-shard-key": "k"}),
        CallFrame(4, "echo::chat", EMPTY),
        *messages,
        EndFrame(4),
        CancelFrame(3),
        Ping(9),
        CallFrame(5, "echo::refuse", MSGPACK.encode(Said("error.unavailable"))),
    ]
    return b"".join(pack(frame) for frame in frames)


TALK = _talk()
changes = st.lists(
    st.tuples(st.integers(0, len(TALK) - 1), st.integers(0, 3), st.binary(max_size=6)),
    min_size=1,
    max_size=6,
)


def changed(edits: list[tuple[int, int, bytes]], talk: bytes = TALK) -> bytes:
    data = bytearray(talk)
    for at, width, put in edits:
        data[at : at + width] = put
    return bytes(data)


class Watched:
    """A loop on which nothing may go wrong unheard."""

    def __init__(self) -> None:
        self.mishaps: list[str] = []

    def run(self, work: Any) -> None:  # Any: a coroutine
        async def watched() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: self.mishaps.append(repr(context)))
            async with asyncio.timeout(15):
                await work

        asyncio.run(watched())
        assert not self.mishaps


async def _heard(url: str, data: bytes) -> list[FromNode]:
    """All that the node says until it closes or has nothing more to say for a moment."""
    async with RawStream(url, patience_s=0.05) as raw:
        frames: list[FromNode] = []
        try:
            await raw.send(data)
            while True:
                frames.append(await raw.next(object))  # type: ignore[arg-type]
        except (TimeoutError, AssertionError, ConnectionError):
            return frames


async def _tell_a_node(inputs: list[bytes]) -> None:
    async with served() as node:
        heard = await asyncio.gather(*(_heard(node.url, data) for data in inputs))
        refused = [one.error for frames in heard for one in frames if isinstance(one, ErrorFrame)]
        refused += [
            one.error
            for frames in heard
            for one in frames
            if isinstance(one, Goodbye) and one.error is not None
        ]
        # Two procedures of the echo are bugs on purpose; what they say is an incident, no text.
        bugs = [one for one in refused if one.code == "error.internal" and not one.details]
        bugs = [one for one in bugs if one.message != REFUSALS["error.internal"].message]
        figures.record("inputs", tried=len(inputs), server_errors=len(bugs))
        assert not bugs
        await node.still_serves()
        await until(lambda: node.inbound.connection_count == 0)
        await until(lambda: not node.inbound.traffic.under_way)
        assert node.inbound.held_bytes == 0


@settings(max_examples=25)
@given(st.lists(st.lists(of_caller, max_size=15), min_size=1, max_size=30))
def test_no_sequence_of_frames_brings_a_bug_or_a_leak(talks: list[list[Frame]]) -> None:
    inputs = [HELLO + b"".join(pack(frame) for frame in frames) for frames in talks]
    Watched().run(_tell_a_node(inputs))


@settings(max_examples=40)
@given(st.lists(changes.map(changed) | st.binary(max_size=60), min_size=1, max_size=40))
def test_no_damage_to_a_conversation_brings_a_bug_or_a_leak(inputs: list[bytes]) -> None:
    Watched().run(_tell_a_node(inputs))


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(0, len(TALK)))
def test_a_conversation_is_understood_however_it_is_cut_into_pieces(size: int, first: int) -> None:
    Watched().run(_in_pieces(size, first))


async def _in_pieces(size: int, first: int) -> None:
    async with served() as node, RawStream(node.url) as raw:
        await raw.send(TALK[:first])
        for at in range(first, len(TALK), size):
            await raw.send(TALK[at : at + size])
            await asyncio.sleep(0)
        ended: set[object] = set()
        while ended != {1, 4, 5, "pong"}:
            match await raw.next(object):
                case ReplyFrame(id=number) | ErrorFrame(id=number) | EndFrame(id=number):
                    ended.add(number)
                case Pong():
                    ended.add("pong")
                case _:
                    pass
        # The stream of call 2 waits for credit that was never due.
        assert node.inbound.connection_count == 1


async def _tell_a_caller(inputs: list[bytes]) -> None:
    left = iter(inputs)

    async def say(guest: Guest) -> None:
        await guest.call()
        await guest.send(next(left))
        await asyncio.sleep(0.02)

    async with fake_node(say) as node:
        await asyncio.gather(*(_call(node.url) for _ in inputs))
    figures.record("inputs", tried=len(inputs))


async def _call(url: str) -> None:
    outbound = StreamOutbound(url, clock=CLOCK)
    try:
        reply = await outbound(asking("say"))
        if isinstance(reply, Stream):
            async for _ in reply.messages:
                pass
    except OmniRelayError:
        pass  # whatever else it is would fail the test
    finally:
        await outbound.stop()


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(of_node, max_size=12).map(lambda frames: b"".join(map(pack, frames)))
        | st.binary(max_size=60),
        min_size=1,
        max_size=20,
    )
)
def test_whatever_a_node_says_a_caller_hears_an_answer_or_an_error(inputs: list[bytes]) -> None:
    Watched().run(_tell_a_caller(inputs))
