"""Refusals are written down, few and late, with what is written anyway; they change nothing."""

from collections import deque
from collections.abc import Sequence
from itertools import chain

import pytest

from omnirelay.cli.event_words import event_in_words
from omnirelay.journal.events import events_of
from omnirelay.journal.format import Envelope, Sealed
from omnirelay.lease.commands import (
    Command,
    Complete,
    Completes,
    Enqueue,
    Fail,
    Heartbeat,
    Inspect,
    Release,
    TellRefused,
)
from omnirelay.lease.image import facts
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import FORMAT, TOLD_FORMAT, Record, Refused
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import Call
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.refused import Refusals
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.errors import (
    Backpressure,
    InvalidArgument,
    OmniRelayError,
    OutcomeUnknown,
    QueueFull,
    StaleToken,
    UnknownToken,
)
from omnirelay.model.items import Payload, Token
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import scan
from omnirelay.testing.folded import FoldedQueue, fold, numbered_lease_id
from tests.unit.served import Served, serving

SHARD = "resourcelease"
WORK = Enqueue(payload=Payload("table", "orders"))
STALE = "error.taskqueue.lease_inactive"
AT_ONCE = ShardOptions(node="node-1", queue=QueueOptions(refusals_every_ms=0))


class Flaky(MemoryJournal):
    """Fails when it is told to."""

    failure: OmniRelayError | None = None

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        await super().append(sealed, expected=expected)


async def envelopes(journal: MemoryJournal) -> list[Envelope]:
    return await scan(journal, SHARD)


async def refused(journal: MemoryJournal) -> list[Refused]:
    records = chain.from_iterable(one.records for one in await envelopes(journal))
    return [record for record in records if isinstance(record, Refused)]


async def stale_token(served: Served, clock: HandClock) -> Token:
    """Of a lease whose time is up, and whose expiry is written."""
    await served.ask(WORK)
    (token,) = await served.lease()
    clock.now_ms += 60_000
    await served.ask(WORK)
    return token


async def test_a_refused_completion_is_written_down_with_the_next_commit() -> None:
    journal, clock = MemoryJournal(SHARD), HandClock()
    async with serving(journal, AT_ONCE, clock=clock) as served:
        token = await stale_token(served, clock)
        before = len(await envelopes(journal))
        (outcome,) = await served.ask(Complete(token=token, principal="ann", proof="p"))
        assert isinstance(outcome, StaleToken)
        assert len(await envelopes(journal)) == before, "no commit of its own"
        await served.ask(WORK)
        last = (await envelopes(journal))[-1]
    assert [type(record).__name__ for record in last.records] == ["Enqueued", "Refused"]
    assert last.pending == [3, 3]
    shown = (token.sequence_id, token.attempt, token.lease_id)
    assert last.records[1] == Refused("complete", STALE, 1, *shown, None, "ann", "p")


async def test_what_is_refused_in_a_turn_that_writes_goes_with_that_turn() -> None:
    journal, clock = MemoryJournal(SHARD), HandClock()
    async with serving(journal, AT_ONCE, clock=clock) as served:
        token = await stale_token(served, clock)
        await served.ask(Complete(token=token), WORK)
        assert [one.verb for one in await refused(journal)] == ["complete"]


async def test_refusals_alike_are_gathered_for_a_while_and_counted() -> None:
    journal, clock = MemoryJournal(SHARD), HandClock()
    async with serving(journal, clock=clock) as served:
        token = await stale_token(served, clock)
        for _ in range(3):
            await served.ask(Complete(token=token))
        clock.now_ms += 9_999
        await served.ask(WORK)
        assert await refused(journal) == []
        clock.now_ms += 1
        await served.ask(WORK)
        assert [(one.verb, one.times) for one in await refused(journal)] == [("complete", 3)]
        clock.now_ms += 20_000
        await served.ask(WORK)
        assert len(await refused(journal)) == 1, "told once"


