"""What an operation costs does not depend on how much waits, is delayed, held, parked or dead.

Counted, not timed: bytecodes executed for a few dozen operations on a small queue and on one a
hundred times its size. Where counting bytecodes would be blind, because the walk would be in C, the
dictionaries of the state refuse to be walked at all.
"""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from omnirelay.lease import commands
from omnirelay.lease.answers import answer
from omnirelay.lease.decide import decide
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.state import QueueState
from omnirelay.model.items import Payload, PendingItem, Token, to_time
from omnirelay.testing.folded import numbered_lease_id

SMALL, LARGE = 2_000, 200_000
OFTEN = 40
LEASE_MS = 30_000
OPTIONS = QueueOptions(capacity=1_000_000, requeue_jitter=0.0, lease_duration_ms=LEASE_MS)
SERIAL = QueueOptions(capacity=1_000_000, serialize_by=SerializeBy.RESOURCE)

pytestmark = pytest.mark.timeout(120)


class Bench:
    """A queue of a given size, and commands on it without checks, which would cost the size."""

    def __init__(self, options: QueueOptions = OPTIONS) -> None:
        self.state = QueueState()
        self.options = options
        self.now = 0
        self.leases = 0
        self.submit(commands.StartEpoch(epoch=1, node="n", origin="A"))

    def submit(self, command: commands.Command) -> Any:
        """Any: each caller knows the answer to its own command."""
        records = decide(self.state, command, self.now, self.options)
        for record in records:
            evolve(self.state, record, self.now)
        return answer(self.state, command, records, self.now, self.options)

    def enqueue(self, name: str, kind: str = "table", **more: Any) -> None:
        self.submit(commands.Enqueue(payload=Payload(kind, name), **more))

    def lease(self, kinds: tuple[str, ...] | None = None) -> Token:
        self.leases += 1
        grant = commands.Grant(lease_id=numbered_lease_id(self.leases), resource_types=kinds)
        token: Token = self.submit(grant)[0].token
        return token


