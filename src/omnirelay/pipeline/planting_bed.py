"""A finished history of one shard, laid open to be damaged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from omnirelay.lease.records import Completed, Granted, Record, Renewed
from omnirelay.lease.state import Held, QueueState
from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.synth_chain import Kept, sealed
from omnirelay.pipeline.synth_traffic import Commit, Share, Traffic

R = TypeVar("R", bound=Record)


@dataclass
class Place(Generic[R]):
    sequence: int
    draft: Commit
    index: int
    record: R

    def put(self, record: Record) -> int:
        self.draft.records[self.index] = record
        return self.sequence


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of damage: how it is done, and what an audit must say about it."""

    make: Callable[["Bed"], int]
    """Damages the bed; the sequence where the audit must find it."""
    check: str
    """The name under which it is found."""
    also: tuple[str, ...] = ()
    """What follows from it, and may be found beside it."""
    forms: tuple[str, ...] = ("sqlite", "archive", "lines")
    lay: Callable[[Share], Traffic] = Traffic


class Planted(msgspec.Struct, frozen=True):
    kind: str
    shard: str
    sequence: int
    check: str
    also: tuple[str, ...] = ()
    acknowledged: tuple[int, int, str] | None = None
    """Last sequence, epoch and checksum of the whole history, if its end was taken away."""


class Bed:
    """Drafts first; whatever damages the envelopes themselves asks for `kept`, which seals them."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.share = traffic.share
        self.drafts = list(traffic.run())
        self.state: QueueState = traffic.state
        self.acknowledged: tuple[int, int, str] | None = None
        self._kept: list[Kept] | None = None

    @property
    def kept(self) -> list[Kept]:
        if self._kept is None:
            self._kept = list(sealed(self.share.shard, self.drafts))
        return self._kept

    @property
    def last(self) -> int:
        return sum(len(draft.records) for draft in self.drafts)

    # -- finding a place ----------------------------------------------------------------------

    def records(self) -> Iterator[tuple[int, Commit, int]]:
        """Sequence, draft and index in it of every record."""
        sequence = 0
        for draft in self.drafts:
            for index in range(len(draft.records)):
                sequence += 1
                yield sequence, draft, index

    def find(self, kind: type[R], good: Callable[[R], bool] = lambda _: True) -> "Place[R]":
        """One such record from the middle of the history."""
        found = [place for place in self.places(kind) if good(place.record)]
        if not found:
            raise self.poor(f"no {kind.__name__} that would do")
        return found[len(found) // 2]

    def places(self, kind: type[R]) -> list[Place[R]]:
        found: list[Place[R]] = []
        for sequence, draft, index in self.records():
            record = draft.records[index]
            if isinstance(record, kind):
                found.append(Place(sequence, draft, index, record))
        return found

    def lease(self, good: Callable[[Granted], bool] = lambda _: True) -> "tuple[Grant, Completion]":
        """A grant and the completion that ended it, with no heartbeat between."""
        beaten = {beat[1] for place in self.places(Renewed) for beat in place.record.beats}
        ends = {place.record.fence: place for place in self.places(Completed)}
        grants = [
            place
            for place in self.places(Granted)
            if place.record.fence in ends.keys() - beaten and good(place.record)
        ]
        if not grants:
            raise self.poor("no completed lease that would do")
        grant = grants[len(grants) // 2]
        return grant, ends[grant.record.fence]

    def held(self) -> Held:
        """A lease that is open at the end and has time left."""
        end = self.drafts[-1].time
        for held in self.state.active.values():
            if held.expires_at > end + 1:
                return held
        self.drafts.append(self._traffic.parting())
        return self.held()

    def poor(self, what: str) -> InvalidOption:
        return InvalidOption(
            f"{self.share.shard} has {what}: give it more events, or take another seed"
        )

    # -- changing it --------------------------------------------------------------------------

    def append(self, record: Record, change: tuple[int, int] = (0, 0), *, later_ms: int = 0) -> int:
        """A last envelope with one record, its depths changed by `change`; its sequence."""
        before = self.drafts[-1]
        self.drafts.append(
            Commit(
                before.epoch,
                before.node,
                before.time + later_ms,
                [record],
                [before.pending[-1] + change[0]],
                [before.active[-1] + change[1]],
            )
        )
        return self.last


Grant = Place[Granted]
Completion = Place[Completed]
