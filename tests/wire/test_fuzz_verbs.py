"""Every verb of a real node over the stream transport, with bodies that are almost right: no answer
is ever a fault of ours, and one caller's nonsense is no other's."""

import asyncio
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnirelay.mesh import wire
from omnirelay.node.node import Node
from omnirelay.node.settings import NodeSettings
from omnirelay.rpc.codec import JSON, MSGPACK
from omnirelay.testing import figures
from omnirelay.transports.grpc_service import RESOURCE_LEASE
from omnirelay.transports.proto import resource_lease_pb2
from omnirelay.transports.stream_frames import (
    CallFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Goodbye,
    MessageFrame,
    OpenFrame,
    Ping,
    Pong,
    ReplyFrame,
)
from tests.wire.stream_raw import RawStream
from tests.wire.struct_strategies import structs

TTL_MS = 60
SERVICE = resource_lease_pb2.DESCRIPTOR.services_by_name["ResourceLease"]


REQUESTS: dict[str, type] = {
    method.verb: getattr(wire, SERVICE.methods_by_name[path.rpartition("/")[2]].input_type.name)
    for path, method in RESOURCE_LEASE.by_path.items()
}
"""What each verb takes."""
plain: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
)
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, bytes, bool]:
    """A verb, a body, and whether it is JSON."""
    verb = draw(st.sampled_from(sorted(REQUESTS)))
    is_json = draw(st.booleans())
    codec = JSON if is_json else MSGPACK
    body: Any = draw(structs(REQUESTS[verb]))
    if draw(st.booleans()):
        body = msgspec.to_builtins(body)
        known = sorted(body) or ["x"]
        for name in draw(st.lists(st.sampled_from(known), max_size=2)):
            body[name] = draw(anything)
    if draw(st.integers(0, 9)) == 0:
        body = draw(anything)
    return verb, codec.encode(body), is_json


async def _try(node: Node, tried: list[tuple[str, bytes, bool]]) -> list[str]:
    async with RawStream(node.urls["stream"]) as raw:
        await raw.greet(**{"x-peer-id": "fuzz"})
        for number, (verb, body, is_json) in enumerate(tried):
            headers = {"rpc-encoding": "json"} if is_json else None
            call = CallFrame(number, f"resourcelease::{verb}", body, TTL_MS, headers)
            await raw.send(call)
            if verb == "work":
                await raw.send(MessageFrame(number, body), EndFrame(number))
        codes, open_calls = [], set(range(len(tried)))
        while open_calls:
            frame: object = await raw.next(object)
            match frame:
                case ErrorFrame(id=ended, error=error):
                    codes.append(error.code)
                    open_calls.discard(ended)
                case ReplyFrame(id=ended) | EndFrame(id=ended):
                    open_calls.discard(ended)
                case OpenFrame(id=began):
                    # It would go on for as long as it may; that it began is enough.
                    await raw.send(CancelFrame(began))
                    open_calls.discard(began)
                case Goodbye():
                    raise AssertionError(frame)
        await raw.send(Ping(1))
        while not isinstance(await raw.next(object), Pong):
            pass
    return codes


async def _play(tried: list[tuple[str, bytes, bool]]) -> None:
    own = NodeSettings(http="", grpc="", stream="127.0.0.1:0", journal="memory:", grace_s=0.1)
    async with Node(own) as node:
        codes = await _try(node, tried)
        faults = [code for code in codes if code == "error.internal"]
        figures.record("inputs", tried=len(tried), server_errors=len(faults))
        assert not faults
        async with RawStream(node.urls["stream"]) as raw:
            await raw.greet()
            await raw.send(CallFrame(1, "resourcelease::stats", b""))
            reply = await raw.next(ReplyFrame)
        assert MSGPACK.decode(reply.body or b"", wire.StatsResponse).last_sequence >= 1


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(calls(), min_size=1, max_size=20))
def test_a_verb_answers_or_refuses_whatever_its_body(tried: list[tuple[str, bytes, bool]]) -> None:
    asyncio.run(_play(tried))
