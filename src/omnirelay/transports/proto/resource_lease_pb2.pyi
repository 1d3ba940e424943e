# mypy: disable-error-code="type-arg, no-untyped-def"
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Payload(_message.Message):
    __slots__ = ("resource_type", "resource_id", "partition_key", "payload_encoding", "body", "attributes", "request_id")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_ENCODING_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    resource_type: str
    resource_id: str
    partition_key: str
    payload_encoding: str
    body: bytes
    attributes: _containers.ScalarMap[str, str]
    request_id: str
    def __init__(self, resource_type: _Optional[str] = ..., resource_id: _Optional[str] = ..., partition_key: _Optional[str] = ..., payload_encoding: _Optional[str] = ..., body: _Optional[bytes] = ..., attributes: _Optional[_Mapping[str, str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("message", "code")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    message: str
    code: str
    def __init__(self, message: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("sequence_id", "attempt", "lease_id", "fence")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    attempt: int
    lease_id: str
    fence: int
    def __init__(self, sequence_id: _Optional[int] = ..., attempt: _Optional[int] = ..., lease_id: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class PendingItem(_message.Message):
    __slots__ = ("payload", "attempt", "enqueued_at", "sequence_id", "last_error", "last_ownership_token", "dead_letter", "available_at", "priority", "max_attempts", "lease_duration_ms", "origin")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_AT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_AT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    payload: Payload
    attempt: int
    enqueued_at: _timestamp_pb2.Timestamp
    sequence_id: int
    last_error: ErrorInfo
    last_ownership_token: Token
    dead_letter: bool
    available_at: _timestamp_pb2.Timestamp
    priority: int
    max_attempts: int
    lease_duration_ms: int
    origin: str
    def __init__(self, payload: _Optional[_Union[Payload, _Mapping]] = ..., attempt: _Optional[int] = ..., enqueued_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sequence_id: _Optional[int] = ..., last_error: _Optional[_Union[ErrorInfo, _Mapping]] = ..., last_ownership_token: _Optional[_Union[Token, _Mapping]] = ..., dead_letter: _Optional[bool] = ..., available_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., max_attempts: _Optional[int] = ..., lease_duration_ms: _Optional[int] = ..., origin: _Optional[str] = ...) -> None: ...

class Depths(_message.Message):
    __slots__ = ("pending_count", "active_lease_count")
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
    pending_count: int
    active_lease_count: int
    def __init__(self, pending_count: _Optional[int] = ..., active_lease_count: _Optional[int] = ...) -> None: ...

class ErrorView(_message.Message):
    __slots__ = ("message", "status", "code", "current_fence", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FENCE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    message: str
    status: str
    code: str
    current_fence: int
    details: _containers.ScalarMap[str, int]
    def __init__(self, message: _Optional[str] = ..., status: _Optional[str] = ..., code: _Optional[str] = ..., current_fence: _Optional[int] = ..., details: _Optional[_Mapping[str, int]] = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("payload", "delay_ms", "priority", "max_attempts", "lease_duration_ms")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    payload: Payload
    delay_ms: int
    priority: int
    max_attempts: int
    lease_duration_ms: int
    def __init__(self, payload: _Optional[_Union[Payload, _Mapping]] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., max_attempts: _Optional[int] = ..., lease_duration_ms: _Optional[int] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("stats", "sequence_id", "duplicate")
    STATS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    stats: Depths
    sequence_id: int
    duplicate: bool
    def __init__(self, stats: _Optional[_Union[Depths, _Mapping]] = ..., sequence_id: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class EnqueueBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[EnqueueRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[EnqueueRequest, _Mapping]]] = ...) -> None: ...

class EnqueueResult(_message.Message):
    __slots__ = ("sequence_id", "duplicate", "error")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    duplicate: bool
    error: ErrorView
    def __init__(self, sequence_id: _Optional[int] = ..., duplicate: _Optional[bool] = ..., error: _Optional[_Union[ErrorView, _Mapping]] = ...) -> None: ...

class EnqueueBatchResponse(_message.Message):
    __slots__ = ("stats", "results")
    STATS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    stats: Depths
    results: _containers.RepeatedCompositeFieldContainer[EnqueueResult]
    def __init__(self, stats: _Optional[_Union[Depths, _Mapping]] = ..., results: _Optional[_Iterable[_Union[EnqueueResult, _Mapping]]] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("peer_id", "wait_ms", "resource_types", "lease_duration_ms", "request_id")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    wait_ms: int
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    lease_duration_ms: int
    request_id: str
    def __init__(self, peer_id: _Optional[str] = ..., wait_ms: _Optional[int] = ..., resource_types: _Optional[_Iterable[str]] = ..., lease_duration_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class LeaseBatchRequest(_message.Message):
    __slots__ = ("max_items", "peer_id", "wait_ms", "resource_types", "lease_duration_ms", "request_id")
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    max_items: int
    peer_id: str
    wait_ms: int
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    lease_duration_ms: int
    request_id: str
    def __init__(self, max_items: _Optional[int] = ..., peer_id: _Optional[str] = ..., wait_ms: _Optional[int] = ..., resource_types: _Optional[_Iterable[str]] = ..., lease_duration_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("payload", "sequence_id", "attempt", "enqueued_at", "ownership_token", "fence", "expires_at", "lease_duration_ms", "heartbeat_interval_ms", "owner_peer_id", "last_error")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_AT_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_PEER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    payload: Payload
    sequence_id: int
    attempt: int
    enqueued_at: _timestamp_pb2.Timestamp
    ownership_token: Token
    fence: int
    expires_at: _timestamp_pb2.Timestamp
    lease_duration_ms: int
    heartbeat_interval_ms: int
    owner_peer_id: str
    last_error: ErrorInfo
    def __init__(self, payload: _Optional[_Union[Payload, _Mapping]] = ..., sequence_id: _Optional[int] = ..., attempt: _Optional[int] = ..., enqueued_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ownership_token: _Optional[_Union[Token, _Mapping]] = ..., fence: _Optional[int] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_duration_ms: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., owner_peer_id: _Optional[str] = ..., last_error: _Optional[_Union[ErrorInfo, _Mapping]] = ...) -> None: ...

class LeaseBatchResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseResponse]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseResponse, _Mapping]]] = ...) -> None: ...

class TokenRequest(_message.Message):
    __slots__ = ("ownership_token",)
    OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ownership_token: Token
    def __init__(self, ownership_token: _Optional[_Union[Token, _Mapping]] = ...) -> None: ...

class TokenBatchRequest(_message.Message):
    __slots__ = ("ownership_tokens",)
    OWNERSHIP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ownership_tokens: _containers.RepeatedCompositeFieldContainer[Token]
    def __init__(self, ownership_tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("success", "expires_at", "remaining_ms")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    expires_at: _timestamp_pb2.Timestamp
    remaining_ms: int
    def __init__(self, success: _Optional[bool] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., remaining_ms: _Optional[int] = ...) -> None: ...

class TokenResponse(_message.Message):
    __slots__ = ("success",)
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    def __init__(self, success: _Optional[bool] = ...) -> None: ...

class TokenResult(_message.Message):
    __slots__ = ("success", "expires_at", "remaining_ms", "error_code", "error_message", "error_status", "current_fence")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_STATUS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FENCE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    expires_at: _timestamp_pb2.Timestamp
    remaining_ms: int
    error_code: str
    error_message: str
    error_status: str
    current_fence: int
    def __init__(self, success: _Optional[bool] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., remaining_ms: _Optional[int] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., error_status: _Optional[str] = ..., current_fence: _Optional[int] = ...) -> None: ...

class TokenBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TokenResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TokenResult, _Mapping]]] = ...) -> None: ...

class CompleteAndLeaseRequest(_message.Message):
    __slots__ = ("ownership_tokens", "max_items", "peer_id", "resource_types", "lease_duration_ms", "request_id")
    OWNERSHIP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ownership_tokens: _containers.RepeatedCompositeFieldContainer[Token]
    max_items: int
    peer_id: str
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    lease_duration_ms: int
    request_id: str
    def __init__(self, ownership_tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., max_items: _Optional[int] = ..., peer_id: _Optional[str] = ..., resource_types: _Optional[_Iterable[str]] = ..., lease_duration_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class CompleteAndLeaseResponse(_message.Message):
    __slots__ = ("results", "leases")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TokenResult]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseResponse]
    def __init__(self, results: _Optional[_Iterable[_Union[TokenResult, _Mapping]]] = ..., leases: _Optional[_Iterable[_Union[LeaseResponse, _Mapping]]] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("ownership_token", "reason", "error_code", "requeue", "metadata", "delay_ms")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    REQUEUE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ownership_token: Token
    reason: str
    error_code: str
    requeue: bool
    metadata: _containers.ScalarMap[str, str]
    delay_ms: int
    def __init__(self, ownership_token: _Optional[_Union[Token, _Mapping]] = ..., reason: _Optional[str] = ..., error_code: _Optional[str] = ..., requeue: _Optional[bool] = ..., metadata: _Optional[_Mapping[str, str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ("success", "disposition", "attempt")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    success: bool
    disposition: str
    attempt: int
    def __init__(self, success: _Optional[bool] = ..., disposition: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("credits", "complete", "release", "heartbeat", "fail", "peer_id", "resource_types", "lease_duration_ms")
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    complete: _containers.RepeatedCompositeFieldContainer[Token]
    release: _containers.RepeatedCompositeFieldContainer[Token]
    heartbeat: _containers.RepeatedCompositeFieldContainer[Token]
    fail: _containers.RepeatedCompositeFieldContainer[FailRequest]
    peer_id: str
    resource_types: _containers.RepeatedScalarFieldContainer[str]
    lease_duration_ms: int
    def __init__(self, credits: _Optional[int] = ..., complete: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., release: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., heartbeat: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., fail: _Optional[_Iterable[_Union[FailRequest, _Mapping]]] = ..., peer_id: _Optional[str] = ..., resource_types: _Optional[_Iterable[str]] = ..., lease_duration_ms: _Optional[int] = ...) -> None: ...

class WorkResult(_message.Message):
    __slots__ = ("ownership_token", "result")
    OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ownership_token: Token
    result: TokenResult
    def __init__(self, ownership_token: _Optional[_Union[Token, _Mapping]] = ..., result: _Optional[_Union[TokenResult, _Mapping]] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("leases", "results")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseResponse]
    results: _containers.RepeatedCompositeFieldContainer[WorkResult]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseResponse, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[WorkResult, _Mapping]]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("max_items", "include_active", "include_dead")
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DEAD_FIELD_NUMBER: _ClassVar[int]
    max_items: int
    include_active: bool
    include_dead: bool
    def __init__(self, max_items: _Optional[int] = ..., include_active: _Optional[bool] = ..., include_dead: _Optional[bool] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("items", "remaining")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PendingItem]
    remaining: int
    def __init__(self, items: _Optional[_Iterable[_Union[PendingItem, _Mapping]]] = ..., remaining: _Optional[int] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PendingItem]
    def __init__(self, items: _Optional[_Iterable[_Union[PendingItem, _Mapping]]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("restored_count", "skipped_count")
    RESTORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    restored_count: int
    skipped_count: int
    def __init__(self, restored_count: _Optional[int] = ..., skipped_count: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("stats", "leader", "epoch", "last_sequence", "backpressure", "dead_letter_count", "delayed_count", "oldest_pending_age_ms")
    STATS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BACKPRESSURE_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PENDING_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    stats: Depths
    leader: str
    epoch: int
    last_sequence: int
    backpressure: bool
    dead_letter_count: int
    delayed_count: int
    oldest_pending_age_ms: int
    def __init__(self, stats: _Optional[_Union[Depths, _Mapping]] = ..., leader: _Optional[str] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., backpressure: _Optional[bool] = ..., dead_letter_count: _Optional[int] = ..., delayed_count: _Optional[int] = ..., oldest_pending_age_ms: _Optional[int] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ("sequence_id", "resource_type", "resource_id")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    resource_type: str
    resource_id: str
    def __init__(self, sequence_id: _Optional[int] = ..., resource_type: _Optional[str] = ..., resource_id: _Optional[str] = ...) -> None: ...

class InspectResponse(_message.Message):
    __slots__ = ("state", "item", "ownership_token", "owner_peer_id", "principal", "granted_at", "expires_at", "fence", "history")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OWNER_PEER_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    GRANTED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    state: str
    item: PendingItem
    ownership_token: Token
    owner_peer_id: str
    principal: str
    granted_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    fence: int
    history: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, state: _Optional[str] = ..., item: _Optional[_Union[PendingItem, _Mapping]] = ..., ownership_token: _Optional[_Union[Token, _Mapping]] = ..., owner_peer_id: _Optional[str] = ..., principal: _Optional[str] = ..., granted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., fence: _Optional[int] = ..., history: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class DeadLettersRequest(_message.Message):
    __slots__ = ("max_items", "after", "resource_type", "resource_id")
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    max_items: int
    after: int
    resource_type: str
    resource_id: str
    def __init__(self, max_items: _Optional[int] = ..., after: _Optional[int] = ..., resource_type: _Optional[str] = ..., resource_id: _Optional[str] = ...) -> None: ...

class DeadLettersResponse(_message.Message):
    __slots__ = ("items", "total")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PendingItem]
    total: int
    def __init__(self, items: _Optional[_Iterable[_Union[PendingItem, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class SequenceIds(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class DeadSelection(_message.Message):
    __slots__ = ("max_items", "sequence_ids", "resource_type", "resource_id")
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    max_items: int
    sequence_ids: SequenceIds
    resource_type: str
    resource_id: str
    def __init__(self, max_items: _Optional[int] = ..., sequence_ids: _Optional[_Union[SequenceIds, _Mapping]] = ..., resource_type: _Optional[str] = ..., resource_id: _Optional[str] = ...) -> None: ...

class CountResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class PositionRequest(_message.Message):
    __slots__ = ("reader", "sequence", "forget")
    READER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    reader: str
    sequence: int
    forget: bool
    def __init__(self, reader: _Optional[str] = ..., sequence: _Optional[int] = ..., forget: _Optional[bool] = ...) -> None: ...

class PositionResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("follow",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    follow: bool
    def __init__(self, follow: _Optional[bool] = ..., **kwargs) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence_number", "event_type", "timestamp", "shard", "epoch", "node", "sequence_id", "attempt", "ownership", "fence", "expires_at", "peer_id", "principal", "payload", "error", "disposition", "items", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    sequence_number: int
    event_type: str
    timestamp: _timestamp_pb2.Timestamp
    shard: str
    epoch: int
    node: str
    sequence_id: int
    attempt: int
    ownership: Token
    fence: int
    expires_at: _timestamp_pb2.Timestamp
    peer_id: str
    principal: str
    payload: Payload
    error: ErrorInfo
    disposition: str
    items: _containers.RepeatedCompositeFieldContainer[EventItem]
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, sequence_number: _Optional[int] = ..., event_type: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., shard: _Optional[str] = ..., epoch: _Optional[int] = ..., node: _Optional[str] = ..., sequence_id: _Optional[int] = ..., attempt: _Optional[int] = ..., ownership: _Optional[_Union[Token, _Mapping]] = ..., fence: _Optional[int] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., peer_id: _Optional[str] = ..., principal: _Optional[str] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., error: _Optional[_Union[ErrorInfo, _Mapping]] = ..., disposition: _Optional[str] = ..., items: _Optional[_Iterable[_Union[EventItem, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EventItem(_message.Message):
    __slots__ = ("sequence_id", "payload", "attempt", "enqueued_at", "last_error", "last_ownership_token", "dead_letter", "available_at", "priority", "max_attempts", "lease_duration_ms", "origin", "fence", "expires_at")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_OWNERSHIP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_AT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    payload: Payload
    attempt: int
    enqueued_at: _timestamp_pb2.Timestamp
    last_error: ErrorInfo
    last_ownership_token: Token
    dead_letter: bool
    available_at: _timestamp_pb2.Timestamp
    priority: int
    max_attempts: int
    lease_duration_ms: int
    origin: str
    fence: int
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, sequence_id: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., attempt: _Optional[int] = ..., enqueued_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[_Union[ErrorInfo, _Mapping]] = ..., last_ownership_token: _Optional[_Union[Token, _Mapping]] = ..., dead_letter: _Optional[bool] = ..., available_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., max_attempts: _Optional[int] = ..., lease_duration_ms: _Optional[int] = ..., origin: _Optional[str] = ..., fence: _Optional[int] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
