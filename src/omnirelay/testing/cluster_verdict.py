"""What a journal that several nodes wrote says about what their callers were told."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from omnirelay.journal.events import Event
from omnirelay.journal.follower import tail
from omnirelay.journal.format import Chain, Envelope
from omnirelay.lease import image
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import replay
from omnirelay.model import limits
from omnirelay.stores.registry import open_address
from omnirelay.testing.checker import check_prefix
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.verdict import judge_expiries, judge_history

Held = tuple[int, str]
"""A sequence, and all facts of a queue after it."""


class Read(NamedTuple):
    """A whole journal, read from outside with every link checked."""

    envelopes: list[Envelope]
    events: list[Event]

    @property
    def owners(self) -> dict[int, set[str]]:
        """Who wrote in each epoch."""
        found: dict[int, set[str]] = {}
        for envelope in self.envelopes:
            found.setdefault(envelope.epoch, set()).add(envelope.node)
        return found

    def first_grant_after(self, epoch: int) -> int | None:
        """The fence of the first one that was made in a later epoch."""
        for event in self.events:
            if event.event_type == "LeaseGranted" and event.epoch > epoch:
                return event.fence
        return None


async def read_journal(url: str, shard: str) -> Read:
    opened = open_address(url, shard)
    await opened.journal.open()
    reader = opened.journal.reader()
    try:
        chain, envelopes = Chain(shard), list[Envelope]()
        while bodies := await reader.read(chain.last, limits.READ_ENVELOPES_MAX):
            envelopes += chain.accept_all(bodies)
        events = [event async for some in tail(reader, shard, 0, follow=False) for event in some]
    finally:
        await reader.close()
        await opened.journal.close()
        await opened.checkpoints.close()
    return Read(envelopes, events)


def breaches(read: Read, traffic: Traffic, held: Mapping[str, Held]) -> Iterator[str]:
    """Each in one line; none is what is hoped for. `held` is by node what it held when it
    stopped."""
    yield from judge_history(traffic.history, read.events)
    yield from _read_otherwise(read, traffic)
    yield from _held_otherwise(read, held)
    yield from judge_expiries(read.events)
    for epoch, nodes in read.owners.items():
        if len(nodes) > 1:
            yield f"E1: {sorted(nodes)} wrote in epoch {epoch}"
    yield from _begun_by_others(read)
    yield from (f"A1: item {name} was acknowledged and is lost" for name in lost(read, traffic))


def _read_otherwise(read: Read, traffic: Traffic) -> Iterator[str]:
    """J1: what every node told its readers, through all troubles, is the journal's beginning."""
    journals = [[msgspec.to_builtins(event) for event in read.events]]
    for seen in traffic.seen.values():
        journals.append([msgspec.to_builtins(event) for event in seen])
        if len(seen) > len(read.events):
            yield f"J1: a reader has {len(seen)} events of {len(read.events)}"
    yield from (f"J1: {found.message}" for found in check_prefix(journals))


def _held_otherwise(read: Read, held: Mapping[str, Held]) -> Iterator[str]:
    """J4: what a node holds is what the journal, up to where it is, folds to."""
    state = QueueState()
    folded = {0: image.facts(state)}
    wanted = {sequence for sequence, _ in held.values()}
    for envelope in read.envelopes if held else ():
        replay(state, envelope)
        if envelope.last in wanted:
            folded[envelope.last] = image.facts(state)
    for node, (sequence, facts) in held.items():
        if sequence not in folded:
            yield f"J4: {node} is at {sequence}, where no append of the journal ends"
        elif folded[sequence].decode() != facts:
            yield f"J4: {node} does not hold at {sequence} what the journal folds to"


def _begun_by_others(read: Read) -> Iterator[str]:
    """E2: an epoch begins with its own record, written by who has it."""
    known = 0
    for envelope in read.envelopes:
        if envelope.epoch == known:
            continue
        begins = type(envelope.records[0]).__name__
        if envelope.epoch != known + 1 or begins != "EpochStarted":
            yield f"E2: epoch {envelope.epoch} follows {known} and begins with {begins}"
        known = envelope.epoch


def lost(read: Read, traffic: Traffic) -> list[str]:
    """Acknowledged, and yet not finished once and for all."""
    done = {event.sequence_id for event in read.events if event.event_type == "Completed"}
    return [name for name, item in traffic.accepted.items() if item not in done]
