"""Judges what clients saw, and what the journal holds, after a run. Pure: no clock, no I/O.

A fence gives every grant its place in the order, so no order has to be searched for: what remains
are rules over pairs of operations, with the times of call and return. A call whose outcome is
unknown excuses others and never accuses. History and journal are those of one shard.

    R1  a grant that returned before another of the item was called has smaller fence and attempt
    R2  no fence is granted twice; no attempt of an item is, unless it was handed back
    R3  at most one token completes an item
    R4  what is done under a token is done by its holder, and before a newer grant returned
    R5  nothing is granted after its completion returned
    R6  no grant returns while the former holder's time still ran and it had not let go
    R7  an acknowledged enqueue is journaled once; a grant follows an enqueue that was called
    R8  one request id, one answer (the history must be shorter than the dedupe window)
    J1  the journals of all followers are prefixes of one
    J2  the journal has no gap
    J3  what was acknowledged is in the journal
    C1  an item begins once, and comes back only from dead letters (redriven) or drains (restored)
    C2  it ends at most once
    C3  nothing happens to it after its end
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise, permutations
from math import inf
from operator import itemgetter
from typing import Any, Literal

Kind = Literal["enqueue", "lease", "heartbeat", "complete", "fail", "release"]
Event = Mapping[str, Any]  # an event as JSON (CONTRACT §5); its shape is read, not trusted
Journal = Sequence[Event]
Token = tuple[int | None, int | None, str | None]  # sequence id, attempt, lease id

_ROUNDING_S = 1e-6
_ENDS = {"Completed": "completed", "DrainSnapshot": "drained", "Purged": "purged"}
# What an item must be for these to bring it in; "unknown" is one this journal never saw.
_BEGINS = {
    "Enqueue": ("unknown",),
    "RestoreSnapshot": ("unknown", "drained"),
    "Redriven": ("deadLettered",),
}
_EVENT_OF: dict[Kind, str] = {
    "enqueue": "Enqueue",
    "lease": "LeaseGranted",
    "heartbeat": "Heartbeat",
    "complete": "Completed",
    "fail": "Failed",
    "release": "Released",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One call as its client saw it. `returned` and `ok` are None when the outcome is unknown.

    `expires` is the time to live, in seconds, that the reply to a lease or heartbeat gave.
    """

    kind: Kind
    worker: str
    called: float
    returned: float | None = None
    ok: bool | None = None
    sequence_id: int | None = None
    attempt: int | None = None
    lease_id: str | None = None
    fence: int | None = None
    request_id: str | None = None
    duplicate: bool = False
    expires: float | None = None

    def __post_init__(self) -> None:
        returned = inf if self.returned is None else self.returned
        if (self.ok is None) != (returned == inf) or returned < self.called:
            raise ValueError(f"a known outcome has a return, after its call: {self}")
        token = (self.sequence_id, self.attempt, self.lease_id, self.fence)
        if self.ok and None in token[: 4 if self.kind == "lease" else 1]:
            raise ValueError(f"an acknowledged call names its item, a lease its token: {self}")


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    message: str
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True)
class _Grant:
    """A lease that was acknowledged; repeats under one request id are one grant."""

    op: Op
    token: Token
    item: int
    attempt: int
    fence: int
    called: float
    returned: float


