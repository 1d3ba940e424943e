"""Which records a command leads to, or the named refusal. Changes nothing."""

from collections.abc import Callable
from typing import Any

import msgspec

from omnirelay.lease import deciding_moves as moves
from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Expire,
    Fail,
    Grant,
    Heartbeat,
    Inspect,
    ListDead,
    New,
    Purge,
    ReadStats,
    Redrive,
    Release,
    Remain,
    Restore,
    StartEpoch,
    TellFollowed,
    TellRefused,
    Who,
)
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import (
    DEAD_LETTERED,
    REQUEUED,
    TOLD_FORMAT,
    Completed,
    Enqueued,
    EpochStarted,
    Expired,
    Failed,
    Granted,
    Item,
    Record,
    Released,
    Renewed,
)
from omnirelay.lease.state import Held, QueueState
from omnirelay.model import limits
from omnirelay.model.errors import (
    Backpressure,
    InvalidArgument,
    NotHolder,
    OmniRelayError,
    QueueFull,
    StaleToken,
    UnknownToken,
)
from omnirelay.model.items import ErrorInfo, Token, check_payload

Records = tuple[Record, ...]

EXPIRED_ERROR = ErrorInfo("the lease expired without a heartbeat", "error.taskqueue.lease_expired")


def decide(state: QueueState, command: Command, now: int, options: QueueOptions) -> Records:
    """`now` is the shard's clock. Raises a subclass of OmniRelayError when the answer is no."""
    return _DECIDE[type(command)](state, command, now, options)


def _start_epoch(
    state: QueueState, command: StartEpoch, now: int, options: QueueOptions
) -> Records:
    rules = options.rules()
    # It never falls: what was written so is in the journal.
    format_ = max(command.format, state.rules.format)
    if command.ttl_ms or command.url or format_ != rules.format:
        rules = msgspec.structs.replace(
            rules, ttl_ms=command.ttl_ms, url=command.url, format=format_
        )
    return (EpochStarted(command.epoch, command.node, command.origin, rules),)


def _remain(state: QueueState, command: Remain, now: int, options: QueueOptions) -> Records:
    return (Renewed((), command.principal),)


def _tell_refused(
    state: QueueState, command: TellRefused, now: int, options: QueueOptions
) -> Records:
    return command.refused if state.rules.format >= TOLD_FORMAT else ()


def _tell_followed(
    state: QueueState, command: TellFollowed, now: int, options: QueueOptions
) -> Records:
    return command.followed if state.rules.format >= TOLD_FORMAT else ()


def _enqueue(state: QueueState, command: Enqueue, now: int, options: QueueOptions) -> Records:
    payload = command.payload
    check_payload(payload)
    if payload.request_id is not None and known_request(state, payload.request_id, now):
        return ()
    pending = len(state.pending)
    if pending >= options.capacity:
        raise QueueFull(pending, options.capacity)
    if state.paused:
        rules = state.rules
        raise Backpressure(pending, rules.pending_high, rules.pending_low)
    return (enqueued(command, command, state.last_id + 1, now),)


def enqueued(item: New, who: Who, sequence_id: int, now: int) -> Enqueued:
    """Raises InvalidArgument. `check_payload` is the caller's."""
    return Enqueued(
        sequence_id,
        item.payload,
        _priority(item.priority) if item.priority else 0,
        now + checked("delayMs", item.delay_ms, limits.DELAY_MS_MAX) if item.delay_ms else 0,
        0
        if item.max_attempts is None
        else checked("maxAttempts", item.max_attempts, limits.ATTEMPTS_MAX, 1),
        0 if item.lease_duration_ms is None else _lease_ms(item.lease_duration_ms),
        who.peer_id,
        who.principal,
        who.proof,
    )


def known_request(state: QueueState, request_id: str, now: int) -> int | None:
    """The item this request id made, while the window lasts."""
    return state.requests.recall(request_id, now - state.rules.dedupe_window_ms)


