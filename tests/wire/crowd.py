"""Callers of a node in many ways at once, and what each of them was told."""

import asyncio
import threading
from collections import Counter

import omnirelay
from omnirelay import Event, NothingToLease, OmniRelayError, Relay, StaleToken, SyncRelay

PAUSE_S = 0.005


class Crowd:
    """`accepted`: what enqueue calls returned with; `done`: how often an item was worked on."""

    def __init__(self) -> None:
        self.accepted: dict[str, int] = {}
        self.duplicates = 0
        self.done: Counter[str] = Counter()
        self.completed: set[str] = set()
        self.stale = 0
        self.refused: list[OmniRelayError] = []
        self.enough = threading.Event()
        self.is_done = False

    async def produce(self, relay: Relay, name: str) -> None:
        number = 0
        while not self.enough.is_set():
            await self._enqueue(relay, f"{name}-{number}")
            number += 1
            await asyncio.sleep(PAUSE_S)

    async def _enqueue(self, relay: Relay, name: str) -> None:
        try:
            accepted = await relay.enqueue("table", name, body=name.encode())
        except OmniRelayError as error:
            self.refused.append(error)
            return
        self.note(name, accepted)

    def note(self, name: str, accepted: omnirelay.Accepted) -> None:
        self.accepted[name] = accepted.sequence_id
        self.duplicates += accepted.duplicate

    def produce_in_thread(self, queue: SyncRelay, name: str) -> None:
        number = 0
        while not self.enough.is_set():
            self.note(f"{name}-{number}", queue.enqueue("table", f"{name}-{number}"))
            number += 1
            self.enough.wait(PAUSE_S)

    async def work_by_hand(self, relay: Relay) -> None:
        """Until everything is done."""
        while not self.is_done:
            try:
                async with relay.lease(wait=0.3) as lease:
                    self.done[lease.resource_id] += 1
                self.completed.add(lease.resource_id)
            except NothingToLease:
                continue
            except StaleToken:
                self.stale += 1

    async def emptied(self, relay: Relay) -> None:
        """Once producers have stopped."""
        while True:
            stats = await relay.stats()
            if not stats.pending_count and not stats.active_lease_count:
                break
            await asyncio.sleep(PAUSE_S)
        self.is_done = True

    def worker(self, relay: Relay) -> omnirelay.Worker:
        worker = omnirelay.Worker(relay, concurrency=4, poll=1.0)

        @worker.handles("table")
        async def handle(lease: omnirelay.Lease) -> None:
            self.done[lease.resource_id] += 1
            await asyncio.sleep(PAUSE_S)

        return worker


class Verdict:
    """What the journal says about what the crowd was told."""

    def __init__(self, crowd: Crowd, events: list[Event]) -> None:
        enqueued = [event for event in events if event.event_type == "Enqueue"]
        names = Counter(event.payload.resource_id for event in enqueued if event.payload)
        found = {
            event.payload.resource_id: event.sequence_id for event in enqueued if event.payload
        }
        ended = Counter(event.sequence_id for event in events if event.event_type == "Completed")
        self.items = len(enqueued)
        self.epochs = sum(event.event_type == "EpochStarted" for event in events)
        self.lost = [name for name, at in crowd.accepted.items() if found.get(name) != at]
        self.doubled = [name for name, count in names.items() if count > 1]
        self.unfinished = [name for name, at in found.items() if not ended[at]]
        self.finished_twice = [at for at, count in ended.items() if count > 1]
        self.numbers = [event.sequence_number for event in events]

    def check(self) -> None:
        assert not self.lost, self.lost[:5]
        assert not self.doubled, self.doubled[:5]
        assert not self.unfinished, self.unfinished[:5]
        assert not self.finished_twice, self.finished_twice[:5]
        assert self.numbers == list(range(1, len(self.numbers) + 1))
