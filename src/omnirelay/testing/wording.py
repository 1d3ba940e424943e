"""Records, answers and refusals in words a person can read: the right-hand side of a scenario."""

from collections.abc import Iterator
from typing import assert_never

from omnirelay.lease import answers
from omnirelay.lease.records import (
    Completed,
    Drained,
    Enqueued,
    EpochStarted,
    Expired,
    Failed,
    Followed,
    Granted,
    Item,
    Purged,
    Record,
    Redriven,
    Refused,
    Released,
    Renewed,
    Restored,
)
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import ErrorInfo, Payload, PendingItem, Token, to_ms
from omnirelay.testing.folded import Reply

_SHOWN = 12
"""Characters of a body that are shown."""


def record_lines(record: Record) -> Iterator[str]:
    match record:
        case EpochStarted():
            yield f"EpochStarted {record.epoch}"
        case Enqueued():
            yield _joined("Enqueue", record.sequence_id, payload(record.payload), _enqueued(record))
        case Granted():
            until = f"until {record.expires_at}"
            yield _joined(_grant("LeaseGranted", record), until, f"to {record.principal}")
        case Renewed():
            beats = (f"{i} fence {fence} until {until}" for i, fence, until in record.beats)
            yield f"Heartbeat {', '.join(beats)}"
        case Completed():
            yield _grant("Completed", record)
        case Released():
            yield _grant("Released", record)
        case Failed():
            at = _named("available", record.available_at)
            details = "".join(f" {k}={v}" for k, v in (record.details or {}).items())
            yield _joined(_grant("Failed", record), record.disposition, at, error(record.error))
            if details:
                yield f"  with{details}"
        case Expired():
            yield _joined(_grant("Expired", record), record.disposition)
        case Drained():
            yield "DrainSnapshot"
            yield from (f"  {item(each)}" for each in record.items)
        case Restored():
            yield _joined("RestoreSnapshot", _named("above fence", record.fence_floor))
            yield from (f"  {item(each)}" for each in record.items)
        case Redriven():
            yield f"Redriven {_ids(record.sequence_ids)} for {record.extra_attempts} attempts more"
        case Purged():
            yield f"Purged {_ids(record.sequence_ids)}"
        case Refused():
            token = _joined(
                _named("of", record.sequence_id or 0), _named("attempt", record.attempt or 0)
            )
            said = _joined(
                "Refused", record.verb, token, f"{record.times} times by {record.principal}:"
            )
            yield _joined(said, record.code)
        case Followed():
            yield f"Followed by {record.reader} to {record.position}, {record.lag_ms} ms behind"
        case _ as never:
            assert_never(never)


def _enqueued(record: Enqueued) -> str:
    return _joined(
        _named("priority", record.priority),
        _named("available", record.available_at),
        _named("attempts", record.max_attempts),
        _named("lease", record.lease_ms),
    )


def _grant(word: str, record: Granted | Completed | Released | Failed | Expired) -> str:
    return f"{word} {record.sequence_id} attempt {record.attempt} fence {record.fence}"


def payload(one: Payload) -> str:
    body = one.body[:_SHOWN].decode(errors="replace")
    return _joined(
        f"{one.resource_type}/{one.resource_id}",
        f"key {one.partition_key}" if one.partition_key is not None else "",
        f"request {one.request_id}" if one.request_id is not None else "",
        f"body {body}" if body else "",
    )


def error(info: ErrorInfo | None) -> str:
    if info is None:
        return ""
    return f'error "{info.message}" ({info.code})' if info.code else f'error "{info.message}"'


def item(one: Item) -> str:
    """An item with everything that must survive a journey. What is not said is null or default."""
    return _joined(
        one.sequence_id,
        payload(one.payload),
        f"attempt {one.attempt} enqueued {one.enqueued_at}",
        _named("priority", one.priority),
        _named("available", one.available_at),
        _named("attempts", one.max_attempts),
        _named("lease", one.lease_ms),
        error(one.last_error),
        _last(one.last_token),
        f"from {one.origin}" if one.origin is not None else "",
        "dead" if one.dead else "",
    )


def pending_item(one: PendingItem) -> str:
    """The same words for an item as the caller is given it."""
    return item(
        Item(
            one.sequence_id,
            one.payload,
            one.attempt,
            to_ms(one.enqueued_at),
            one.priority,
            to_ms(one.available_at) if one.available_at is not None else 0,
            one.max_attempts or 0,
            one.lease_duration_ms or 0,
            one.last_error,
            one.last_ownership_token,
            one.origin,
            one.dead_letter,
        )
    )


def _last(token: Token | None) -> str:
    return "" if token is None else f"last held as attempt {token.attempt} fence {token.fence}"


def refusal(error: OmniRelayError) -> str:
    details = (f"{name}={value}" for name, value in sorted(error.details.items()))
    return _joined(f"! {type(error).__name__} {error.code}", *details)


def answer_lines(reply: Reply, *, had_records: bool) -> Iterator[str]:
    """What the caller was told, where the records do not say it already."""
    match reply:
        case None:
            yield "-> nothing to lease"
        case answers.Accepted(duplicate=True):
            yield f"-> duplicate of {reply.sequence_id}"
        case answers.Beats():
            yield from (f"-> {_beat(outcome)}" for outcome in reply.outcomes)
        case answers.Done() if not had_records:
            yield "-> done, nothing to record"
        case answers.DrainPage():
            yield f"-> {len(reply.items)} drained, {reply.remaining} remain"
        case answers.RestoreCount():
            yield f"-> {reply.restored_count} restored, {reply.skipped_count} skipped"
        case answers.Count() if not had_records:
            yield f"-> {reply.count}"
        case answers.Stats():
            yield f"-> {_stats(reply)}"
        case answers.ItemView():
            yield f"-> {reply.state} {pending_item(reply.item)}"
            yield from [f"   {_holding(reply)}"] if reply.token is not None else []
        case answers.DeadPage():
            yield f"-> {len(reply.items)} of {reply.total}"
            yield from (f"   {pending_item(each)}" for each in reply.items)
        case tuple() if not had_records:
            yield from (f"-> held already: {_lease(lease)}" for lease in reply)
        case _:
            return


def _beat(outcome: answers.Beat | OmniRelayError) -> str:
    if isinstance(outcome, OmniRelayError):
        return refusal(outcome)
    return f"until {outcome.expires_at}"


def _lease(lease: answers.LeaseResponse) -> str:
    token = lease.token
    until = to_ms(lease.expires_at)
    return f"{token.sequence_id} attempt {token.attempt} fence {token.fence} until {until}"


def _holding(view: answers.ItemView) -> str:
    assert view.token is not None
    return f"fence {view.token.fence} until {view.expires_at} held by {view.principal}"


def _stats(stats: answers.Stats) -> str:
    age = stats.oldest_pending_age_ms
    return _joined(
        f"{stats.pending_count} pending, {stats.delayed_count} of them delayed,",
        f"{stats.active_lease_count} leased, {stats.dead_letter_count} dead",
        "" if age is None else f"oldest {age} ms",
        "backpressure" if stats.backpressure else "",
    )


def _named(word: str, value: int) -> str:
    return f"{word} {value}" if value else ""


def _ids(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _joined(*parts: object) -> str:
    return " ".join(str(part) for part in parts if part != "")
