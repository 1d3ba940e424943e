"""Runs: many commands of one kind decided, applied and answered in one go.

A batch of a hundred would else pay a hundred times for finding its function, for tuples of one and
for rules that cannot change in between. `decide`, `evolve` and `answer` stay the definition of what
happens: a run is what they would do one after the other. It stops short of the first command that
is not plainly taken, and leaves that one to them (tests/model/test_runs.py holds the two together).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, repeat, takewhile
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

from omnirelay.lease.answers import DONE, Accepted, Answer, leased_all
from omnirelay.lease.commands import (
    Command,
    Complete,
    Completes,
    Enqueue,
    Enqueues,
    Grant,
    New,
    Who,
)
from omnirelay.lease.decide import enqueued
from omnirelay.lease.evolve import evolve, remember_lease, remember_requests
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import Completed, Enqueued, Granted, Item, Record
from omnirelay.lease.state import Held, QueueState
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.items import Token, are_good, check_payload

Run = Enqueued | Granted | Completed


class Played(NamedTuple):
    """What a run made. `pending` and `active` are the depths after each record."""

    records: Sequence[Run]
    pending: Sequence[int]
    active: Sequence[int]
    answers: Sequence[Answer]
    """One a record."""


def play(
    state: QueueState, commands: Sequence[Command], now: int, options: QueueOptions
) -> Played | None:
    """Decide and apply as many of the first commands as are plainly taken. None: the first one is
    not, or is of a kind that has no runs."""
    pending, active = len(state.pending), len(state.active)
    if type(commands) is Enqueues or type(commands[0]) is Enqueue:
        records = _enqueues(state, commands, now, options)
        if not records:
            return None
        evolve_run(state, records, now)
        depths = range(pending + 1, pending + len(records) + 1)
        first = records[0].sequence_id
        numbers = range(first, first + len(records))
        answers = list(map(Accepted, numbers, repeat(False), depths, repeat(active)))
        return Played(records, depths, [active] * len(records), answers)
    if type(commands) is not Completes and type(commands[0]) is not Complete:
        return None
    ended = _completes(state, commands, now)
    if not ended:
        return None
    evolve_run(state, ended, now)
    count = len(ended)
    return Played(
        ended, [pending] * count, range(active - 1, active - count - 1, -1), [DONE] * count
    )


def grant(
    state: QueueState,
    items: Sequence[Item],
    wish: Grant,
    lease_ids: Sequence[str],
    now: int,
    *,
    options: QueueOptions,
) -> Played:
    """`items` as `state.lanes.ahead` gave them, after a grant that found `wish` in order."""
    usual_ms, asked_ms = options.lease_duration_ms, wish.lease_duration_ms
    pending, active, count = len(state.pending), len(state.active), len(items)
    fence = state.next_fence()
    lease_ms = [asked_ms or item.lease_ms or usual_ms for item in items]
    records = list(
        map(
            Granted,
            [item.sequence_id for item in items],
            [item.attempt for item in items],
            lease_ids,
            range(fence, fence + count),
            [now + one for one in lease_ms],
            lease_ms,
            repeat(wish.peer_id),
            repeat(wish.principal),
            repeat(wish.request_id),
            repeat(wish.proof),
        )
    )  # `decide.granted`, spelled out: this is the way of every batch
    assert len(records) == count, "there are as many lease ids as items"
    evolve_run(state, records, now)
    held = state.active
    return Played(
        records,
        range(pending - 1, pending - count - 1, -1),
        range(active + 1, active + count + 1),
        leased_all([held[record.sequence_id] for record in records], options),
    )


# -- deciding -----------------------------------------------------------------------------------


def _enqueues(
    state: QueueState, commands: Sequence[Command], now: int, options: QueueOptions
) -> list[Enqueued]:
    records: list[Enqueued] = []
    if state.paused:
        return records
    rules, recall = state.rules, state.requests.recall
    most = min(options.capacity, rules.pending_high or options.capacity) - len(state.pending)
    since, named = now - rules.dedupe_window_ms, set()
    items, who = _new_items(commands)
    items = items[: max(0, most)]
    payloads = [item.payload for item in items]
    are_new = _are_new(state, [payload.request_id for payload in payloads])
    if are_new and _are_plain(items) and are_good(payloads):
        first = state.last_id + 1
        return list(
            map(
                Enqueued,
                range(first, first + len(items)),
                payloads,
                repeat(0),
                repeat(0),
                repeat(0),
                repeat(0),
                repeat(who.peer_id),
                repeat(who.principal),
                repeat(who.proof),
            )
        )  # what `enqueued` makes of one that says nothing special, as nearly all do
    sequence_id = state.last_id
    for item in items:
        request_id = item.payload.request_id
        if not are_new and request_id is not None:
            if request_id in named or recall(request_id, since) is not None:
                break
            named.add(request_id)
        sequence_id += 1
        try:
            check_payload(item.payload)
            records.append(enqueued(item, who, sequence_id, now))
        except InvalidArgument:
            break
    return records


def _are_plain(items: Sequence[New]) -> bool:
    """Whether none of them says more than what it is about."""
    return not [
        item
        for item in items
        if item.priority
        or item.delay_ms
        or item.max_attempts is not None
        or item.lease_duration_ms is not None
    ]


def _are_new(state: QueueState, request_ids: list[str | None]) -> bool:
    """Whether none of them needs to be looked up by itself."""
    keys = [key for key in request_ids if key is not None]
    return not keys or (len(keys) == len(request_ids) and state.requests.are_new(keys))


def _new_items(commands: Sequence[Command]) -> tuple[Sequence[New], Who]:
    """As many of the first as are enqueues of one caller."""
    if type(commands) is Enqueues:
        return commands.items, commands
    first = commands[0]
    items = list(takewhile(lambda one: type(one) is Enqueue and _is_by(one, first), commands))
    return items, first  # type: ignore[return-value]


def _is_by(command: Command, who: Who) -> bool:
    return (
        command.principal == who.principal
        and command.peer_id == who.peer_id
        and command.proof == who.proof
    )


def _completes(state: QueueState, commands: Sequence[Command], now: int) -> list[Completed]:
    records: list[Completed] = []
    tokens, principal, proof = _tokens(commands)
    named: set[int] = set()
    active = state.active
    for token in tokens:
        sequence_id = token.sequence_id
        held = active.get(sequence_id)
        if held is None or sequence_id in named:
            break
        lease_id, fence, attempt = held.lease_id, held.fence, held.item.attempt
        if (
            lease_id != token.lease_id
            or attempt != token.attempt
            or held.expires_at <= now
            or held.principal != principal
            or (token.fence is not None and token.fence != fence)
        ):  # `held_by`, spelled out: this is the way of every batch
            break
        named.add(sequence_id)
        records.append(
            Completed(sequence_id, attempt, lease_id, fence, held.peer_id, principal, proof)
        )
    return records


def _tokens(commands: Sequence[Command]) -> tuple[Sequence[Token], str, str | None]:
    """Of as many of the first as are completions by one caller."""
    if type(commands) is Completes:
        return commands.tokens, commands.principal, commands.proof
    first = commands[0]
    ends = takewhile(lambda one: type(one) is Complete and _is_by(one, first), commands)
    return [one.token for one in ends], first.principal, first.proof  # type: ignore[attr-defined]


# -- applying -----------------------------------------------------------------------------------


def evolve_all(state: QueueState, records: Iterable[Record], at: int) -> None:
    """`evolve` for each, in runs of one kind. Where one does not follow from those before it,
    `state.sequence` is that one's when the error comes out."""
    for _, run in groupby(records, type):
        evolve_run(state, list(run), at)


