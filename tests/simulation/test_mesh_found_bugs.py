"""What simulated meshes found in the product, each as the shortest story that shows it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any, cast
from unittest.mock import patch

from omnirelay.journal.format import Sealed
from omnirelay.lease.answers import Accepted
from omnirelay.lease.commands import Command, Enqueue, ReadStats
from omnirelay.lease.image import facts
from omnirelay.mesh.calls import Call, Outcome
from omnirelay.mesh.following import Following
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import OutcomeUnknown, Unavailable
from omnirelay.model.items import Payload
from omnirelay.testing.loop import run_simulated, sim_loop
from omnirelay.testing.mesh_nodes import Fleet, Life
from omnirelay.testing.mesh_plan import draw_mesh_plan
from omnirelay.testing.mesh_store import DOWN, UP, StoreHandle
from omnirelay.testing.pausing import PausingLoop
from omnirelay.testing.world import quiet

TTL_MS = 100


def play(story: Callable[[Fleet], Awaitable[None]], **changes: Any) -> None:
    """Three nodes without faults, the first of which owns the shard."""
    calm: dict[str, Any] = {"faults": frozenset(), "habits": frozenset(), "nodes": 3}
    calm |= {"ttl_ms": TTL_MS, "latency_s": (0.001, 0.002), "lag_s": 0.0, "wakes_every_s": 0.0}
    plan = replace(draw_mesh_plan(1), **(calm | changes))

    async def main() -> None:
        fleet = Fleet(plan, cast("PausingLoop", sim_loop()), Random(1))
        fleet.start("n0")
        await until(lambda: fleet.owner is not None)
        fleet.start("n1")
        fleet.start("n2")
        await asyncio.sleep(0.02)
        await story(fleet)
        await asyncio.wait(fleet.close())

    with quiet():
        run_simulated(main, seed=1, until_s=60, make_loop=PausingLoop)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  # time is simulated, and nobody else rings
            await asyncio.sleep(0.001)


def owner(fleet: Fleet) -> Life:
    assert fleet.owner is not None
    return fleet.owner


def life(fleet: Fleet, name: str) -> Life:
    found = fleet.lives[name]
    assert found is not None
    return found


async def ask(node: Life, command: Command) -> Outcome:
    answer: asyncio.Future[Sequence[Outcome]] = sim_loop().create_future()
    node.shard.offer(Call((command,), answer.set_result))
    return (await answer)[0]


@contextmanager
def deaf(name: str, times: int) -> Iterator[None]:
    """So many appends of this node reach the store, and their answers do not reach the node."""
    append, left = StoreHandle.append, [times]

    async def unheard(self: StoreHandle, sealed: Sealed, *, expected: int) -> None:
        await append(self, sealed, expected=expected)
        if self._node == name and left[0]:
            left[0] -= 1
            raise OutcomeUnknown("the answer was lost")

    with patch.object(StoreHandle, "append", unheard):
        yield


def work(number: int) -> Enqueue:
    return Enqueue(payload=Payload("table", f"t{number}"))


def test_a_node_that_missed_what_was_pruned_starts_over_from_the_snapshot() -> None:
    async def story(fleet: Fleet) -> None:
        late = owner(fleet)
        following = await Following.begin(StoreHandle(fleet.store, "late"), late.clock)
        for number in range(20):
            await ask(late, work(number))
        await until(lambda: fleet.store.counts["pruned"] > 5)
        await following.catch_up()
        assert following.state.sequence >= 20
        await until(lambda: life(fleet, "n1").shard.state.sequence >= 20)
        again = await Following.begin(StoreHandle(fleet.store, "again"), late.clock)
        await following.catch_up()
        assert facts(following.state) == facts(again.state)

    play(story, keep=KeepOptions(snapshot_every=4, retain_ms=0))


def test_a_node_that_cannot_read_on_answers_no_reads_from_what_it_remembers() -> None:
    async def story(fleet: Fleet) -> None:
        behind = life(fleet, "n1")
        fleet.cut_from_store("n1", (UP, DOWN))
        assert isinstance(await ask(owner(fleet), work(1)), Accepted)
        for _ in range(20):
            assert isinstance(await ask(behind, ReadStats()), Unavailable)
            await asyncio.sleep(TTL_MS / 5000)

    play(story)


def test_an_owner_whose_heir_does_not_come_goes_on_at_once() -> None:
    async def story(fleet: Fleet) -> None:
        fleet.kill(life(fleet, "n1"))
        began = sim_loop().time()
        await fleet.hand_over(owner(fleet), "n1")
        assert isinstance(await ask(owner(fleet), work(1)), Accepted)
        assert owner(fleet).name == "n0"
        assert sim_loop().time() - began < TTL_MS / 1000

    play(story)


def test_an_heir_that_does_not_see_the_owners_last_word_yet_is_still_wanted() -> None:
    async def story(fleet: Fleet) -> None:
        began = sim_loop().time()
        await ask(owner(fleet), work(1))
        await fleet.hand_over(owner(fleet), "n1")
        assert owner(fleet).name == "n1"
        assert sim_loop().time() - began < 2 * TTL_MS / 1000

    play(story, lag_s=0.03, wakes_every_s=0.03)


def test_two_hand_overs_at_once_are_one() -> None:
    async def story(fleet: Fleet) -> None:
        giver = owner(fleet)
        await asyncio.gather(fleet.hand_over(giver, "n1"), fleet.hand_over(giver, "n2"))
        assert owner(fleet).name in ("n1", "n2")
        assert fleet.store.archive[-1].sealed.epoch == 2

    play(story)


def test_an_owner_whose_append_got_no_answer_goes_on_once_it_has_read_the_journal() -> None:
    async def story(fleet: Fleet) -> None:
        began = sim_loop().time()
        with deaf("n0", times=1):
            assert isinstance(await ask(owner(fleet), work(1)), OutcomeUnknown)
        await until(lambda: fleet.owner is not None)
        assert isinstance(await ask(owner(fleet), work(2)), Accepted)
        assert owner(fleet).name == "n0"
        assert sim_loop().time() - began < 1
        assert owner(fleet).shard.state.epoch == 2
        assert len(owner(fleet).shard.state.pending) == 2, "what was unknown had arrived"

    play(story, ttl_ms=10_000)


def test_an_owner_that_never_hears_of_its_epochs_makes_room_for_one_that_does() -> None:
    """Its tries land, and each would begin the others' wait anew."""

    async def story(fleet: Fleet) -> None:
        began = sim_loop().time()
        with deaf("n0", times=1_000_000):
            assert isinstance(await ask(owner(fleet), work(1)), OutcomeUnknown)
            await until(lambda: fleet.owner is not None)
        assert owner(fleet).name != "n0"
        assert sim_loop().time() - began < 20

    play(story, ttl_ms=10_000)
