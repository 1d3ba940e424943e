# mypy: disable-error-code="type-arg, no-untyped-def"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: str
    def __init__(self, shard: _Optional[str] = ...) -> None: ...

class HeadRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: str
    def __init__(self, shard: _Optional[str] = ...) -> None: ...

class HeadResponse(_message.Message):
    __slots__ = ("last", "epoch", "checksum", "time", "first")
    LAST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    last: int
    epoch: int
    checksum: str
    time: int
    first: int
    def __init__(self, last: _Optional[int] = ..., epoch: _Optional[int] = ..., checksum: _Optional[str] = ..., time: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: str
    def __init__(self, shard: _Optional[str] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("store", "survives_process_kill", "survives_power_loss", "survives_node_loss", "condition", "snapshot")
    STORE_FIELD_NUMBER: _ClassVar[int]
    SURVIVES_PROCESS_KILL_FIELD_NUMBER: _ClassVar[int]
    SURVIVES_POWER_LOSS_FIELD_NUMBER: _ClassVar[int]
    SURVIVES_NODE_LOSS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    store: str
    survives_process_kill: bool
    survives_power_loss: bool
    survives_node_loss: bool
    condition: str
    snapshot: Snapshot
    def __init__(self, store: _Optional[str] = ..., survives_process_kill: _Optional[bool] = ..., survives_power_loss: _Optional[bool] = ..., survives_node_loss: _Optional[bool] = ..., condition: _Optional[str] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("sequence", "epoch", "link", "time", "parts", "checksum")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    epoch: int
    link: str
    time: int
    parts: int
    checksum: str
    def __init__(self, sequence: _Optional[int] = ..., epoch: _Optional[int] = ..., link: _Optional[str] = ..., time: _Optional[int] = ..., parts: _Optional[int] = ..., checksum: _Optional[str] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("shard", "expected", "body", "is_first")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    shard: str
    expected: int
    body: bytes
    is_first: bool
    def __init__(self, shard: _Optional[str] = ..., expected: _Optional[int] = ..., body: _Optional[bytes] = ..., is_first: _Optional[bool] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("last",)
    LAST_FIELD_NUMBER: _ClassVar[int]
    last: int
    def __init__(self, last: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("shard", "from_sequence", "follow", "bodies", "limit")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    shard: str
    from_sequence: int
    follow: bool
    bodies: bool
    limit: int
    def __init__(self, shard: _Optional[str] = ..., from_sequence: _Optional[int] = ..., follow: _Optional[bool] = ..., bodies: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("envelopes", "is_cut", "last_sequence")
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedScalarFieldContainer[bytes]
    is_cut: bool
    last_sequence: int
    def __init__(self, envelopes: _Optional[_Iterable[bytes]] = ..., is_cut: _Optional[bool] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("shard", "follower", "sequence", "peers", "updated_at")
    class PeersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    shard: str
    follower: str
    sequence: int
    peers: _containers.ScalarMap[str, int]
    updated_at: int
    def __init__(self, shard: _Optional[str] = ..., follower: _Optional[str] = ..., sequence: _Optional[int] = ..., peers: _Optional[_Mapping[str, int]] = ..., updated_at: _Optional[int] = ...) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ("sequence", "peers", "updated_at")
    class PeersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    peers: _containers.ScalarMap[str, int]
    updated_at: int
    def __init__(self, sequence: _Optional[int] = ..., peers: _Optional[_Mapping[str, int]] = ..., updated_at: _Optional[int] = ...) -> None: ...

class FollowersRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: str
    def __init__(self, shard: _Optional[str] = ...) -> None: ...

class FollowersResponse(_message.Message):
    __slots__ = ("followers",)
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    followers: _containers.RepeatedCompositeFieldContainer[FollowerPosition]
    def __init__(self, followers: _Optional[_Iterable[_Union[FollowerPosition, _Mapping]]] = ...) -> None: ...

class FollowerPosition(_message.Message):
    __slots__ = ("follower", "sequence", "updated_at")
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    follower: str
    sequence: int
    updated_at: int
    def __init__(self, follower: _Optional[str] = ..., sequence: _Optional[int] = ..., updated_at: _Optional[int] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("shard", "follower")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    shard: str
    follower: str
    def __init__(self, shard: _Optional[str] = ..., follower: _Optional[str] = ...) -> None: ...

class WritePartRequest(_message.Message):
    __slots__ = ("shard", "sequence", "part", "piece")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    shard: str
    sequence: int
    part: int
    piece: bytes
    def __init__(self, shard: _Optional[str] = ..., sequence: _Optional[int] = ..., part: _Optional[int] = ..., piece: _Optional[bytes] = ...) -> None: ...

class FinishSnapshotRequest(_message.Message):
    __slots__ = ("shard", "snapshot")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    shard: str
    snapshot: Snapshot
    def __init__(self, shard: _Optional[str] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class ReadPartRequest(_message.Message):
    __slots__ = ("shard", "sequence", "part")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    shard: str
    sequence: int
    part: int
    def __init__(self, shard: _Optional[str] = ..., sequence: _Optional[int] = ..., part: _Optional[int] = ...) -> None: ...

class ReadPartResponse(_message.Message):
    __slots__ = ("piece",)
    PIECE_FIELD_NUMBER: _ClassVar[int]
    piece: bytes
    def __init__(self, piece: _Optional[bytes] = ...) -> None: ...

class PruneRequest(_message.Message):
    __slots__ = ("shard", "through", "before_ms", "limit")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    shard: str
    through: int
    before_ms: int
    limit: int
    def __init__(self, shard: _Optional[str] = ..., through: _Optional[int] = ..., before_ms: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class PruneResponse(_message.Message):
    __slots__ = ("gone",)
    GONE_FIELD_NUMBER: _ClassVar[int]
    gone: int
    def __init__(self, gone: _Optional[int] = ...) -> None: ...
