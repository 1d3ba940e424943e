"""The committed code is what the definitions generate, and the definitions are what is served."""

from pathlib import Path
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from omnirelay.identity.policy import PERMISSIONS, Role
from omnirelay.mesh.component import Component
from omnirelay.mesh.hub import Hub
from omnirelay.mesh.hub_procedures import register_hub
from omnirelay.mesh.procedures import register
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.procedure import Kind, Registry
from omnirelay.sdk.engine import Engine
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.transports.grpc_service import REPLICATION_HUB, RESOURCE_LEASE, TypedService
from omnirelay.transports.proto import replication_pb2, resource_lease_pb2
from proto.generate import PACKAGE, generate


def test_the_committed_code_is_what_a_fresh_generation_gives(tmp_path: Path) -> None:
    generate(tmp_path)
    fresh = {file.name: file.read_text() for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text() for file in PACKAGE.glob("*_pb2.py*")}
    assert sorted(fresh) == sorted(committed)
    assert fresh == committed, "run `python proto/generate.py`"


async def test_the_typed_service_is_what_the_procedures_of_a_queue_declare() -> None:
    registry = Registry()
    engine = Engine.open("memory:", namespace="q")
    register(registry, Component("q", engine, clock=SystemClock()))
    engine.close()
    service = resource_lease_pb2.DESCRIPTOR.services_by_name["ResourceLease"]
    assert _declared(RESOURCE_LEASE, service) == _registered(registry)


def _declared(typed: TypedService, service: ServiceDescriptor) -> dict[str, tuple[str, str, Kind]]:
    declared = {}
    for verb, method in typed.by_verb.items():
        described = service.methods_by_name[method.path.rpartition("/")[2]]
        kind = _KINDS[method.takes_many, method.gives_many]
        declared[verb] = (described.input_type.name, described.output_type.name, kind)
    return declared


def _registered(registry: Registry) -> dict[str, tuple[str, str, Kind]]:
    return {one.verb: (one.request.__name__, one.response.__name__, one.kind) for one in registry}


_KINDS = {
    (False, False): Kind.UNARY,
    (False, True): Kind.SERVER_STREAM,
    (True, False): Kind.CLIENT_STREAM,
    (True, True): Kind.DUPLEX,
}


async def test_the_typed_hub_is_what_its_procedures_declare() -> None:
    registry = Registry()
    hub = Hub(lambda shard: (MemoryJournal(shard), MemoryCheckpoints()), **_ALONE)
    register_hub(registry, hub)
    await hub.close()
    service = replication_pb2.DESCRIPTOR.services_by_name["ReplicationHub"]
    assert _declared(REPLICATION_HUB, service) == _registered(registry)
    verbs = {one.verb for one in registry}
    assert verbs > {"append", "subscribe", "checkpoint"}
    assert verbs <= PERMISSIONS[Role.PEER], "a peer may do all of it"
    assert not any(verbs & PERMISSIONS[role] for role in Role if role is not Role.PEER)


# Any: what a hub asks of its node.
_ALONE: dict[str, Any] = {"own": (), "may": lambda *asked: None, "clock": SystemClock()}