async def test_each_of_a_batch_is_counted() -> None:
    journal, clock = MemoryJournal(SHARD), HandClock()
    async with serving(journal, AT_ONCE, clock=clock) as served:
        await served.ask(WORK, WORK)
        tokens = await served.lease(2)
        clock.now_ms += 60_000
        served.shard.offer(Call(Completes(tokens, "ann", None)))
        await served.ask(Heartbeat(tokens=tuple(tokens), principal="ann"))
        await served.ask(Fail(token=tokens[0]), Release(token=tokens[1]), WORK)
        found = {(one.verb, one.sequence_id, one.times) for one in await refused(journal)}
    assert found == {
        *(("complete", 1, 1), ("complete", 2, 1)),
        *(("heartbeat", 1, 1), ("heartbeat", 2, 1)),
        *(("fail", 1, 1), ("release", 2, 1)),
    }


async def test_a_full_queue_is_told_without_an_item() -> None:
    journal = MemoryJournal(SHARD)
    options = ShardOptions(node="n", queue=QueueOptions(capacity=1, refusals_every_ms=0))
    async with serving(journal, options) as served:
        await served.ask(WORK)
        (full,) = await served.ask(Enqueue(payload=WORK.payload, peer_id="p", principal="ann"))
        assert isinstance(full, QueueFull)
        await served.lease()
        assert await refused(journal) == [
            Refused("enqueue", full.code, 1, peer_id="p", principal="ann")
        ]


async def test_an_old_format_s_epoch_holds_no_refusals() -> None:
    journal, clock = MemoryJournal(SHARD), HandClock()
    old = ShardOptions(node="n", queue=AT_ONCE.queue, format=1)
    async with serving(journal, old, clock=clock) as served:
        token = await stale_token(served, clock)
        await served.ask(Complete(token=token), WORK)
        await served.ask(WORK)
        assert await refused(journal) == []


async def test_a_failed_append_takes_its_refusals_along_and_nothing_else() -> None:
    journal, clock = Flaky(SHARD), HandClock()
    async with serving(journal, AT_ONCE, clock=clock) as served:
        token = await stale_token(served, clock)
        await served.ask(Complete(token=token))
        journal.failure = OutcomeUnknown("the disk went away")
        (outcome,) = await served.ask(WORK)
        assert isinstance(outcome, OutcomeUnknown)
        clock.now_ms += 60_000  # it pauses before it tries again
        await served.shard.ready.wait()
        await served.ask(WORK)
        assert await refused(journal) == []
        await served.ask(Complete(token=token), WORK)
        assert len(await refused(journal)) == 1


async def test_a_journal_with_refusals_recovers_to_the_state_it_had() -> None:
    journal, clock = MemoryJournal(SHARD), HandClock()
    async with serving(journal, AT_ONCE, clock=clock) as served:
        token = await stale_token(served, clock)
        await served.ask(Complete(token=token), WORK)
        (later,) = await served.lease()
        assert later.fence == served.shard.state.sequence, "the refusal has its number"
        found = await recover(journal)
        assert facts(found.state) == facts(served.shard.state)


def test_the_state_is_the_same_with_and_without_a_refusal() -> None:
    queue = FoldedQueue()
    queue.submit(WORK, 10)
    told = TellRefused(refused=(Refused("complete", STALE, 7, 1, 1, numbered_lease_id(1)),))
    before = queue.state.sequence
    records, _ = queue.submit(told, 10)
    assert records == told.refused
    assert queue.state.sequence == before + 1
    without = fold(one for one in queue.journal if not isinstance(one[1], Refused))
    without.sequence += 1
    assert facts(queue.state) == facts(without)
    queue.refold()
    queue.through_snapshot()


