"""The lease core driven as its writer drives it, with a list for a journal. No I/O, no clock.

Whatever test drives the core through this gets the invariants checked after every record, and can
at any moment ask for the two things a real node does to a state: fold it again from the journal,
or put it through a snapshot.
"""

from collections.abc import Callable, Iterable

import msgspec

from omnirelay.lease import image
from omnirelay.lease.answers import Answer, LeaseResponse, answer
from omnirelay.lease.commands import Command, StartEpoch
from omnirelay.lease.decide import decide
from omnirelay.lease.evolve import evolve
from omnirelay.lease.invariants import violations
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import FORMAT, Record
from omnirelay.lease.state import QueueState
from omnirelay.model.items import dashed

Records = tuple[Record, ...]
Reply = Answer | tuple[LeaseResponse, ...] | None
Decide = Callable[[QueueState, Command, int, QueueOptions], Records]
Evolve = Callable[[QueueState, Record, int], None]
Entry = tuple[int, Record]
"""When, and what: one line of the journal."""

_record = msgspec.json.Decoder(Record)
_parts = msgspec.json.Decoder(list[image.Part])


class FoldedQueue:
    def __init__(
        self, name: str = "A", options: QueueOptions | None = None, *, format_: int = FORMAT
    ) -> None:
        """`format_` is that of its records and snapshots."""
        self.name = name
        self._format = format_
        self.options = options or QueueOptions()
        self.state = QueueState()
        self.journal: list[Entry] = []
        self.start_epoch(0)

    def submit(self, command: Command, now: int) -> tuple[Records, Reply]:
        """Decide, append, evolve, answer. A refusal is raised and leaves the facts untouched."""
        records = decide(self.state, command, now, self.options)
        for record in records:
            self.journal.append((now, record))
            evolve(self.state, record, now)
            self.check()
        reply: Reply = answer(self.state, command, records, now, self.options)
        return records, reply

    def check(self) -> None:
        found = violations(self.state)
        assert not found, f"{self.name} after {self.state.sequence}: {'; '.join(found)}"

    def start_epoch(self, now: int) -> Records:
        epoch = self.state.epoch + 1
        begin = StartEpoch(epoch=epoch, node=self.name, origin=self.name, format=self._format)
        return self.submit(begin, now)[0]

    def refold(self) -> None:
        """A crash: only what the journal holds, as JSON, is left."""
        state = fold((at, _record.decode(msgspec.json.encode(r))) for at, r in self.journal)
        assert every_fact(state) == every_fact(self.state), "the fold is not the state"
        self.state = state
        self.check()

    def through_snapshot(self, part_items: int = 2) -> None:
        """Replace the state by its own snapshot, stored and read back."""
        stored = msgspec.json.encode(list(image.freeze(self.state, part_items)))
        state = image.thaw(_parts.decode(stored))
        assert every_fact(state) == every_fact(self.state), "the snapshot is not the state"
        assert image.facts(state) == image.facts(self.state), "equal states have equal facts"
        self.state = state
        self.check()


def fold(journal: Iterable[Entry], apply: Evolve = evolve) -> QueueState:
    state = QueueState()
    for at, record in journal:
        apply(state, record, at)
    return state


def every_fact(state: QueueState) -> tuple[object, ...]:
    """Read from the state itself and not through `image`, which could forget the same thing on
    both sides. Order counts."""
    return (
        (state.sequence, state.at, state.epoch, state.node, state.origin, state.rules),
        (state.last_id, state.fence_offset, state.paused),
        (list(state.gaps), list(state.drained)),
        {origin: list(ids) for origin, ids in state.adopted.items()},
        list(state.pending.items()),
        list(state.active.items()),
        list(state.dead.items()),
        [memory.items() for memory in (state.requests, state.lease_requests)],
        state.finished.items(),
    )


def numbered_lease_id(number: int) -> str:
    """Lease ids of tests: in shape a UUID, in substance a count."""
    return dashed(f"{number:032x}")
