"""The pure core on one thread: enqueue, lease, complete, with bodies of 200 bytes."""

import gc
import time
import tracemalloc

from bench.report import Row
from omnirelay.lease.commands import Complete, Enqueue, Grant, StartEpoch
from omnirelay.lease.decide import decide
from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import Granted
from omnirelay.lease.state import QueueState
from omnirelay.model.items import Payload, Token
from omnirelay.model.ports import RandomIds

OPTIONS = QueueOptions(capacity=5_000_000)
CYCLES = 150_000


def filled(pending: int) -> QueueState:
    state = QueueState()
    for record in decide(state, StartEpoch(epoch=1, node="bench", origin="o"), 0, OPTIONS):
        evolve(state, record, 0)
    for number in range(pending):
        payload = Payload("table", f"sales.orders.{number}", body=bytes(200))
        for record in decide(state, Enqueue(payload=payload), 1, OPTIONS):
            evolve(state, record, 1)
    return state


def cycles_per_s(state: QueueState) -> float:
    ids = RandomIds()
    lease_ids = [ids.lease_id() for _ in range(CYCLES)]  # they come in with the command
    payload = Payload("table", "sales.orders", body=bytes(200))
    base = state.at + 1
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    for number in range(CYCLES):
        now = base + number // 100
        (record,) = decide(state, Enqueue(payload=payload), now, OPTIONS)
        evolve(state, record, now)
        (record,) = decide(state, Grant(lease_id=lease_ids[number]), now, OPTIONS)
        assert type(record) is Granted
        evolve(state, record, now)
        token = Token(record.sequence_id, record.attempt, record.lease_id, record.fence)
        (record,) = decide(state, Complete(token=token), now, OPTIONS)
        evolve(state, record, now)
    elapsed = time.perf_counter() - start
    gc.unfreeze()
    return CYCLES / elapsed


def bytes_per_pending(count: int = 50_000) -> float:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    state = filled(count)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(state.pending) == count
    return (after - before) / count


def rows(rounds: int) -> list[Row]:
    # Rounds of both sizes take turns, so that a slow spell of the machine hits both.
    small, large = filled(100_000), filled(1_000_000)
    pairs = [(cycles_per_s(small), cycles_per_s(large)) for _ in range(rounds)]
    at_small = sorted(pair[0] for pair in pairs)[rounds // 2]
    at_large = sorted(pair[1] for pair in pairs)[rounds // 2]
    del small, large
    return [
        Row("core", "cycles_per_s_100k_pending", at_small, 150_000, "required", 1.0),
        Row("core", "cycles_per_s_1m_pending", at_large, at_small, "with 100k pending", 0.8),
        Row("core", "bytes_per_pending_item", bytes_per_pending(), 1536, "allowed", 1.0, True),
    ]
