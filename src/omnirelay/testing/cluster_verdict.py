"""What a journal that several nodes wrote says about what their callers were told."""

from collections.abc import Iterator
from typing import NamedTuple

from omnirelay.journal.events import Event
from omnirelay.journal.follower import tail
from omnirelay.journal.format import Chain, Envelope
from omnirelay.model import limits
from omnirelay.stores.registry import open_address
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.verdict import judge_expiries, judge_history


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


def breaches(read: Read, traffic: Traffic) -> Iterator[str]:
    """Each in one line; none is what is hoped for."""
    yield from judge_history(traffic.history, read.events)
    yield from judge_expiries(read.events)
    for epoch, nodes in read.owners.items():
        if len(nodes) > 1:
            yield f"E1: {sorted(nodes)} wrote in epoch {epoch}"
    yield from _begun_by_others(read)
    yield from (f"A1: item {name} was acknowledged and is lost" for name in lost(read, traffic))


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
