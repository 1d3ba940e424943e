"""Typed services over procedures: `ResourceLease/EnqueueBatch` is `{namespace}::enqueueBatch`."""

from typing import Any, Final

import msgspec
from google.protobuf.descriptor import ServiceDescriptor

from omnirelay.rpc.codec import Codec
from omnirelay.transports.grpc_codec import HUB_PROTO, PROTO
from omnirelay.transports.proto import replication_pb2, resource_lease_pb2

NAMESPACE: Final = "rpc-namespace"
EMPTY_KEY: Final = "rpc-empty"
STREAM_MARK: Final = ("rpc-stream", "true")


class Method(msgspec.Struct, frozen=True):
    path: str
    verb: str
    takes_many: bool
    gives_many: bool


class TypedService:
    """The namespace comes as metadata, since one service stands for many queues."""

    def __init__(self, descriptor: ServiceDescriptor, *, namespace: str, codec: Codec) -> None:
        self.name: str = descriptor.full_name
        self.namespace = namespace
        self.codec = codec
        methods = [_method(self.name, one) for one in descriptor.methods]
        self.by_path = {method.path: method for method in methods}
        self.by_verb = {method.verb: method for method in methods}


def _method(service: str, described: Any) -> Method:
    # Any: the stubs know two unrelated classes of method descriptors.
    name: str = described.name
    return Method(
        path=f"/{service}/{name}",
        verb=name[0].lower() + name[1:],
        takes_many=described.client_streaming,
        gives_many=described.server_streaming,
    )


RESOURCE_LEASE = TypedService(
    resource_lease_pb2.DESCRIPTOR.services_by_name["ResourceLease"],
    namespace="resourcelease",
    codec=PROTO,
)
REPLICATION_HUB = TypedService(
    replication_pb2.DESCRIPTOR.services_by_name["ReplicationHub"],
    namespace="hub",
    codec=HUB_PROTO,
)
