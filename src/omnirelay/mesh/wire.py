"""What travels for each verb of CONTRACT §1, the same over every transport.

On JSON the names are camelCase, what is absent is left out, bytes are base64 and times RFC 3339.
Unknown members are ignored, so that a newer caller can talk to an older node.
"""

from datetime import datetime
from typing import Annotated

import msgspec

from omnirelay.journal.events import Event
from omnirelay.lease.answers import LeaseResponse
from omnirelay.model import limits
from omnirelay.model.items import Payload, PendingItem, Token, Wire

Text = Annotated[str, msgspec.Meta(max_length=limits.NAME_CHARS_MAX)]
Types = Annotated[tuple[Text, ...], msgspec.Meta(max_length=limits.RESOURCE_TYPES_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=limits.WIRE_NUMBER_MAX)]
Page = Annotated[int, msgspec.Meta(ge=1, le=limits.BATCH_MAX)]


class Depths(Wire, frozen=True, gc=False):
    pending_count: int
    active_lease_count: int


class ErrorView(Wire, frozen=True, gc=False):
    """Why one item of a batch was refused."""

    message: str
    status: str
    code: str
    current_fence: int | None = None
    details: dict[str, int] | None = None
    """The figures of the refusal, as the error of a single call carries them."""


# -- producing --------------------------------------------------------------------------------


class EnqueueRequest(Wire, frozen=True, gc=False):
    payload: Payload | None = None
    delay_ms: Count = 0
    priority: int = 0
    max_attempts: Count | None = None
    lease_duration_ms: Count | None = None


class EnqueueResponse(Wire, frozen=True, gc=False):
    stats: Depths
    sequence_id: int
    duplicate: bool


class EnqueueBatchRequest(Wire, frozen=True, gc=False):
    items: Annotated[tuple[EnqueueRequest, ...], msgspec.Meta(max_length=limits.BATCH_MAX)]


class EnqueueResult(Wire, frozen=True, gc=False):
    """`error`, or the other two."""

    sequence_id: int | None = None
    duplicate: bool | None = None
    error: ErrorView | None = None


class EnqueueBatchResponse(Wire, frozen=True, gc=False):
    stats: Depths
    results: tuple[EnqueueResult, ...]


# -- working ----------------------------------------------------------------------------------


class LeaseRequest(Wire, frozen=True, gc=False):
    peer_id: Text | None = None
    wait_ms: Count | None = None
    """Left out: until just before the call's deadline; not at all if it has none."""
    resource_types: Types | None = None
    lease_duration_ms: Count | None = None
    request_id: Text | None = None


class LeaseBatchRequest(Wire, frozen=True, gc=False):
    max_items: Page = 1
    peer_id: Text | None = None
    wait_ms: Count | None = None
    resource_types: Types | None = None
    lease_duration_ms: Count | None = None
    request_id: Text | None = None


class LeaseBatchResponse(Wire, frozen=True, gc=False):
    leases: tuple[LeaseResponse, ...]


class TokenRequest(Wire, frozen=True, gc=False):
    """heartbeat, complete and release."""

    ownership_token: Token


Tokens = Annotated[tuple[Token, ...], msgspec.Meta(max_length=limits.BATCH_MAX)]


class TokenBatchRequest(Wire, frozen=True, gc=False):
    """heartbeatBatch and completeBatch."""

    ownership_tokens: Tokens


class HeartbeatResponse(Wire, frozen=True, gc=False):
    success: bool
    expires_at: datetime
    remaining_ms: int


class TokenResponse(Wire, frozen=True, gc=False):
    """complete and release."""

    success: bool


class TokenResult(Wire, frozen=True, gc=False):
    """One token of a batch: taken, or why not."""

    success: bool
    expires_at: datetime | None = None
    remaining_ms: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_status: str | None = None
    current_fence: int | None = None


class TokenBatchResponse(Wire, frozen=True, gc=False):
    results: tuple[TokenResult, ...]


class CompleteAndLeaseRequest(Wire, frozen=True, gc=False):
    """A worker's report and its next wish. It waits for nothing: whoever has reported goes on."""

    ownership_tokens: Tokens
    max_items: Page = 1
    peer_id: Text | None = None
    resource_types: Types | None = None
    lease_duration_ms: Count | None = None
    request_id: Text | None = None


class CompleteAndLeaseResponse(Wire, frozen=True, gc=False):
    results: tuple[TokenResult, ...]
    leases: tuple[LeaseResponse, ...]


