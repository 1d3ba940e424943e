"""Bytes at random to every typed method of a real node: an answer or a status that means something,
never UNKNOWN and never INTERNAL, which are what a library says when our code fell over."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.mesh import wire
from omnirelay.model.errors import InvalidArgument
from omnirelay.testing import figures
from omnirelay.transports.grpc_codec import PROTO
from omnirelay.transports.grpc_service import RESOURCE_LEASE
from omnirelay.transports.proto import resource_lease_pb2
from tests.wire.node_apart import NodeApart
from tests.wire.struct_strategies import structs

TIMEOUT_S = 0.5
SERVICE = resource_lease_pb2.DESCRIPTOR.services_by_name["ResourceLease"]
METHODS = {
    method.path.rpartition("/")[2]: (method.path, method.takes_many, method.gives_many)
    for method in RESOURCE_LEASE.by_verb.values()
}


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with NodeApart(grpc="127.0.0.1:0") as node:
        target = node.urls["grpc"].removeprefix("grpc://")
        with grpc.insecure_channel(target) as opened:
            yield opened


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, kind: int, value: bytes) -> bytes:
    return varint(number << 3 | kind) + value


numbers = st.integers(1, 12) | st.sampled_from([0, 100, 1 << 28])
scalars = st.one_of(
    st.builds(_field, numbers, st.just(0), st.integers(-(1 << 63), (1 << 64) - 1).map(varint)),
    st.builds(_field, numbers, st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(_field, numbers, st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(_field, numbers, st.sampled_from([3, 4, 6, 7]), st.just(b"")),
)
texts = st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


def _nested(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    held = (inner | texts).map(lambda body: varint(len(body)) + body)
    lying = st.builds(lambda size, body: varint(size) + body, st.integers(0, 1 << 33), texts)
    return st.lists(scalars | st.builds(_field, numbers, st.just(2), held | lying), max_size=5).map(
        b"".join
    )


messages = st.recursive(texts, _nested, max_leaves=12) | st.binary(max_size=40)


def good(name: str) -> st.SearchStrategy[bytes]:
    """What the method takes, as far as its fields go."""
    kind = getattr(wire, SERVICE.methods_by_name[name].input_type.name)
    return structs(kind).map(_written)


def _written(message: Any) -> bytes:
    try:
        return PROTO.encode(message)
    except InvalidArgument:
        return b""  # a year that protobuf has no time for


def damaged(name: str) -> st.SearchStrategy[bytes]:
    places = st.integers(0, 80)
    edits = st.lists(st.tuples(places, st.integers(0, 3), st.binary(max_size=5)), max_size=4)

    def change(body: bytes, done: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(body)
        for at, width, put in done:
            data[at : at + width] = put
        return bytes(data)

    return st.builds(change, good(name), edits)


def statuses(channel: grpc.Channel, name: str, inputs: list[bytes]) -> Counter[str]:
    path, takes_many, gives_many = METHODS[name]
    if gives_many:
        heard = [_first(channel, path, body, takes_many=takes_many) for body in inputs]
        return Counter(heard)
    ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    calls = [ask.future(body, timeout=TIMEOUT_S) for body in inputs]
    return Counter(call.code().name for call in calls)


def _first(channel: grpc.Channel, path: str, body: bytes, *, takes_many: bool) -> str:
    """The status of a stream that ends by itself, or that it began."""
    # Any: bytes both ways, and one of two kinds of call.
    answers: Any
    if takes_many:
        duplex: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(path)
        answers = duplex(iter([body, body]), timeout=0.1)
    else:
        many: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
        answers = many(body, timeout=0.1)
    try:
        next(answers, None)
    except grpc.RpcError:
        return str(answers.code().name)
    answers.cancel()
    return "OK"


def test_every_method_of_the_service_is_tried() -> None:
    assert set(METHODS) == {method.name for method in SERVICE.methods}


@pytest.mark.parametrize("name", METHODS)
def test_a_typed_method_never_falls_over(channel: grpc.Channel, name: str) -> None:
    many = METHODS[name][2]

    @settings(max_examples=20)
    @given(st.lists(messages | good(name) | damaged(name), min_size=1, max_size=4 if many else 30))
    def call(inputs: list[bytes]) -> None:
        seen = statuses(channel, name, inputs)
        faults = seen["UNKNOWN"] + seen["INTERNAL"]
        figures.record("inputs", tried=len(inputs), server_errors=faults)
        assert not faults, seen

    call()
    assert statuses(channel, "Stats", [b""]) == {"OK": 1}, "it still serves"
