"""What a caller may ask of a queue, as imperatives. Identifiers come in with the command."""

from collections.abc import Sequence
from typing import Protocol, overload

import msgspec

from omnirelay.lease.records import Followed, Refused
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
    url: str = ""
    """Where the owner takes calls that others pass on."""
    ttl_ms: int = 0
    """How long the journal may be silent before another may try to own it."""
    format: int = 1
    """The newest record format that all nodes can read."""


class Remain(Command, frozen=True, gc=False):
    """The owner has had nothing to write for a while and is still there."""


class TellRefused(Command, frozen=True, gc=False):
    """The owner writes down what it refused; nothing in an epoch that others may not read so."""

    refused: tuple[Refused, ...]


class TellFollowed(Command, frozen=True, gc=False):
    """The owner writes down how far its readers are, in the same epochs."""

    followed: tuple[Followed, ...]


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


# -- many at once -------------------------------------------------------------------------------


class Who(Protocol):
    """Who asks: a command says it for itself, a batch for all of its commands."""

    @property
    def principal(self) -> str: ...

    @property
    def proof(self) -> str | None: ...

    @property
    def peer_id(self) -> str | None: ...


class New(Protocol):
    """What is said of a new item, by a command or by what came over a wire."""

    @property
    def payload(self) -> Payload: ...

    @property
    def delay_ms(self) -> int: ...

    @property
    def priority(self) -> int: ...

    @property
    def max_attempts(self) -> int | None: ...

    @property
    def lease_duration_ms(self) -> int | None: ...


class Enqueues(Sequence[Enqueue]):
    """Enqueues of one caller, who is named once. A run takes the items as they are; whoever wants
    a command gets it made."""

    __slots__ = ("items", "peer_id", "principal", "proof")

    def __init__(
        self, items: Sequence[New], principal: str, proof: str | None, peer_id: str | None
    ) -> None:
        self.items = items
        self.principal = principal
        self.proof = proof
        self.peer_id = peer_id

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> Enqueue: ...

    @overload
    def __getitem__(self, at: slice) -> "Enqueues": ...

    def __getitem__(self, at: int | slice) -> "Enqueue | Enqueues":
        if isinstance(at, slice):
            return Enqueues(self.items[at], self.principal, self.proof, self.peer_id)
        item = self.items[at]
        return Enqueue(
            payload=item.payload,
            delay_ms=item.delay_ms,
            priority=item.priority,
            max_attempts=item.max_attempts,
            lease_duration_ms=item.lease_duration_ms,
            principal=self.principal,
            proof=self.proof,
            peer_id=self.peer_id,
        )


class Completes(Sequence[Complete]):
    """The same for completions."""

    __slots__ = ("principal", "proof", "tokens")

    def __init__(self, tokens: Sequence[Token], principal: str, proof: str | None) -> None:
        self.tokens = tokens
        self.principal = principal
        self.proof = proof

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, at: int) -> Complete: ...

    @overload
    def __getitem__(self, at: slice) -> "Completes": ...

    def __getitem__(self, at: int | slice) -> "Complete | Completes":
        if isinstance(at, slice):
            return Completes(self.tokens[at], self.principal, self.proof)
        return Complete(token=self.tokens[at], principal=self.principal, proof=self.proof)