def evolve_run(state: QueueState, records: Sequence[Record], at: int) -> None:
    """`evolve` for records of one kind."""
    apply = None if state.serialized or len(records) == 1 else _APPLY.get(type(records[0]))
    if apply is None:
        for record in records:
            evolve(state, record, at)
        return
    state.at = at
    if state.delayed:
        state.ripen(at)
    apply(state, records)
    if state.rules.pending_high:
        state.watch_level()  # by level, and within a run the level only rises or only falls


def _enqueued(state: QueueState, records: Sequence[Enqueued]) -> None:
    first, count = state.last_id + 1, len(records)
    numbers = [record.sequence_id for record in records]
    if numbers != list(range(first, first + count)):
        _out_of_line(state, numbers, first, "item")
    payloads = [record.payload for record in records]
    items = list(
        map(
            Item,
            numbers,
            payloads,
            repeat(1),
            repeat(state.at),
            [record.priority for record in records],
            [record.available_at for record in records],
            [record.max_attempts for record in records],
            [record.lease_ms for record in records],
        )
    )
    state.sequence += count
    state.last_id += count
    state.insert_all(items)
    remember_requests(state, [payload.request_id for payload in payloads], first)


def _out_of_line(state: QueueState, found: Sequence[int], first: int, what: str) -> NoReturn:
    place = next(place for place, one in enumerate(found) if one != first + place)
    state.sequence += place + 1
    raise AssertionError(f"{what} {found[place]} out of line, {first + place} is next")


def _granted(state: QueueState, records: Sequence[Granted]) -> None:
    sequence_ids = [record.sequence_id for record in records]
    fences, next_fence = [record.fence for record in records], state.next_fence()
    if fences != list(range(next_fence, next_fence + len(records))):
        _out_of_line(state, fences, next_fence, "fence")
    try:
        items = state.hold_all(sequence_ids)
    except KeyError as missing:
        state.sequence += 1 + sequence_ids.index(missing.args[0])
        raise
    ends = [record.expires_at for record in records]
    held = list(
        map(
            Held,
            items,
            [record.lease_id for record in records],
            fences,
            ends,
            repeat(state.at),
            [record.lease_ms for record in records],
            [record.principal for record in records],
            [record.peer_id for record in records],
            [record.request_id for record in records],
        )
    )
    state.active.update(zip(sequence_ids, held, strict=True))
    state.sequence += len(records)
    state.deadlines.add_all(sequence_ids, ends)
    for request_id, run in groupby(records, attrgetter("request_id")):
        if request_id is not None:
            remember_lease(state, request_id, *[record.sequence_id for record in run])


def _completed(state: QueueState, records: Sequence[Completed]) -> None:
    sequence_ids = [record.sequence_id for record in records]
    ends: list[int] = []
    pop, end = state.active.pop, ends.append
    try:
        for sequence_id, record in zip(sequence_ids, records, strict=True):
            held = pop(sequence_id)
            assert held.fence == record.fence, f"end of fence {record.fence}, held by {held.fence}"
            end(held.expires_at)
    except BaseException:
        state.sequence += len(ends) + 1
        raise
    state.sequence += len(ends)
    state.deadlines.remove_all(sequence_ids, ends)
    lease_ids = [record.lease_id for record in records]
    state.finished.put_all(sequence_ids, lease_ids, state.at, state.rules.finished_entries)


# Any: each function takes its own record type; the key is that type.
_APPLY: dict[type, Any] = {Enqueued: _enqueued, Granted: _granted, Completed: _completed}