def opcodes(act: Callable[[], object]) -> int:
    """Bytecodes that `act` executes, in every function it calls."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


class Unwalked(dict[Any, Any]):
    """A dictionary for looking things up in, not for going through."""

    def __init__(self) -> None:
        super().__init__()
        self.is_guarded = False

    def __iter__(self) -> Iterator[Any]:
        assert not self.is_guarded, "somebody walks over all items"
        return super().__iter__()

    def values(self) -> Any:
        assert not self.is_guarded, "somebody walks over all items"
        return super().values()

    keys = items = values


# -- queues of a size ---------------------------------------------------------------------------


def pending(size: int) -> Bench:
    bench = Bench()
    for number in range(size):
        bench.enqueue(f"t{number}")
    return bench


def many_types(size: int) -> Bench:
    bench = Bench()
    for number in range(size):
        bench.enqueue("t", f"kind{number}")
    return bench


def delayed(size: int) -> Bench:
    bench = Bench()
    for number in range(size):
        bench.enqueue(f"t{number}", delay_ms=1_000_000 + number * 7919 % size)
    return bench


def held(size: int) -> Bench:
    bench = pending(size + OFTEN)
    for number in range(size):
        bench.now = number // 10  # the first leases are not over when the last begin
        bench.lease()
    return bench


def held_over_restart(size: int) -> Bench:
    """Every lease ends in the same moment."""
    bench = held(size)
    bench.submit(commands.StartEpoch(epoch=2, node="n", origin="A"))
    return bench


def dead(size: int) -> Bench:
    bench = pending(size)
    for _ in range(size):
        bench.submit(commands.Fail(token=bench.lease(), requeue=False))
    return bench


def parked(size: int) -> Bench:
    """One hot resource, held, and everybody else waiting for it."""
    bench = Bench(SERIAL)
    for _ in range(size):
        bench.enqueue("hot")
    return bench


def drained_in_front(size: int) -> Bench:
    bench = pending(size)
    for _ in range(size // 2 // 1000 or 1):
        bench.submit(commands.Drain(max_items=1000))
    return bench


def remembered(size: int) -> Bench:
    bench = Bench()
    for number in range(size):
        bench.submit(commands.Enqueue(payload=Payload("table", "t", request_id=f"r{number}")))
    return bench


# -- what is done to them -----------------------------------------------------------------------


def enqueue(bench: Bench) -> None:
    bench.enqueue("new")


def enqueue_again(bench: Bench) -> None:
    bench.submit(commands.Enqueue(payload=Payload("table", "t", request_id="r1")))


def enqueue_urgent(bench: Bench) -> None:
    bench.enqueue("new", priority=len(bench.state.pending) % 7)


def grant(bench: Bench) -> None:
    bench.lease()


def cycle(bench: Bench) -> None:
    bench.enqueue("new")
    bench.submit(commands.Complete(token=bench.lease()))


def cycle_another_type(bench: Bench) -> None:
    """The type in front is never asked for; the other must not leave anything behind."""
    bench.enqueue("new", "shard")
    bench.submit(commands.Complete(token=bench.lease(("shard",))))


def give_back(bench: Bench) -> None:
    bench.submit(commands.Release(token=bench.lease()))


def fail_and_wait(bench: Bench) -> None:
    bench.enqueue("new")
    bench.submit(commands.Fail(token=bench.lease()))


def beat(bench: Bench) -> None:
    bench.enqueue("new")
    bench.submit(commands.Heartbeat(tokens=(bench.lease(),)))


def expire_nothing(bench: Bench) -> None:
    bench.submit(commands.Expire(limit=100))


def expire_some(bench: Bench) -> None:
    bench.now += 2 * LEASE_MS
    bench.submit(commands.Expire(limit=20))


def drain_page(bench: Bench) -> None:
    assert len(bench.submit(commands.Drain(max_items=20)).items) == 20


def stats(bench: Bench) -> None:
    bench.submit(commands.ReadStats())


def bury(bench: Bench) -> None:
    bench.enqueue("new")
    bench.submit(commands.Fail(token=bench.lease(), requeue=False))


def list_dead(bench: Bench) -> None:
    assert len(bench.submit(commands.ListDead(max_items=20)).items) == 20


def redrive(bench: Bench) -> None:
    bench.submit(commands.Redrive(max_items=20))


def restore(bench: Bench) -> None:
    first = bench.state.last_id + 5
    items = tuple(
        PendingItem(Payload("table", "t"), 1, to_time(5), first + n, origin="B") for n in range(20)
    )
    assert bench.submit(commands.Restore(items=items)).restored_count == 20


CASES = [
    (pending, (enqueue, enqueue_urgent, cycle, cycle_another_type, give_back, fail_and_wait)),
    (pending, (grant, beat, drain_page, stats, restore)),
    (remembered, (enqueue, enqueue_again)),
    (many_types, (enqueue, cycle, give_back, drain_page)),
    (delayed, (enqueue, cycle, fail_and_wait, expire_nothing, stats, drain_page)),
    (held, (cycle, beat, expire_nothing, stats)),
    (held_over_restart, (expire_some,)),
    (dead, (bury, list_dead, redrive, stats)),
    (parked, (cycle, give_back, drain_page, stats)),
    (drained_in_front, (drain_page, cycle, stats)),
]


def cost(bench: Bench, act: Callable[[Bench], None]) -> int:
    def often() -> None:
        for _ in range(OFTEN):
            act(bench)

    act(bench)  # whatever was put off until the first use
    return opcodes(often)


@pytest.mark.parametrize(
    ("build", "acts"), CASES, ids=lambda part: part.__name__ if callable(part) else None
)
def test_an_operation_costs_the_same_on_a_queue_a_hundred_times_as_long(
    build: Callable[[int], Bench], acts: tuple[Callable[[Bench], None], ...]
) -> None:
    small, large = build(SMALL), build(LARGE)
    costs = {act.__name__: (cost(small, act), cost(large, act)) for act in acts}
    grown = {name: pair for name, pair in costs.items() if pair[1] > 1.15 * pair[0] + 100}
    assert not grown, f"bytecodes on {SMALL} and on {LARGE} items: {grown}"


def test_nobody_walks_over_all_items() -> None:
    bench = Bench()
    bench.state.pending, bench.state.active = guarded = Unwalked(), Unwalked()
    bench.state.rebuild_indexes()
    for number in range(100):
        bench.enqueue(f"t{number}")
    tokens = [bench.lease() for _ in range(50)]
    for facts in guarded:
        facts.is_guarded = True
    with pytest.raises(AssertionError, match="somebody walks"):
        sorted(bench.state.pending)
    for act in (enqueue, cycle, give_back, fail_and_wait, beat, stats, drain_page, restore):
        act(bench)
    bench.submit(commands.Complete(token=tokens[0]))
    expire_some(bench)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("options", [OPTIONS, SERIAL], ids=["plain", "serialized"])
def test_a_pending_item_with_a_200_byte_body_takes_at_most_1_5_kilobytes(
    options: QueueOptions,
) -> None:
    bench = Bench(options)
    count = 50_000
    before, _ = tracemalloc.get_traced_memory()
    for number in range(count):
        body = number.to_bytes(8, "big") * 25
        payload = Payload("table", f"warehouse.orders_{number}", body=body, request_id=f"r{number}")
        bench.submit(commands.Enqueue(payload=payload))
    after, _ = tracemalloc.get_traced_memory()
    assert (after - before) / count <= 1536