class _Facts:
    """History and journal, indexed once for all rules."""

    def __init__(self, history: Sequence[Op], journal: Journal, skew_s: float) -> None:
        self.history = history
        self.journal = journal
        self.skew_s = skew_s
        self.grants = defaultdict[int | None, list[_Grant]](list)
        self.ops = defaultdict[tuple[str, Token], list[Op]](list)
        self.asked: dict[int | str | None, float] = {}
        # The request ids under which the journal has the item; None where it had no such id.
        self.enqueues = defaultdict[int | None, list[str | None]](list)
        self.entries = defaultdict[tuple[str, int | None], list[tuple[int, Event]]](list)
        for grant in sorted(_grants(history), key=lambda grant: grant.fence):
            self.grants[grant.item].append(grant)
        for op in history:
            self.ops[op.kind, _token(op)].append(op)
            if op.kind == "enqueue" and op.ok is not False:
                key = op.request_id if op.sequence_id is None else op.sequence_id
                self.asked[key] = min(op.called, self.asked.get(key, inf))
        for event in journal:
            if event["eventType"] == "Enqueue":
                request_id = (event.get("payload") or {}).get("requestId")
                self.enqueues[event["sequenceId"]].append(request_id)
            for entry in event.get("items") or [event]:
                place = (event["eventType"], entry.get("sequenceId"))
                self.entries[place].append((event["sequenceNumber"], entry))

    def acked(self, *kinds: Kind) -> Iterator[Op]:
        return (op for op in self.history if op.ok and op.kind in kinds)

    def let_go(self, former: _Grant, later: _Grant, *kinds: Kind) -> bool:
        """Whether the holder of `former` gave it up, or perhaps did, before `later`."""
        said = (op for kind in kinds for op in self.ops[kind, former.token])
        if any(op.ok is not False and op.called <= later.returned for op in said):
            return True
        last = self.number(later)
        return any(n < last for kind in kinds for n in self.numbers(kind, former.op))

    def numbers(self, kind: Kind, op: Op) -> list[int]:
        """Where the journal has `kind` under the token of `op`."""
        entries = self.entries[_EVENT_OF[kind], op.sequence_id]
        return [number for number, entry in entries if _is_about(entry, op)]

    def number(self, grant: _Grant) -> int:
        """The grant's place in the journal; after a restore the fence is ahead of it."""
        return next(iter(self.numbers("lease", grant.op)), grant.fence)

    def drained(self, former: _Grant, later: _Grant) -> bool:
        first, last = self.number(former), self.number(later)
        return any(first < n < last for n, _ in self.entries["DrainSnapshot", former.item])


def check(history: Sequence[Op], journal: Journal, *, skew_s: float = 0.0) -> list[Violation]:
    """Every breach of R1-R8, J2 and J3. `skew_s` is what R6 allows the clocks."""
    facts = _Facts(history, journal, skew_s)
    return [violation for rule in _RULES for violation in rule(facts)]


def _r1(facts: _Facts) -> Iterator[Violation]:
    for grants in facts.grants.values():
        for first, second in permutations(grants, 2):
            if first.returned >= second.called:
                continue
            has_grown = first.attempt < second.attempt or _may_repeat(facts, first, second)
            if first.fence >= second.fence or not has_grown:
                yield Violation("R1", f"item {first.item}: no growth", (first.op, second.op))


def _r2(facts: _Facts) -> Iterator[Violation]:
    by_fence: dict[int, _Grant] = {}
    for grants in facts.grants.values():
        by_attempt: dict[int, _Grant] = {}
        for grant in grants:
            twin = by_fence.setdefault(grant.fence, grant)
            former = by_attempt.get(grant.attempt, grant)
            by_attempt[grant.attempt] = grant
            if twin is not grant:
                yield Violation("R2", f"fence {grant.fence} granted twice", (twin.op, grant.op))
            elif former is not grant and not _may_repeat(facts, former, grant):
                yield Violation("R2", f"item {grant.item}: same attempt", (former.op, grant.op))


def _may_repeat(facts: _Facts, former: _Grant, later: _Grant) -> bool:
    # A released attempt was not counted. Redriven and restored items go on counting.
    is_other = former.token != later.token and former.attempt == later.attempt
    return is_other and facts.let_go(former, later, "release")


def _r3(facts: _Facts) -> Iterator[Violation]:
    first: dict[int | None, Op] = {}
    for op in facts.acked("complete"):
        winner = first.setdefault(op.sequence_id, op)
        # The same token again is a repeated request, which is answered as before.
        if _token(winner) != _token(op):
            yield Violation("R3", f"item {op.sequence_id} completed twice", (winner, op))


def _r4(facts: _Facts) -> Iterator[Violation]:
    for op in facts.acked("heartbeat", "complete", "fail", "release"):
        grants = facts.grants.get(op.sequence_id, [])
        grant = next((grant for grant in grants if grant.token == _token(op)), None)
        if grant is None:
            if not _perhaps_granted(facts, op):
                yield Violation("R4", f"{op.kind} under a token that was never granted", (op,))
        elif op.fence not in (None, grant.fence) or grant.called > (op.returned or 0.0):
            yield Violation("R4", f"{op.kind} does not match its grant", (grant.op, op))
        elif op.worker != grant.op.worker:
            yield Violation("R4", f"{op.kind} by {op.worker}, not the holder", (grant.op, op))
        elif newer := _superseded(facts, op, grant):
            ops = (grant.op, newer.op, op)
            yield Violation("R4", f"{op.kind} after fence {newer.fence} was granted", ops)


