"""A process to be killed: an embedded queue on a SQLite file, under seeded traffic, that reports.

    python -m omnirelay.testing.crash_workload leases.db --seed 7 --calls 40 --resume resume.json

Every line on stdout is one JSON object: `ready` once it serves, `called` before each call and
`answered` right after its reply, `applied` for what its follower was given, `stopped` at a clean
end. A line that does not end in a newline was never said. OMNIRELAY_FAILPOINTS arms failpoints
(see `failpoints`); that is done here, because production code does not read it.
"""

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from omnirelay.journal.events import Event
from omnirelay.lease.answers import Stats
from omnirelay.lease.commands import ReadStats
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.calls import Call, Outcome
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import DiskFull, Unavailable
from omnirelay.model.items import PendingItem, Token
from omnirelay.sdk.engine import Engine
from omnirelay.stores import registry
from omnirelay.testing.failpoints import arm_from_env
from omnirelay.testing.traffic import Answered, Called, Traffic

SHARD = "crash"
FOLLOWER = "audit"
_KEEP = KeepOptions(snapshot_every=40, retain_ms=0)
"""Snapshots and pruning all the time, so that a death meets them too."""
_OPTIONS = QueueOptions(lease_duration_ms=20_000, requeue_delay_ms=1)


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    recovery_ms: float
    last: int
    pending: int
    active: int


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """The follower was given these events, once more after a death if it could not note it."""

    first: int
    last: int


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    pending: int
    active: int


Line = Ready | Called | Answered | Applied | Stopped


class Resume(msgspec.Struct, frozen=True):
    """What the clients of the process before still know, or still want to know."""

    name: str
    """Part of every request id, so that no two processes use the same one by chance."""
    repeats: tuple[Called, ...] = ()
    held: tuple[Token, ...] = ()
    drained: tuple[PendingItem, ...] = ()


class Reporter:
    """Several threads report; a line is whole or not there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def __call__(self, line: Line) -> None:
        data = self._encoder.encode(line) + b"\n"
        with self._lock:
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]


async def stats_of(engine: Engine) -> Stats:
    """An injected fault may hit the shard's first commit; it takes office again, so ask again."""
    loop = asyncio.get_running_loop()
    while True:
        answer: asyncio.Future[Outcome] = loop.create_future()

        def reply(outcomes: Sequence[Outcome], answer: asyncio.Future[Outcome] = answer) -> None:
            loop.call_soon_threadsafe(answer.set_result, outcomes[0])

        engine.offer(Call((ReadStats(),), reply))
        outcome = await answer
        if isinstance(outcome, Stats):
            return outcome
        assert isinstance(outcome, Unavailable | DiskFull), outcome
        await asyncio.sleep(0.02)


async def work(
    engine: Engine, report: Reporter, options: argparse.Namespace, resume: Resume
) -> None:
    offer = engine.offer_and_drive if options.drive else engine.offer
    traffic = Traffic(offer, report, seed=options.seed, name=resume.name)
    traffic.held += resume.held
    traffic.drained += resume.drained
    for called in resume.repeats:
        await traffic.repeat(called)
    await traffic.run(clients=4, calls=options.calls)
    if options.finish:
        await traffic.finish()


async def run(options: argparse.Namespace, resume: Resume) -> None:
    report = Reporter()
    started = time.perf_counter()
    url = f"sqlite:///{options.path}"
    # The log starts short here, so that kills and limits meet it while it grows.
    registry.LOG_BYTES = 0  # type: ignore[attr-defined]
    engine = Engine.open(url, namespace=SHARD, options=_OPTIONS, keep=_KEEP, require="process_kill")
    recovery_ms = (time.perf_counter() - started) * 1000
    stats = await stats_of(engine)
    report(Ready(recovery_ms, stats.last_sequence, stats.pending_count, stats.active_lease_count))

    async def applied(events: Sequence[Event]) -> None:
        report(Applied(events[0].sequence_number, events[-1].sequence_number))

    engine.follow(FOLLOWER, applied)
    await work(engine, report, options, resume)
    stats = await stats_of(engine)
    engine.close()
    report(Stopped(stats.pending_count, stats.active_lease_count))


def main() -> None:
    parser = argparse.ArgumentParser(description="Work on a queue until somebody kills you.")
    parser.add_argument("path")
    parser.add_argument("--resume", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--calls", type=int, default=1_000_000, help="calls a client")
    parser.add_argument("--drive", action="store_true", help="callers take turns themselves")
    parser.add_argument("--finish", action="store_true", help="work off everything at the end")
    options = parser.parse_args()
    arm_from_env(os.environ)
    resume = msgspec.json.decode(Path(options.resume).read_bytes(), type=Resume)
    asyncio.run(run(options, resume))


if __name__ == "__main__":
    main()
