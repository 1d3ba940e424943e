"""What a success reply claims has happened, and what a record says has happened, in one form.

An acknowledged call is lost when the journal does not hold every claim its answer made.
"""

from collections.abc import Iterator, Sequence

from omnirelay.lease.answers import Accepted, Beat, Beats, Done, DrainPage, RestoreCount, Returned
from omnirelay.lease.commands import Command, Complete, Enqueue, Fail, Heartbeat, Release, Restore
from omnirelay.lease.records import (
    Completed,
    Drained,
    Enqueued,
    Failed,
    Granted,
    Record,
    Released,
    Renewed,
    Restored,
)
from omnirelay.mesh.calls import Leases, Outcome

Claim = tuple[str, int, str]
"""Event type, item, and what makes it this event and no other of its kind."""


def claims_of_record(record: Record) -> Iterator[Claim]:
    match record:
        case Enqueued():
            yield ("Enqueue", record.sequence_id, record.payload.request_id or "")
        case Granted():
            yield ("LeaseGranted", record.sequence_id, f"{record.lease_id} {record.fence}")
        case Renewed():
            for sequence_id, fence, expires_at in record.beats:
                yield ("Heartbeat", sequence_id, f"{fence} until {expires_at}")
        case Completed() | Failed() | Released():
            kind = str(type(record).__struct_config__.tag)
            yield (kind, record.sequence_id, record.lease_id)
        case Drained():
            yield from (("DrainSnapshot", item.sequence_id, "") for item in record.items)
        case Restored():
            yield from (("RestoreSnapshot", item.sequence_id, "") for item in record.items)
        case _:
            return


def claims_of_leases(outcome: Outcome) -> list[Claim]:
    if not isinstance(outcome, Leases):
        return []
    return [
        ("LeaseGranted", lease.sequence_id, f"{lease.token.lease_id} {lease.fence}")
        for lease in outcome.leases
    ]


def claims_of_answers(commands: Sequence[Command], outcomes: Sequence[Outcome]) -> list[Claim]:
    assert len(commands) == len(outcomes), "every command has an outcome of its own"
    pairs = zip(commands, outcomes, strict=True)
    return [claim for command, outcome in pairs for claim in _claims(command, outcome)]


def _claims(command: Command, outcome: Outcome) -> Iterator[Claim]:
    match command, outcome:
        case Enqueue(), Accepted():
            yield ("Enqueue", outcome.sequence_id, command.payload.request_id or "")
        case Heartbeat(), Beats():
            for token, beat in zip(command.tokens, outcome.outcomes, strict=True):
                if isinstance(beat, Beat):
                    detail = f"{token.fence} until {beat.expires_at}"
                    yield ("Heartbeat", token.sequence_id, detail)
        case Complete(), Done():
            yield ("Completed", command.token.sequence_id, command.token.lease_id)
        case Release(), Done():
            yield ("Released", command.token.sequence_id, command.token.lease_id)
        case Fail(), Returned():
            yield ("Failed", command.token.sequence_id, command.token.lease_id)
        case _, DrainPage():
            yield from (("DrainSnapshot", item.sequence_id, "") for item in outcome.items)
        case Restore(), RestoreCount():
            # What was skipped had come back before, and that is in the journal too.
            yield from (("RestoreSnapshot", item.sequence_id, "") for item in command.items)
        case _:
            return
