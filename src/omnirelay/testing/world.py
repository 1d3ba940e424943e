"""One seed, one world: the real shard, its clients and everything that can go wrong around it.

    python -m omnirelay.testing.world --seed 42 [--plant no_fencing] [--history]

A storm first, with the faults that the seed's plan switches on; then calm, in which everything that
was accepted must come to an end; then the judges.
"""

import argparse
import asyncio
import gc
import hashlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TypeVar
from unittest.mock import patch

from omnirelay.lease.image import facts
from omnirelay.mesh.recovery import recover
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.testing import verdict
from omnirelay.testing.audience import Audience
from omnirelay.testing.checker import Op
from omnirelay.testing.crowd import Operator, Producer, Worker
from omnirelay.testing.disk import NOT_FAULTS, SimJournal
from omnirelay.testing.loop import SimulationError, run_simulated, sim_loop
from omnirelay.testing.nodes import SHARD, Site
from omnirelay.testing.plan import BLOWS, MISHAPS, Plan, draw_plan
from omnirelay.testing.planted import plant_bug

R = TypeVar("R")

CALM_S = 30.0
"""Virtual time after the last fault within which every accepted item must have ended."""
_COMPLAINTS_SHOWN = 10
_SEEDS_A_COLLECTION = 20


@dataclass(slots=True)
class Report:
    """How one seed went."""

    plan: Plan
    plant: str | None = None
    complaints: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """Faults, and what the product did beside them: snapshots, prunings, repairs."""
    virtual_s: float = 0.0
    operations: int = 0
    records: int = 0
    fingerprint: str = ""
    history: list[Op] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.complaints)

    @property
    def command(self) -> str:
        plant = f" --plant {self.plant}" if self.plant else ""
        return f"python -m omnirelay.testing.world --seed {self.plan.seed}{plant}"

    def __str__(self) -> str:
        words = [f"{len(self.complaints)} complaints; reproduce with: {self.command}"]
        words += islice(self.complaints, _COMPLAINTS_SHOWN)
        return "\n  ".join([*words, str(self.plan)])


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = sim_loop()
        self.chance = Random(plan.seed)
        self.site = Site(plan, self.loop, self.chance)
        self.history: list[Op] = []
        self.audience = Audience(self.site)
        shared = (self.site, self.history)
        self.producers = [Producer(f"producer{n}", *shared) for n in range(plan.producers)]
        self.workers = [Worker(f"worker{n}", *shared) for n in range(plan.workers)]
        self.operator = Operator("operator", *shared)

    async def run(self) -> list[str]:
        """Every breach found, in words."""
        site, loop = self.site, self.loop
        site.start()
        crowd = [loop.create_task(producer.run()) for producer in self.producers]
        crowd.append(loop.create_task(self.operator.run()))
        workers = [loop.create_task(worker.run()) for worker in self.workers]
        watching = loop.create_task(self.audience.run())
        with site.struck_at_failpoints():
            try:
                await self._storm(crowd[:-1])
                await self._calm(crowd)
                await _end([*crowd, *workers])
                await site.close()
                await self._until(self._is_followed, "L3: the follower did not come to the end")
            finally:
                await _end([*crowd, *workers, watching])
        return [*site.complaints, *await self._judge()]

    # -- storm ----------------------------------------------------------------------------------

    async def _storm(self, producing: Sequence[asyncio.Task[None]]) -> None:
        faults = self.plan.faults
        self.site.disk.mishaps = {kind: 0.03 for kind in MISHAPS if kind in faults}
        self.site.crash_share = 0.01 if "crash_point" in faults else 0.0
        blows = [blow for blow in BLOWS if blow in faults]
        until = self.loop.time() + self.plan.storm_s
        while self.loop.time() < until:
            await asyncio.sleep(self.chance.uniform(0.05, 0.6))
            if all(task.done() for task in producing) and self.chance.random() < 0.5:
                return  # little is left to be hurt
            if blows:
                await self._strike(self.chance.choice(blows))

    async def _strike(self, blow: str) -> None:
        site, chance, now = self.site, self.chance, self.loop.time()
        match blow:
            case "kill" | "power_cut":
                await self._await_a_bad_moment()
                await site.kill(power=blow == "power_cut")
            case "stop":
                await site.stop()
            case "usurper":
                await site.usurp()
            case "slow_disk":
                site.counts[blow] += 1
                site.disk.slow_until = now + chance.uniform(0.2, 1.5)
                site.disk.slow_factor = chance.choice((3.0, 20.0))
            case "disk_full":
                site.counts["disk_filled"] += 1
                site.disk.full_until = now + chance.uniform(0.05, 0.8)
            case _:
                assert blow == "wall_jump"
                site.counts[blow] += 1
                site.clock.jump_wall(chance.choice((-3_600_000, -700, 900, 3_600_000)))
                if chance.random() < 0.5:
                    await site.kill()  # only who starts anew looks at the wall clock

    async def _await_a_bad_moment(self) -> None:
        """Mostly while something is written and not yet synced; sometimes just now."""
        if self.chance.random() < 0.7:
            written = asyncio.Event()
            self.site.disk.at_next_write = written.set
            with suppress(TimeoutError):
                await asyncio.wait_for(written.wait(), 0.3)
            self.site.disk.at_next_write = None

    # -- calm -----------------------------------------------------------------------------------

    async def _calm(self, producing: Sequence[asyncio.Task[None]]) -> None:
        site = self.site
        site.disk.mishaps, site.crash_share = {}, 0.0
        site.disk.full_until = site.disk.slow_until = 0.0
        for caller in (*self.producers, *self.workers, self.operator):
            caller.is_calm = True
        self.audience.is_calm = True
        await asyncio.sleep(0.5)  # what was late lands
        await site.agree()
        await self._until(lambda: self._is_settled(producing), "L2: items are still open")

    async def _until(self, holds: Callable[[], bool], complaint: str) -> None:
        until = self.loop.time() + CALM_S
        while not holds() and not self.site.complaints:
            if self.loop.time() > until:
                self.site.complaints.append(f"{complaint} {CALM_S} s after the last fault")
            await asyncio.sleep(0.25)

    def _is_settled(self, producing: Sequence[asyncio.Task[None]]) -> bool:
        node = self.site.node
        if node is None or not node.shard.ready.is_set():
            return False
        state = node.shard.state
        return not state.pending and not state.active and all(t.done() for t in producing)

    def _is_followed(self) -> bool:
        return len(self.audience.seen) == self.site.disk.index.head.last

    # -- judgement ------------------------------------------------------------------------------

    async def _judge(self) -> list[str]:
        site = self.site
        final = site.final
        found = site.mirror.differences(final)
        recovered = await recover(SimJournal(SHARD, site.disk))
        if facts(recovered.state) != facts(site.mirror.state):
            found.append("what snapshot and tail recover is not the fold of the journal")
        events = site.mirror.events
        found += self.audience.complaints
        found += verdict.judge_history(self.history, events)
        found += verdict.judge_followers(self.audience.seen, events)
        found += verdict.judge_ends(events, final)
        found += verdict.judge_keys(events, site.mirror.serialize_by)
        found += verdict.judge_expiries(events)
        found += verdict.judge_reads(site.reads, site.mirror.depths)
        return found


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raises what one of them died of: a client that stops in the middle tests nothing."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def run_seed(seed: int, plant: str | None = None) -> Report:
    """Simulate one seed, with a bug planted or without. Never raises for what the system does."""
    plan = draw_plan(seed)
    report = Report(plan, plant)
    world: World | None = None

    async def main() -> list[str]:
        nonlocal world
        world = World(plan)
        return await world.run()

    with ExitStack() as stack:
        stack.enter_context(_quiet_and_small(plan))
        stack.enter_context(plant_bug(plant))
        try:
            result = run_simulated(main, seed=seed, until_s=3_600)
            report.complaints += result.value or ["the world did not end"] * (not result.finished)
            report.complaints += [f"loop: {words}" for words in result.loop_errors]
            report.virtual_s, fingerprint = result.virtual_s, result.fingerprint
        except (SimulationError, OmniRelayError, AssertionError, LookupError) as error:
            report.complaints.append(f"{type(error).__name__}: {error}")
            fingerprint = ""
    if world is not None:
        _fill(report, world, fingerprint)
    return report