def _grant(state: QueueState, command: Grant, now: int, options: QueueOptions) -> Records:
    request_id = command.request_id
    if command.lease_duration_ms:
        _lease_ms(command.lease_duration_ms)
    if request_id is not None and command.index == 0:
        if len(request_id) > limits.NAME_CHARS_MAX:
            raise InvalidArgument(f"requestId is longer than {limits.NAME_CHARS_MAX} characters")
        served = leases_of_request(state, request_id, now)
        if served:
            if any(held.principal != command.principal for held in served):
                raise NotHolder(served[0].item.sequence_id)
            return ()
        if served is not None:
            # A late copy of a request whose work is over must not take another item for nobody.
            raise StaleToken(
                0, "this lease request was answered and its lease is over; use a new request id"
            )
    if state.delayed:
        state.ripen(now)
    item = state.lanes.first(command.resource_types)
    if item is None:
        return ()
    fence, usual_ms = state.next_fence(), options.lease_duration_ms
    return (granted(item, command, command.lease_id, fence, now, usual_ms=usual_ms),)


def granted(
    item: Item, command: Grant, lease_id: str, fence: int, now: int, *, usual_ms: int
) -> Granted:
    lease_ms = command.lease_duration_ms or item.lease_ms or usual_ms
    return Granted(
        item.sequence_id,
        item.attempt,
        lease_id,
        fence,
        now + lease_ms,
        lease_ms,
        command.peer_id,
        command.principal,
        command.request_id,
        command.proof,
    )


def leases_of_request(state: QueueState, request_id: str, now: int) -> list[Held] | None:
    """Leases this request id was given before and that are still held; None if it is new."""
    served = state.lease_requests.recall(request_id, now - state.rules.dedupe_window_ms)
    if served is None:
        return None
    held = (state.active.get(sequence_id) for sequence_id in served)
    return [h for h in held if h is not None and h.request_id == request_id and h.expires_at > now]


def _heartbeat(state: QueueState, command: Heartbeat, now: int, options: QueueOptions) -> Records:
    beats: dict[int, tuple[int, int, int]] = {}
    peers: set[str | None] = set()
    for token in command.tokens:
        held = held_by(state, token, command.principal, now)
        if held is not None:
            beats[token.sequence_id] = (token.sequence_id, held.fence, now + held.lease_ms)
            peers.add(held.peer_id)
    if not beats:
        return ()
    peer_id = peers.pop() if len(peers) == 1 else None
    return (Renewed(tuple(beats.values()), command.principal, command.proof, peer_id),)


def _complete(state: QueueState, command: Complete, now: int, options: QueueOptions) -> Records:
    token = command.token
    held = held_by(state, token, command.principal, now)
    if held is None:
        if state.finished.get(token.sequence_id) == token.lease_id:
            return ()
        raise refusal(state, token, command.principal)
    item = held.item
    return (
        Completed(
            item.sequence_id,
            item.attempt,
            held.lease_id,
            held.fence,
            held.peer_id,
            command.principal,
            command.proof,
        ),
    )


def _fail(state: QueueState, command: Fail, now: int, options: QueueOptions) -> Records:
    held = _held_or_refuse(state, command.token, command.principal, now)
    item = held.item
    last = item.attempt >= (item.max_attempts or options.max_attempts)
    dead = last or not command.requeue
    delay = 0
    if not dead:
        delay = (
            requeue_delay(held, options)
            if command.delay_ms is None
            else checked("delayMs", command.delay_ms, limits.DELAY_MS_MAX)
        )
    message = (command.reason or "").strip() or "lease failed"
    code = (command.error_code or "").strip() or "error.resourcelease.failed"
    return (
        Failed(
            item.sequence_id,
            item.attempt,
            held.lease_id,
            held.fence,
            ErrorInfo(message[: limits.ERROR_CHARS_MAX], code[: limits.NAME_CHARS_MAX]),
            DEAD_LETTERED if dead else REQUEUED,
            now + delay if delay else 0,
            _metadata(command.metadata),
            held.peer_id,
            command.principal,
            command.proof,
        ),
    )


def requeue_delay(held: Held, options: QueueOptions) -> int:
    """Exponential, capped, with jitter. The jitter comes from the lease id, so that deciding the
    same thing twice gives the same answer."""
    base = options.requeue_delay_ms * options.requeue_backoff ** min(held.item.attempt - 1, 64)
    capped = min(base, options.requeue_delay_max_ms)
    spread = int(held.lease_id[:8], 16) / 0xFFFFFFFF * 2 - 1
    delay = int(capped * (1 + options.requeue_jitter * spread))
    return min(delay, options.requeue_delay_max_ms)


def _release(state: QueueState, command: Release, now: int, options: QueueOptions) -> Records:
    held = _held_or_refuse(state, command.token, command.principal, now)
    return (
        Released(
            held.item.sequence_id,
            held.item.attempt,
            held.lease_id,
            held.fence,
            held.peer_id,
            command.principal,
            command.proof,
        ),
    )