def test_an_event_says_a_refusal_in_words() -> None:
    records: list[Record] = [
        Refused("complete", STALE, 3, 1, 2, numbered_lease_id(1), "p", "ann", "digest"),
        Refused("lease", STALE, 1),
    ]
    envelope = Envelope(1, SHARD, 1, "n", 1, 2, 1000, "", records, [0, 0], [0, 0])
    first, second = events_of(envelope)
    assert (first.event_type, first.sequence_id, first.attempt) == ("Refused", 1, 2)
    assert (first.peer_id, first.principal) == ("p", "ann")
    assert first.error is not None
    assert (first.error.message, first.error.code) == ("complete was refused 3 times", STALE)
    assert first.ownership == Token(1, 2, numbered_lease_id(1))
    assert event_in_words(first).endswith("item 1  attempt 2  by p  complete was refused 3 times")
    assert first.metadata["verb"] == "complete"
    assert first.metadata["times"] == "3"
    assert first.metadata["principal.proof"] == "digest"
    assert second.error is not None
    assert second.error.message == "lease was refused once"
    assert (second.sequence_id, second.ownership) == (None, None)


# -- what is gathered ---------------------------------------------------------------------------


def gathered(
    *asked: tuple[Command, OmniRelayError], state: QueueState | None = None
) -> Sequence[Refused]:
    if state is None:
        state = QueueState()
        state.last_id = 9
    refusals = Refusals(state, 0)
    for command, error in asked:
        refusals.note(command, error, 5)
    return refusals.take().refused


def complete(number: int, **more: object) -> Complete:
    return Complete(token=Token(number, 1, numbered_lease_id(number)), **more)  # type: ignore[arg-type]


def test_there_is_a_bound_to_what_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSALS_MAX", 2)
    why = StaleToken(1, "late")
    found = gathered(
        *((complete(number), why) for number in (1, 2, 3, 4, 1)),
        *((complete(5, principal=who), why) for who in ("ann", "bob", "ann")),
    )
    assert [(one.sequence_id, one.principal, one.times) for one in found] == [
        (1, "anonymous", 2),
        (2, "anonymous", 1),
        (None, "anonymous", 2),
        (None, "ann", 2),
    ], "two with their tokens, two without, and bob is forgotten"


@pytest.mark.parametrize(
    "token",
    [
        Token(10, 1, numbered_lease_id(1)),
        Token(1 << 70, 1, numbered_lease_id(1)),
        Token(-1, 1, numbered_lease_id(1)),
        Token(1, 1 << 40, numbered_lease_id(1)),
        Token(1, 0, numbered_lease_id(1)),
        Token(1, 1, "x" * 36),
    ],
)
def test_a_token_that_was_never_granted_is_not_written_down(token: Token) -> None:
    (found,) = gathered((Complete(token=token), UnknownToken(token.sequence_id)))
    assert (found.verb, found.sequence_id, found.attempt, found.lease_id) == (
        *("complete", None, None),
        None,
    )


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (WORK, Backpressure(3, 2, 1)),
        (WORK, InvalidArgument("too long")),
        (Inspect(sequence_id=4), UnknownToken(4)),
    ],
)
def test_waits_bad_input_and_questions_are_no_refusals(
    command: Command, error: OmniRelayError
) -> None:
    assert gathered((command, error)) == ()


def test_a_holder_that_has_finished_is_no_zombie_for_a_heartbeat_that_came_late() -> None:
    state = QueueState()
    state.last_id = 9
    state.finished.put(1, numbered_lease_id(1), 0, 10)
    refusals = Refusals(state, 0)
    for number in (1, 2):
        token = Token(1, 1, numbered_lease_id(number))
        refusals.note(Heartbeat(tokens=(token,)), StaleToken(1, "done"), 5, token)
    (found,) = refusals.take().refused
    assert found.lease_id == numbered_lease_id(2)


def test_what_a_door_denied_is_gathered_too() -> None:
    denied = deque([Refused("drain", "error.permission_denied", 1, principal="eve")] * 2)
    refusals = Refusals(QueueState(), 10, denied)
    assert refusals
    assert not refusals.are_due(100)
    assert refusals.are_due(110)
    (found,) = refusals.take().refused
    assert (found.verb, found.times, found.principal) == ("drain", 2, "eve")
    assert not refusals


def test_refusals_are_not_of_the_first_format() -> None:
    assert FORMAT >= TOLD_FORMAT == 2
    old = FoldedQueue()
    old.state.rules = QueueOptions().rules()
    records, _ = old.submit(TellRefused(refused=(Refused("lease", STALE, 1),)), 10)
    assert records == ()
