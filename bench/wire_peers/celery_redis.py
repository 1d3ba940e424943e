"""Celery on Redis, for orientation: a worker in the client's process, tasks that do nothing,
acknowledged late, so that a crash does not lose them."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import celery  # type: ignore[import-not-found,unused-ignore]
from celery.worker import WorkController  # type: ignore[import-not-found,unused-ignore]

from bench.wire_peers import Measured, jobs
from bench.wire_peers.jobs import BODY, CALLERS, SAMPLES, SETTLE_S, Outcome
from bench.wire_peers.redis_streams import find_any, serving
from bench.wire_peers.servers import CannotStart

TEXT = BODY.decode()


class Arrivals:
    """What the worker saw, told across threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0
        self.last = 0.0

    def note(self) -> None:
        with self.changed:
            self.count += 1
            self.last = time.perf_counter()
            self.changed.notify_all()

    def wait(self, count: int) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.count >= count, timeout=60):
                raise CannotStart(f"only {self.count} of {count} tasks were run within 60 s")


def application(address: Path, arrivals: Arrivals) -> Any:
    app = celery.Celery("bench", broker=f"redis+socket://{address}", set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="note")  # type: ignore[untyped-decorator,unused-ignore]
    def note(_text: str) -> None:
        arrivals.note()

    return app


def start(app: Any, *, concurrency: int) -> Any:
    pool = "solo" if concurrency == 1 else "threads"
    worker = WorkController(
        app=app,
        pool_cls=pool,
        concurrency=concurrency,
        loglevel="ERROR",
        without_heartbeat=True,
        without_mingle=True,
        without_gossip=True,
    )
    threading.Thread(target=worker.start, daemon=True).start()
    return worker


def rate(app: Any, arrivals: Arrivals, *, producers: int, seconds: float) -> Outcome:
    """Each producer sends one task a call until time is up; the worker drains the rest."""
    before, start_at = arrivals.count, time.perf_counter()
    made = [0] * producers

    def produce(number: int) -> None:
        task = app.tasks["note"]
        while time.perf_counter() - start_at < seconds:
            task.delay(TEXT)
            made[number] += 1

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    arrivals.wait(before + sum(made))
    elapsed = time.perf_counter() - start_at
    return Outcome(sum(made) / elapsed, sum(made), elapsed)


def wakeup(app: Any, arrivals: Arrivals, *, seconds: float) -> Outcome:
    task, samples = app.tasks["note"], list[float]()
    start_at = time.perf_counter()
    while len(samples) < SAMPLES and time.perf_counter() - start_at < seconds:
        time.sleep(SETTLE_S)
        began, before = time.perf_counter(), arrivals.count
        task.delay(TEXT)
        arrivals.wait(before + 1)
        samples.append(arrivals.last - began)
    elapsed = time.perf_counter() - start_at
    return Outcome(sorted(samples)[len(samples) // 2] * 1e6, len(samples), elapsed)


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    if job == "batched":
        raise CannotStart("it has no batches")
    binary = find_any()
    version = f"Celery {celery.__version__} on {binary.path.name} {binary.version()}"
    with serving(binary, folder) as address:
        arrivals = Arrivals()
        app = application(address, arrivals)
        many = CALLERS if job == "concurrent32" else 1
        worker = start(app, concurrency=many)
        app.tasks["note"].delay(TEXT)  # the first one waits for the worker
        arrivals.wait(1)
        if job == "wakeup":
            outcome = wakeup(app, arrivals, seconds=seconds)
        else:
            outcome = rate(app, arrivals, producers=many, seconds=seconds)
        with suppress(SystemExit):
            worker.stop(in_sighandler=False, exitcode=0)
        app.close()
    return jobs.measured(peer, job, outcome, version)
