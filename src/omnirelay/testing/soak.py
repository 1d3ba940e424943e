"""Looks for bad luck until it is told to stop.

    python -m omnirelay.testing.soak [--minutes N] [--seed S]

Simulated seeds, one after another from S on (or from a number nobody chose): single nodes and
meshes; between them power cuts and killed processes on the real SQLite store. One line a minute
says what was done; a failure is printed at once with the command that reproduces it, and makes the
exit code 1.
"""

import argparse
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from omnirelay.testing.crashes import crash_rounds
from omnirelay.testing.mesh_world import MeshReport, run_mesh_seeds
from omnirelay.testing.powercuts import power_cut_rounds
from omnirelay.testing.world import Report, run_seeds

Run = Callable[[Iterable[int]], Iterator[Report] | Iterator[MeshReport]]

STATUS_S = 60.0
SEEDS_A_ROUND = 500
POWER_ROUNDS = 2
CRASH_ROUNDS = 10


@dataclass
class Tally:
    """What a soak has done so far."""

    counts: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def fail(self, words: str) -> None:
        self.failures.append(words)
        print(f"FAILED {words}", flush=True)

    def status(self, minutes: float) -> str:
        done = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        hours = self.virtual_s / 3600
        return (
            f"{minutes:7.1f} min: {done}, {hours:,.1f} virtual hours, {len(self.failures)} failed"
        )


def soak(seed: int, until: Callable[[], bool], tally: Tally) -> None:
    """Rounds of everything until `until()`, which is asked after each small step."""
    for _ in chain.from_iterable(_round(number, tally) for number in count(seed, SEEDS_A_ROUND)):
        if until():
            return


def _round(seed: int, tally: Tally) -> Iterator[None]:
    yield from _simulate(run_seeds, "schedules", seed, tally)
    yield from _simulate(run_mesh_seeds, "schedules of a mesh", seed, tally)
    yield from _cut(seed, tally)
    yield from _kill(seed, tally)


def _simulate(run: Run, name: str, seed: int, tally: Tally) -> Iterator[None]:
    for report in run(range(seed, seed + SEEDS_A_ROUND)):
        tally.counts[name] += 1
        tally.counts["faults"] += report.faults.total()
        tally.virtual_s += report.virtual_s
        if report.failed:
            tally.fail(str(report))
        yield


def _cut(seed: int, tally: Tally) -> Iterator[None]:
    found = power_cut_rounds(seed, POWER_ROUNDS)
    tally.counts["power cuts"] += found.cuts
    if found.problems:
        tally.fail(
            _words("powercuts", "power_cut_rounds", f"{seed}, {POWER_ROUNDS}", found.problems)
        )
    yield


def _kill(seed: int, tally: Tally) -> Iterator[None]:
    found = crash_rounds(seed, CRASH_ROUNDS)
    tally.counts["killed processes"] += found.restarts
    if found.problems:
        tally.fail(_words("crashes", "crash_rounds", f"{seed}, {CRASH_ROUNDS}", found.problems))
    yield


def _words(module: str, function: str, arguments: str, problems: Sequence[str]) -> str:
    code = f"from omnirelay.testing.{module} import {function} as f; print(f({arguments}).problems)"
    return "\n  ".join([f'{function}; reproduce with: python -c "{code}"', *problems])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m omnirelay.testing.soak", description="Simulate and crash until stopped."
    )
    parser.add_argument("--minutes", type=float, help="stop after this long; else when interrupted")
    parser.add_argument("--seed", type=int, help="the first seed; else one nobody chose")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    tally = Tally()
    started = shown = time.monotonic()
    print(f"soaking from seed {seed}", flush=True)

    def until() -> bool:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= STATUS_S:
            shown = now
            print(tally.status((now - started) / 60), flush=True)
        return options.minutes is not None and now - started >= options.minutes * 60

    try:
        soak(seed, until, tally)
    except KeyboardInterrupt:
        print()  # the terminal has put its ^C in front of our last line
    print(tally.status((time.monotonic() - started) / 60), flush=True)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
