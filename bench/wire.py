"""The wire beside its peers: one server and one client process each, a sync behind every answer.

Ours and theirs take turns, so that a slow spell of the disk hits all; medians of the rounds count.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from bench.chart import Bar, draw
from bench.report import Row
from bench.wire_jobs import JOBS
from bench.wire_peers import COMPARED, ORIENTATION, Measured, measure

SECONDS = 3.0
LIMIT_S = 240
MEMORY_LIMIT_BYTES = 1.7e9
PEER_JOBS = ("sequential", "concurrent32", "batched", "wakeup")

Figures = dict[str, list[float]]


def rows(rounds: int) -> list[Row]:
    ours: Figures = {job: [] for job in JOBS}
    theirs: dict[tuple[str, str], list[Measured]] = {}
    for _ in range(rounds):
        for job in JOBS:
            if job != "memory" or not ours[job]:  # it takes long and does not wobble
                ours[job].append(_ours(job))
        for peer in COMPARED:
            for job in PEER_JOBS:
                theirs.setdefault((peer, job), []).append(measure(peer, job, SECONDS))
    for peer in ORIENTATION:
        for job in ("sequential", "concurrent32"):
            theirs[(peer, job)] = [measure(peer, job, SECONDS)]
    known = {key: figure for key, found in theirs.items() if (figure := _median(found)) is not None}
    _say_missing(theirs)
    mine = {job: statistics.median(found) for job, found in ours.items()}
    draw(_bars(mine, known))
    return list(_rows(mine, known))


def _ours(job: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.wire_jobs", job, "--seconds", str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"our job {job} failed:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1])["figure"])


def _median(found: list[Measured]) -> float | None:
    figures = [one.items_per_s or one.p50_us for one in found if one.error is None]
    kept = [figure for figure in figures if figure is not None]
    return statistics.median(kept) if kept else None


def _say_missing(theirs: dict[tuple[str, str], list[Measured]]) -> None:
    for (peer, job), found in theirs.items():
        if all(one.error is not None for one in found):
            print(f"{peer} {job}: not measured: {found[0].error}")


def _rows(mine: dict[str, float], known: dict[tuple[str, str], float]) -> Iterator[Row]:
    wanted: list[tuple[str, str, tuple[str, str], float | None]] = [
        ("cycles_per_s_256_callers_batches", "callers256_batches", ("redis", "batched"), 1.5),
        ("cycles_per_s_256_callers_single", "callers256", ("redis", "batched"), None),
        ("cycles_per_s_32_callers_vs_redis", "callers32", ("redis", "concurrent32"), 2.5),
        ("cycles_per_s_32_callers_vs_valkey", "callers32", ("valkey", "concurrent32"), None),
        ("cycles_per_s_32_callers_vs_beanstalkd", "callers32", ("beanstalkd", "concurrent32"), 4.0),
        ("cycles_per_s_32_callers_vs_postgres", "callers32", ("postgres", "concurrent32"), 4.0),
        ("cycles_per_s_32_callers_vs_nats", "callers32", ("nats", "concurrent32"), None),
        ("items_per_s_sequential", "sequential", ("beanstalkd", "sequential"), 0.7),
        ("cycles_per_s_http_batches_of_100", "batches_http", ("redis", "batched"), 0.8),
        ("cycles_per_s_grpc_batches_of_100", "batches_grpc", ("redis", "batched"), 0.5),
    ]
    for metric, job, peer, floor in wanted:
        if peer in known:
            yield Row("wire", metric, mine[job], known[peer], " ".join(peer), floor)
    if ("beanstalkd", "wakeup") in known:
        theirs = known[("beanstalkd", "wakeup")]
        yield Row(
            "wire", "wakeup_p50_us", mine["wakeup"], theirs, "beanstalkd wakeup", 1 / 1.2, True
        )
    yield Row(
        "wire",
        "node_bytes_1m_pending",
        mine["memory"],
        MEMORY_LIMIT_BYTES,
        "allowed",
        1.0,
        True,
    )


def _bars(mine: dict[str, float], known: dict[tuple[str, str], float]) -> list[Bar]:
    bars = [
        Bar("batches", "OmniRelay, stream", mine["callers256_batches"], True),
        Bar("batches", "OmniRelay, HTTP", mine["batches_http"], True),
        Bar("batches", "OmniRelay, gRPC", mine["batches_grpc"], True),
        Bar("32 callers, one item a call", "OmniRelay, stream", mine["callers32"], True),
        Bar("one producer, one worker", "OmniRelay, stream", mine["sequential"], True),
    ]
    titles = {
        "batched": "batches",
        "concurrent32": "32 callers, one item a call",
        "sequential": "one producer, one worker",
    }
    for (peer, job), figure in known.items():
        if job in titles:
            bars.append(Bar(titles[job], peer, figure, False))
    return bars
