"""Parts of the control plane that need no node."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, TraceFlags

from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.records import Followed
from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.ops.backpressure import Backpressure
from omnirelay.ops.health import in_words
from omnirelay.ops.instruments import COUNTERS, GAUGES, ShardReading
from omnirelay.ops.reading import checkpoint_of, lags_of, lease_health_of
from omnirelay.ops.recent import RecentHolders
from omnirelay.ops.tracing import Sampling
from omnirelay.ops.view import Holder, NodeRow, ShardStatus, Transition
from omnirelay.rpc.headers import Headers
from omnirelay.transports.http_pages import PageRequest


def status(shard: str = "resourcelease") -> ShardStatus:
    return ShardStatus(
        shard=shard,
        is_ready=True,
        leader="node-1",
        epoch=3,
        last_sequence=70,
        pending_count=5,
        active_lease_count=2,
        delayed_count=1,
        dead_letter_count=0,
        backpressure=False,
        role="owner",
        journal="memory",
        durability="nothing",
    )


class Shelf:
    """A shard that shows what it was given, in states a running one passes through too quickly."""

    def __init__(self, name: str, holders: Sequence[Holder] = (), ends: Exception | None = None):
        self._name = name
        self._holders = holders
        self._ends = ends
        self.last_transition: Transition | None = None
        self.lagging: list[FollowerStatus] = []
        self.told: list[Transition] = []
        self.watched = 0

    tells_depth = True

    def status(self) -> ShardStatus:
        return status(self._name)

    def followers(self) -> Sequence[FollowerStatus]:
        return self.lagging

    def nodes(self) -> Sequence[NodeRow]:
        return []

    def holders(self) -> Sequence[Holder]:
        return self._holders

    def counts(self) -> Mapping[str, int]:
        return {"enqueued": 7}

    async def transitions(self) -> AsyncGenerator[Transition]:
        self.watched += 1
        try:
            for transition in self.told:
                yield transition
            if self._ends is not None:
                raise self._ends
            await asyncio.Event().wait()
        finally:
            self.watched -= 1


class Rack:
    node_id = "node-1"
    is_draining = False
    urls: Mapping[str, str] = {}
    trouble: str | None = None
    procedures: Sequence[str] = ()

    def __init__(self, **shards: Shelf) -> None:
        self.shards = shards

    others: Sequence[NodeRow] = ()

    async def hand_over(self) -> None:
        raise NotImplementedError

    def drain(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError


def held(peer: str, *, leases: int = 1, next_expiry_ms: int = 1000) -> Holder:
    overdue = int(next_expiry_ms < 0)
    return Holder(peer, "anonymous", leases, 10, next_expiry_ms, overdue)


def test_an_overdue_peer_is_listed_first_and_each_of_its_overdue_leases_counts() -> None:
    node = Rack(
        a=Shelf("a", [held("late", next_expiry_ms=-5), held("busy", leases=9)]),
        b=Shelf("b", [held("late", next_expiry_ms=-1), held("edge", next_expiry_ms=0)]),
    )
    shown = lease_health_of(node, RecentHolders(SystemClock()), limit=2)
    assert [(peer.peer_id, peer.is_healthy) for peer in shown.peers] == [
        ("late", False),
        ("busy", True),
    ]
    assert shown.peers[0].next_expiry_ms == -5
    summary = shown.summary
    assert (summary.eligible_peers, summary.unhealthy_peers) == (2, 1)
    assert summary.pending_reassignments == 2


def test_one_peer_id_under_two_principals_is_two_peers() -> None:
    node = Rack(a=Shelf("a", [held("w"), Holder("w", "bob", 1, 10, 1000)]))
    assert lease_health_of(node, RecentHolders(SystemClock()), limit=10).summary.eligible_peers == 2


def test_a_checkpoint_names_each_sink_its_place_and_its_last_error() -> None:
    shelf = Shelf("a")
    shelf.lagging = [FollowerStatus("lake", "a", 60, 10, 250, 2, "OSError: full")]
    (sink,) = checkpoint_of(shelf).sinks
    assert (sink.name, sink.sequence, sink.lag_ms, sink.last_error) == (
        "lake",
        60,
        250,
        "OSError: full",
    )


def test_the_journal_is_told_of_each_sink_the_furthest_behind_first() -> None:
    shelf = Shelf("a")
    shelf.lagging = [
        FollowerStatus("level", "a", 70, 0, 0, 0, None),
        FollowerStatus("lake", "a", 60, 10, 250, 2, "OSError: full"),
        FollowerStatus("mirror:x", "a", 0, 0, 0, 0, "not started yet"),
        FollowerStatus("new", "a", 0, 70, 900, 0, None),
    ]
    assert lags_of(shelf) == (
        Followed("new", 0, 70, 900),
        Followed("lake", 60, 10, 250),
        Followed("level", 70, 0, 0),
    )


def reading(last: Transition | None, *followers: FollowerStatus) -> ShardReading:
    return ShardReading(status(), True, {"enqueued": 7}, followers, last)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, {"active": 0, "inactive": 0}),
        (Transition("a", 1, "active", 2, 1), {"active": 1, "inactive": 0}),
        (Transition("a", 2, "inactive", 2, 1), {"active": 1, "inactive": 1}),
        (Transition("a", 7, "active", 2, 1), {"active": 4, "inactive": 3}),
        (Transition("a", 1, "inactive", 2, 1), {"active": 0, "inactive": 1}),
    ],
)
def test_transitions_are_counted_by_state(
    last: Transition | None, expected: dict[str, int]
) -> None:
    (shape,) = [shape for shape in COUNTERS if shape.name == "backpressure.transitions"]
    counted = {labels["state"]: value for value, labels in shape.read(reading(last))}
    assert counted == expected


def test_the_slowest_follower_is_the_lag_of_its_shard_and_none_is_no_lag() -> None:
    (lag,) = [shape for shape in GAUGES if shape.name == "replication.lag"]
    fast = FollowerStatus("fast", "a", 70, 0, 0, 0, None)
    slow = FollowerStatus("slow", "a", 1, 69, 900, 0, None)
    assert list(lag.read(reading(None, fast, slow))) == [(900, {})]
    assert list(lag.read(reading(None))) == []


def test_what_a_shard_does_not_tell_is_no_metric() -> None:
    (age,) = [shape for shape in GAUGES if shape.name == "oldest_pending_age"]
    (failed,) = [shape for shape in COUNTERS if shape.name == "failed"]
    assert list(age.read(reading(None))) == []
    assert list(failed.read(reading(None))) == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("the node is draining", "the node is draining"),
        (
            "q: cannot reach postgres://app:hunter2@db.internal/leases?sslkey=x",
            "q: cannot reach postgres:…",
        ),
        ("q: the disk is full: /srv/secret/leases.db", "q: the disk is full: …"),
        ("login failed: password=hunter2 user=app", "login failed: password=… user=app"),
        ("bad api_key: hunter2", "bad api_key=…"),
        ("two\r\nlines", "two  lines"),
        (
            "q: journal sqlite:////var/lib/q.db is damaged at 7",
            "q: journal sqlite:… is damaged at 7",
        ),
    ],
)
def test_the_reason_for_strangers_holds_no_address_path_or_secret(reason: str, words: str) -> None:
    assert in_words(reason) == words


def test_the_reason_for_strangers_is_short() -> None:
    assert len(in_words("so " * 1000)) == 300


PARENT = SpanContext(trace_id=1, span_id=1, is_remote=True, trace_flags=TraceFlags(1))
UNSAMPLED = SpanContext(trace_id=1, span_id=1, is_remote=True)


def test_whoever_began_a_trace_decides_for_all_of_it() -> None:
    never, always = Sampling(0.0), Sampling(1.0)
    assert never.takes(PARENT, 0.5)
    assert not always.takes(UNSAMPLED, 0.5)


def test_a_call_without_a_trace_is_sampled_by_its_draw() -> None:
    sampling = Sampling(0.25)
    assert sampling.takes(INVALID_SPAN_CONTEXT, 0.2499)
    assert not sampling.takes(INVALID_SPAN_CONTEXT, 0.25)
    assert not Sampling(0.0).takes(INVALID_SPAN_CONTEXT, 0.0)
    assert Sampling(1.0).takes(INVALID_SPAN_CONTEXT, 0.999999)


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_probability_is_from_0_to_1(probability: float) -> None:
    with pytest.raises(InvalidArgument):
        Sampling(probability)
    sampling = Sampling()
    with pytest.raises(InvalidArgument):
        sampling.change(probability)
    assert sampling.probability == 1.0


REQUEST = PageRequest(method="GET", path="/", query={}, headers=Headers([]))


async def test_a_shard_whose_stream_fails_ends_the_watch_and_leaves_no_watcher() -> None:
    broken, quiet = Shelf("a", ends=Unavailable("gone")), Shelf("b")
    broken.told = [Transition("a", 1, "active", 2, 1)]
    pressure = Backpressure(Rack(a=broken, b=quiet))
    stream = (await pressure.stream(REQUEST)).stream
    assert stream is not None
    assert b'"number":1' in await anext(stream)
    with pytest.raises(Unavailable):
        await anext(stream)
    assert (broken.watched, quiet.watched) == (0, 0)


async def test_a_watcher_that_leaves_is_forgotten_by_every_shard() -> None:
    shelves = {name: Shelf(name) for name in ("a", "b")}
    shelves["a"].told = [Transition("a", n, "active", 2, 1) for n in range(1, 2000)]
    pressure = Backpressure(Rack(**shelves), watchers=1)
    for _ in range(3):  # the one place is free again each time
        stream = (await pressure.stream(REQUEST)).stream
        assert stream is not None
        await anext(stream)
        await stream.aclose()
        assert [shelf.watched for shelf in shelves.values()] == [0, 0]


class Hand:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now = 1000

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now


class SlowShelf(Shelf):
    def __init__(self, clock: Hand, takes_ms: int) -> None:
        super().__init__("a", [held("w", next_expiry_ms=100)])
        self._clock = clock
        self._takes_ms = takes_ms
        self.looks = 0

    def holders(self) -> Sequence[Holder]:
        self.looks += 1
        self._clock.now += self._takes_ms
        return super().holders()


def test_a_look_that_takes_long_is_shared_for_a_while_and_moved_on() -> None:
    clock = Hand()
    shelf = SlowShelf(clock, takes_ms=50)
    recent = RecentHolders(clock)
    (first,) = recent.of("a", shelf)
    clock.now += 130
    (second,) = recent.of("a", shelf)
    assert (shelf.looks, first.next_expiry_ms, second.next_expiry_ms) == (1, 100, -30)
    assert second.oldest_grant_ms == first.oldest_grant_ms + 130
    clock.now += 871  # twenty times fifty have passed
    recent.of("a", shelf)
    assert shelf.looks == 2


def test_a_look_that_costs_nothing_is_always_taken() -> None:
    clock = Hand()
    shelf = SlowShelf(clock, takes_ms=0)
    recent = RecentHolders(clock)
    for _ in range(3):
        clock.now += 1
        recent.of("a", shelf)
    assert shelf.looks == 3
