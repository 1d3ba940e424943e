"""Structs as protobuf messages, matched by name: the struct `LeaseRequest` travels as the message
`LeaseRequest`, its field `wait_ms` as the field `wait_ms`.

A struct that has no message travels as JSON, since callers encode with the codec of their outbound
whatever they call.
"""

from collections.abc import Iterable
from datetime import datetime
from types import ModuleType
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from omnirelay.model.errors import InvalidArgument
from omnirelay.rpc.codec import JSON
from omnirelay.transports.grpc_shapes import Shape, Shapes
from omnirelay.transports.proto import replication_pb2, resource_lease_pb2

T = TypeVar("T")
_AS_THEY_ARE = (bytes, datetime)


class ProtoCodec:
    """What reads a message is built once a type; after that a message costs about what its fields
    cost. What comes out is held to the struct's own bounds, as with JSON."""

    name = "proto"

    def __init__(self, messages: Iterable[type[Message]]) -> None:
        self._shapes = Shapes({kind.DESCRIPTOR.name: kind for kind in messages})
        self._known: dict[type, Shape | None] = {}

    def encode(self, message: Any) -> bytes:
        shape = self._shape_of(type(message))
        if shape is None:
            return JSON.encode(message)
        try:
            return shape.message(**shape.to_fields(message)).SerializeToString()
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(
                f"{type(message).__name__} cannot travel as protobuf: {error}"
            ) from None

    def decode(self, body: bytes, kind: type[T]) -> T:
        shape = self._shape_of(kind)
        if shape is None:
            return JSON.decode(body, kind)
        try:
            fields = shape.from_message(shape.message.FromString(body))
            return msgspec.convert(fields, kind, builtin_types=_AS_THEY_ARE)
        except (DecodeError, msgspec.ValidationError, OverflowError) as error:
            raise InvalidArgument(f"malformed body: {error}") from None

    def _shape_of(self, kind: type) -> Shape | None:
        try:
            return self._known[kind]
        except KeyError:
            shape = self._known[kind] = self._shapes.of(kind)
            return shape


def messages_of(module: ModuleType) -> list[type[Message]]:
    """Every message a generated module defines."""
    return [getattr(module, name) for name in module.DESCRIPTOR.message_types_by_name]


PROTO = ProtoCodec(messages_of(resource_lease_pb2))
HUB_PROTO = ProtoCodec(messages_of(replication_pb2))
