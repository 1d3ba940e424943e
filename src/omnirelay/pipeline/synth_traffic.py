"""A seeded model of who asks what of one shard. The core itself decides, so what comes out is a
history that could have happened, not one that looks like it."""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Expire,
    Fail,
    Grant,
    Heartbeat,
    Purge,
    Redrive,
    Release,
    Restore,
    StartEpoch,
)
from omnirelay.lease.decide import decide
from omnirelay.lease.deciding_moves import from_item
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import Drained, Granted, Record
from omnirelay.lease.state import QueueState
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Payload, PendingItem, Token, dashed
from omnirelay.model.limits import PRIORITY_ABS_MAX
from omnirelay.model.ports import seeded_chance

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: the same for every run, so that equal seeds give equal bytes."""
LEASE_MS = 3_000
SMALLEST_EVENTS = 20
_SLOTS = 8192
_RESOURCES = 600
_SKEWS = (1.1, 0.5)
"""How steeply interest falls from the first resource to the last; gentler where items of one
resource wait for each other, or the first one's line would be all there is."""
_PEERS = 24
_TYPES = ("table", "table", "table", "cdc", "saga", "index")
_RULES = (SerializeBy.NONE, SerializeBy.RESOURCE, SerializeBy.NONE, SerializeBy.PARTITION_KEY)
_HANDOVER_TICK = 12
_LATER_MS = 60_000


class Share(msgspec.Struct, frozen=True):
    """One shard's part of a synthetic mesh."""

    number: int
    seed: int
    total: int
    """Events of all shards together."""
    count: int = 1
    """How many shards there are; one with an odd number takes in what the one before drained."""
    serialize_by: SerializeBy | None = None
    """Else the shards take turns in what they serialise by."""

    @property
    def shard(self) -> str:
        return f"synth-{self.number:04d}"

    @property
    def events(self) -> int:
        each, more = divmod(self.total, self.count)
        return each + (self.number < more)

    @property
    def rule(self) -> SerializeBy:
        return self.serialize_by or _RULES[self.number % len(_RULES)]

    def neighbour(self) -> "Share":
        """The other of the two shards that items go back and forth between."""
        return Share(self.number ^ 1, self.seed, self.total, self.count)


class Commit(msgspec.Struct):
    """What one envelope holds, before it is sealed."""

    epoch: int
    node: str
    time: int
    records: list[Record]
    pending: list[int]
    active: list[int]


Visitors = tuple[int, tuple[PendingItem, ...]]
"""Items of another shard, and when they left it."""


