"""Calls that wait: bounded, in order, and forgotten when their callers leave."""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator

import pytest

from omnirelay.lease.answers import Accepted, Stats
from omnirelay.lease.commands import Complete, Enqueue, ReadStats
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome
from omnirelay.mesh.desk import Desk
from omnirelay.mesh.driven import DrivenShard
from omnirelay.mesh.driver import LoopDriver
from omnirelay.mesh.hall import Hall
from omnirelay.mesh.turn import Turn
from omnirelay.mesh.waiters import LeaseWaiters
from omnirelay.model import limits
from omnirelay.model.errors import Backpressure, OmniRelayError
from omnirelay.model.items import Payload
from omnirelay.model.ports import RandomIds
from omnirelay.sdk.engine import Engine

FULL = QueueOptions(pending_high=1, pending_low=0, enqueue_wait_ms=600_000)


def work(name: str) -> Enqueue:
    return Enqueue(payload=Payload("table", name))


def waiting(number: int, types: tuple[str, ...] | None = None) -> LeaseCall:
    call = LeaseCall(wait_ms=600_000, resource_types=types, request_id=str(number))
    call.deadline = 600_000 + number
    return call


# -- lease calls --------------------------------------------------------------------------------


def test_callers_that_left_are_forgotten_behind_one_that_stays() -> None:
    waiters = LeaseWaiters()
    waiters.add(stays := waiting(0))
    for number in range(1, 20_000):
        waiters.add(call := waiting(number, ("a",) if number % 3 else None))
        call.withdrawn = True
    assert len(waiters) < 2_500
    assert len(waiters._deadlines) < 2_500
    assert sum(map(len, waiters._groups.values())) < 2_500
    assert waiters.next_served(lambda types: True) is stays


def test_those_that_stay_keep_their_order_and_their_deadlines() -> None:
    waiters = LeaseWaiters()
    calls = [waiting(number) for number in range(6_000)]
    for number, call in enumerate(calls):
        waiters.add(call)
        call.withdrawn = number % 2 == 0
    kept = [call for call in calls if not call.withdrawn]
    assert waiters.next_deadline() is not None
    served = [waiters.next_served(lambda types: True) for _ in range(10)]
    assert served == kept[:10]
    late = [call for call in waiters.overdue(600_000 + 100) if not call.withdrawn]
    assert late == [call for call in kept[10:] if call.deadline <= 600_000 + 100]
    assert [call for call in waiters.clear() if not call.withdrawn] == kept[10 + len(late) :]


def played(
    hall: Hall, state: QueueState, *calls: Call | LeaseCall
) -> dict[Call | LeaseCall, Outcome]:
    """What one turn says to whom."""
    turn = Turn(state, QueueOptions(), RandomIds(), 1_000)
    hall.play(turn, deque(calls), [])
    return {call: outcomes[0] for call, outcomes in turn.replies}


@pytest.mark.parametrize("wait_ms", [0, 60_000])
@pytest.mark.parametrize("types", [("table",), None, ("view", "table")])
def test_who_waits_longer_gets_the_item_first_whatever_a_newcomer_asks_for(
    types: tuple[str, ...] | None, wait_ms: int
) -> None:
    hall, state = Hall(QueueOptions()), QueueState()
    first = LeaseCall(wait_ms=60_000, resource_types=("table",))
    second = LeaseCall(wait_ms=60_000)
    assert played(hall, state, first, second) == {}
    newcomer = LeaseCall(wait_ms=wait_ms, resource_types=types)
    told = played(hall, state, Call([work("a")]), Call([work("b")]), newcomer)
    assert isinstance(told[first], Leases)
    assert isinstance(told[second], Leases)
    assert not isinstance(told.get(newcomer), Leases)


def test_a_newcomer_gets_at_once_what_those_who_wait_cannot_use() -> None:
    hall, state = Hall(QueueOptions()), QueueState()
    patient = LeaseCall(wait_ms=60_000, resource_types=("view",))
    assert played(hall, state, patient) == {}
    told = played(hall, state, Call([work("a")]), newcomer := LeaseCall())
    assert isinstance(told[newcomer], Leases)
    assert patient not in told


def test_a_full_turn_leaves_a_newcomer_behind_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ENVELOPE_RECORDS_MAX", 3)
    hall, state = Hall(QueueOptions()), QueueState()
    patient = [LeaseCall(wait_ms=60_000) for _ in range(2)]
    played(hall, state, *patient)
    inbox: deque[Call | LeaseCall] = deque([Call([work("a"), work("b")]), LeaseCall()])
    newcomer = inbox[1]
    hall.play(Turn(state, QueueOptions(), RandomIds(), 1_000), inbox, [])
    assert list(inbox) == [newcomer]
    assert isinstance(played(hall, state, newcomer)[patient[1]], Leases)


# -- enqueues that wait for room ----------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine]:
    opened = Engine.open("memory:", options=FULL)
    yield opened
    opened.close()


class Answers:
    def __init__(self) -> None:
        self._came = threading.Event()
        self._outcomes: list[Outcome] = []

    def __call__(self, outcomes: object) -> None:
        self._outcomes = list(outcomes)  # type: ignore[call-overload]
        self._came.set()

    @property
    def has_come(self) -> bool:
        return self._came.is_set()

    def all(self) -> list[Outcome]:
        assert self._came.wait(10), "never answered"
        return self._outcomes


def offer(engine: Engine, *commands: Enqueue | ReadStats | Complete) -> Answers:
    answers = Answers()
    engine.offer(Call(commands, answers))
    return answers


def pending(engine: Engine) -> int:
    (stats,) = offer(engine, ReadStats()).all()
    assert isinstance(stats, Stats)
    return stats.pending_count


def test_a_line_for_room_that_is_full_takes_nobody_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITERS_MAX", 2)
    offer(engine, work("a")).all()
    first, second = offer(engine, work("b")), offer(engine, work("c"))
    (refused,) = offer(engine, work("d")).all()
    assert isinstance(refused, Backpressure)
    assert not first.has_come
    assert not second.has_come


async def test_an_enqueue_whose_caller_left_while_it_waited_is_not_made(engine: Engine) -> None:
    desk = Desk(asyncio.get_running_loop(), engine.offer)
    (accepted,) = await desk.call(Call([work("a")]))
    assert isinstance(accepted, Accepted)

    async def leaving() -> None:
        await desk.call(Call([work("nobody's")]))

    left = asyncio.create_task(leaving())
    await desk.call(Call([ReadStats()]))  # it waits in line by now
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    (lease,) = await desk.lease(LeaseCall())
    await desk.call(Call([Complete(token=lease.token)]))
    assert pending(engine) == 0


# -- who takes the turn, and what is said of a bug -----------------------------------------------


async def test_a_driver_may_be_offered_to_from_any_thread(engine: Engine) -> None:
    assert isinstance(engine.shard, DrivenShard)
    driver = LoopDriver(engine.shard, asyncio.get_running_loop())
    answers = Answers()
    await asyncio.to_thread(driver.offer, Call([work("a")], answers))
    assert isinstance((await asyncio.to_thread(answers.all))[0], Accepted)


def test_the_text_of_a_bug_stays_in_the_log(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    poison = Enqueue(payload="a secret in the wrong place")  # type: ignore[arg-type]
    (outcome,) = offer(engine, poison).all()
    assert isinstance(outcome, OmniRelayError)
    assert (outcome.status, "AttributeError" in outcome.message) == ("INTERNAL", True)
    assert "resource_type" not in outcome.message
    assert "resource_type" in caplog.text
