"""Each instrument of a shard: its name, and where its value is found."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from omnirelay.journal.follower import FollowerStatus
from omnirelay.ops.view import ShardStatus, Transition

PREFIX = "omnirelay.resourcelease."


class ShardReading(msgspec.Struct, frozen=True):
    """One look at a shard, for all instruments."""

    status: ShardStatus
    tells_depth: bool
    counts: Mapping[str, int]
    followers: Sequence[FollowerStatus]
    last_transition: Transition | None


Value = tuple[float, dict[str, str]]
"""And its labels beside the shard's."""


class Shape(msgspec.Struct, frozen=True):
    name: str
    description: str
    read: Callable[[ShardReading], Iterable[Value]]
    unit: str = ""
    prefix: str = PREFIX

    @property
    def full_name(self) -> str:
        return self.prefix + self.name


def _status(name: str, scale: float = 1) -> Callable[[ShardReading], Iterator[Value]]:
    """Nothing while the shard cannot tell."""

    def read(reading: ShardReading) -> Iterator[Value]:
        value = getattr(reading.status, name)
        if value is not None:
            yield (value * scale if scale != 1 else int(value)), {}

    return read


def _depth(name: str, scale: float = 1) -> Callable[[ShardReading], Iterator[Value]]:
    """Of the queue, which several nodes may know: only one of them tells."""
    own = _status(name, scale)

    def read(reading: ShardReading) -> Iterator[Value]:
        if reading.tells_depth:
            yield from own(reading)

    return read


def _count(name: str) -> Callable[[ShardReading], Iterator[Value]]:
    def read(reading: ShardReading) -> Iterator[Value]:
        if name in reading.counts:
            yield reading.counts[name], {}

    return read


def _slowest(name: str) -> Callable[[ShardReading], Iterator[Value]]:
    """Of all followers: their names are no labels, and the slowest holds back pruning."""

    def read(reading: ShardReading) -> Iterator[Value]:
        if reading.followers:
            yield max(getattr(follower, name) for follower in reading.followers), {}

    return read


def _transitions(reading: ShardReading) -> Iterator[Value]:
    """They alternate, so the last one and its number tell how many there were of each."""
    last = reading.last_transition
    count = 0 if last is None else last.number
    latest = "active" if last is None else last.state
    for state in ("active", "inactive"):
        yield (count + 1) // 2 if state == latest else count // 2, {"state": state}


GAUGES = (
    Shape("pending", "Items waiting, delayed ones too.", _depth("pending_count")),
    Shape("active", "Leases held now.", _depth("active_lease_count")),
    Shape("delayed", "Items whose time has not come.", _depth("delayed_count")),
    Shape("dead_letters", "Items nobody will get until redriven.", _depth("dead_letter_count")),
    Shape(
        "oldest_pending_age",
        "How long the oldest item has waited.",
        _depth("oldest_pending_age_ms", 0.001),
        "s",
    ),
    Shape("ready", "1 while the shard serves.", _status("is_ready")),
    Shape("epoch", "How often the shard has changed its writer.", _status("epoch")),
    Shape("journal.sequence", "Last sequence in the journal.", _status("last_sequence")),
    Shape("backpressure.active", "1 while producers are held back.", _depth("backpressure")),
    Shape(
        "replication.lag",
        "Age of the oldest event the slowest follower has not applied.",
        _slowest("lag_ms"),
        "ms",
    ),
    Shape(
        "replication.sequence_lag",
        "Events the slowest follower has not applied.",
        _slowest("sequence_lag"),
    ),
)

COUNTERS = (
    Shape("enqueued", "Items taken in.", _count("enqueued")),
    Shape("granted", "Leases given.", _count("granted")),
    Shape("completed", "Items finished.", _count("completed")),
    Shape("failed", "Attempts reported as failed.", _count("failed")),
    Shape("expired", "Leases that ran out.", _count("expired")),
    Shape("released", "Items handed back untried.", _count("released")),
    Shape("dead_lettered", "Items given up.", _count("dead_lettered")),
    Shape("journal.commits", "Appends to the journal.", _count("commits")),
    Shape("journal.events", "Events in those appends.", _count("events")),
    Shape("backpressure.transitions", "Times producers were held back or let go.", _transitions),
    Shape("lease_assignments", "Leases given.", _count("granted"), prefix="omnirelay.peer."),
    Shape("lease_heartbeats", "Renewals.", _count("heartbeats"), prefix="omnirelay.peer."),
)

PEER_GAUGES = {
    "healthy": "Holders of leases none of which is overdue.",
    "unhealthy": "Holders with a lease that has run out.",
    "pending_reassignments": "Leases that have run out and are not taken back yet.",
}
