"""What a caller may ask of a queue, as imperatives. Identifiers come in with the command."""

import msgspec

from omnirelay.model.items import ANONYMOUS, Payload, PendingItem, Token


class Command(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """`principal` is who was proved to call, `proof` the digest of what proved it; `peer_id` is the
    worker they name for themselves."""

    principal: str = ANONYMOUS
    proof: str | None = None
    peer_id: str | None = None


class StartEpoch(Command, frozen=True, gc=False):
    epoch: int
    node: str
    origin: str
    """Name of this journal for ever; only the first epoch's counts."""


class Enqueue(Command, frozen=True, gc=False):
    payload: Payload
    delay_ms: int = 0
    priority: int = 0
    max_attempts: int | None = None
    lease_duration_ms: int | None = None


class Grant(Command, frozen=True, gc=False):
    """Take one item. A call for several is several of these, `index` counting from 0: only the
    first asks whether the request id was served before."""

    lease_id: str
    resource_types: tuple[str, ...] | None = None
    lease_duration_ms: int | None = None
    request_id: str | None = None
    index: int = 0


class Heartbeat(Command, frozen=True, gc=False):
    """All heartbeats of one principal in one turn; stale ones are left out of the record."""

    tokens: tuple[Token, ...]


class Complete(Command, frozen=True, gc=False):
    token: Token


class Fail(Command, frozen=True, gc=False):
    token: Token
    reason: str | None = None
    error_code: str | None = None
    requeue: bool = True
    metadata: dict[str, str] | None = None
    delay_ms: int | None = None


class Release(Command, frozen=True, gc=False):
    token: Token


class Expire(Command, frozen=True, gc=False):
    """End every lease whose time is up, at most `limit` of them."""

    limit: int


class Drain(Command, frozen=True, gc=False):
    max_items: int
    include_active: bool = False
    include_dead: bool = False


class Restore(Command, frozen=True, gc=False):
    items: tuple[PendingItem, ...]


class Redrive(Command, frozen=True, gc=False):
    """Bring dead letters back, oldest first. No filter means all of them."""

    max_items: int
    sequence_ids: tuple[int, ...] | None = None
    resource_type: str | None = None
    resource_id: str | None = None


class Purge(Command, frozen=True, gc=False):
    """Drop dead letters for good."""

    max_items: int
    sequence_ids: tuple[int, ...] | None = None
    resource_type: str | None = None
    resource_id: str | None = None


class ReadStats(Command, frozen=True, gc=False):
    pass


class Inspect(Command, frozen=True, gc=False):
    """By its sequence id, or by its resource: then a leased item before a waiting one before a
    dead one."""

    sequence_id: int = 0
    resource_type: str | None = None
    resource_id: str | None = None


class ListDead(Command, frozen=True, gc=False):
    max_items: int
    after: int = 0
    """Sequence id of the last item of the page before."""
    resource_type: str | None = None
    resource_id: str | None = None
