"""Health and reflection, by the stubs that tools use."""

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

# Neither package ships types.
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import (  # type: ignore[import-untyped]
    reflection_pb2,
    reflection_pb2_grpc,
)

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.node.node import Node
from omnirelay.node.settings import NodeSettings
from omnirelay.rpc.procedure import Registry
from omnirelay.transports.grpc_inbound import GrpcInbound
from tests.wire.grpc_served import raw_channel, served
from tests.wire.http_echo import Echo

if TYPE_CHECKING:
    from collections.abc import Callable

SERVICE = "omnirelay.v1.ResourceLease"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def asked(service: str = "") -> Any:
    return health_pb2.HealthCheckRequest(service=service)


async def test_health_says_what_it_was_told_to_say() -> None:
    is_well = True
    async with served(is_well=lambda: is_well) as node, node.channel() as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for said, status in ((True, SERVING), (False, NOT_SERVING), (True, SERVING)):
            is_well = said
            for service in ("", SERVICE):
                assert (await stub.Check(asked(service), timeout=8)).status == status


async def test_a_draining_node_is_not_serving_until_it_resumes() -> None:
    settings = NodeSettings(http="", grpc="127.0.0.1:0", stream="", journal="memory:")
    async with Node(settings) as node:
        address = node.urls["grpc"].removeprefix("grpc://")
        async with raw_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            told = []
            changes: tuple[Callable[[], None], ...] = (node.resume, node.drain, node.resume)
            for change in changes:
                change()
                told.append((await stub.Check(asked(SERVICE), timeout=8)).status)
    assert told == [SERVING, NOT_SERVING, SERVING]


async def test_the_health_of_a_service_nobody_knows_is_not_found() -> None:
    async with served() as node, node.channel() as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Check(asked("other"), timeout=8)
        watch = stub.Watch(asked("other"))
        assert (await watch.read()).status == UNKNOWN
        watch.cancel()
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_hears_every_change_and_does_not_hold_up_the_end() -> None:
    is_well = True
    async with served(is_well=lambda: is_well) as node, node.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(asked(SERVICE))
        assert (await watch.read()).status == SERVING
        is_well = False
        assert (await watch.read()).status == NOT_SERVING
        is_well = True
        assert (await watch.read()).status == SERVING
        last = asyncio.create_task(watch.read())
        async with asyncio.timeout(8):
            await node.inbound.stop(60)
        assert (await last).status == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_a_tool_finds_the_services_and_their_messages(version: str) -> None:
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    questions = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="nobody.Knows"),
    ]
    async with served() as node, node.channel() as channel:
        info: Any = channel.stream_stream(
            path,
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        services, file, nothing = [answer async for answer in info(iter(questions), timeout=8)]
    names = {service.name for service in services.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    described = b"".join(file.file_descriptor_response.file_descriptor_proto)
    assert b"EnqueueBatchRequest" in described
    assert nothing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_the_packaged_stub_reads_the_reflection_too() -> None:
    request = reflection_pb2.ServerReflectionRequest(file_by_filename="no/such.proto")
    async with served() as node, node.channel() as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([request]), timeout=8
        )
        assert (await call.read()).HasField("error_response")


def inbound_at(host: str, port: int) -> GrpcInbound:
    echo = Echo()
    return GrpcInbound(_nobody, host=host, port=port, clock=echo.clock, registry=Registry())


async def _nobody(request: Any) -> Any:
    raise NotImplementedError


async def test_a_taken_port_is_refused() -> None:
    async with served() as node:
        with pytest.raises(Unavailable, match="taken"):
            await inbound_at("127.0.0.1", node.port).start()


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("127.0.0.1", 70_000)])
async def test_what_cannot_be_an_address_is_refused(host: str, port: int) -> None:
    with pytest.raises(InvalidOption):
        await inbound_at(host, port).start()


async def test_it_listens_on_ipv6_too() -> None:
    inbound = inbound_at("::1", 0)
    try:
        await inbound.start()
    except InvalidOption:
        pytest.skip("this machine has no IPv6")
    assert inbound.url.startswith("grpc://[::1]:")
    await inbound.stop(0)