class FailRequest(Wire, frozen=True, gc=False):
    ownership_token: Token
    reason: str | None = None
    error_code: str | None = None
    requeue: bool = True
    metadata: dict[str, str] | None = None
    delay_ms: Count | None = None


class FailResponse(Wire, frozen=True, gc=False):
    success: bool
    disposition: str
    attempt: int


class WorkRequest(Wire, frozen=True, gc=False):
    """Up the duplex `work`: how many more leases may come, and what became of earlier ones. The
    first message says which work is wanted."""

    credits: Count = 0
    complete: Tokens = ()
    release: Tokens = ()
    heartbeat: Tokens = ()
    fail: Annotated[tuple[FailRequest, ...], msgspec.Meta(max_length=limits.BATCH_MAX)] = ()
    peer_id: Text | None = None
    resource_types: Types | None = None
    lease_duration_ms: Count | None = None


class WorkResult(Wire, frozen=True, gc=False):
    ownership_token: Token
    result: TokenResult


class WorkResponse(Wire, frozen=True, gc=False):
    """Down the duplex `work`: leases as they come, and one result for each token that went up."""

    leases: tuple[LeaseResponse, ...] = ()
    results: tuple[WorkResult, ...] = ()


# -- operating --------------------------------------------------------------------------------


class DrainRequest(Wire, frozen=True, gc=False):
    max_items: Page = limits.BATCH_MAX
    include_active: bool = False
    include_dead: bool = False


class DrainResponse(Wire, frozen=True, gc=False):
    items: tuple[PendingItem, ...]
    remaining: int


class RestoreRequest(Wire, frozen=True, gc=False):
    items: Annotated[tuple[PendingItem, ...], msgspec.Meta(max_length=limits.BATCH_MAX)]


class RestoreResponse(Wire, frozen=True, gc=False):
    restored_count: int
    skipped_count: int


class StatsRequest(Wire, frozen=True, gc=False):
    pass


class StatsResponse(Wire, frozen=True, gc=False):
    stats: Depths
    leader: str
    epoch: int
    last_sequence: int
    backpressure: bool
    dead_letter_count: int
    delayed_count: int
    oldest_pending_age_ms: int | None = None


class InspectRequest(Wire, frozen=True, gc=False):
    """By its sequence id, or by what it is about."""

    sequence_id: Count | None = None
    resource_type: Text | None = None
    resource_id: Text | None = None


class InspectResponse(Wire, frozen=True):
    state: str
    """`ready`, `parked` (another item of its resource is leased), `delayed`, `leased` or `dead`."""
    item: PendingItem
    ownership_token: Token | None = None
    owner_peer_id: str | None = None
    principal: str | None = None
    granted_at: datetime | None = None
    expires_at: datetime | None = None
    fence: int | None = None
    history: tuple[Event, ...] = ()
    """The last events about it, oldest first."""


class DeadLettersRequest(Wire, frozen=True, gc=False):
    max_items: Page = 100
    after: Count = 0
    resource_type: Text | None = None
    resource_id: Text | None = None


class DeadLettersResponse(Wire, frozen=True, gc=False):
    items: tuple[PendingItem, ...]
    total: int


class DeadSelection(Wire, frozen=True, gc=False):
    """redrive and purge: those named, or all that match."""

    max_items: Page = limits.BATCH_MAX
    sequence_ids: Annotated[tuple[int, ...], msgspec.Meta(max_length=limits.BATCH_MAX)] | None = (
        None
    )
    resource_type: Text | None = None
    resource_id: Text | None = None


class CountResponse(Wire, frozen=True, gc=False):
    count: int


class EventsRequest(Wire, frozen=True, gc=False, rename={"from_": "from"}):
    from_: Count = 0
    """The first sequence wanted; 0 or 1 for all there is."""
    follow: bool = True
    """False: end at the end instead of waiting for more."""


class PositionRequest(Wire, frozen=True, gc=False):
    """Without a sequence it only asks."""

    reader: Annotated[Text, msgspec.Meta(min_length=1)]
    sequence: Count | None = None
    """It has read everything up to here; one that would go back stays as it is."""
    forget: bool = False
    """It is gone for good, and pruning waits for it no more."""


class PositionResponse(Wire, frozen=True, gc=False):
    sequence: int | None = None
    """Absent for a reader that is not known."""
