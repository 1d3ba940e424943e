"""Journals on engines beside the engine's own queue and its bare client, and nodes that take over.

Ours and theirs take turns in one run. The servers are the wheels the tests use, a sync behind every
acknowledged write; the peers' clients come from `.venv-peers`.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from bench import engine_stores
from bench.report import Row
from bench.wire_peers import WIDE, measure

SECONDS = 3.0
LIMIT_S = 600
FAILOVER_P50_S = 4.0
FAILOVER_WORST_S = 6.0
CATCH_UP_PER_S = 100_000


def rows(rounds: int) -> list[Row]:
    return [*_cycles(rounds), *_appends(rounds), *_catch_up(), *_mesh(rounds)]


def _cycles(rounds: int) -> Iterator[Row]:
    """Enqueue, lease and completion: batches of 100, beside the peer with as many under way and
    beside the peer with as many as suit it best, and one item a call by 32 callers."""
    for journal, floor in (("nats3", 5.0), ("postgres", 2.0)):
        metric = f"cycles_per_s_on_{journal}"
        for ours, beside in (
            ("cycles", {WIDE: f"{metric}_as_many_batches", "batched": metric}),
            ("singles", {"concurrent32": f"{metric}_one_a_call"}),
        ):
            yield from _pairs(rounds, journal, ours, beside=beside, floor=floor)


def _pairs(
    rounds: int, journal: str, ours: str, *, beside: dict[str, str], floor: float
) -> Iterator[Row]:
    """`beside`: jobs of the peer, and the metrics that they are the measure of."""
    own: list[float] = []
    theirs: dict[str, list[float]] = {job: [] for job in beside}
    for _ in range(rounds):
        own.append(_job(ours, journal)["figure"])
        for job, found in theirs.items():
            figure = _peer(job, journal)
            if figure is not None:
                found.append(figure)
    for job, found in theirs.items():
        if found:
            reference, name = statistics.median(found), f"{journal} {job}"
            yield Row("engines", beside[job], statistics.median(own), reference, name, floor)


def _peer(job: str, journal: str) -> float | None:
    found = measure(journal, job, SECONDS)
    said = f"not measured: {found.error}" if found.items_per_s is None else found.items_per_s
    print(f"{job} of {journal}: {said}")
    return found.items_per_s


def _appends(rounds: int) -> Iterator[Row]:
    """The same blobs, one after the other, by our store and by the bare client it stands on."""
    for store in engine_stores.APPENDS:
        pairs = [engine_stores.append_rates(store) for _ in range(rounds)]
        share = statistics.median(ours / bare for ours, bare in pairs)
        bare = statistics.median(bare for _, bare in pairs)
        name = f"appends_per_s_{store}"
        yield Row("engines", name, share * bare, bare, "its bare client", 0.6)


def _catch_up() -> Iterator[Row]:
    for store in engine_stores.CATCH_UPS:
        rate = engine_stores.catch_up_rate(store)
        name = f"catch_up_events_per_s_{store}"
        yield Row("engines", name, rate, CATCH_UP_PER_S, "required", 1.0)


def _mesh(rounds: int) -> Iterator[Row]:
    found = [_job("forwarding", "postgres") for _ in range(rounds)]
    share = statistics.median(one["figure"] / one["direct"] for one in found)
    direct = statistics.median(one["direct"] for one in found)
    yield Row(
        "engines", "cycles_per_s_through_another_node", share * direct, direct, "the owner", 0.5
    )
    took = _job("failover", "postgres")
    for metric, figure, allowed in (
        ("failover_s_p50", took["figure"], FAILOVER_P50_S),
        ("failover_s_worst_of_20", took["worst"], FAILOVER_WORST_S),
    ):
        yield Row("engines", metric, figure, allowed, "allowed", 1.0, True)


def _job(job: str, journal: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.engine_jobs", job, "--journal", journal]
    done = subprocess.run(
        [*command, "--seconds", str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"our job {job} on {journal} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{job} on {journal}: {found}")
    return found