class Traffic:
    def __init__(self, share: Share, visitors: Visitors | None = None) -> None:
        """`visitors`: what to restore at first, instead of what the neighbour hands over."""
        self.share = share
        self.state = QueueState()
        self.now = START_MS + _LATER_MS * (share.number % 2)
        self.visitors = visitors
        self.handed: tuple[PendingItem, ...] = ()
        """What this shard gives to the next one."""
        self._chance = seeded_chance(f"{share.seed}/{share.shard}")
        self._events = share.events
        self._crowd = max(2, min(40, self._events // 600))
        """How many of each kind of call come in one turn."""
        self._stretch = max(1, self._events // (self._crowd * 3) // 250)
        self._options = QueueOptions(
            lease_duration_ms=LEASE_MS,
            serialize_by=share.rule,
            pending_high=self._crowd * 40,
            max_attempts=4,
        )
        self._payloads = _payloads(share)
        self._agenda: defaultdict[int, list[Command]] = defaultdict(list)
        self._out: list[PendingItem] = []
        self._tick = 0
        self._requests = 0
        self._commit = self._fresh()

    def run(self) -> Iterator[Commit]:
        yield self._epoch()
        self._take_in()
        if self._commit.records:
            yield self._taken()
        while self._left():
            self._turn()
            if self._commit.records:
                yield self._taken()
            if self._tick % (41 * self._stretch) == 0 and self._left():
                self.now += 2_000 + int(self._chance() * 6_000)  # nobody wrote until the failover
                yield self._epoch()

    def parting(self) -> Commit:
        """One more item, and a lease on it that nobody will end."""
        self.now += 1
        self._commit.time = self.now
        urgent = Enqueue(payload=Payload("table", "parting"), priority=PRIORITY_ABS_MAX)
        self._apply(urgent)
        self._apply(Grant(lease_id=dashed(f"{self.state.sequence:032x}")))
        return self._taken()

    # -- one turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        self._tick += 1
        self.now += 60 + int(self._chance() * 120)
        self._commit.time = self.now
        for command in self._agenda.pop(self._tick, ()):
            self._ask(command)
        self._expire()
        self._produce()
        self._operate()
        self._work()

    def _produce(self) -> None:
        """Traffic swells and ebbs within each minute."""
        wave = 1 + 0.6 * math.sin(self.now * (2 * math.pi / 60_000))
        chance = self._chance
        for _ in range(int(self._crowd * wave * (0.5 + chance()))):
            if self.state.paused or not self._left():
                return
            payload, peer, priority = self._payloads[int(chance() * _SLOTS)]
            luck = chance()
            if luck < 0.25:
                self._requests += 1
                payload = _asked(payload, f"r-{self.share.number}-{self._requests}")
            command = Enqueue(
                payload=payload,
                principal=_principal(peer),
                peer_id=None,
                delay_ms=int(luck * 8_000) if luck > 0.93 else 0,
                priority=priority,
            )
            self._apply(command)

    def _work(self) -> None:
        chance = self._chance
        for _ in range(int(self._crowd * 1.8)):
            luck = chance()
            peer = int(luck * luck * _PEERS)  # some peers take far more than others
            command = Grant(
                lease_id=dashed(f"{int(luck * (1 << 53)):016x}{self.state.sequence:016x}"),
                peer_id=_PEER_NAMES[peer],
                principal=_principal(peer),
                resource_types=("cdc", "saga") if peer == _PEERS - 1 else None,
            )
            granted = self._apply(command) if self._left() else ()
            if not granted:
                return
            record = granted[0]
            assert isinstance(record, Granted)
            self._plan(record, peer)

    def _plan(self, granted: Granted, peer: int) -> None:
        """What the holder will do with it, and in how many turns."""
        luck = self._chance()
        token = Token(granted.sequence_id, granted.attempt, granted.lease_id, granted.fence)
        who = granted.principal
        end = self._tick + 1 + int(self._chance() * 6)
        if luck < 0.02 + 0.10 * (peer == 3):
            return  # the holder is gone: the lease will expire
        if luck < 0.06:
            reason = f"upstream answered {500 + granted.attempt}"
            self._at(end, Fail(token=token, principal=who, reason=reason, error_code="upstream"))
        elif luck < 0.065 or granted.sequence_id % 89 == 7:
            keep = granted.sequence_id % 2 == 0
            self._at(end, Fail(token=token, principal=who, reason="cannot parse", requeue=keep))
        elif luck < 0.09:
            self._at(end, Release(token=token, principal=who))
        else:
            if luck > 0.95:
                for beat in range(1, 4):
                    self._at(end + 8 * beat, Heartbeat(tokens=(token,), principal=who))
                end += 30
            self._at(end, Complete(token=token, principal=who))

    def _at(self, tick: int, command: Command) -> None:
        self._agenda[tick].append(command)

    def _expire(self) -> None:
        left = self._left()
        if left and self.state.active:
            self._apply(Expire(limit=min(left, 200)))

    def _operate(self) -> None:
        """What people do now and then: drains, restores, dead letters."""
        tick, stretch = self._tick, self._stretch
        if tick == _HANDOVER_TICK and self._gives():
            self.handed = self._drain(4)
        if tick % (23 * stretch) == 0:
            self._ask(Redrive(max_items=10, principal="operator"))
        if tick % (53 * stretch) == 0:
            self._ask(Purge(max_items=5, principal="operator"))
        if tick % (31 * stretch) == 0:
            self._out += self._drain(9)
        if tick % (31 * stretch) == 6 and len(self._out) > 2:
            self._ask(Restore(items=tuple(self._out[2:]), principal="operator"))
            self._out = []  # two of them went elsewhere

    def _drain(self, most: int) -> tuple[PendingItem, ...]:
        odd = self._tick % 2 == 1
        command = Drain(
            max_items=most + 40 * odd,
            include_active=odd,
            include_dead=self._tick % 3 == 0,
            principal="operator",
        )
        for record in self._ask(command):
            if isinstance(record, Drained):
                return tuple(from_item(item) for item in record.items)
        return ()

    # -- between shards -----------------------------------------------------------------------

    def _gives(self) -> bool:
        return self.share.number % 2 == 0 and self.share.number + 1 < self.share.count

    def _take_in(self) -> None:
        """The neighbour is played again from the seed up to its handover, so that shards need not
        wait for each other."""
        visitors = self.visitors
        if visitors is None and self.share.number % 2:
            giver = Traffic(self.share.neighbour())
            for _ in giver.run():
                if giver.handed or giver._tick > _HANDOVER_TICK:
                    break
            visitors = (giver.now, giver.handed)
        if visitors is not None and visitors[1]:
            self.now = self._commit.time = max(self.now, visitors[0]) + 1_000
            self._ask(Restore(items=visitors[1], principal="operator"))

    # -- the core -----------------------------------------------------------------------------

    def _left(self) -> int:
        return self._events - self.state.sequence

    def _ask(self, command: Command) -> tuple[Record, ...]:
        """A refused call leaves no trace: an owner may tell of it later, and need not."""
        if not self._left():
            return ()
        try:
            return self._apply(command)
        except OmniRelayError:
            return ()

    def _apply(self, command: Command) -> tuple[Record, ...]:
        state, now, commit = self.state, self.now, self._commit
        records = decide(state, command, now, self._options)
        for record in records:
            evolve(state, record, now)
            commit.records.append(record)
            commit.pending.append(len(state.pending))
            commit.active.append(len(state.active))
        return records

    def _epoch(self) -> Commit:
        epoch = self.state.epoch + 1
        shard = self.share.shard
        self._commit = Commit(epoch, f"node-{epoch % 3}", self.now, [], [], [])
        self._apply(StartEpoch(epoch=epoch, node=self._commit.node, origin=f"origin-{shard}"))
        return self._taken()

    def _fresh(self) -> Commit:
        epoch = self.state.epoch
        return Commit(epoch, f"node-{epoch % 3}", self.now, [], [], [])

    def _taken(self) -> Commit:
        commit, self._commit = self._commit, self._fresh()
        return commit


_PEER_NAMES = tuple(f"worker-{number:02d}" for number in range(_PEERS))
_PRINCIPALS = tuple(f"team-{number % 5}" for number in range(_PEERS))


def _principal(peer: int) -> str:
    return _PRINCIPALS[peer]


def _asked(payload: Payload, request_id: str) -> Payload:
    return Payload(
        payload.resource_type,
        payload.resource_id,
        payload.partition_key,
        payload.payload_encoding,
        payload.body,
        payload.attributes,
        request_id,
    )


def _payloads(share: Share) -> list[tuple[Payload, int, int]]:
    """A wheel to draw from: the share of a resource falls with its rank, as in real catalogs."""
    skew = _SKEWS[share.rule != SerializeBy.NONE]
    weights = [1 / (rank + 1) ** skew for rank in range(_RESOURCES)]
    whole = sum(weights)
    ends = [round(part / whole * _SLOTS) for part in accumulate(weights)]
    wheel: list[tuple[Payload, int, int]] = []
    for rank, end in enumerate(ends):
        payload = _payload(share, rank)
        priority = 5 if rank % 50 == 9 else 0
        wheel += [(payload, rank % _PEERS, priority)] * (end - len(wheel))
    return wheel


def _payload(share: Share, rank: int) -> Payload:
    kind = _TYPES[rank % len(_TYPES)]
    name = f"lake{share.number % 3}.{kind}_{rank:04d}"
    attributes = None
    if rank % 4 == 0:
        source = f"{kind}:lake{share.number % 3}.{kind}_{(rank * 7 + 1) % _RESOURCES:04d}"
        attributes = {"lineage.inputs": source, "lineage.outputs": f"{kind}:{name}"}
    body = f'{{"action":"refresh","rank":{rank}}}'.encode()
    key = f"tenant-{rank % 40}" if rank % 3 == 0 else None
    return Payload(kind, name, key, "application/json", body, attributes)
