"""A run is what `decide`, `evolve` and `answer` would do one after the other: same records, same
answers, same refusals, same facts and same order of the line."""

import random
from collections.abc import Sequence
from itertools import count

import pytest
from msgspec import structs

from omnirelay.lease import runs
from omnirelay.lease.commands import (
    Command,
    Complete,
    Completes,
    Enqueue,
    Enqueues,
    Fail,
    Grant,
)
from omnirelay.lease.invariants import violations
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import Call, LeaseCall
from omnirelay.mesh.turn import Turn
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Payload, Token
from omnirelay.model.ports import Ids
from omnirelay.testing.folded import FoldedQueue, every_fact, fold, numbered_lease_id

OPTIONS = {
    "plain": QueueOptions(dedupe_window_ms=40, dedupe_entries=7),
    "full": QueueOptions(capacity=23),
    "paused": QueueOptions(pending_high=15, pending_low=6),
    "by resource": QueueOptions(serialize_by=SerializeBy.RESOURCE),
    "by partition": QueueOptions(serialize_by=SerializeBy.PARTITION_KEY, capacity=40),
}


class _Numbers(Ids):
    def __init__(self) -> None:
        self._count = count(1)

    def lease_id(self) -> str:
        return numbered_lease_id(next(self._count))


class _Script:
    """Random batches, some of whose members are wrong, repeated, delayed or out of place."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.tokens: list[Token] = []

    def enqueues(self) -> list[Command]:
        # Half of them are what nearly all are in life: these are decided by columns.
        make = self.dice.choice((self._enqueue, self._plain))
        found = [make() for _ in range(self.dice.randint(1, 12))]
        if self.dice.random() < 0.4:
            # As clients number them: mostly all new, now and then some of them again.
            first = self.dice.randint(0, 40)
            found = [
                structs.replace(
                    one, payload=structs.replace(one.payload, request_id=f"n.{first + index}")
                )
                for index, one in enumerate(found)
            ]
        return list(found)

    def _plain(self) -> Enqueue:
        dice = self.dice
        name = " " if dice.random() < 0.01 else f"r{dice.randint(0, 30)}"
        key = dice.choice((None, "p", "q"))
        kind = "file" if dice.random() < 0.1 else "table"
        return Enqueue(payload=Payload(kind, name, partition_key=key, body=b"x"))

    def _enqueue(self) -> Enqueue:
        dice = self.dice
        payload = Payload(
            dice.choice(("table", "table", "table", "file")),
            dice.choice(("a", "b", "c", "d", " ")) if dice.random() < 0.3 else f"r{dice.random()}",
            partition_key=dice.choice((None, "p", "q")),
            body=b"x" * dice.randint(0, 9),
            attributes={"k": "v"} if dice.random() < 0.1 else None,
            request_id=dice.choice(
                (None, None, f"id{dice.randint(0, 12)}", f"c.{dice.randint(0, 12)}")
            ),
        )
        return Enqueue(
            payload=payload,
            priority=dice.choice((0, 0, 0, 0, 0, 3, 10**9)),
            delay_ms=dice.choice((0, 0, 0, 0, 5)),
            max_attempts=dice.choice((None, None, 2, 0)),
        )

    def ends(self) -> list[Command]:
        dice, chosen = self.dice, []
        for _ in range(min(len(self.tokens), dice.randint(1, 9))):
            token = dice.choice(self.tokens)
            command: Command = Complete(token=token)
            if dice.random() < 0.15:
                command = Fail(token=token, delay_ms=dice.choice((None, 0, 3)))
            if dice.random() < 0.05:
                command = Complete(token=token, principal="somebody else")
            chosen.append(command)
        return chosen

    def wish(self) -> LeaseCall:
        dice = self.dice
        return LeaseCall(
            max_items=dice.choice((1, 2, 5, 20)),
            resource_types=dice.choice((None, None, ("table",), ("file", "table"))),
            lease_duration_ms=dice.choice((None, None, 1000)),
            request_id=dice.choice((None, f"w{dice.randint(0, 5)}")),
        )


def _one_by_one(queue: FoldedQueue, commands: list[Command], now: int) -> list[object]:
    told: list[object] = []
    for command in commands:
        try:
            told.append(queue.submit(command, now)[1])
        except OmniRelayError as refused:
            told.append(str(refused))
    return told


def _leased_one_by_one(queue: FoldedQueue, wish: LeaseCall, ids: _Numbers, now: int) -> object:
    leases: list[object] = []
    for index in range(wish.max_items):
        command = Grant(
            lease_id=ids.lease_id(),
            resource_types=wish.resource_types,
            lease_duration_ms=wish.lease_duration_ms,
            request_id=wish.request_id,
            index=index,
        )
        try:
            records, reply = queue.submit(command, now)
        except OmniRelayError as refused:
            return str(refused)
        if reply is None:
            break
        assert isinstance(reply, tuple)
        leases.extend(reply)
        if not records:
            break
    return leases


def _said(outcome: object) -> object:
    return str(outcome) if isinstance(outcome, OmniRelayError) else outcome


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(40))
def test_a_run_is_its_commands_one_after_the_other(name: str, seed: int) -> None:
    options, script = OPTIONS[name], _Script(seed)
    single = FoldedQueue("A", options)
    together = fold(single.journal)
    ids, again = _Numbers(), _Numbers()
    now = 0
    for _ in range(40):
        now += script.dice.choice((0, 1, 7))
        turn = Turn(together, options, again, now)
        length = len(single.journal)
        kind = script.dice.choice(("enqueue", "enqueue", "lease", "end"))
        if kind == "lease":
            wish = script.wish()
            told = _leased_one_by_one(single, wish, ids, now)
            turn.lease(wish)
            replied = [_said(outcome) for _, outcomes in turn.replies for outcome in outcomes]
            leases = getattr(replied[0], "leases", None) if replied else ()
            if leases is None:
                assert replied == [told]
            else:
                # Ids are drawn one for each try here, one for each lease there.
                assert [_bare(one) for one in leases] == [_bare(one) for one in told]  # type: ignore[attr-defined]
                script.tokens += [one.token for one in leases]
                _adopt_ids(single, length, turn)
        else:
            commands = script.enqueues() if kind == "enqueue" else script.ends()
            if not commands:
                continue
            call = Call(_as_it_came(commands) if seed % 2 else commands, wait_ms=0)
            assert turn.handle(call, {})
            assert [_said(one) for one in call.outcomes] == _one_by_one(single, commands, now)
        assert turn.records == [record for _, record in single.journal[length:]]
        assert every_fact(together) == every_fact(single.state)
        for state in (together, single.state):
            state.ripen(
                now
            )  # no fact: whoever looks for work does it, and one of them may not have
        assert list(together.lanes) == list(single.state.lanes)
        assert not violations(together)
        _check_depths(turn, together)


def _as_it_came(commands: list[Command]) -> Sequence[Command]:
    """As a wire hands a batch in: who calls is said once for all of them."""
    first = commands[0]
    if any(type(one) is not type(first) or one.principal != first.principal for one in commands):
        return commands
    if isinstance(first, Enqueue):
        items = [one for one in commands if isinstance(one, Enqueue)]
        return Enqueues(items, first.principal, first.proof, first.peer_id)
    if not isinstance(first, Complete):
        return commands  # nothing else comes in batches of its own
    tokens = [one.token for one in commands if isinstance(one, Complete)]
    return Completes(tokens, first.principal, first.proof)


def _bare(lease: object) -> tuple[object, ...]:
    return (lease.sequence_id, lease.attempt, lease.fence, lease.expires_at, lease.payload)  # type: ignore[attr-defined]


def _adopt_ids(single: FoldedQueue, length: int, turn: Turn) -> None:
    """Take over the lease ids of the other side, so that tokens mean the same on both."""
    single.journal[length:] = [(turn.now, record) for record in turn.records]
    single.state = fold(single.journal)


def _check_depths(turn: Turn, state: QueueState) -> None:
    assert len(turn.records) == len(turn.pending) == len(turn.active)
    if turn.records:
        assert (turn.pending[-1], turn.active[-1]) == (len(state.pending), len(state.active))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_journal_folds_to_the_same_in_runs(name: str) -> None:
    for seed in range(20):
        options, script = OPTIONS[name], _Script(1000 + seed)
        state, ids, now = QueueState(), _Numbers(), 0
        first = FoldedQueue("A", options).journal
        journal = list(first)
        state = fold(first)
        folded = fold(first)
        for _ in range(30):
            now += script.dice.choice((0, 1, 7))
            turn = Turn(state, options, ids, now)
            turn.handle(Call(script.enqueues(), wait_ms=0), {})
            turn.lease(wish := script.wish())
            script.tokens += _tokens(turn, wish)
            turn.handle(Call(script.ends(), wait_ms=0), {})
            runs.evolve_all(folded, turn.records, now)
            journal += [(now, record) for record in turn.records]
            assert every_fact(folded) == every_fact(fold(journal))
        assert list(folded.lanes) == list(state.lanes)


def _tokens(turn: Turn, wish: LeaseCall) -> list[Token]:
    found = [outcomes[0] for call, outcomes in turn.replies if call is wish]
    return [one.token for said in found for one in getattr(said, "leases", ())]


def test_a_batch_is_decided_in_runs_and_not_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would prove nothing."""
    sizes: list[int] = []
    evolve_run = runs.evolve_run

    def counted(state: QueueState, records: list[object], at: int) -> None:
        sizes.append(len(records))
        evolve_run(state, records, at)  # type: ignore[arg-type]

    def by_itself(*_: object) -> None:
        raise AssertionError("an item that says nothing special was looked at by itself")

    monkeypatch.setattr(runs, "evolve_run", counted)
    monkeypatch.setattr(runs, "enqueued", by_itself)
    queue = FoldedQueue("A")
    turn = Turn(queue.state, queue.options, _Numbers(), 1)
    turn.handle(Call([Enqueue(payload=Payload("t", str(n))) for n in range(50)]), {})
    turn.lease(wish := LeaseCall(max_items=50))
    (leases,) = (outcomes[0].leases for call, outcomes in turn.replies if call is wish)  # type: ignore[union-attr]
    turn.handle(Call([Complete(token=one.token) for one in leases]), {})
    assert sizes == [50, 49, 50]
