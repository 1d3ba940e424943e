"""The committed code is what the definitions generate, and the definitions are what is served."""

from pathlib import Path

from omnirelay.mesh.component import Component
from omnirelay.mesh.procedures import register
from omnirelay.rpc.procedure import Kind, Registry
from omnirelay.sdk.engine import Engine
from omnirelay.transports.grpc_service import RESOURCE_LEASE
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
    register(registry, Component("q", engine))
    engine.close()
    service = resource_lease_pb2.DESCRIPTOR.services_by_name["ResourceLease"]
    declared = {}
    for verb, method in RESOURCE_LEASE.by_verb.items():
        described = service.methods_by_name[method.path.rpartition("/")[2]]
        kind = _KINDS[method.takes_many, method.gives_many]
        declared[verb] = (described.input_type.name, described.output_type.name, kind)
    assert declared == {
        one.verb: (one.request.__name__, one.response.__name__, one.kind) for one in registry
    }


_KINDS = {
    (False, False): Kind.UNARY,
    (False, True): Kind.SERVER_STREAM,
    (True, False): Kind.CLIENT_STREAM,
    (True, True): Kind.DUPLEX,
}


def test_the_hub_is_defined() -> None:
    hub = replication_pb2.DESCRIPTOR.services_by_name["ReplicationHub"]
    assert [method.name for method in hub.methods] == ["Append", "Subscribe", "Checkpoint"]