def run_seeds(seeds: Iterable[int], plant: str | None = None) -> Iterator[Report]:
    """One after another."""
    return collected_seldom(run_seed(seed, plant) for seed in seeds)


def collected_seldom(reports: Iterable[R]) -> Iterator[R]:
    """A world is full of cycles: they are collected now and then, and without a look at all that
    was there before, which is a fifth faster."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number, report in enumerate(reports, start=1):
            yield report
            if number % _SEEDS_A_COLLECTION == 0:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def _fill(report: Report, world: World, fingerprint: str) -> None:
    site = world.site
    report.met = site.counts + site.disk.counts
    report.faults = Counter({k: n for k, n in report.met.items() if k not in NOT_FAULTS})
    report.operations = len(world.history)
    report.records = site.disk.index.head.last
    report.history = world.history
    whole = f"{fingerprint} {site.disk.index.head.checksum} {len(world.history)}"
    report.fingerprint = hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


@contextmanager
def _quiet_and_small(plan: Plan) -> Iterator[None]:
    """Short turns show what long ones hide."""
    with quiet(), patch.dict(vars(limits), plan.limits):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Crashes are the daily bread here, not news."""
    log = logging.getLogger("omnirelay")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m omnirelay.testing.world", description="Simulate seeds, one world each."
    )
    parser.add_argument("--seed", type=int, required=True, help="the seed, or the first of several")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, one after another")
    parser.add_argument("--plant", help="a bug of omnirelay.testing.planted")
    parser.add_argument("--history", action="store_true", help="print what the clients saw")
    options = parser.parse_args(arguments)
    failed = 0
    for report in run_seeds(range(options.seed, options.seed + options.count), options.plant):
        if options.history:
            print(*report.history, sep="\n")
        if report.failed:
            print(report)
        elif options.count == 1:
            print(f"{report.plan}\n  holds; trace {report.fingerprint}")
        failed += report.failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
