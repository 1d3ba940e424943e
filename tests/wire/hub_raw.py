"""A hub as a program in any language meets it: the generated messages over a bare channel."""

from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.message import Message

from omnirelay.transports.proto import replication_pb2 as pb
from tests.wire.grpc_served import raw_channel

SERVICE = pb.DESCRIPTOR.services_by_name["ReplicationHub"]


class RawHub:
    def __init__(self, url: str) -> None:
        self.channel = raw_channel(urlsplit(url).netloc)

    async def __aenter__(self) -> "RawHub":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.channel.close()

    async def ask(self, method: str, request: Message | bytes) -> Any:
        """Any: the message that the method answers with."""
        call: Any = self.channel.unary_unary(_path(method))
        answer = await call(_bytes(request), timeout=10)
        return _answer(method).FromString(answer)

    def hear(self, method: str, request: Message | bytes) -> Any:
        """Any: gRPC's own call, whose `read` gives bytes."""
        call: Any = self.channel.unary_stream(_path(method), None, _answer(method).FromString)
        return call(_bytes(request), timeout=15)


def _path(method: str) -> str:
    return f"/{SERVICE.full_name}/{method}"


def _bytes(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _answer(method: str) -> Any:
    return getattr(pb, SERVICE.methods_by_name[method].output_type.name)
