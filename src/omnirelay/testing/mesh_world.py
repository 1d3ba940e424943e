"""One seed, one mesh: three to five real nodes over one journal, and all that can come between.

    python -m omnirelay.testing.mesh_world --seed 42 [--count 100] [--plant split_brain] [--history]

A storm first, with the faults that the seed's plan switches on; then calm, in which an owner must
be found and everything that was accepted must come to an end; then the judges.
"""

import argparse
import asyncio
import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import cast
from unittest.mock import patch

from omnirelay.lease.image import facts
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.testing import mesh_verdict, verdict
from omnirelay.testing.loop import SimulationError, run_simulated, sim_loop
from omnirelay.testing.mesh_crowd import Diary, make_crowd
from omnirelay.testing.mesh_nodes import Fleet, Life
from omnirelay.testing.mesh_plan import BLOWS, DRIFT, FAULTS, MeshPlan, draw_mesh_plan
from omnirelay.testing.mesh_planted import plant_mesh_bug
from omnirelay.testing.mesh_store import DOWN, UP
from omnirelay.testing.nodes import Mirror
from omnirelay.testing.pausing import PausingLoop
from omnirelay.testing.world import collected_seldom, quiet

CALM_S = 20.0
"""Virtual time after the last fault within which every accepted item must have ended."""
_COMPLAINTS_SHOWN = 10


@dataclass(slots=True)
class MeshReport:
    """How one seed went."""

    plan: MeshPlan
    plant: str | None = None
    complaints: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    """Faults, and what happened beside them."""
    virtual_s: float = 0.0
    records: int = 0
    epochs: int = 0
    fingerprint: str = ""
    diary: Diary = field(default_factory=Diary)

    @property
    def failed(self) -> bool:
        return bool(self.complaints)

    @property
    def faults(self) -> Counter[str]:
        return Counter({kind: n for kind, n in self.met.items() if kind in FAULTS})

    @property
    def command(self) -> str:
        plant = f" --plant {self.plant}" if self.plant else ""
        return f"python -m omnirelay.testing.mesh_world --seed {self.plan.seed}{plant}"

    def __str__(self) -> str:
        words = [f"{len(self.complaints)} complaints; reproduce with: {self.command}"]
        words += islice(self.complaints, _COMPLAINTS_SHOWN)
        return "\n  ".join([*words, str(self.plan)])


class MeshWorld:
    def __init__(self, plan: MeshPlan) -> None:
        self.plan = plan
        self.loop = cast("PausingLoop", sim_loop())
        self.chance = Random(plan.seed)
        self.fleet = Fleet(plan, self.loop, self.chance)
        self.diary = Diary()
        self.producers, self.others = make_crowd(self.fleet, self.diary)
        self.mirror = Mirror(self.fleet.store.bodies)
        self._blows: list[asyncio.Task[None]] = []

    async def run(self) -> list[str]:
        """Every breach found, in words."""
        fleet, loop = self.fleet, self.loop
        for name in fleet.names:
            fleet.start(name)
        producing = [loop.create_task(one.run()) for one in self.producers]
        others = [loop.create_task(one.run()) for one in self.others]
        await self._storm()
        await self._calm(producing)
        found = self._states()
        ended = [*producing, *others, *fleet.close()]
        for task in ended:
            task.cancel()
        await asyncio.wait(ended)
        for task in [*producing, *others]:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return [*fleet.complaints, *fleet.wire.complaints, *found, *self._judge()]

    # -- storm ---------------------------------------------------------------------------------

    async def _storm(self) -> None:
        blows = [blow for blow in BLOWS if blow in self.plan.faults]
        until = self.loop.time() + self.plan.storm_s
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 0.8) * self.plan.ttl_ms / 1000)
            if self.loop.time() >= until:
                break
            if blows:
                blow = self.chance.choice(blows)
                self._blows.append(self.loop.create_task(self._strike(blow)))

    def _victim(self) -> Life | None:
        """The owner, mostly: what happens to others matters less."""
        living = self.fleet.living()
        if not living:
            return None
        owner = self.fleet.owner
        return owner if owner and self.chance.random() < 0.7 else self.chance.choice(living)

    async def _strike(self, blow: str) -> None:
        fleet, chance, victim = self.fleet, self.chance, self._victim()
        if victim is None:
            return
        ttl_s = self.plan.ttl_ms / 1000
        lasts_s = ttl_s * chance.uniform(0.3, 2.5)
        fleet.counts[blow] += 1
        match blow:
            case "kill":
                fleet.kill(victim)
                await asyncio.sleep(chance.choice((0.002, lasts_s)))
                fleet.start(victim.name)
            case "pause":
                await fleet.pause(victim, lasts_s)
            case "cut_from_store":
                ways = chance.choice(((UP, DOWN), (UP,), (DOWN,)))
                fleet.cut_from_store(victim.name, ways)
                await asyncio.sleep(lasts_s)
                fleet.mend()
            case "cut_between_nodes":
                other = chance.choice(fleet.names)
                fleet.cut_between(victim.name, other, both=chance.random() < 0.5)
                await asyncio.sleep(lasts_s)
                fleet.mend()
            case "isolate":
                fleet.isolate(victim.name, [one.name for one in (*self.producers, *self.others)])
                await asyncio.sleep(lasts_s)
                fleet.mend()
            case "wall_jump":
                victim.clock.jump_wall(chance.choice((-3_600_000, -700, 900, 3_600_000)))
            case "slow_store":
                fleet.store.slow_until = self.loop.time() + lasts_s
            case "hand_over":
                owner = fleet.owner
                if owner is None:
                    return
                others = [name for name in fleet.names if name != owner.name]
                await fleet.hand_over(owner, chance.choice(others))
            case _:
                assert blow == "leave"
                await fleet.leave(victim)
                fleet.start(victim.name)

    # -- calm ----------------------------------------------------------------------------------

    async def _calm(self, producing: Sequence["asyncio.Task[None]"]) -> None:
        fleet = self.fleet
        if self._blows:
            await asyncio.wait(self._blows)
            for blow in self._blows:
                blow.result()
        fleet.mend()
        fleet.store.is_calm = fleet.wire.is_calm = True
        fleet.store.slow_until = 0.0
        for client in (*self.producers, *self.others):
            client.is_calm = True
        for name in fleet.names:
            fleet.start(name)
        until = self.loop.time() + CALM_S
        while not self._is_settled(producing):
            await asyncio.sleep(self.chance.uniform(0.01, 0.03))  # not in step with anything
            if fleet.complaints:
                return
            if self.loop.time() > until:
                fleet.complaints.append(f"L2: not settled {CALM_S} s after the last fault")

    def _is_settled(self, producing: Sequence["asyncio.Task[None]"]) -> bool:
        owner = self.fleet.owner
        if owner is None or not all(task.done() for task in producing):
            return False
        state = owner.shard.state
        end = self.fleet.store.archive[-1].sealed
        is_durable = (state.sequence, state.epoch) == (end.last, end.epoch)
        if not is_durable or state.pending or state.active:
            return False
        # Nobody is far behind: everybody has seen this owner come.
        return all(life.shard.state.epoch == state.epoch for life in self.fleet.living())

    # -- judgement -----------------------------------------------------------------------------

    def _states(self) -> list[str]:
        """J1: who has the whole journal has the state that it leads to."""
        self.mirror.catch_up()
        expected, found = self.mirror.state, []
        for life in self.fleet.living():
            state = life.shard.state
            is_even = state.sequence == expected.sequence and state.at == expected.at
            if is_even and facts(state) != facts(expected):
                found.append(f"J1: {life.name} at {state.sequence} is not the fold of the journal")
        return found

    def _judge(self) -> list[str]:
        self.mirror.catch_up()
        mirror, plan, diary = self.mirror, self.plan, self.diary
        skew_s = 0.001 + ("clock_rates" in plan.faults) * DRIFT * _longest_s(plan)
        found = list(verdict.judge_history(diary.history, mirror.events, skew_s=skew_s))
        found += verdict.judge_ends(mirror.events, mirror.state)
        found += verdict.judge_expiries(mirror.events)
        told = [(one.sequence, one.pending, one.active) for one in diary.readings]
        found += verdict.judge_reads(told, mirror.depths)
        found += mesh_verdict.judge_freshness(diary.readings, self.fleet.store.archive, plan)
        archive = self.fleet.store.archive
        found += mesh_verdict.judge_answers(diary.history, mirror.events, archive)
        found += mesh_verdict.judge_gap(plan, diary)
        return found


