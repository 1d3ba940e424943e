"""Bytes at random to every method of a hub: an answer or a status that means something."""

from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.journal import replication as wire
from omnirelay.testing import figures
from omnirelay.testing.servers_hub import HubHost
from omnirelay.transports.grpc_codec import HUB_PROTO
from omnirelay.transports.grpc_service import REPLICATION_HUB
from omnirelay.transports.proto import replication_pb2
from tests.wire.struct_strategies import structs
from tests.wire.test_fuzz_grpc import messages

SERVICE = replication_pb2.DESCRIPTOR.services_by_name["ReplicationHub"]
METHODS = REPLICATION_HUB.by_path


def good(path: str) -> st.SearchStrategy[bytes]:
    name = SERVICE.methods_by_name[path.rpartition("/")[2]].input_type.name
    return structs(getattr(wire, name)).map(HUB_PROTO.encode)


def status(channel: grpc.Channel, path: str, inputs: list[bytes]) -> str:
    """Of one call with these messages; of a stream, whether it began."""
    method = METHODS[path]
    # Any: bytes both ways, and one of three kinds of call.
    ask: Any
    if method.gives_many:
        ask = channel.unary_stream(path)
        call = ask(inputs[0], timeout=0.2)
        with suppress(grpc.RpcError):
            next(call, None)
            call.cancel()
            return "OK"
        return str(call.code().name)
    ask = channel.stream_unary(path) if method.takes_many else channel.unary_unary(path)
    said = iter(inputs) if method.takes_many else inputs[0]
    return str(ask.future(said, timeout=2).code().name)


def test_a_method_of_a_hub_never_falls_over(hubs: HubHost) -> None:
    with grpc.insecure_channel(urlsplit(hubs.fresh()).netloc) as channel:

        @settings(max_examples=12)
        @given(st.data())
        def call(data: st.DataObject) -> None:
            seen: Counter[str] = Counter()
            for path in METHODS:
                inputs = data.draw(st.lists(messages | good(path), min_size=1, max_size=3))
                seen[status(channel, path, inputs)] += 1
            faults = seen["UNKNOWN"] + seen["INTERNAL"]
            figures.record("inputs", tried=len(METHODS), server_errors=faults)
            assert not faults, seen

        call()
        head = wire.HeadRequest("still there")
        path = REPLICATION_HUB.by_verb["head"].path
        assert status(channel, path, [HUB_PROTO.encode(head)]) == "OK"
