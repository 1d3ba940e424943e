"""Everything that two workers, two items and three epochs can do to the core, nine steps deep."""

import msgspec
import pytest

from omnirelay.lease.commands import Command, Complete, Expire, Restore
from omnirelay.lease.decide import decide
from omnirelay.lease.deciding_moves import to_item
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import EpochStarted, Expired, Record, Restored
from omnirelay.lease.state import QueueState
from omnirelay.model.items import Token
from omnirelay.testing import figures
from omnirelay.testing.explore import Scope, explore
from omnirelay.testing.folded import Decide, Evolve, Records
from omnirelay.testing.scenario import run

OPTIONS = QueueOptions(
    lease_duration_ms=100, max_attempts=2, requeue_delay_ms=50, requeue_jitter=0.0
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("serialize_by", "depth"), [("none", 9), ("resource", 10)])
def test_no_way_leads_to_a_violation(serialize_by: str, depth: int) -> None:
    options = msgspec.structs.replace(OPTIONS, serialize_by=SerializeBy(serialize_by))
    found = explore(Scope(options=options, depth=depth))
    figures.record(
        "exhaustive",
        states=found.states,
        transitions=found.transitions,
        depth=found.depth,
        violations=int(found.violation is not None),
    )
    assert found.violation is None, found.scenario
    assert found.depth == depth
    assert found.states > 10_000


# -- planted bugs -------------------------------------------------------------------------------


def without_fencing(
    state: QueueState, command: Command, now: int, options: QueueOptions
) -> Records:
    """Whoever completes is taken for the present holder."""
    if isinstance(command, Complete):
        held = state.active.get(command.token.sequence_id)
        if held is not None and held.expires_at > now:
            token = Token(held.item.sequence_id, held.item.attempt, held.lease_id, held.fence)
            command = Complete(token=token, principal=held.principal)
    return decide(state, command, now, options)


def without_deadline(
    state: QueueState, command: Command, now: int, options: QueueOptions
) -> Records:
    """A holder may complete until its expiry is recorded, however late that is."""
    return decide(state, command, 0 if isinstance(command, Complete) else now, options)


def with_early_expiry(
    state: QueueState, command: Command, now: int, options: QueueOptions
) -> Records:
    return decide(state, command, now + 50 if isinstance(command, Expire) else now, options)


def with_careless_restore(
    state: QueueState, command: Command, now: int, options: QueueOptions
) -> Records:
    """Takes every item that is not here, whether or not its work was done."""
    if not isinstance(command, Restore):
        return decide(state, command, now, options)
    here = {*state.pending, *state.active, *state.dead}
    items = tuple(to_item(i) for i in command.items if i.sequence_id not in here)
    return (
        (Restored(tuple(msgspec.structs.replace(i, origin=None) for i in items)),) if items else ()
    )


def losing_the_expired(state: QueueState, record: Record, at: int) -> None:
    evolve(state, record, at)
    if isinstance(record, Expired) and record.sequence_id in state.pending:
        state.take_out(state.pending[record.sequence_id])


def keeping_old_deadlines(state: QueueState, record: Record, at: int) -> None:
    before = dict(state.active)
    evolve(state, record, at)
    if isinstance(record, EpochStarted):
        state.active.update(before)
        state.rebuild_indexes()


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (without_fencing, "complete of item 1 under fence 4 was accepted, the newest grant is"),
        (without_deadline, "was accepted after its lease was over"),
        (with_early_expiry, "item 1 expired at 50, its lease ran to 100"),
        (with_careless_restore, "item 1 was completed and came back"),
    ],
)
def test_a_bug_planted_in_deciding_is_found(planted: Decide, words: str) -> None:
    found = explore(Scope(options=OPTIONS), decide=planted)
    assert words in (found.violation or "nothing")


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (losing_the_expired, "item 1 is in 0 places"),
        (keeping_old_deadlines, "its lease ran to"),
    ],
)
def test_a_bug_planted_in_evolving_is_found(planted: Evolve, words: str) -> None:
    found = explore(Scope(options=OPTIONS), evolve=planted)
    assert words in (found.violation or "nothing")


def test_the_shortest_way_to_a_violation_is_told_as_a_scenario_the_real_core_refuses() -> None:
    found = explore(Scope(options=OPTIONS), decide=without_fencing)
    assert found.scenario is not None
    *before, last = found.scenario.splitlines()
    played = run(found.scenario).splitlines()
    assert played[: len(before)] == before
    assert last.split()[0] == "Completed"
    assert played[-1].split()[:2] == ["!", "StaleToken"]
    assert sum(line.startswith("@") for line in before) == 6
