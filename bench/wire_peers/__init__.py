"""The servers others use for the job, each with a sync behind every acknowledged write.

One measurement is one process of `.venv-peers`: it starts its server, runs one job against it and
prints one line of JSON. This module needs nothing but the standard library, so that a bench of
`.venv` can call it; what it measures never meets our own dependencies.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"

# Those a ratio may stand on, then those that only help to see where we are.
COMPARED = ("redis", "valkey", "postgres", "beanstalkd", "nats")
ORIENTATION = ("celery", "arq")
# What journals on engines stand beside: `bench/engines`.
ENGINES = ("nats3",)
PEERS = (*COMPARED, *ORIENTATION, *ENGINES)
RATED = ("sequential", "concurrent32", "batched")
# As the engines' bench asks it of its peers, beside what suits them best.
WIDE = "batched64"
JOBS = (*RATED, "wakeup")

# Fetching a server, starting it and draining what was produced come on top of the job's seconds.
GRACE_S = 90.0
POLITE_S = 10.0


class Measured(NamedTuple):
    """Either a rate, or a median latency, or the reason why there is neither.

    `sync_us` is what one synced write cost beside it, the worse of before and after: a round in
    which it is far above its usual figure was disturbed and says little. A low one proves nothing
    about the time between.
    """

    peer: str
    job: str
    items_per_s: float | None = None
    p50_us: float | None = None
    items: int = 0
    seconds: float = 0.0
    version: str = ""
    sync_us: float = 0.0
    error: str | None = None

    def as_json(self) -> str:
        kept = {key: value for key, value in self._asdict().items() if value is not None}
        if self.error is not None:
            kept = {"peer": self.peer, "job": self.job, "error": self.error}
        return json.dumps(kept)


def measure(peer: str, job: str, seconds: float = 3.0, *, grace_s: float = GRACE_S) -> Measured:
    """Run one job against one peer; never raises for what the peer does, it says so in `error`."""
    if not PYTHON.exists():
        return Measured(peer, job, error="its clients are not installed: make bench-peers")
    command = [str(PYTHON), "-m", "bench.wire_peers", "--json"]
    command += ["--peer", peer, "--job", job, "--seconds", str(seconds)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=3 * seconds + grace_s)
        except subprocess.TimeoutExpired:
            _stop(child)
            return Measured(peer, job, error=f"no end after {3 * seconds + grace_s:.0f} s")
        except BaseException:
            _stop(child)
            raise
    return parsed(peer, job, out, err)


def parsed(peer: str, job: str, out: str, err: str) -> Measured:
    """The last line a measurement printed, or the last words it said instead."""
    try:
        found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return Measured(**found)
    except (IndexError, TypeError, ValueError):
        said = (err.strip() or out.strip() or "it said nothing").splitlines()[-1]
        return Measured(peer, job, error=said)


def _stop(child: "subprocess.Popen[str]") -> None:
    """A term lets it stop its server and remove its files; its group goes if it does not."""
    child.terminate()
    try:
        child.communicate(timeout=POLITE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def table(found: list[Measured]) -> str:
    """One line a peer, one column a job; a peer that could not be measured says why below."""
    peers = list(dict.fromkeys(one.peer for one in found))
    lines = [f"{'peer':12}" + "".join(f"{job:>16}" for job in JOBS) + "   server and client"]
    for peer in peers:
        mine = {one.job: one for one in found if one.peer == peer}
        version = next((one.version for one in mine.values() if one.version), "")
        cells = "".join(f"{_cell(mine.get(job)):>16}" for job in JOBS)
        lines.append(f"{peer:12}{cells}   {version}")
    lines += [f"{one.peer} {one.job}: {one.error}" for one in found if one.error is not None]
    return "\n".join(lines)


def _cell(one: Measured | None) -> str:
    if one is None or one.error is not None:
        return "-"
    return f"{one.p50_us:,.0f} us" if one.p50_us is not None else f"{one.items_per_s:,.0f}/s"


def medians(rounds: int, seconds: float, *, peers: tuple[str, ...] = PEERS) -> list[Measured]:
    """Every job of every peer, in rounds that take turns, the median of each."""
    kept: dict[tuple[str, str], list[Measured]] = {}
    for number in range(rounds):
        for peer in peers:
            for job in JOBS:
                print(f"round {number + 1}: {peer} {job} ", end="", file=sys.stderr, flush=True)
                one = measure(peer, job, seconds)
                print(one.error or _cell(one), file=sys.stderr)
                kept.setdefault((peer, job), []).append(one)
    return [middle(several) for several in kept.values()]


def middle(several: list[Measured]) -> Measured:
    good = [one for one in several if one.error is None]
    if not good:
        return several[0]
    return sorted(good, key=lambda one: one.p50_us or one.items_per_s or 0.0)[len(good) // 2]