def _longest_s(plan: MeshPlan) -> float:
    return plan.queue.lease_duration_ms / 1000


def run_mesh_seed(seed: int, plant: str | None = None) -> MeshReport:
    """Simulate one seed, with a bug planted or without. Never raises for what the system does."""
    plan = draw_mesh_plan(seed)
    report = MeshReport(plan, plant)
    world: MeshWorld | None = None

    async def main() -> list[str]:
        nonlocal world
        world = MeshWorld(plan)
        return await world.run()

    fingerprint = ""
    with ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(patch.dict(vars(limits), AHEAD_COMMANDS_MIN=1))  # no crowd comes here
        stack.enter_context(plant_mesh_bug(plant))
        try:
            result = run_simulated(main, seed=seed, until_s=600, make_loop=PausingLoop)
            fingerprint = f"{result.callbacks} {result.ended_s!r}"
            report.complaints += result.value or ["the world did not end"] * (not result.finished)
            report.complaints += [f"loop: {words}" for words in result.loop_errors]
            report.virtual_s = result.virtual_s
        except (SimulationError, OmniRelayError, AssertionError, LookupError) as error:
            report.complaints.append(f"{type(error).__name__}: {error}")
    if world is not None:
        report.complaints += mesh_verdict.judge_epochs(world.fleet.store.bodies)
        _fill(report, world, fingerprint)
    return report


def _fill(report: MeshReport, world: MeshWorld, fingerprint: str) -> None:
    fleet = world.fleet
    report.met = fleet.counts + fleet.store.counts + fleet.wire.counts
    report.met["forwarded"] = fleet.wire.forwarded
    report.diary = world.diary
    archive = fleet.store.archive
    if archive:
        end = archive[-1].sealed
        report.records, report.epochs = end.last, end.epoch
        heard = sum(op.returned or op.called for op in world.diary.history)
        whole = f"{fingerprint} {end.checksum} {len(world.diary.history)} {heard!r}"
        report.fingerprint = hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def run_mesh_seeds(seeds: Iterable[int], plant: str | None = None) -> Iterator[MeshReport]:
    """One after another."""
    return collected_seldom(run_mesh_seed(seed, plant) for seed in seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m omnirelay.testing.mesh_world", description="Simulate seeds, a mesh each."
    )
    parser.add_argument("--seed", type=int, required=True, help="the seed, or the first of several")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, one after another")
    parser.add_argument("--plant", help="a bug of omnirelay.testing.mesh_planted")
    parser.add_argument("--history", action="store_true", help="print what the clients saw")
    options = parser.parse_args(arguments)
    failed = 0
    for report in run_mesh_seeds(range(options.seed, options.seed + options.count), options.plant):
        if options.history:
            print(*report.diary.history, *report.diary.readings, sep="\n")
        if report.failed:
            print(report)
        elif options.count == 1:
            print(f"{report.plan}\n  holds; trace {report.fingerprint}")
        failed += report.failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
