"""Every envelope of one journal, pruned or not, folded as it comes: what a test compares with."""

import json
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from omnirelay.journal.events import encode_event, events_of
from omnirelay.journal.format import Chain, Envelope
from omnirelay.lease.deciding_moves import from_item
from omnirelay.lease.image import facts
from omnirelay.lease.records import Completed, Drained, EpochStarted, Granted, Purged, Record
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import replay
from omnirelay.model.items import PendingItem
from omnirelay.testing.checker import Event, check_conservation
from omnirelay.testing.claims import Claim, claims_of_record


def digest(state: QueueState) -> str:
    return blake2b(facts(state), digest_size=16).hexdigest()


class Archive:
    def __init__(self, shard: str) -> None:
        self.state = QueueState()
        self.bodies: dict[int, bytes] = {}
        """By last sequence."""
        self.depths: dict[int, tuple[int, int]] = {}
        """Pending and active items after each sequence."""
        self.epochs = 0
        self._chain = Chain(shard)
        self._claims: dict[Claim, int] = {}
        self._enqueues: Counter[str] = Counter()
        self._grants: dict[str, int] = {}
        self._doubled: list[str] = []
        self._ended: set[int] = set()
        self._drained: dict[int, PendingItem] = {}

    @property
    def last(self) -> int:
        return self._chain.last

    def add(self, body: bytes) -> None:
        """Raises Corrupt if it does not follow on the one before."""
        envelope = self._chain.accept(body)
        replay(self.state, envelope)
        self.bodies[envelope.last] = body
        depths = zip(envelope.pending, envelope.active, strict=True)
        for depth, (number, record) in zip(depths, envelope.numbered(), strict=True):
            self.depths[number] = depth
            self._note(record, number, envelope)

    def _note(self, record: Record, number: int, envelope: Envelope) -> None:
        for claim in claims_of_record(record):
            self._claims.setdefault(claim, number)
            if claim[0] == "Enqueue" and claim[2]:
                self._enqueues[claim[2]] += 1
        match record:
            case EpochStarted():
                self.epochs += 1
            case Drained():
                self._drained.update((i.sequence_id, from_item(i)) for i in record.items)
            case Completed():
                self._ended.add(record.sequence_id)
            case Purged():
                self._ended.update(record.sequence_ids)
            case Granted() if record.request_id is not None:
                first = self._grants.setdefault(record.request_id, envelope.first)
                if first != envelope.first:
                    self._doubled.append(f"lease request {record.request_id} was served twice")

    def lacks(self, claims: Iterable[Claim], *, through: int | None = None) -> list[Claim]:
        """Claims that nothing up to `through`, or up to the end, bears out."""
        end = self.last if through is None else through
        return [claim for claim in claims if self._claims.get(claim, end + 1) > end]

    def prefix(self, through: int) -> "Archive":
        """As if nothing after `through` had ever been written."""
        earlier = Archive(self._chain.shard)
        for last, body in self.bodies.items():
            if last <= through:
                earlier.add(body)
        return earlier

    def events(self) -> list[Event]:
        """As JSON, because that is what the rules are about."""
        chain = Chain(self._chain.shard)
        envelopes = (chain.accept(body) for body in self.bodies.values())
        return [json.loads(encode_event(event)) for e in envelopes for event in events_of(e)]

    def drained_items(self) -> list[PendingItem]:
        """What left by drain and has not come back, as its drain handed it out."""
        return [item for number, item in self._drained.items() if number in self.state.drained]

    def breaches(self) -> list[str]:
        """What no journal may show: an item lost, doubled or back from the dead, a request served
        twice."""
        found = [f"{v.rule} {v.message}" for v in check_conservation(self.events())]
        found += self._doubled
        found += [f"request {name} made {n} items" for name, n in self._enqueues.items() if n > 1]
        return found + self._unaccounted()

    def _unaccounted(self) -> list[str]:
        state = self.state
        places = (state.pending, state.active, state.dead, state.drained, self._ended, state.gaps)
        found = []
        for item in range(1, state.last_id + 1):
            count = sum(item in place for place in places)
            if count != 1:
                found.append(f"item {item} is in {count} places")
        return found
