"""Random histories of the lease core, and tables made of them without a lakehouse under them."""

from random import Random
from typing import TYPE_CHECKING

import msgspec

from omnirelay.journal.format import Envelope
from omnirelay.lease.answers import DrainPage
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
    TellFollowed,
)
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import Followed, Granted
from omnirelay.lease.state import QueueState
from omnirelay.mesh.refused import Refusals
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Payload, PendingItem, Token
from omnirelay.testing.folded import FoldedQueue, numbered_lease_id

if TYPE_CHECKING:
    from omnirelay.testing.folded import Entry

_BEGIN_MS = 1_750_000_000_000
_STEPS_MS = (0, 0, 1, 7, 400, 2_500, 12_000, 61_000)
_FILE_KEPT = 20


class RandomHistory:
    """One queue that everything happens to, in an order that the seed decides."""

    def __init__(self, seed: int, foreign: list[PendingItem]) -> None:
        self.chance = Random(seed)
        self.queue = FoldedQueue(f"shard-{seed}", self._options())
        self.now = _BEGIN_MS + self.chance.randrange(100_000)
        self.tokens: list[tuple[Token, str]] = []
        self.file: list[PendingItem] = []
        self.foreign = foreign
        self.leases = 0
        self.refusals = Refusals(self.queue.state, 0)

    def _options(self) -> QueueOptions:
        high = self.chance.choice((None, 2, 4))
        return QueueOptions(
            lease_duration_ms=20_000,
            max_attempts=self.chance.choice((1, 2, 3)),
            serialize_by=self.chance.choice(list(SerializeBy)),
            pending_high=high,
            pending_low=None if high is None else self.chance.randrange(high),
        )

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.now += self.chance.choice(_STEPS_MS)
            if self.chance.random() < 0.04:
                self.queue.options = self._options()
                self.queue.start_epoch(self.now)
                continue
            if self.refusals and self.chance.random() < 0.2:
                self.queue.submit(self.refusals.take(), self.now)
            if self.chance.random() < 0.1:
                self.queue.submit(self._lags(), self.now)
            command = self._command()
            try:
                records, reply = self.queue.submit(command, self.now)
            except OmniRelayError as refused:
                self.refusals.note(command, refused, self.now)
                continue
            for record in records:
                if isinstance(record, Granted):
                    token = Token(record.sequence_id, record.attempt, record.lease_id, record.fence)
                    self.tokens.append((token, record.principal))
            if isinstance(reply, DrainPage):
                self.file = [*self.file, *reply.items][-_FILE_KEPT:]

    def _lags(self) -> TellFollowed:
        readers = self.chance.sample(("lakehouse", "mirror", "node:b"), self.chance.randint(1, 3))
        drawn = [(name, self.chance.choice((0, 0, 40, 3_000))) for name in readers]
        return TellFollowed(
            followed=tuple(Followed(name, 1, lag // 10, lag) for name, lag in drawn)
        )

    def _command(self) -> Command:
        chance = self.chance
        who = chance.choice(("anonymous", "ann", "bob"))
        peer = chance.choice((None, "p1", "p2", "p3"))
        roll = chance.random()
        if roll < 0.25:
            return self._enqueue(who, peer)
        if roll < 0.5:
            self.leases += 1
            lease_id = numbered_lease_id(self.leases)
            return Grant(lease_id=lease_id, principal=who, peer_id=peer, proof=peer)
        if roll < 0.85 and self.tokens:
            return self._about_a_lease()
        if roll < 0.9:
            return Expire(limit=chance.choice((1, 100)))
        return self._move(who)

    def _enqueue(self, who: str, peer: str | None) -> Enqueue:
        chance = self.chance
        names = ("a:1", "b:2", "c:3", "t:0, t:1", " ", "t:2")
        attributes = {
            name: chance.choice(names)
            for name in ("lineage.inputs", "lineage.outputs", "other")
            if chance.random() < 0.5
        }
        payload = Payload(
            chance.choice("tu"),
            str(chance.randrange(4)),
            partition_key=chance.choice((None, "k1", "k2")),
            attributes=attributes or None,
            request_id=chance.choice((None, None, f"r{chance.randrange(30)}")),
        )
        delay = chance.choice((0, 0, 0, 5_000))
        priority = chance.choice((0, 0, 3, -2))
        return Enqueue(
            payload=payload, delay_ms=delay, priority=priority, principal=who, peer_id=peer
        )

    def _about_a_lease(self) -> Command:
        chance = self.chance
        place = chance.randrange(len(self.tokens))
        roll = chance.random()
        if roll < 0.05:
            return Complete(token=self.tokens[place][0], principal="eve")
        if roll < 0.3:
            who = self.tokens[place][1]
            tokens = tuple(token for token, whose in self.tokens[-4:] if whose == who)
            return Heartbeat(tokens=tokens, principal=who)
        token, who = self.tokens.pop(place)
        if roll < 0.6:
            return Complete(token=token, principal=who)
        if roll < 0.85:
            requeue, delay = chance.random() < 0.8, chance.choice((None, 0, 3_000))
            reason = chance.choice((None, "broken", "late"))
            return Fail(token=token, principal=who, requeue=requeue, delay_ms=delay, reason=reason)
        return Release(token=token, principal=who)

    def _move(self, who: str) -> Command:
        chance = self.chance
        kind = chance.choice(("drain", "restore", "restore", "redrive", "purge"))
        if kind == "drain":
            active, dead = chance.random() < 0.5, chance.random() < 0.5
            most = chance.randint(1, 4)
            return Drain(max_items=most, include_active=active, include_dead=dead, principal=who)
        if kind == "restore":
            items = self.file if chance.random() < 0.7 else self.foreign
            chosen = chance.sample(items, min(len(items), 3))
            return Restore(items=tuple(self._edited(item) for item in chosen), principal=who)
        if kind == "redrive":
            return Redrive(max_items=2, principal=who)
        return Purge(max_items=1, principal=who)

    def _edited(self, item: PendingItem) -> PendingItem:
        """Files are edited by hand now and then."""
        if self.chance.random() < 0.7:
            return item
        payload = msgspec.structs.replace(item.payload, partition_key=None, resource_id="edited")
        return msgspec.structs.replace(item, payload=payload)


def enveloped(name: str, journal: "list[Entry]") -> list[Envelope]:
    """One envelope per record, with the depths that the fold has after it."""
    state = QueueState()
    envelopes = []
    for at, record in journal:
        evolve(state, record, at)
        place, depths = state.sequence, ([len(state.pending)], [len(state.active)])
        envelopes.append(
            Envelope(1, name, state.epoch, state.node, place, place, at, "", [record], *depths)
        )
    return envelopes


def random_journals(seeds: range, turns: int) -> dict[str, list[Envelope]]:
    """Each queue may be given what the one before it drained."""
    journals = {}
    foreign: list[PendingItem] = []
    for seed in seeds:
        history = RandomHistory(seed, foreign)
        history.run(turns)
        name = history.queue.name
        journals[name] = enveloped(name, history.queue.journal)
        foreign = history.file
    return journals
