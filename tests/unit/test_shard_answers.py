"""Whatever goes wrong inside a shard, every caller hears of it and the shard goes on."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from omnirelay.journal.format import Sealed
from omnirelay.lease.answers import Accepted, Stats
from omnirelay.lease.commands import Enqueue, Inspect, ReadStats
from omnirelay.mesh.calls import AnyCall, Call, Outcome
from omnirelay.mesh.rest import ThreadRest, run_now
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import Closed, OmniRelayError, OutcomeUnknown, Recovering
from omnirelay.model.items import Payload
from omnirelay.model.ports import RandomIds, SystemClock, set_failpoint
from omnirelay.stores.memory import MemoryJournal

WORK = Enqueue(payload=Payload("table", "orders"))


class OddJournal(MemoryJournal):
    """Raises what no store should."""

    def __init__(self) -> None:
        super().__init__("s")
        self.is_odd = False

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        if self.is_odd:
            self.is_odd = False
            raise ZeroDivisionError("a driver's own bug")
        await super().append(sealed, expected=expected)


class Running:
    """A shard on a thread, as an embedded queue has it."""

    def __init__(self) -> None:
        self.journal = OddJournal()
        self.ready = threading.Semaphore(0)
        self.shard = Shard(
            self.journal,
            ShardOptions(node="n", retry_min_s=0.001),
            clock=SystemClock(),
            ids=RandomIds(),
            rest=ThreadRest(),
            on_ready=self.ready.release,
        )
        self.thread = threading.Thread(target=lambda: run_now(self.shard.run()), daemon=True)
        self.thread.start()
        self.await_office()

    def await_office(self) -> None:
        assert self.ready.acquire(timeout=10)

    def offer(self, *commands: Any) -> "Answers":
        answers = Answers()
        self.shard.offer(Call(commands, answers))
        return answers

    def stop(self) -> None:
        self.shard.stop()
        self.thread.join(10)


class Answers:
    def __init__(self) -> None:
        self._came = threading.Event()
        self._outcomes: Sequence[Outcome] = ()

    def __call__(self, outcomes: Sequence[Outcome]) -> None:
        assert not self._came.is_set(), "answered twice"
        self._outcomes = outcomes
        self._came.set()

    def all(self) -> Sequence[Outcome]:
        assert self._came.wait(10), "never answered"
        return self._outcomes


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop()


def test_a_bug_in_one_decision_answers_every_caller_of_its_turn(running: Running) -> None:
    poison: Any = Inspect(sequence_id=[])  # type: ignore[arg-type]
    good, bad = running.offer(WORK), running.offer(poison)
    assert all(isinstance(outcome, Accepted | OmniRelayError) for outcome in good.all())
    assert isinstance(bad.all()[0], OmniRelayError)


def test_after_a_bug_the_state_is_that_of_the_journal(running: Running) -> None:
    poison: Any = Inspect(sequence_id=[])  # type: ignore[arg-type]
    outcome = running.offer(WORK, poison).all()[0]
    assert "nothing was changed" in str(outcome)
    running.await_office()
    stats = running.offer(ReadStats()).all()[0]
    assert isinstance(stats, Stats)
    assert (stats.pending_count, stats.epoch) == (0, 2)


def test_a_store_that_raises_its_own_errors_leaves_the_outcome_unknown(running: Running) -> None:
    running.journal.is_odd = True
    assert isinstance(running.offer(WORK).all()[0], OutcomeUnknown)
    running.await_office()
    assert isinstance(running.offer(WORK).all()[0], Accepted | Recovering)


def test_what_no_part_should_raise_ends_the_term_and_leaves_nobody_waiting(
    running: Running, failing_once: Callable[[str], None]
) -> None:
    failing_once("shard.after_append")
    assert isinstance(running.offer(WORK).all()[0], OutcomeUnknown)
    running.await_office()
    stats = running.offer(ReadStats()).all()[0]
    assert isinstance(stats, Stats)
    assert (stats.pending_count, stats.epoch) == (1, 2)  # it was durable, as the journal says


async def test_it_does_so_too_where_turns_are_played_ahead(
    failing_once: Callable[[str], None],
) -> None:
    journal, served = OddJournal(), asyncio.Semaphore(0)
    options = ShardOptions(node="n", retry_min_s=0.001)
    shard = Shard(journal, options, clock=SystemClock(), ids=RandomIds(), on_ready=served.release)
    running = asyncio.create_task(shard.run())
    await served.acquire()
    failing_once("shard.after_append")
    answered: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
    shard.offer(Call((WORK,), answered.set_result))
    assert isinstance((await answered)[0], OutcomeUnknown)
    await served.acquire()
    shard.stop()
    await running


def test_a_shard_that_has_ended_says_that_it_does_not_serve(running: Running) -> None:
    assert running.shard.failure is None
    running.stop()
    assert isinstance(running.shard.failure, Closed)


@pytest.fixture
def failing_once() -> Iterator[Callable[[str], None]]:
    """Makes the next one that comes by a place meet what no store should let out."""

    def arm(place: str) -> None:
        def come_by(name: str) -> None:
            if name == place:
                set_failpoint(None)
                raise OSError("a cable was pulled")

        set_failpoint(come_by)

    yield arm
    set_failpoint(None)


def test_a_call_that_slips_in_while_the_shard_ends_is_answered() -> None:
    running = Running()
    inbox = SlowInbox()
    running.shard._inbox = inbox
    answers = Answers()
    caller = threading.Thread(
        target=lambda: running.shard.offer(Call((WORK,), answers)), daemon=True
    )
    caller.start()
    assert inbox.entered.wait(10)
    running.stop()
    inbox.may_go_on.set()
    caller.join(10)
    assert isinstance(answers.all()[0], Closed)


class SlowInbox(deque[AnyCall]):
    """Holds a caller between its look at the shard and its append, until told."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.may_go_on = threading.Event()

    def append(self, call: AnyCall) -> None:
        self.entered.set()
        assert self.may_go_on.wait(10)
        super().append(call)
