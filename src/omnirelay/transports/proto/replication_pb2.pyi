# mypy: disable-error-code="type-arg, no-untyped-def"
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("shard", "epoch", "first", "last", "body")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    shard: str
    epoch: int
    first: int
    last: int
    body: bytes
    def __init__(self, shard: _Optional[str] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("envelope", "expected_last")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LAST_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    expected_last: int
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ..., expected_last: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("last",)
    LAST_FIELD_NUMBER: _ClassVar[int]
    last: int
    def __init__(self, last: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("shard", "from_sequence", "follow")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    shard: str
    from_sequence: int
    follow: bool
    def __init__(self, shard: _Optional[str] = ..., from_sequence: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("envelope", "last_sequence")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    envelope: Envelope
    last_sequence: int
    def __init__(self, envelope: _Optional[_Union[Envelope, _Mapping]] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("shard", "follower", "sequence")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    shard: str
    follower: str
    sequence: int
    def __init__(self, shard: _Optional[str] = ..., follower: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ("sequence", "last_sequence", "epoch")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    last_sequence: int
    epoch: int
    def __init__(self, sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...