def _expire(state: QueueState, command: Expire, now: int, options: QueueOptions) -> Records:
    records: list[Record] = []
    for sequence_id in state.deadlines.due(now, command.limit):
        held = state.active[sequence_id]
        item = held.item
        last = item.attempt >= (item.max_attempts or options.max_attempts)
        records.append(
            Expired(
                sequence_id,
                item.attempt,
                held.lease_id,
                held.fence,
                EXPIRED_ERROR,
                DEAD_LETTERED if last else REQUEUED,
                held.peer_id,
                held.principal,
            )
        )
    return tuple(records)


# -- whose token is it --------------------------------------------------------------------------


def held_by(state: QueueState, token: Token, principal: str, now: int) -> Held | None:
    """The lease this token proves, if it is held now and by this principal. A lease whose time is
    up is over, whether or not its expiry has been recorded yet."""
    held = state.active.get(token.sequence_id)
    if (
        held is None
        or held.lease_id != token.lease_id
        or held.item.attempt != token.attempt
        or held.expires_at <= now
        or held.principal != principal
        or (token.fence is not None and token.fence != held.fence)
    ):
        return None
    return held


def _held_or_refuse(state: QueueState, token: Token, principal: str, now: int) -> Held:
    held = held_by(state, token, principal, now)
    if held is None:
        raise refusal(state, token, principal)
    return held


def refusal(state: QueueState, token: Token, principal: str) -> OmniRelayError:
    """Why `held_by` said no, in words and with the current fence."""
    sequence_id = token.sequence_id
    held = state.active.get(sequence_id)
    if held is not None:
        if held.lease_id != token.lease_id:
            return StaleToken(sequence_id, "it was granted again", held.fence)
        if held.principal != principal:
            return NotHolder(sequence_id)
        if held.item.attempt != token.attempt or token.fence not in (None, held.fence):
            return StaleToken(sequence_id, "attempt or fence is not this grant's", held.fence)
        return StaleToken(sequence_id, "its time is up", held.fence)
    item = state.pending.get(sequence_id)
    if item is None and (dead := state.dead.get(sequence_id)) is not None:
        item = dead.item
    if item is not None and item.last_token is not None:
        return StaleToken(sequence_id, "it expired, failed or was released", item.last_token.fence)
    if state.finished.get(sequence_id) is not None:
        return StaleToken(sequence_id, "the item was completed by another grant")
    if sequence_id in state.drained:
        return StaleToken(sequence_id, "the item was drained")
    return UnknownToken(sequence_id)


def checked(name: str, value: int, high: int, low: int = 0) -> int:
    if not low <= value <= high:
        raise InvalidArgument(f"{name} is {value}, must be {low} to {high}")
    return value


def _priority(value: int) -> int:
    return checked("priority", value, limits.PRIORITY_ABS_MAX, -limits.PRIORITY_ABS_MAX)


def _lease_ms(value: int) -> int:
    return checked("leaseDurationMs", value, limits.LEASE_MS_MAX, limits.LEASE_MS_MIN)


def _metadata(metadata: dict[str, str] | None) -> dict[str, str] | None:
    if not metadata:
        return None
    name_most, most = limits.NAME_CHARS_MAX, limits.ATTRIBUTE_CHARS_MAX
    if len(metadata) > limits.ATTRIBUTES_MAX:
        raise InvalidArgument(f"metadata has more than {limits.ATTRIBUTES_MAX} entries")
    if any(len(name) > name_most or len(value) > most for name, value in metadata.items()):
        raise InvalidArgument(f"a metadata name passes {name_most} characters or a value {most}")
    return metadata


def _nothing(state: QueueState, command: Command, now: int, options: QueueOptions) -> Records:
    return ()


# Any: each function takes its own command type; the key is that type.
_DECIDE: dict[type, Callable[[QueueState, Any, int, QueueOptions], Records]] = {
    StartEpoch: _start_epoch,
    Remain: _remain,
    TellRefused: _tell_refused,
    TellFollowed: _tell_followed,
    Enqueue: _enqueue,
    Grant: _grant,
    Heartbeat: _heartbeat,
    Complete: _complete,
    Fail: _fail,
    Release: _release,
    Expire: _expire,
    Drain: moves.drain,
    Restore: moves.restore,
    Redrive: moves.redrive,
    Purge: moves.purge,
    ReadStats: _nothing,
    Inspect: _nothing,
    ListDead: _nothing,
}
