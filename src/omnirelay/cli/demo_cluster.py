"""`omnirelay demo --cluster`: three nodes over one journal. The one that owns the queue is killed,
stopped and sent away under load; the journal has to prove that nothing is lost or doubled."""

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import typer

from omnirelay.cli.demo_crew import Crew
from omnirelay.cli.demo_load import Load
from omnirelay.cli.demo_mesh import EPOCH_S, MeshCrew
from omnirelay.cli.demo_proof import Proof, Replaced, prove_kills, prove_mesh
from omnirelay.cli.ending import EXIT_FAILED, CommandFailed, print_json
from omnirelay.journal.events import Event
from omnirelay.journal.follower import tail
from omnirelay.sdk.client import Relay
from omnirelay.stores.registry import open_address

NAMESPACE: Final = "resourcelease"
ITEMS: Final = 100
"""That are done between one act and the next."""
KILLS: Final = 2
KILLED: Final = "killed"

Say = Callable[[str], None]


class Gap(msgspec.Struct, frozen=True, rename="camel"):
    """How long nobody was granted anything."""

    how: str
    node: str
    ms: int


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    ok: bool
    seconds: float
    journal: str
    items: int
    gaps: list[Gap]
    hand_over_ms: int
    """The longest that a producer waited while the owner was sent away."""
    proofs: list[Proof]


def demo_mesh(seconds: float, data: Path | None, *, json: bool) -> None:
    began = time.monotonic()
    say = _silent if json else _say
    with tempfile.TemporaryDirectory(prefix="omnirelay-demo-") as temporary:
        folder = Path(temporary) if data is None else data.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            play = asyncio.run(_within(seconds, folder, say))
        except TimeoutError:
            raise CommandFailed(f"the demo was not done after {seconds:g} seconds") from None
    shown = play.shown(round(time.monotonic() - began, 1))
    if json:
        print_json(shown)
    else:
        _print(shown)
    if not shown.ok:
        raise typer.Exit(EXIT_FAILED)


async def _within(seconds: float, folder: Path, say: Say) -> "Play":
    async with asyncio.timeout(seconds), Crew(folder) as crew:
        play = Play(MeshCrew(crew), say)
        await play.run()
        return play


class Play:
    def __init__(self, mesh: MeshCrew, say: Say) -> None:
        self._mesh = mesh
        self._say = say
        self._load = Load(mesh.urls)
        self._replaced: list[tuple[Replaced, float]] = []
        self._hand_over_s = 0.0
        self._events: list[Event] = []

    async def run(self) -> None:
        mesh, say = self._mesh, self._say
        await mesh.start_store()
        say(f"== three nodes over one journal: {mesh.store}; an owner's epoch is {EPOCH_S:g} s")
        await mesh.start_all()
        async with self._load.running() as relay:
            await self._load.more(ITEMS)
            for _ in range(KILLS):
                await self._kill(relay)
            await self._stop(relay)
            await self._send_away(relay)
        for node in mesh.nodes.values():
            node.signal(signal.SIGTERM, "ended")
            await node.wait()
        say("== what the journal proves, with nobody running any more")
        self._events = await _events(mesh.journal)

    async def _owner(self, relay: Relay) -> tuple[str, int]:
        stats = await relay.stats()
        return stats.leader, stats.epoch

    async def _strike(self, relay: Relay, number: signal.Signals, how: str) -> str:
        """Returns when another owns the queue and items are done again."""
        name, epoch = await self._owner(relay)
        self._say(f"== node {name} owns the queue, epoch {epoch}; it is {how}")
        self._replaced.append((Replaced(how, name, epoch), time.monotonic()))
        self._mesh.nodes[name].signal(number, how)
        now, since = name, epoch
        while since == epoch:
            await self._load.more(1)
            now, since = await self._owner(relay)
        await self._load.more(ITEMS)
        self._say(f"   node {now} goes on, epoch {since}; {self._done()}")
        return name

    async def _kill(self, relay: Relay) -> None:
        name = await self._strike(relay, signal.SIGKILL, KILLED)
        await self._mesh.start(name)
        self._say(f"   node {name} is back and follows")

    async def _stop(self, relay: Relay) -> None:
        name = await self._strike(relay, signal.SIGSTOP, "stopped")
        self._mesh.nodes[name].signal(signal.SIGCONT, "running")
        await self._load.more(ITEMS)
        self._say(f"   node {name} goes on, finds that it is replaced, and follows")

    async def _send_away(self, relay: Relay) -> None:
        began = time.monotonic()
        name = await self._strike(relay, signal.SIGTERM, "told to stop")
        code = await self._mesh.nodes[name].wait()
        waits = [wait for called, wait in self._load.waits if called + wait >= began]
        self._hand_over_s = max(waits)
        ms = round(1000 * self._hand_over_s)
        self._say(f"   it handed over and left with {code}; the slowest enqueue took {ms} ms")

    def _done(self) -> str:
        return f"{len(self._load.told.completed)} items are done"

    def shown(self, seconds: float) -> Shown:
        told = self._load.told
        gaps = [self._gap(one, at) for one, at in self._replaced]
        proofs = [
            *prove_mesh(self._events, told, [one for one, _ in self._replaced]),
            prove_kills([gap.ms for gap in gaps if gap.how == KILLED]),
        ]
        return Shown(
            ok=all(proof.holds for proof in proofs),
            seconds=seconds,
            journal=self._mesh.store,
            items=len(told.completed),
            gaps=gaps,
            hand_over_ms=round(1000 * self._hand_over_s),
            proofs=proofs,
        )

    def _gap(self, one: Replaced, at: float) -> Gap:
        """Until a worker had the first grant of a later epoch."""
        granted = [
            self._load.had[event.fence]
            for event in self._events
            if event.event_type == "LeaseGranted"
            and event.epoch > one.epoch
            and event.fence in self._load.had
        ]
        return Gap(one.how, one.node, round(1000 * (min(granted) - at)))


async def _events(journal: str) -> list[Event]:
    opened = open_address(journal, NAMESPACE)
    await opened.journal.open()
    reader = opened.journal.reader()
    found = tail(reader, NAMESPACE, 0, follow=False)
    events = [event async for envelope in found for event in envelope]
    await reader.close()
    await opened.journal.close()
    await opened.checkpoints.close()
    return events


def _print(shown: Shown) -> None:
    for proof in shown.proofs:
        print(f"   {'holds ' if proof.holds else 'BROKEN'}  {proof.claim}: {proof.detail}")
    for gap in shown.gaps:
        print(f"   {gap.node} {gap.how}: {gap.ms} ms until the next grant")
    kept = sum(proof.holds for proof in shown.proofs)
    print(f"{kept} of {len(shown.proofs)} proofs hold, {shown.seconds:g} seconds")


def _say(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    return None
