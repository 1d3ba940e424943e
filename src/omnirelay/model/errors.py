"""One tree of errors. Each says what happened, whose fault it is, and carries its facts as fields.

    OmniRelayError
    ├── InvalidArgument        InvalidPayload, InvalidRestore, InvalidOption
    ├── Unauthenticated
    ├── PermissionDenied       NotHolder
    ├── Unimplemented
    ├── Cancelled
    ├── UnknownToken, UnknownItem
    ├── StaleToken             (expired, failed, superseded; carries the current fence)
    ├── SequenceConflict
    ├── ResourceExhausted      QueueFull, Backpressure, Overloaded, RateLimited, DiskFull, TooLarge
    ├── Unavailable            Recovering, Closed, OutcomeUnknown
    ├── Behind                 (a standby that would lose more than was accepted)
    ├── DeadlineExceeded       NothingToLease
    └── JournalError           Fenced, SequenceTaken, Corrupt, JournalOwned, TooLittleDurability,
                               TooNew, OtherJournal

`status` is the transport-neutral status, `code` the stable machine name of CONTRACT §1.
"""

from typing import ClassVar


class OmniRelayError(Exception):
    """Root of everything we raise on purpose."""

    status: ClassVar[str] = "INTERNAL"
    code: str = "error.internal"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = {name: value for name, value in details.items() if value is not None}


class InvalidArgument(OmniRelayError):
    status = "INVALID_ARGUMENT"
    code = "error.invalid_argument"


class InvalidOption(InvalidArgument):
    """A setting that cannot work; raised when a queue or store is built, never later."""

    code = "error.invalid_option"


class InvalidPayload(InvalidArgument):
    """`reason` completes the code, as in `resourcelease.payload.resource_id_required`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = f"resourcelease.payload.{reason}"


class InvalidRestore(InvalidArgument):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = f"resourcelease.restore.{reason}"


class Unauthenticated(OmniRelayError):
    """Nobody was proved, or two proofs disagree."""

    status = "UNAUTHENTICATED"
    code = "error.unauthenticated"


class Unimplemented(OmniRelayError):
    status = "UNIMPLEMENTED"
    code = "error.unimplemented"


class Cancelled(OmniRelayError):
    """The caller went away."""

    status = "CANCELLED"
    code = "error.cancelled"


class PermissionDenied(OmniRelayError):
    status = "PERMISSION_DENIED"
    code = "error.permission_denied"


class NotHolder(PermissionDenied):
    """The token is right but was granted to another principal."""

    def __init__(self, sequence_id: int) -> None:
        super().__init__(
            f"the lease on item {sequence_id} belongs to another principal", sequenceId=sequence_id
        )


class UnknownToken(OmniRelayError):
    """Never granted here, or over so long ago that nothing remembers it."""

    status = "NOT_FOUND"
    code = "error.resourcelease.unknown_token"

    def __init__(self, sequence_id: int) -> None:
        super().__init__(
            f"no lease on item {sequence_id} is known: it was never granted or is long over",
            sequenceId=sequence_id,
        )


class UnknownItem(OmniRelayError):
    status = "NOT_FOUND"
    code = "error.resourcelease.unknown_item"

    def __init__(self, resource_type: str, resource_id: str | None) -> None:
        super().__init__(f"no item about {resource_type} {resource_id} is in the queue")


class StaleToken(OmniRelayError):
    """The lease is over: expired, failed, released, finished or granted again since."""

    status = "FAILED_PRECONDITION"
    code = "error.taskqueue.lease_inactive"

    def __init__(self, sequence_id: int, why: str, current_fence: int | None = None) -> None:
        super().__init__(
            f"the lease on item {sequence_id} is no longer active: {why}",
            sequenceId=sequence_id,
            currentFence=current_fence,
        )
        self.current_fence = current_fence


class SequenceConflict(OmniRelayError):
    status = "ALREADY_EXISTS"
    code = "error.resourcelease.sequence_conflict"

    def __init__(self, sequence_id: int) -> None:
        super().__init__(
            f"item {sequence_id} is another item here: restore it into a queue that has not used "
            f"this sequence id",
            sequenceId=sequence_id,
        )


class ResourceExhausted(OmniRelayError):
    status = "RESOURCE_EXHAUSTED"
    code = "error.resource_exhausted"


class QueueFull(ResourceExhausted):
    code = "error.resourcelease.capacity"

    def __init__(self, pending: int, capacity: int) -> None:
        super().__init__(
            f"the queue holds {pending} pending items and its capacity is {capacity}: lease or "
            f"drain some, or raise `capacity`",
            pending=pending,
            capacity=capacity,
        )


class Backpressure(ResourceExhausted):
    code = "error.resourcelease.backpressure"

    def __init__(self, pending: int, pending_high: int, pending_low: int) -> None:
        super().__init__(
            f"enqueue is paused: {pending} items are pending (high {pending_high}); it resumes "
            f"at {pending_low}",
            pending=pending,
            pendingHigh=pending_high,
            pendingLow=pending_low,
        )


class Overloaded(ResourceExhausted):
    code = "error.overloaded"


class RateLimited(ResourceExhausted):
    code = "error.rate_limited"


class DiskFull(ResourceExhausted):
    """The journal has no room; nothing was changed. Reads go on."""

    code = "error.resourcelease.journal_full"


class TooLarge(ResourceExhausted):
    """A body, frame or header block beyond its limit; nothing of it was looked at."""

    code = "error.body_too_large"


class Unavailable(OmniRelayError):
    status = "UNAVAILABLE"
    code = "error.unavailable"


class NotOwner(Unavailable):
    """Another node serves this shard, or nobody at the moment. Nothing was changed."""

    code = "error.resourcelease.not_owner"


class Recovering(Unavailable):
    code = "error.resourcelease.recovering"


class Closed(Unavailable):
    code = "error.resourcelease.closed"


class OutcomeUnknown(Unavailable):
    """The command may or may not have happened. Repeating it with its request id is safe."""

    code = "error.resourcelease.outcome_unknown"


class Behind(OmniRelayError):
    """A standby was not promoted: more would be lost than was accepted."""

    status = "FAILED_PRECONDITION"
    code = "error.standby.behind"


class DeadlineExceeded(OmniRelayError):
    status = "DEADLINE_EXCEEDED"
    code = "error.deadline_exceeded"


class NothingToLease(DeadlineExceeded):
    code = "error.resourcelease.nothing_to_lease"

    def __init__(self) -> None:
        super().__init__("no item became available within the wait")


class JournalError(OmniRelayError):
    code = "error.journal"


class Fenced(JournalError):
    """A higher epoch has written. This writer's term is over."""

    status = "UNAVAILABLE"
    code = "error.journal.fenced"

    def __init__(self, shard: str, epoch: int, current: int) -> None:
        super().__init__(
            f"shard {shard}: epoch {epoch} is over, epoch {current} writes now",
            shard=shard,
            epoch=epoch,
            current=current,
        )


