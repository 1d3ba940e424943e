"""How one struct and one message map onto each other, field by field, worked out once."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import inspect

from omnirelay.model.errors import InvalidArgument, InvalidOption

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Convert = Callable[[Any], Any]  # Any: a value of the field's type, on one side or the other
Fields = dict[str, Any]

_SEQUENCES = (inspect.VarTupleType, inspect.ListType)


class Shape:
    """`to_fields` makes the keyword arguments of the message, `from_message` what
    `msgspec.convert` makes the struct of."""

    def __init__(self, kind: type, message: type[Message]) -> None:
        self.kind = kind
        self.message = message
        self._zeros: Fields = {}
        self._writers: list[tuple[str, Convert]] = []
        self._renamed: list[tuple[str, str]] = []
        self._readers: dict[FieldDescriptor, tuple[str, Convert | None]] = {}

    def add(self, field: inspect.Field, proto: FieldDescriptor, way: "Way") -> None:
        self._readers[proto] = (field.encode_name, way.read)
        if field.required and way.zero is not None:
            # The other side left it out because it is zero; to the struct it is required.
            self._zeros[field.encode_name] = way.zero
        write = _omitting(field.default, way.write) if proto.has_presence else way.write
        if write is not None:
            self._writers.append((field.name, write))
        if field.name != proto.name:
            self._renamed.append((field.name, proto.name))

    def to_fields(self, struct: Any) -> Fields:
        fields = msgspec.structs.asdict(struct)
        for name, write in self._writers:
            value = fields[name]
            if value is not None:
                fields[name] = write(value)
        for name, proto_name in self._renamed:
            fields[proto_name] = fields.pop(name)
        return fields

    def from_message(self, message: Message) -> Fields:
        readers = self._readers
        fields = self._zeros.copy()
        for proto, value in message.ListFields():
            name, read = readers[proto]
            fields[name] = value if read is None else read(value)
        return fields


class Way(msgspec.Struct, frozen=True):
    """How one value crosses; None for one that is the same on both sides."""

    write: Convert | None = None
    read: Convert | None = None
    zero: Any = None
    """What a value left out stands for; None where leaving it out means that there is none."""


class Shapes:
    def __init__(self, messages: Mapping[str, type[Message]]) -> None:
        self._messages = messages
        self._shapes: dict[type, Shape] = {}

    def of(self, kind: type) -> Shape | None:
        """None for a struct without a message. Raises InvalidOption if the two do not fit: the
        proto and the structs are kept together by hand."""
        message = self._messages.get(getattr(kind, "__name__", ""))
        if message is None or not issubclass(kind, msgspec.Struct):
            return None
        return self._built(kind, message)

    def _built(self, kind: type, message: type[Message]) -> Shape:
        if (known := self._shapes.get(kind)) is not None:
            return known
        shape = Shape(kind, message)
        described = inspect.type_info(kind)
        assert isinstance(described, inspect.StructType)
        protos = {one.name: cast("FieldDescriptor", one) for one in message.DESCRIPTOR.fields}
        for field in described.fields:
            proto = protos.pop(field.name, None) or protos.pop(_snake(field.encode_name), None)
            if proto is None:
                raise _misfit(kind, field.name, "has no such field in its message")
            shape.add(field, proto, self._way(kind, field, proto))
        if protos:
            raise _misfit(kind, ", ".join(protos), "is only in its message")
        self._shapes[kind] = shape
        return shape

    def _way(self, kind: type, field: inspect.Field, proto: FieldDescriptor) -> Way:
        described, nullable = _bare(field.type)
        if isinstance(described, _SEQUENCES):
            return self._way_of_many(kind, field, proto)
        if isinstance(described, inspect.DictType):
            if not _is_map(proto):
                raise _misfit(kind, field.name, "is a dict and no map")
            return Way(read=dict, zero=None if nullable else {})
        if isinstance(described, inspect.StructType):
            return self._way_of_struct(kind, field.name, described, proto)
        if isinstance(described, inspect.DateTimeType):
            return Way(write=_to_timestamp, read=_from_timestamp)
        if not proto.has_presence and (nullable or field.default not in _LEFT_OUT):
            raise _misfit(kind, field.name, "needs `optional` in its message")
        return Way(zero=None if proto.has_presence else proto.default_value)

    def _way_of_struct(
        self, kind: type, name: str, described: inspect.StructType, proto: FieldDescriptor
    ) -> Way:
        message = self._messages.get(described.cls.__name__)
        if message is None or proto.message_type is not message.DESCRIPTOR:
            raise _misfit(kind, name, f"is a {described.cls.__name__} and another message")
        inner = self._built(described.cls, message)
        return Way(write=inner.to_fields, read=inner.from_message)

    def _way_of_many(self, kind: type, field: inspect.Field, proto: FieldDescriptor) -> Way:
        described, nullable = _bare(field.type)
        assert isinstance(described, _SEQUENCES)
        if not proto.is_repeated:
            return _wrapped(kind, field.name, proto)
        zero = None if nullable else ()
        element, _ = _bare(described.item_type)
        if isinstance(element, inspect.StructType):
            each = self._way_of_struct(kind, field.name, element, proto)
            assert each.write is not None
            assert each.read is not None
            return Way(write=_each_once(each.write), read=_all_of(each.read), zero=zero)
        return Way(write=_not_empty(field.name) if nullable else None, read=list, zero=zero)


_LEFT_OUT = (msgspec.NODEFAULT, 0, "", b"", False)
_WRAPPED = "values"


def _wrapped(kind: type, name: str, proto: FieldDescriptor) -> Way:
    """A list in a message of its own, where an empty one and none at all differ."""
    inside = proto.message_type
    if inside is None or list(inside.fields_by_name) != [_WRAPPED]:
        raise _misfit(kind, name, "is a list and neither repeated nor a message of `values`")
    return Way(write=lambda values: {_WRAPPED: values}, read=lambda message: list(message.values))


def _omitting(default: Any, write: Convert | None) -> Convert | None:
    """What is at its default stays home; the other side has the same default."""
    if default is msgspec.NODEFAULT or default is None:
        return write
    if write is None:
        return lambda value: None if value == default else value
    return lambda value: None if value == default else write(value)


def _all_of(each: Convert) -> Convert:
    return lambda values: [each(value) for value in values]


def _each_once(each: Convert) -> Convert:
    """Of a value that stands there many times in a row, such as the good result of a batch, one
    conversion is enough: the message copies what it is given."""

    def write(values: Any) -> list[Any]:
        written: list[Any] = []
        last, made = _NOTHING, None
        for value in values:
            if value is not last:
                last, made = value, each(value)
            written.append(made)
        return written

    return write


_NOTHING: Final = object()


def _not_empty(name: str) -> Convert:
    def write(values: Any) -> Any:
        if not values:
            raise InvalidArgument(f"{name}: an empty list would arrive as none; leave it out")
        return values

    return write


@lru_cache(maxsize=1024)
def _to_timestamp(time: datetime) -> Fields:
    since = time - EPOCH  # a time without a zone is refused here
    return {"seconds": since.days * 86400 + since.seconds, "nanos": since.microseconds * 1000}


def _from_timestamp(stamp: Timestamp) -> datetime:
    nanos = stamp.nanos
    if not 0 <= nanos < 1_000_000_000:
        raise InvalidArgument(f"malformed body: a time has {nanos} nanos")
    return EPOCH + timedelta(0, stamp.seconds, nanos // 1000)


def _bare(described: inspect.Type) -> tuple[inspect.Type, bool]:
    """Without its notes and its None; and whether None was there."""
    if isinstance(described, inspect.Metadata):
        return _bare(described.type)
    if not isinstance(described, inspect.UnionType):
        return described, False
    kinds = [one for one in described.types if not isinstance(one, inspect.NoneType)]
    if len(kinds) != 1:
        raise InvalidOption(f"a field of one of several types has no message: {described}")
    return _bare(kinds[0])[0], len(kinds) < len(described.types)


def _is_map(proto: FieldDescriptor) -> bool:
    entry: Descriptor | None = proto.message_type
    return entry is not None and bool(entry.GetOptions().map_entry)


def _snake(name: str) -> str:
    """What a field is called on the wires that write its name: `from_` is `from` there."""
    return _UPPER.sub(lambda found: f"_{found[0].lower()}", name)


_UPPER = re.compile("[A-Z]")


def _misfit(kind: type, name: str, why: str) -> InvalidOption:
    return InvalidOption(f"{kind.__name__}.{name} {why}")
