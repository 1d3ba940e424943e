"""One turn of a shard: take what waits, decide it against the working state, gather the records.

Nothing is answered here. The shard appends what was gathered, then lets the answers go.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnirelay.lease.answers import Answer, Beats, Leased, answer
from omnirelay.lease.commands import (
    Command,
    Enqueue,
    Expire,
    Grant,
    Heartbeat,
    StartEpoch,
)
from omnirelay.lease.decide import decide
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import Call, LeaseCall, LeaseReply, Outcome
from omnirelay.model import limits
from omnirelay.model.errors import Backpressure, InvalidArgument, NothingToLease, OmniRelayError
from omnirelay.model.items import Token, wire_size
from omnirelay.model.ports import Ids

if TYPE_CHECKING:
    from omnirelay.lease.records import Record


class Turn:
    def __init__(self, state: QueueState, options: QueueOptions, ids: Ids, now: int) -> None:
        self.state = state
        self.options = options
        self.now = now
        self.records: list[Record] = []
        self.pending: list[int] = []
        self.active: list[int] = []
        self.replies: list[tuple[Call | LeaseCall, Sequence[Outcome]]] = []
        self.parted: list[Call] = []
        """Calls of which this turn decided some commands and the rest waits."""
        self.in_hand: Call | LeaseCall | None = None
        self._ids = ids
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.records) >= limits.ENVELOPE_RECORDS_MAX
            or self._bytes >= limits.ENVELOPE_BYTES_MAX
        )

    def apply(self, command: Command) -> Answer | tuple[Leased, ...] | None:
        records = decide(self.state, command, self.now, self.options)
        state = self.state
        for record in records:
            evolve(state, record, self.now)
            self.records.append(record)
            self.pending.append(len(state.pending))
            self.active.append(len(state.active))
        if type(command) is Enqueue:
            payload = command.payload
            # Nearly all have none, and then the body is what counts.
            self._bytes += (
                wire_size(payload) if payload.attributes else len(payload.body) * 4 // 3 + 256
            )
        return answer(state, command, records, self.now, self.options)

    def decide_only(self, command: StartEpoch) -> None:
        """Gather the records but leave the state alone until they are durable."""
        self.records.extend(decide(self.state, command, self.now, self.options))
        self.pending.append(len(self.state.pending))
        self.active.append(len(self.state.active))

    def evolve_decided(self) -> None:
        for record in self.records:
            evolve(self.state, record, self.now)

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
            for command in call.commands if type(call) is Call else ():
                if type(command) is Heartbeat:
                    who = (command.principal, command.proof)
                    tokens.setdefault(who, {}).update(dict.fromkeys(command.tokens))
        outcomes: dict[tuple[str, Token], Outcome] = {}
        for (principal, proof), named in tokens.items():
            beats = self.apply(Heartbeat(tokens=tuple(named), principal=principal, proof=proof))
            assert isinstance(beats, Beats)
            for token, outcome in zip(named, beats.outcomes, strict=True):
                outcomes[(principal, token)] = outcome
        return outcomes

    def handle(self, call: Call, beats: dict[tuple[str, Token], Outcome]) -> bool:
        """Decide the call's commands, going on where it last stopped. False: it met backpressure
        and may wait."""
        self.in_hand = call
        outcomes = call.outcomes
        for command in call.commands[len(outcomes) :]:
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
                outcomes.append(refused)
        self.replies.append((call, outcomes))
        return True

    def lease(self, call: LeaseCall) -> bool:
        """Grant what the call asks for, as far as there is any. False: there is nothing yet."""
        leases: list[Leased] = []
        size = 0
        self.in_hand = call
        try:
            _check(call)
            for index in range(call.max_items):
                recorded = len(self.records)
                granted = self.apply(
                    Grant(
                        principal=call.principal,
                        proof=call.proof,
                        peer_id=call.peer_id,
                        lease_id=self._ids.lease_id(),
                        resource_types=call.resource_types,
                        lease_duration_ms=call.lease_duration_ms,
                        request_id=call.request_id,
                        index=index,
                    )
                )
                if granted is None:
                    break
                assert isinstance(granted, tuple)
                leases.extend(granted)
                if len(leases) >= call.max_items or len(self.records) == recorded:
                    break  # no record: a repeat, which gets what is left of its leases, not more
                size += wire_size(leases[-1].payload, leases[-1].last_error)
                if size >= limits.PAGE_BYTES_MAX:
                    break  # what no answer could carry would be leased to nobody
        except OmniRelayError as refused:
            self.replies.append((call, (refused,)))
            return True
        if not leases:
            return False
        self.replies.append((call, (LeaseReply(tuple(leases)),)))
        return True

    def give_up(self, call: LeaseCall) -> None:
        self.replies.append((call, (NothingToLease(),)))

    def expire(self) -> None:
        at = self.state.deadlines.earliest()
        if at is None or at > self.now:
            return
        self.apply(Expire(limit=limits.ENVELOPE_RECORDS_MAX))


def _check(call: LeaseCall) -> None:
    if not 1 <= call.max_items <= limits.BATCH_MAX:
        raise InvalidArgument(f"maxItems is {call.max_items}, must be 1 to {limits.BATCH_MAX}")
    if call.resource_types is not None and len(call.resource_types) > limits.RESOURCE_TYPES_MAX:
        raise InvalidArgument(f"at most {limits.RESOURCE_TYPES_MAX} resource types a call")
