"""The embedded queue on SQLite, every answer after its sync, beside bare inserts and peers."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

import omnirelay
from bench.peers import PEERS
from bench.report import Row, median_of, percentile
from omnirelay import Payload
from omnirelay.journal.format import seal
from omnirelay.lease.records import Enqueued

BODY = bytes(200)
PAYLOAD = Payload("table", "sales.orders", body=BODY)


def in_folder(measure: Callable[[Path], float]) -> Callable[[], float]:
    def run() -> float:
        with tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder:
            return measure(Path(folder))

    return run


def bare_inserts_per_s(folder: Path, count: int = 1500) -> float:
    """The limit of a single caller: the same rows into the same table, one synced commit each."""
    record = Enqueued(1, Payload("table", "sales.orders", body=BODY))
    depths = ([1], [0])
    sealed = seal([record], depths, head=("resourcelease", 1, "n"), first=1, time=1, prev="0" * 32)
    body = sealed.body.decode()
    db = apsw.Connection(str(folder / "bare.db"))
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute(_JOURNAL)
    start = time.perf_counter()
    for number in range(count):
        db.execute("BEGIN IMMEDIATE")
        row = ("resourcelease", number, number, 1, 1, body)
        db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", row)
        db.execute("COMMIT")
    elapsed = time.perf_counter() - start
    db.close()
    return count / elapsed


_JOURNAL = """CREATE TABLE journal (shard TEXT NOT NULL, first INTEGER NOT NULL,
last INTEGER NOT NULL, epoch INTEGER NOT NULL, written_at INTEGER NOT NULL, body TEXT NOT NULL,
PRIMARY KEY (shard, first))"""


def sequential_per_s(folder: Path, count: int = 1500) -> float:
    async def run() -> float:
        async with omnirelay.connect(f"sqlite:///{folder}/ours.db") as relay:
            start = time.perf_counter()
            for _ in range(count):
                await relay.enqueue("table", "sales.orders", body=BODY)
            return count / (time.perf_counter() - start)

    return asyncio.run(run())


def sequential_sync_per_s(folder: Path, count: int = 1500) -> float:
    with omnirelay.connect_sync(f"sqlite:///{folder}/ours.db") as relay:
        start = time.perf_counter()
        for _ in range(count):
            relay.enqueue("table", "sales.orders", body=BODY)
        return count / (time.perf_counter() - start)


def batch_cycles_per_s(folder: Path, *, items: int = 40_000, callers: int = 4) -> float:
    async def caller(relay: omnirelay.Relay) -> None:
        for _ in range(items // 100 // callers):
            await relay.enqueue_many([PAYLOAD] * 100)
            await relay.complete_many(await relay.lease_many(100))

    async def run() -> float:
        async with omnirelay.connect(f"sqlite:///{folder}/ours.db") as relay:
            start = time.perf_counter()
            await asyncio.gather(*(caller(relay) for _ in range(callers)))
            return items / (time.perf_counter() - start)

    return asyncio.run(run())


class Concurrent:
    """64 callers, one item a call; remembers how long each cycle took and what was written."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.bytes_per_item = 0.0

    def __call__(self, folder: Path, items: int = 20_000, callers: int = 64) -> float:
        async def caller(relay: omnirelay.Relay) -> None:
            for _ in range(items // callers):
                began = time.perf_counter()
                await relay.enqueue("table", "sales.orders", body=BODY)
                (lease,) = await relay.lease_many(1)
                await lease.complete()
                self.latencies.append(time.perf_counter() - began)

        async def run() -> float:
            async with omnirelay.connect(f"sqlite:///{folder}/ours.db") as relay:
                start = time.perf_counter()
                await asyncio.gather(*(caller(relay) for _ in range(callers)))
                return items / (time.perf_counter() - start)

        rate = asyncio.run(run())
        db = apsw.Connection(str(folder / "ours.db"))
        (total,) = db.execute("SELECT sum(length(body)) FROM journal").fetchall()[0]
        self.bytes_per_item = float(total) / items  # type: ignore[arg-type]
        db.close()
        return rate


def rows(rounds: int) -> list[Row]:
    bare, sequential, sync = [], [], []
    for _ in range(rounds):  # in turns, so that a slow spell of the disk hits all three
        bare.append(in_folder(bare_inserts_per_s)())
        sequential.append(in_folder(sequential_per_s)())
        sync.append(in_folder(sequential_sync_per_s)())
    limit = sorted(bare)[rounds // 2]
    shares = sorted(ours / alone for ours, alone in zip(sequential, bare, strict=True))
    sync_shares = sorted(ours / alone for ours, alone in zip(sync, bare, strict=True))
    batch = median_of(rounds, in_folder(batch_cycles_per_s))
    concurrent = Concurrent()
    callers = median_of(rounds, in_folder(concurrent))
    peers = {
        name: median_of(max(1, rounds // 2), in_folder(partial(run, items=800)))
        for name, run in PEERS.items()
    }
    best = max(peers, key=lambda name: peers[name])
    p50, p99 = (percentile(concurrent.latencies, share) * 1000 for share in (0.5, 0.99))
    print(
        f"64 callers: p50 {p50:.1f} ms, p99 {p99:.1f} ms a cycle, {concurrent.bytes_per_item:.0f} "
        f"journal bytes an item; peers: "
        + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in peers.items())
    )
    half = rounds // 2
    return [
        Row("embedded", "cycles_per_s_batches_of_100", batch, 25_000, "required", 1.0),
        Row("embedded", "cycles_per_s_64_callers", callers, batch, "batches of 100", None),
        Row("embedded", "cycles_per_s_vs_peers", max(batch, callers), peers[best], best, 10.0),
        # The bare loop blocks its thread, so the caller that may block too is its like. One on an
        # event loop pays for two changes of thread besides.
        Row(
            "embedded",
            "sequential_calls_per_s",
            sync_shares[half] * limit,
            limit,
            "bare insert",
            0.7,
        ),
        Row(
            "embedded",
            "sequential_async_calls_per_s",
            shares[half] * limit,
            limit,
            "bare insert",
            None,
        ),
        Row("embedded", "cycle_p99_ms_64_callers", p99, p50, "p50", None, True),
        Row(
            "embedded", "journal_bytes_per_item", concurrent.bytes_per_item, 200, "body", None, True
        ),
    ]