class SequenceTaken(JournalError):
    """Somebody appended since: `expected` is not the last sequence any more."""

    status = "UNAVAILABLE"
    code = "error.journal.sequence_taken"

    def __init__(self, shard: str, expected: int, last: int) -> None:
        super().__init__(
            f"shard {shard}: expected the journal to end at {expected}, it ends at {last}",
            shard=shard,
            expected=expected,
            last=last,
        )


class Corrupt(JournalError):
    """What is stored cannot be what was written. Names the first bad sequence."""

    status = "DATA_LOSS"
    code = "error.journal.corrupt"

    def __init__(self, shard: str, sequence: int, why: str) -> None:
        super().__init__(
            f"shard {shard}: journal is damaged at sequence {sequence}: {why}",
            shard=shard,
            sequence=sequence,
        )
        self.shard = shard
        self.sequence = sequence


class JournalOwned(JournalError):
    status = "FAILED_PRECONDITION"
    code = "error.journal.owned"

    def __init__(self, path: str, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{path} is in use by {owner}: stop it, or talk to it instead of opening its file",
            pid=pid,
        )
        self.pid = pid


class TooNew(JournalError):
    """The journal is written in a way that this program does not know yet."""

    status = "FAILED_PRECONDITION"
    code = "error.journal.too_new"

    def __init__(self, shard: str, written: int, known: int) -> None:
        super().__init__(
            f"shard {shard} is written in record format {written} and this program reads up to "
            f"{known}: upgrade this node",
            written=written,
            known=known,
        )


class TooLittleDurability(JournalError):
    status = "FAILED_PRECONDITION"
    code = "error.journal.durability"


class OtherJournal(JournalError):
    """What is stored there is not the beginning of the journal that should go there."""

    status = "FAILED_PRECONDITION"
    code = "error.journal.other"

    def __init__(self, shard: str, sequence: int, why: str) -> None:
        super().__init__(f"shard {shard}: another journal is there: {why}")
        self.shard = shard
        self.sequence = sequence
