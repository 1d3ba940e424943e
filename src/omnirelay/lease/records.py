"""What happened, as past participles. The only thing that is stored; a state is a fold of these.

The tag is the event type of CONTRACT §5, so a journal read without us says the same words.
Times are milliseconds of the shard's clock. A record's own time is its envelope's.
"""

import msgspec

from omnirelay.lease.options import Rules
from omnirelay.model.items import ANONYMOUS, ErrorInfo, Payload, Token

FORMAT = 3
"""The newest format of records, and of snapshots, that this program reads. A change that an older
program would misread is the next number, and is written only in epochs whose rules name it
(docs/adr/0014).

2: `Refused` and `Followed`. 3: snapshots keep what is remembered in runs, spans and blocks."""
TOLD_FORMAT = 2
RUNS_FORMAT = 3
REQUEUED = "requeued"
DEAD_LETTERED = "deadLettered"


class Stored(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    gc=False,
    tag_field="eventType",
    tag=True,
):
    pass


class Item(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One item that is not leased. `attempt` is the attempt its next grant will carry."""

    sequence_id: int
    payload: Payload
    attempt: int
    enqueued_at: int
    priority: int = 0
    available_at: int = 0
    max_attempts: int = 0
    """0: what the queue's options say when it matters."""
    lease_ms: int = 0
    last_error: ErrorInfo | None = None
    last_token: Token | None = None
    origin: str | None = None
    """None: born here."""
    dead: bool = False


class EpochStarted(Stored, frozen=True, gc=False, tag="EpochStarted"):
    epoch: int
    node: str
    origin: str
    rules: Rules


class Enqueued(Stored, frozen=True, gc=False, tag="Enqueue"):
    sequence_id: int
    payload: Payload
    priority: int = 0
    available_at: int = 0
    max_attempts: int = 0
    lease_ms: int = 0
    peer_id: str | None = None
    principal: str = ANONYMOUS
    proof: str | None = None


class Granted(Stored, frozen=True, gc=False, tag="LeaseGranted"):
    sequence_id: int
    attempt: int
    lease_id: str
    fence: int
    expires_at: int
    lease_ms: int
    peer_id: str | None = None
    principal: str = ANONYMOUS
    request_id: str | None = None
    proof: str | None = None


class Renewed(Stored, frozen=True, gc=False, tag="Heartbeat"):
    """Every heartbeat of one principal in one envelope: (sequence id, fence, new expiry). Without
    any it is the owner's own: it still serves, and had nothing else to write."""

    beats: tuple[tuple[int, int, int], ...]
    principal: str = ANONYMOUS
    proof: str | None = None
    peer_id: str | None = None
    """Of the leases, if all are one worker's."""


class Completed(Stored, frozen=True, gc=False, tag="Completed"):
    sequence_id: int
    attempt: int
    lease_id: str
    fence: int
    peer_id: str | None = None
    principal: str = ANONYMOUS
    proof: str | None = None


class Failed(Stored, frozen=True, gc=False, tag="Failed"):
    sequence_id: int
    attempt: int
    lease_id: str
    fence: int
    error: ErrorInfo
    disposition: str
    available_at: int = 0
    details: dict[str, str] | None = None
    peer_id: str | None = None
    principal: str = ANONYMOUS
    proof: str | None = None


class Expired(Stored, frozen=True, gc=False, tag="Expired"):
    sequence_id: int
    attempt: int
    lease_id: str
    fence: int
    error: ErrorInfo
    disposition: str
    peer_id: str | None = None
    principal: str = ANONYMOUS


class Released(Stored, frozen=True, gc=False, tag="Released"):
    sequence_id: int
    attempt: int
    lease_id: str
    fence: int
    peer_id: str | None = None
    principal: str = ANONYMOUS
    proof: str | None = None


class Drained(Stored, frozen=True, gc=False, tag="DrainSnapshot"):
    """Whole items, so that a lost reply loses nothing: the journal still has them."""

    items: tuple[Item, ...]
    principal: str = ANONYMOUS
    proof: str | None = None
    peer_id: str | None = None


class Restored(Stored, frozen=True, gc=False, tag="RestoreSnapshot"):
    items: tuple[Item, ...]
    fence_floor: int = 0
    """The highest fence any of these items carried; every later grant is above it."""
    principal: str = ANONYMOUS
    proof: str | None = None
    peer_id: str | None = None


class Redriven(Stored, frozen=True, gc=False, tag="Redriven"):
    sequence_ids: tuple[int, ...]
    extra_attempts: int
    principal: str = ANONYMOUS
    proof: str | None = None
    peer_id: str | None = None


class Purged(Stored, frozen=True, gc=False, tag="Purged"):
    sequence_ids: tuple[int, ...]
    principal: str = ANONYMOUS
    proof: str | None = None
    peer_id: str | None = None


class Refused(Stored, frozen=True, gc=False, tag="Refused"):
    """Calls that were told no, `times` alike: it changes nothing. The token is the one that was
    shown, if it may have been one of ours. It comes some time after the refusals, with the next
    commit, and not at all if that fails: a hint to people, never a proof (docs/adr/0019)."""

    verb: str
    code: str
    times: int
    sequence_id: int | None = None
    attempt: int | None = None
    lease_id: str | None = None
    peer_id: str | None = None
    principal: str = ANONYMOUS
    proof: str | None = None


class Followed(Stored, frozen=True, gc=False, tag="Followed"):
    """How far a reader of this journal was when the owner's node last looked: it changes nothing.
    It comes with the next commit, as `Refused` does."""

    reader: str
    position: int
    sequence_lag: int
    lag_ms: int


Record = (
    EpochStarted
    | Enqueued
    | Granted
    | Renewed
    | Completed
    | Failed
    | Expired
    | Released
    | Drained
    | Restored
    | Redriven
    | Purged
    | Refused
    | Followed
)
