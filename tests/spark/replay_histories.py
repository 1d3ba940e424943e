"""Seeded histories of one queue that contain every kind of record, and their envelopes."""

from collections.abc import Iterable, Iterator
from itertools import chain
from random import Random

import pyarrow as pa

from omnirelay.journal.format import Envelope, Sealed, seal, unseal
from omnirelay.lease import commands
from omnirelay.lease.answers import DrainPage
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import Followed, Record
from omnirelay.lease.state import Held, QueueState
from omnirelay.mesh.refused import Refusals
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Payload, PendingItem, Token
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.testing.event_rows import Row, rows_of
from omnirelay.testing.folded import FoldedQueue, numbered_lease_id

BEGIN = 1_700_000_000_000
OPTIONS = QueueOptions(
    serialize_by=SerializeBy.RESOURCE,
    lease_duration_ms=300,
    max_attempts=2,
    requeue_delay_ms=100,
    requeue_delay_max_ms=150,
    dedupe_window_ms=400,
    dedupe_entries=2,
    finished_entries=3,
    pending_high=6,
    pending_low=2,
)


class History:
    """Drives the core by chance; of refused commands some trace is left later, as in life."""

    def __init__(self, seed: int, steps: int) -> None:
        self.chance = Random(seed)
        self.queue = FoldedQueue(f"origin-{seed}", OPTIONS)
        self.shard = f"shard-{seed}"
        self.now = BEGIN
        self.leases = 0
        self.files: list[tuple[PendingItem, ...]] = []
        self.refusals = Refusals(self.queue.state, 0)
        for _ in range(steps):
            self.now += self.chance.choice((0, 5, 70, 250))
            try:
                self._step(self.chance.randrange(100))
            except OmniRelayError:
                continue

    def _submit(self, command: commands.Command) -> object:
        if self.refusals and self.chance.random() < 0.2:
            self.queue.submit(self.refusals.take(), self.now)
        if self.chance.random() < 0.05:
            told = Followed("mirror", self.queue.state.sequence, 0, 0)
            self.queue.submit(commands.TellFollowed(followed=(told,)), self.now)
        try:
            return self.queue.submit(command, self.now)[1]
        except OmniRelayError as refused:
            self.refusals.note(command, refused, self.now)
            raise

    def _step(self, drawn: int) -> None:
        if drawn < 40:
            self._submit(self._order())
        elif drawn < 60:
            self.leases += 1
            lease_id = numbered_lease_id(self.leases)
            asked = self.chance.choice((None, "ask-1", "ask-2"))
            self._submit(
                commands.Grant(lease_id=lease_id, principal="w", peer_id="p1", request_id=asked)
            )
        elif drawn < 84:
            self._end(drawn)
        else:
            self._operate(drawn)

    def _order(self) -> commands.Enqueue:
        choice = self.chance.choice
        payload = Payload(
            choice(("table", "ש<b>🙂")),
            choice("123"),
            choice((None, "key")),
            body=choice((b"", b"\x00\xff")),
            attributes=choice((None, {}, {"lineage.inputs": "a,b"})),
            request_id=choice((None, None, "r1", "r2")),
        )
        return commands.Enqueue(
            payload=payload,
            delay_ms=choice((0, 0, 100)),
            priority=choice((0, 5, -1)),
            max_attempts=choice((None, 3)),
            lease_duration_ms=choice((None, 150)),
            principal="producer",
            proof=choice((None, "digest")),
        )

    def _end(self, drawn: int) -> None:
        held = list(self.queue.state.active.values())
        if not held:
            return
        token = _token(self.chance.choice(held))
        if drawn < 66:
            self._submit(commands.Complete(token=token, principal="w"))
        elif drawn < 72:
            self._submit(commands.Fail(token=token, principal="w", reason="x", metadata={"k": "v"}))
        elif drawn < 75:
            self._submit(commands.Fail(token=token, principal="w", requeue=False))
        elif drawn < 78:
            self._submit(commands.Release(token=token, principal="w"))
        elif drawn < 82:
            tokens = tuple(map(_token, held))
            self._submit(commands.Heartbeat(tokens=tokens, principal="w"))
        else:
            self._submit(commands.Expire(limit=5))

    def _operate(self, drawn: int) -> None:
        if drawn < 88:
            page = self._submit(commands.Drain(max_items=3, include_active=True, include_dead=True))
            assert isinstance(page, DrainPage)
            self.files.append(page.items)
        elif drawn < 92 and self.files:
            self._submit(commands.Restore(items=self.files.pop()))
        elif drawn < 94:
            self._submit(commands.Redrive(max_items=2))
        elif drawn < 96:
            self._submit(commands.Purge(max_items=1))
        elif drawn < 98:
            self.queue.start_epoch(self.now)
        else:
            self._submit(commands.Expire(limit=5))

    def envelopes(self) -> Iterator[Envelope]:
        """One record an envelope; the first record's time is that of the start."""
        for sealed in sealed_of(self.shard, self.queue.journal):
            yield unseal(sealed.body, shard=self.shard, at=sealed.first)


def sealed_of(shard: str, journal: list[tuple[int, Record]]) -> Iterator[Sealed]:
    state, link = QueueState(), ""
    for first, (at, record) in enumerate(journal, start=1):
        evolve(state, record, at)
        sealed = seal(
            [record],
            ([len(state.pending)], [len(state.active)]),
            head=(shard, state.epoch, state.node),
            first=first,
            time=at,
            prev=link,
        )
        link = sealed.checksum
        yield sealed


def _token(held: Held) -> Token:
    return Token(held.item.sequence_id, held.item.attempt, held.lease_id, held.fence)


def batch_of(envelopes: Iterable[Envelope]) -> pa.RecordBatch:
    rows = list(chain.from_iterable(map(rows_of, envelopes)))
    for row in rows:
        for one in [row, *(row["items"] or ())]:
            _pair_up(one)
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _pair_up(row: Row) -> None:
    """Arrow takes a map as pairs."""
    for name in ("attributes", "details"):
        if row.get(name) is not None:
            row[name] = list(row[name].items())
