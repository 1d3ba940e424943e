"""A large turn is appended beside the loop that decided it; what that must not break."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from omnirelay import Accepted, KeepOptions, OmniRelayError, Payload, Stats, Unavailable
from omnirelay.lease.commands import Enqueue, ReadStats
from omnirelay.mesh.calls import Call, Outcome
from omnirelay.mesh.desk import Desk
from omnirelay.mesh.driven import DrivenShard
from omnirelay.mesh.driver import LoopDriver
from omnirelay.model.errors import OutcomeUnknown
from omnirelay.model.ports import set_failpoint
from omnirelay.sdk.engine import Engine

MANY = 300


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine.open(f"sqlite:///{tmp_path}/leases.db")
    yield engine
    set_failpoint(None)
    engine.close()


class Gate:
    """Stops the thread that comes to `place`, until it is opened."""

    def __init__(self, place: str, then: Callable[[], None] = lambda: None) -> None:
        self.came = threading.Event()
        self.may_pass = threading.Event()
        self.threads: list[str] = []
        self._place = place
        self._then = then
        set_failpoint(self)

    def __call__(self, place: str) -> None:
        if place == self._place:
            self.threads.append(threading.current_thread().name)
            self.came.set()
            assert self.may_pass.wait(10)
            self._then()

    async def is_reached(self) -> None:
        assert await asyncio.to_thread(self.came.wait, 10)


def desk_of(engine: Engine) -> Desk:
    loop = asyncio.get_running_loop()
    assert isinstance(engine.shard, DrivenShard)
    return Desk(loop, LoopDriver(engine.shard, loop).offer)


def batch(name: str, count: int = MANY) -> Call:
    items = [Payload("table", name, request_id=f"{name}-{number}") for number in range(count)]
    return Call([Enqueue(payload=payload) for payload in items])


def are_accepted(outcomes: Sequence[Outcome]) -> bool:
    return all(isinstance(one, Accepted) for one in outcomes)


async def breathe() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def stats_once_served(desk: Desk) -> Stats:
    while True:
        (outcome,) = await desk.call(Call([ReadStats()]))
        if isinstance(outcome, Stats):
            return outcome
        assert isinstance(outcome, Unavailable)


async def test_the_loop_decides_the_next_turn_while_a_large_one_is_made_durable(
    engine: Engine,
) -> None:
    desk, gate = desk_of(engine), Gate("sqlite.before_commit")
    first = desk.call(batch("a"))
    await gate.is_reached()
    second = desk.call(batch("b"))
    await breathe()
    assert len(engine.shard.state.pending) == 2 * MANY
    assert not first.done()
    assert not second.done()
    gate.may_pass.set()
    assert are_accepted([*await first, *await second])
    assert threading.current_thread().name not in gate.threads
    assert engine.shard.tally.commits == 3  # with the epoch
    numbers = [event.sequence_number async for event in engine.events(0, follow=False)]
    assert numbers == list(range(1, 2 * MANY + 2))


async def test_few_wait_for_company_instead_of_a_turn_of_their_own(engine: Engine) -> None:
    desk, gate = desk_of(engine), Gate("sqlite.before_commit")
    first = desk.call(batch("a"))
    await gate.is_reached()
    few = [desk.call(batch(name, 1)) for name in "bc"]
    await breathe()
    assert len(engine.shard.state.pending) == MANY
    gate.may_pass.set()
    assert are_accepted([*await first, *await few[0], *await few[1]])
    assert engine.shard.tally.commits == 3


async def test_a_small_turn_stays_on_the_loops_own_thread(engine: Engine) -> None:
    desk, gate = desk_of(engine), Gate("sqlite.before_commit")
    gate.may_pass.set()
    assert are_accepted(await desk.call(batch("a", 1)))
    assert gate.threads == [threading.current_thread().name]


async def test_when_an_append_fails_the_turn_behind_it_was_never_written(engine: Engine) -> None:
    def fail() -> None:
        set_failpoint(None)
        raise apsw.IOError("the disk is gone")

    desk, gate = desk_of(engine), Gate("sqlite.before_commit", fail)
    first = desk.call(batch("a"))
    await gate.is_reached()
    second = desk.call(batch("b"))
    await breathe()
    gate.may_pass.set()
    assert {type(one) for one in await first} == {OutcomeUnknown}
    for outcome in await second:
        assert isinstance(outcome, OmniRelayError)
        assert not isinstance(outcome, OutcomeUnknown)
        assert "nothing was changed" in outcome.message
    stats = await stats_once_served(desk)
    assert (stats.pending_count, stats.epoch) == (0, 2)
    assert are_accepted(await desk.call(batch("a")))


async def test_after_a_bug_beside_the_loop_nobody_waits_and_nothing_is_half_done(
    engine: Engine,
) -> None:
    def stumble() -> None:
        set_failpoint(None)
        raise KeyError("a bug")

    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
    desk, gate = desk_of(engine), Gate("shard.after_append", stumble)
    first = desk.call(batch("a"))
    await gate.is_reached()
    second = desk.call(batch("b"))
    await breathe()
    gate.may_pass.set()
    assert {type(one) for one in [*await first, *await second]} == {OutcomeUnknown}
    assert [type(one) for one in told] == [KeyError]
    stats = await stats_once_served(desk)
    assert (stats.pending_count, stats.epoch) == (MANY, 2)  # the first had happened
    again = await desk.call(batch("a"))
    assert [one.duplicate for one in again if isinstance(one, Accepted)] == [True] * MANY


async def test_a_queue_that_closes_meanwhile_answers_first(engine: Engine) -> None:
    desk, gate = desk_of(engine), Gate("sqlite.before_commit")
    first = desk.call(batch("a"))
    await gate.is_reached()
    closing = asyncio.create_task(asyncio.to_thread(engine.close))
    await breathe()
    gate.may_pass.set()
    assert are_accepted(await first)
    await closing


async def test_snapshots_are_made_between_large_turns_too(tmp_path: Path) -> None:
    path = f"sqlite:///{tmp_path}/leases.db"
    engine = Engine.open(path, keep=KeepOptions(snapshot_every=MANY))
    desk, written = desk_of(engine), Gate("snapshot.after_finish")
    written.may_pass.set()

    async def caller(name: str) -> None:
        for number in range(4):
            assert are_accepted(await desk.call(batch(f"{name}{number}")))

    try:
        await asyncio.gather(*map(caller, "abcdef"))
        assert (await stats_once_served(desk)).pending_count == 24 * MANY
        await written.is_reached()
        assert threading.current_thread().name not in written.threads
    finally:
        set_failpoint(None)
        await asyncio.to_thread(engine.close)
    engine = Engine.open(path)
    try:
        assert len(engine.shard.state.pending) == 24 * MANY
    finally:
        engine.close()
