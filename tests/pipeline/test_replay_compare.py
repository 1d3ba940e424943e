"""A rebuilt state beside a living one: equal, or every difference by its name."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import omnirelay
from omnirelay.journal.format import Chain
from omnirelay.lease.evolve import evolve
from omnirelay.lease.records import Item
from omnirelay.lease.state import QueueState
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.items import Payload
from omnirelay.pipeline.replay_compare import compare_journal, compare_node, differences
from omnirelay.stores.sqlite_look import look
from omnirelay.testing.folded import fold
from tests.cli.nodes import Running, running
from tests.spark.replay_histories import History

SHARD = "resourcelease"


def test_equal_states_have_no_differences() -> None:
    for seed in range(6):
        history = History(seed, 120)
        assert differences("s", fold(history.queue.journal), history.queue.state) == []


def test_each_differing_field_is_named_with_both_values() -> None:
    history = History(4, 120)
    ours, theirs = history.queue.state, fold(history.queue.journal)
    assert ours.pending, "the history leaves something to wait"
    sequence_id, item = next(iter(theirs.pending.items()))
    theirs.pending[sequence_id] = msgspec.structs.replace(item, priority=item.priority + 1)
    theirs.epoch += 1
    theirs.pending[9999] = Item(9999, Payload("table", "more"), 1, 0)
    found = {one.field: (one.replayed, one.live) for one in differences("s", ours, theirs)}
    assert found.keys() == {"epoch", f"pending.{sequence_id}.priority", "pending.9999"}
    assert found["epoch"] == (ours.epoch, ours.epoch + 1)
    assert found["pending.9999"][0] is None


# -- a journal ----------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "leases.db"
    with omnirelay.connect_sync(f"sqlite:///{path}") as relay:
        for number in range(6):
            relay.enqueue("table", f"orders-{number}", body=b"x")
        with relay.lease() as lease:
            assert lease.sequence_id == 1
        relay.lease_many(2)
    return path


def _state(path: Path, upto: int | None = None) -> QueueState:
    async def read() -> QueueState:
        reader = look(str(path), SHARD).reader
        state, chain = QueueState(), Chain(SHARD)
        for envelope in chain.accept_all(await reader.read(0, 1000)):
            for number, record in envelope.numbered():
                if upto is None or number <= upto:
                    evolve(state, record, envelope.time)
        await reader.close()
        return state

    return asyncio.run(read())


def test_a_journal_agrees_with_its_own_states_at_every_sequence(journal: Path) -> None:
    for upto in range(1, _state(journal).sequence + 1):
        assert compare_journal(str(journal), {SHARD: _state(journal, upto)}) == []


def test_a_state_that_is_ahead_of_the_journal_differs_in_its_sequence(journal: Path) -> None:
    state = _state(journal)
    state.sequence += 5
    (found,) = compare_journal(str(journal), {SHARD: state})
    assert (found.field, found.replayed) == ("sequence", state.sequence)


# -- a node -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("node")
    with running(folder, "--journal", "sqlite:///leases.db") as started:
        with omnirelay.connect_sync(started.urls["stream"]) as relay:
            for number in range(5):
                relay.enqueue("table", f"orders-{number}", body=b"x", priority=number)
            (dead, _) = relay.lease_many(2, duration=600.0, renew=False)
            dead.fail("no", requeue=False)
        yield started


def test_a_quiet_node_agrees_with_its_journal(node: Running) -> None:
    state = _state(node.folder / "leases.db")
    assert (len(state.pending), len(state.active), len(state.dead)) == (3, 1, 1)
    compared = compare_node(node.urls["stream"], {SHARD: state})
    assert compared.differences == []
    assert compared.unseen == 0


def test_what_a_node_holds_otherwise_is_named(node: Running) -> None:
    state = _state(node.folder / "leases.db")
    (held,) = state.active
    state.active[held] = msgspec.structs.replace(state.active[held], principal="eve")
    (dead,) = state.dead
    del state.dead[dead]
    found = {one.field for one in compare_node(node.urls["stream"], {SHARD: state}).differences}
    assert found == {"stats.deadLetterCount", f"dead.{dead}", f"items.{held}.principal"}


def test_a_node_that_is_elsewhere_is_not_compared(node: Running) -> None:
    state = _state(node.folder / "leases.db", 2)
    with pytest.raises(InvalidArgument, match=r"is at sequence .* on the node, the replay at 2"):
        compare_node(node.urls["stream"], {SHARD: state})