def _superseded(facts: _Facts, op: Op, grant: _Grant) -> _Grant | None:
    for newer in facts.grants[grant.item]:
        if newer.fence > grant.fence and newer.returned < op.called:
            # Letting go may be answered again later: it was done before the newer grant.
            is_done = any(n < facts.number(newer) for n in facts.numbers(op.kind, op))
            return None if is_done and op.kind in ("fail", "release") else newer
    return None


def _perhaps_granted(facts: _Facts, op: Op) -> bool:
    # The reply to the lease was lost, yet the journal knows the token.
    asked = (o for o in facts.history if o.kind == "lease" and o.ok is None)
    is_asked = any(o.worker == op.worker and o.called <= (op.returned or 0.0) for o in asked)
    return is_asked and bool(facts.numbers("lease", op))


def _r5(facts: _Facts) -> Iterator[Violation]:
    for op in facts.acked("complete"):
        for grant in facts.grants.get(op.sequence_id, []):
            if op.returned is not None and op.returned < grant.called:
                yield Violation("R5", f"item {grant.item} granted after its end", (op, grant.op))


def _r6(facts: _Facts) -> Iterator[Violation]:
    for grants in facts.grants.values():
        for former, later in combinations(grants, 2):
            until, op = _held_until(facts, former, later)
            is_early = later.returned < until - facts.skew_s - _ROUNDING_S
            is_over = facts.let_go(former, later, "fail", "release") or facts.drained(former, later)
            if is_early and not is_over:
                yield Violation("R6", f"item {later.item}: held until {until}", (op, later.op))


def _held_until(facts: _Facts, grant: _Grant, later: _Grant) -> tuple[float, Op]:
    held = [(grant.called + (grant.op.expires or 0.0), grant.op)]
    for op in facts.ops["heartbeat", grant.token]:
        # One that was called after the later grant returned is a breach of R4, not of R6.
        if op.ok and op.called <= later.returned:
            held += [(op.called + (op.expires or 0.0), op)]
    return max(held, key=itemgetter(0))


def _r7(facts: _Facts) -> Iterator[Violation]:
    for op in facts.acked("enqueue"):
        count = len(facts.enqueues[op.sequence_id])
        if count != 1:
            yield Violation("R7", f"item {op.sequence_id} is {count} times in the journal", (op,))
    for item, grants in facts.grants.items():
        earliest = min(grants, key=lambda grant: grant.returned)
        if not facts.entries["RestoreSnapshot", item] and not _was_asked(facts, earliest):
            yield Violation("R7", f"item {item} granted, but nobody enqueued it", (earliest.op,))


def _was_asked(facts: _Facts, grant: _Grant) -> bool:
    # Where the reply was lost the client cannot know the item; the journal knows the request.
    keys = [grant.item, *facts.enqueues[grant.item]]
    return any(facts.asked.get(key, inf) <= grant.returned for key in keys)


def _r8(facts: _Facts) -> Iterator[Violation]:
    answers = defaultdict[tuple[str, str, str], list[Op]](list)
    for op in facts.acked("enqueue", "lease"):
        if op.request_id is not None:
            asker = op.worker if op.kind == "lease" else ""
            answers[op.kind, op.request_id, asker].append(op)
    for (kind, request_id, _), ops in answers.items():
        if not (_is_one_lease(ops) if kind == "lease" else _is_one_enqueue(ops)):
            yield Violation("R8", f"{kind} request {request_id}: two answers", tuple(ops))
    for journaled, count in Counter(chain.from_iterable(facts.enqueues.values())).items():
        if journaled is not None and count > 1:
            yield Violation("R8", f"enqueue request {journaled} is {count} times in the journal")


def _is_one_enqueue(ops: list[Op]) -> bool:
    return len({op.sequence_id for op in ops}) == 1 and sum(not op.duplicate for op in ops) <= 1


def _is_one_lease(ops: list[Op]) -> bool:
    # A batch is one call with several leases, and its repeat names those that are still held.
    answers = defaultdict[float, set[Token]](set)
    for op in ops:
        answers[op.called].add(_token(op))
    return all(less <= more for less, more in pairwise(sorted(answers.values(), key=len)))


