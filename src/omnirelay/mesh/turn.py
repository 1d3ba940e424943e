"""One turn of a shard: take what waits, decide it against the working state, gather the records.

Nothing is answered here. The shard appends what was gathered, then lets the answers go.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from omnirelay.lease.answers import Answer, Beats, LeaseResponse, answer
from omnirelay.lease.commands import (
    Command,
    Completes,
    Enqueue,
    Enqueues,
    Expire,
    Grant,
    Heartbeat,
    StartEpoch,
)
from omnirelay.lease.decide import decide
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import Enqueued
from omnirelay.lease.runs import Played, grant, play
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome
from omnirelay.mesh.refused import Refusals
from omnirelay.model import limits
from omnirelay.model.errors import Backpressure, InvalidArgument, NothingToLease, OmniRelayError
from omnirelay.model.items import Payload, Token, names_chars, wire_size
from omnirelay.model.ports import Ids

if TYPE_CHECKING:
    from omnirelay.journal.format import Sealed
    from omnirelay.journal.writer import Writer
    from omnirelay.lease.records import Item, Record


class Turn:
    def __init__(
        self,
        state: QueueState,
        options: QueueOptions,
        ids: Ids,
        now: int,
        refusals: Refusals | None = None,
    ) -> None:
        self.state = state
        self.options = options
        self.now = now
        self.records: list[Record] = []
        self.kinds: dict[type[Record], int] = {}
        """How many of each kind."""
        self.pending: list[int] = []
        self.active: list[int] = []
        self.replies: list[tuple[Call | LeaseCall, Sequence[Outcome]]] = []
        self.parted: list[Call] = []
        """Calls of which this turn decided some commands and the rest waits."""
        self.in_hand: Call | LeaseCall | None = None
        self._sealed: Sealed | None = None
        self.ids = ids
        self._refusals = refusals
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.records) >= limits.ENVELOPE_RECORDS_MAX
            or self._bytes >= limits.ENVELOPE_BYTES_MAX
        )

    def apply(self, command: Command) -> Answer | tuple[LeaseResponse, ...] | None:
        records = decide(self.state, command, self.now, self.options)
        state = self.state
        for record in records:
            evolve(state, record, self.now)
            self._count(type(record), 1)
            self.records.append(record)
            self.pending.append(len(state.pending))
            self.active.append(len(state.active))
        if type(command) is Enqueue:
            self._bytes += _weight(command.payload)
        return answer(state, command, records, self.now, self.options)

    def _count(self, kind: "type[Record]", count: int) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + count

    def _add(self, played: Played) -> None:
        self._count(type(played.records[0]), len(played.records))
        self.records.extend(played.records)
        self.pending.extend(played.pending)
        self.active.extend(played.active)

    def decide_only(self, command: StartEpoch) -> None:
        """Gather the records but leave the state alone until they are durable."""
        for record in decide(self.state, command, self.now, self.options):
            self._count(type(record), 1)
            self.records.append(record)
        self.pending.append(len(self.state.pending))
        self.active.append(len(self.state.active))

    def evolve_decided(self) -> None:
        for record in self.records:
            evolve(self.state, record, self.now)

    def sealed_by(self, writer: "Writer") -> "Sealed":
        """The envelope of its records, made once. None may be added afterwards."""
        if self._sealed is None:
            self._sealed = writer.seal(self.records, (self.pending, self.active), self.now)
        return self._sealed

    def concerned(self, calls: Sequence[Call | LeaseCall]) -> list[Call | LeaseCall]:
        """Every call this turn has touched, `calls` and those that had waited, each as it was
        before: a turn that is given up decides nothing."""
        known = dict.fromkeys([*calls, *self.parted, *(call for call, _ in self.replies)])
        if self.in_hand is not None:
            known[self.in_hand] = None
        for call in known:
            if isinstance(call, Call):
                del call.outcomes[call.settled :]
        return list(known)

    def beat(self, calls: Sequence[Call | LeaseCall]) -> dict[tuple[str, Token], Outcome]:
        """All heartbeats of these calls, one record for each proof of a principal. They go first: a
        holder that was in time must not lose to the expiry of the same turn."""
        tokens: dict[tuple[str, str | None], dict[Token, None]] = {}
        for call in calls:
            if type(call) is not Call or type(call.commands) in _WITHOUT_BEATS:
                continue
            for command in call.commands:
                if type(command) is Heartbeat:
                    who = (command.principal, command.proof)
                    tokens.setdefault(who, {}).update(dict.fromkeys(command.tokens))
        outcomes: dict[tuple[str, Token], Outcome] = {}
        for (principal, proof), named in tokens.items():
            command = Heartbeat(tokens=tuple(named), principal=principal, proof=proof)
            beats = self.apply(command)
            assert isinstance(beats, Beats)
            for token, outcome in zip(named, beats.outcomes, strict=True):
                outcomes[(principal, token)] = outcome
                if isinstance(outcome, OmniRelayError):
                    self._note(command, outcome, token)
        return outcomes

    def handle(self, call: Call, beats: dict[tuple[str, Token], Outcome]) -> bool:
        """Decide the call's commands, going on where it last stopped. False: it met backpressure
        and may wait."""
        self.in_hand = call
        outcomes, commands = call.outcomes, call.commands
        count = len(commands)
        while (at := len(outcomes)) < count:
            if count - at > 1 and self._play_run(commands, outcomes):
                continue
            command = commands[at]
            if type(command) is Heartbeat and beats:
                found = tuple(beats[(command.principal, token)] for token in command.tokens)
                outcomes.append(Beats(found))  # type: ignore[arg-type]
                continue
            try:
                outcomes.append(self.apply(command))  # type: ignore[arg-type]
            except OmniRelayError as refused:
                if isinstance(refused, Backpressure) and call.wait_ms != 0:
                    self.parted.append(call)
                    return False
                self._note(command, refused)
                outcomes.append(refused)
        self.replies.append((call, outcomes))
        return True

    def _note(self, asked: Command, refused: OmniRelayError, token: Token | None = None) -> None:
        if self._refusals is not None:
            self._refusals.note(asked, refused, self.now, token)

    def _play_run(self, commands: Sequence[Command], outcomes: list[Outcome]) -> bool:
        left = commands[len(outcomes) :] if outcomes else commands
        played = play(self.state, left, self.now, self.options)
        if played is None:
            return False
        self._add(played)
        outcomes.extend(played.answers)
        if type(played.records[0]) is Enqueued:
            records = cast("Sequence[Enqueued]", played.records)  # of one kind: it is one run
            payloads = [record.payload for record in records]
            self._bytes += sum([len(one.body) for one in payloads]) * 4 // 3 + 256 * len(payloads)
            self._bytes += sum([wire_size(one) for one in payloads if one.attributes])
        return True

    def lease(self, call: LeaseCall) -> bool:
        """Grant what the call asks for, as far as there is any. False: there is nothing yet."""
        self.in_hand = call
        wish = Grant(
            principal=call.principal,
            proof=call.proof,
            peer_id=call.peer_id,
            lease_id=self.ids.lease_id(),
            resource_types=call.resource_types,
            lease_duration_ms=call.lease_duration_ms,
            request_id=call.request_id,
        )
        recorded = len(self.records)
        try:
            _check(call)
            leases = self.apply(wish)
        except OmniRelayError as refused:
            self._note(wish, refused)
            self.replies.append((call, (refused,)))
            return True
        if leases is None:
            return False
        assert isinstance(leases, tuple)
        # No record: a repeat, which gets what is left of its leases, not more.
        if call.max_items > 1 and self.state.pending and len(self.records) > recorded:
            leases += self._lease_more(wish, call.max_items - 1, leases[0])
        self.replies.append((call, (Leases(leases),)))
        return True

    def _lease_more(
        self, wish: Grant, most: int, first: LeaseResponse
    ) -> tuple[LeaseResponse, ...]:
        """Up to `most` after the first, as long as an answer can carry them: the rest would be
        leased to nobody."""
        leases: list[LeaseResponse] = []
        lanes = self.state.lanes
        size = wire_size(first.payload, first.last_error)
        while len(leases) < most and size < limits.PAGE_BYTES_MAX:
            ahead = lanes.ahead(wish.resource_types, most - len(leases))
            chosen, size = _that_fit(ahead, size)
            if not chosen:
                break
            lease_ids = self.ids.lease_ids(len(chosen))
            played = grant(self.state, chosen, wish, lease_ids, self.now, options=self.options)
            self._add(played)
            leases.extend(played.answers)  # type: ignore[arg-type]
        return tuple(leases)

    def give_up(self, call: LeaseCall) -> None:
        self.replies.append((call, (NothingToLease(),)))

    def expire(self) -> None:
        at = self.state.deadlines.earliest()
        if at is None or at > self.now:
            return
        self.apply(Expire(limit=limits.ENVELOPE_RECORDS_MAX))


def _that_fit(items: Sequence["Item"], size: int) -> tuple[Sequence["Item"], int]:
    """As many of the first as an answer of `size` has room for, and its size with them."""
    if not [item for item in items if item.payload.attributes or item.last_error]:
        payloads = [item.payload for item in items]
        plain = size + sum([len(one.body) for one in payloads]) * 4 // 3 + len(items) * 256
        if plain + len(items) * _NAMES_BYTES >= limits.PAGE_BYTES_MAX:
            plain += 4 * sum(names_chars(payloads))
        if plain < limits.PAGE_BYTES_MAX:
            return items, plain  # all of them, whatever their names, or with the names they have
    chosen: list[Item] = []
    for item in items:
        if size >= limits.PAGE_BYTES_MAX:
            break
        chosen.append(item)
        size += wire_size(item.payload, item.last_error)
    return chosen, size


_NAMES_BYTES = 5 * 4 * limits.NAME_CHARS_MAX
"""What an item's names take in a message at the most."""
_WITHOUT_BEATS = (Enqueues, Completes)


def _weight(payload: Payload) -> int:
    # Nearly all have no attributes, and then the body is what counts.
    return wire_size(payload) if payload.attributes else len(payload.body) * 4 // 3 + 256


def _check(call: LeaseCall) -> None:
    if not 1 <= call.max_items <= limits.BATCH_MAX:
        raise InvalidArgument(f"maxItems is {call.max_items}, must be 1 to {limits.BATCH_MAX}")
    if call.resource_types is not None and len(call.resource_types) > limits.RESOURCE_TYPES_MAX:
        raise InvalidArgument(f"at most {limits.RESOURCE_TYPES_MAX} resource types a call")
