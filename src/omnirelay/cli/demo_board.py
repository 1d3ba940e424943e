"""The demo's queue as its journal tells it, event by event, and the processes around it."""

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from omnirelay.journal.events import Event

if TYPE_CHECKING:
    from collections.abc import Mapping


class Holding(msgspec.Struct, frozen=True):
    peer: str
    item: int
    attempt: int
    fence: int


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    via: str
    state: str


class Board:
    def __init__(self) -> None:
        self.parts: Mapping[str, Process] = {}
        self.sequence = 0
        self.epoch = 0
        self.pending = 0
        self.active = 0
        self.counts: Counter[str] = Counter()
        self.holdings: dict[int, Holding] = {}

    @property
    def completed(self) -> int:
        return self.counts["Completed"]

    def see(self, event: Event) -> None:
        assert event.sequence_number == self.sequence + 1, "the journal has no gaps"
        self.sequence, self.epoch = event.sequence_number, event.epoch
        self.pending = int(event.metadata["queue.pending"])
        self.active = int(event.metadata["queue.active"])
        self.counts[event.event_type] += 1
        item = event.sequence_id
        if item is None:
            return
        if event.event_type == "LeaseGranted":
            assert event.attempt is not None
            assert event.fence is not None
            peer = event.peer_id or "?"
            self.holdings[item] = Holding(peer, item, event.attempt, event.fence)
        else:
            self.holdings.pop(item, None)

    def in_words(self) -> str:
        holders = ", ".join(
            f"{held.peer} holds {held.item} (fence {held.fence})"
            for held in sorted(self.holdings.values(), key=lambda held: held.fence)
        )
        return (
            f"pending {self.pending:>3}  active {self.active}  completed {self.completed:>3}  "
            f"{holders}".rstrip()
        )