def _j2(facts: _Facts) -> Iterator[Violation]:
    for before, after in pairwise(event["sequenceNumber"] for event in facts.journal):
        if after != before + 1:
            yield Violation("J2", f"sequence number {after} follows {before}")


def _j3(facts: _Facts) -> Iterator[Violation]:
    for op in facts.acked(*_EVENT_OF):
        if not facts.numbers(op.kind, op):
            yield Violation("J3", f"{op.kind} of item {op.sequence_id} is not journaled", (op,))


_RULES = (_r1, _r2, _r3, _r4, _r5, _r6, _r7, _r8, _j2, _j3)


def check_prefix(journals: Sequence[Journal]) -> list[Violation]:
    """J1: each follower has seen a beginning of the longest journal, event for event."""
    longest = max(journals, key=len, default=())
    found: list[Violation] = []
    for place, journal in enumerate(journals):
        pairs = zip(journal, longest, strict=False)
        differing = next((event for event, expected in pairs if event != expected), None)
        if differing is not None:
            found += [Violation("J1", f"journal {place} differs at {differing['sequenceNumber']}")]
    return found


def check_conservation(journal: Journal) -> list[Violation]:
    """C1-C3 over a whole journal. Dead letters may still be drained or purged; an item that was
    drained elsewhere begins here with its restore."""
    found: list[Violation] = []
    state: dict[int, str] = {}
    for event in journal:
        kind = event["eventType"]
        for entry in event.get("items") or [event]:
            item = entry.get("sequenceId")
            if item is None or kind == "Refused":  # an epoch, an empty drain; nothing happened
                continue
            before, after = state.get(item, "unknown"), _after(event, entry)
            rule = _breach(kind, before, after)
            if rule is not None:
                message = f"{event['sequenceNumber']}: {kind} of item {item}, which is {before}"
                found += [Violation(rule, message)]
            if rule is None or before == "unknown":
                state[item] = after
    return found


def _after(event: Event, entry: Event) -> str:
    disposition = entry.get("disposition") or event.get("disposition")
    is_dead = event["eventType"] == "RestoreSnapshot" and entry.get("deadLetter")
    if is_dead or disposition == "deadLettered":
        return "deadLettered"
    return _ENDS.get(event["eventType"], "live")


def _breach(kind: str, before: str, after: str) -> str | None:
    allowed = _BEGINS.get(kind)
    if allowed is not None or before == "unknown":
        return None if before in (allowed or ()) else "C1"
    if before == "live" or (before == "deadLettered" and kind in ("DrainSnapshot", "Purged")):
        return None
    return "C3" if after == "live" else "C2"


def _grants(history: Sequence[Op]) -> Iterator[_Grant]:
    asked: dict[tuple[str, str], float] = {}
    seen: set[tuple[Token, str, str]] = set()
    leases = [op for op in history if op.kind == "lease" and op.ok is not False]
    for op in leases:
        # Replies that were lost count too: the grant may have been made when first asked for.
        asker = (op.worker, op.request_id or "")
        asked[asker] = min(op.called, asked.get(asker, inf))
    for op in sorted(leases, key=lambda op: op.returned or 0.0):
        asker = (op.worker, op.request_id or "")
        if not op.ok or (op.request_id and (_token(op), *asker) in seen):
            continue
        seen.add((_token(op), *asker))
        called = asked[asker] if op.request_id else op.called
        # None of the zeros is ever taken: `Op` refuses an acknowledged lease without its token.
        numbers = (op.sequence_id or 0, op.attempt or 0, op.fence or 0)
        yield _Grant(op, _token(op), *numbers, called, op.returned or 0.0)


def _token(op: Op) -> Token:
    return (op.sequence_id, op.attempt, _plain(op.lease_id))


def _is_about(entry: Event, op: Op) -> bool:
    # They must agree in what both say: a heartbeat's entry has only the fence, an old token none.
    token = entry.get("ownership") or entry
    said = (entry.get("fence"), token.get("attempt"), _plain(token.get("leaseId")))
    meant = (op.fence, op.attempt, _plain(op.lease_id))
    return all(a is None or b is None or a == b for a, b in zip(said, meant, strict=True))


def _plain(lease_id: str | None) -> str | None:
    # JSON has dashed UUIDs, the text form of a token has bare hex.
    return lease_id and lease_id.replace("-", "").lower()
