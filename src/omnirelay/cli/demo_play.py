"""What happens in the demo, act by act. Every step waits for what it needs to see, so that a slow
machine makes it slower and nothing else."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_crew import WIRES, Crew, Part
from omnirelay.cli.demo_lines import END, FINISH, GO, HANG, KEEP, TRY, Line
from omnirelay.cli.demo_proof import Acknowledged, Grant, Killed, Refusal, Witnessed
from omnirelay.cli.demo_screen import Screen
from omnirelay.cli.ending import CommandFailed
from omnirelay.rpc.status import GRPC, HTTP
from omnirelay.sdk.connect import connect

PACE_S: Final = 0.06
"""Between two items that are asked of the producers."""
PRODUCERS: Final = {"producer-1": "http", "producer-2": "stream"}
WORKERS: Final = {"worker-1": "http", "worker-2": "grpc", "worker-3": "stream"}
DOOMED: Final = "worker-4"
SLEEPER: Final = "worker-5"
OTHERS: Final = {DOOMED: "stream", SLEEPER: "grpc"}


async def play(crew: Crew, items: int, board: Board, screen: Screen) -> Witnessed:
    """At least so many items: more while somebody still has to get one."""
    stage = Stage(crew, items, board, screen)
    screen.stage("1: a node, two producers, five workers, each a process of its own", board)
    await stage.open()
    async with stage.running():
        dead = await stage.kill_a_worker()
        screen.stage("2: the node itself is killed and comes back", board)
        killed = await stage.kill_the_node()
        screen.stage("3: a worker is stopped past its lease and wakes up as a zombie", board)
        stopped, refusals = await stage.wake_a_zombie()
        await stage.finish()
    await stage.close()
    return Witnessed(node=killed, told=stage.told, dead=dead, stopped=stopped, refusals=refusals)


class Stage:
    def __init__(self, crew: Crew, items: int, board: Board, screen: Screen) -> None:
        self.told = Acknowledged()
        self._crew = crew
        self._items = items
        self._board = board
        self._screen = screen
        self._asked = 0
        self._goal = 0
        """How many items the producers are asked for by now; more while somebody is `_hungry`."""
        self._hungry = False
        self._node: Part | None = None
        board.parts = crew.parts
        crew.told.append(self._note)

    @property
    def node(self) -> Part:
        assert self._node is not None
        return self._node

    def _note(self, part: Part, line: Line) -> None:
        if line.said == "enqueued":
            self.told.enqueued.add(line.item)
        elif line.said == "completed":
            self.told.completed[line.item] = line.fence
        self._screen.moved()

    # -- before and after ---------------------------------------------------------------------

    async def open(self) -> None:
        crew = self._crew
        self._node = await crew.start_node("node")
        addresses = ", ".join(crew.urls.values())
        self._screen.note(f"process {self.node.pid} is the node: {addresses}")
        for role, named in (("producer", PRODUCERS), ("worker", {**WORKERS, **OTHERS})):
            for name, via in named.items():
                part = await crew.start(role, name, via)
                self._screen.note(f"process {part.pid} is {name}, over {via}")
        parts = [crew.parts[name] for name in (*PRODUCERS, *WORKERS, *OTHERS)]
        await crew.until(lambda: all(part.last("ready") for part in parts))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Beside the acts: items are asked for, and the journal is watched through the node."""
        tasks = [asyncio.create_task(self._feed()), asyncio.create_task(self._watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self) -> None:
        producers = [self._crew.parts[name] for name in PRODUCERS]
        while True:
            if self._asked < self._goal or self._hungry:
                producers[self._asked % len(producers)].tell(GO)
                self._asked += 1
            await asyncio.sleep(PACE_S)

    async def _watch(self) -> None:
        """Goes on where it was when the node has come back; the board would miss no event."""
        async with connect(self._crew.urls["stream"], peer_id="onlooker") as relay:
            async for event in relay.events():
                self._board.see(event)
                if event.event_type == "Expired":
                    self._screen.note(
                        f"the lease of {event.peer_id} on item {event.sequence_id} (fence "
                        f"{event.fence}) expired: the item is free again"
                    )
                self._screen.moved()
                self._crew.changed()

    async def finish(self) -> None:
        """All that was asked for is enqueued, and all of it is done."""
        self._goal = self._items
        crew = self._crew
        await crew.until(
            lambda: (
                self._asked >= self._goal
                and len(self.told.enqueued) == self._asked
                and self._board.completed == self._asked
            )
        )
        for name in PRODUCERS:
            crew.parts[name].tell(END)
            crew.parts[name].state = "done"
            await crew.parts[name].wait()

    async def close(self) -> None:
        """Asked to stop, workers and node leave with 0."""
        leaving = [self._crew.parts[name] for name in (*WORKERS, SLEEPER)]
        for group in (leaving, [self.node]):
            for part in group:
                part.signal(signal.SIGTERM, "done")
            for part in group:
                if code := await part.wait():
                    raise CommandFailed(f"{part.name} was asked to stop and left with {code}")

    # -- acts ---------------------------------------------------------------------------------

    async def kill_a_worker(self) -> Grant:
        doomed = self._crew.parts[DOOMED]
        self._goal = self._items // 3
        held = await self._hang(doomed)
        enough = self._items // 6
        await self._crew.until(lambda: self._board.completed >= enough)
        doomed.signal(signal.SIGKILL, "killed")
        code = await doomed.wait()
        self._screen.note(
            f"killed {DOOMED} (exit {code}) in the middle of item {held.item} (fence {held.fence})"
        )
        return held

    async def _hang(self, part: Part) -> Grant:
        """The worker is in the middle of an item until something is done to it."""
        part.tell(HANG)
        self._hungry = True
        await self._crew.until(lambda: part.last("hanging") is not None)
        self._hungry = False
        line = part.last("hanging")
        assert line is not None
        return Grant(line.item, line.fence)

    async def kill_the_node(self) -> Killed:
        crew, board = self._crew, self._board
        self._goal = self._items * 2 // 3
        enough = self._items // 2
        await crew.until(lambda: len(self.told.enqueued) >= enough and bool(board.holdings))
        before, in_hand = self.told.copy(), len(board.holdings)
        self.node.signal(signal.SIGKILL, "killed")
        code = await self.node.wait()
        self._screen.note(
            f"killed the node (exit {code}) after {len(before.enqueued)} enqueues and "
            f"{len(before.completed)} completions, with {in_hand} leases in hand"
        )
        self._node = await crew.start_node("node")
        self._screen.note(
            f"process {self.node.pid} is the node now, on the same data and ports: all go on"
        )
        completed = len(self.told.completed)
        self._goal += 1  # so that there is something to go on with
        await crew.until(lambda: board.epoch > 1 and len(self.told.completed) > completed)
        return Killed(before=before, in_hand=in_hand, exit_code=code)

    async def wake_a_zombie(self) -> tuple[Grant, list[Refusal]]:
        crew = self._crew
        sleeper, others = crew.parts[SLEEPER], [crew.parts[name] for name in WORKERS]
        late = await self._hang(sleeper)
        sleeper.signal(signal.SIGSTOP, "stopped")
        self._screen.note(
            f"stopped {SLEEPER} in the middle of item {late.item} (fence {late.fence})"
        )
        for other in others:  # whoever gets it next has it in hand when the zombie comes
            other.tell(f"{KEEP} {late.item}")
        held = self._board.holdings
        await crew.until(lambda: late.item in held and held[late.item].fence > late.fence)
        now = held[late.item]
        self._screen.note(f"{now.peer} has item {now.item} now, with fence {now.fence}")
        sleeper.signal(signal.SIGCONT, "running")
        self._screen.note(f"{SLEEPER} wakes up and wants to finish item {late.item}")
        sleeper.tell(TRY)
        await crew.until(lambda: len(_answers(sleeper)) == len(WIRES))
        refusals = [_refusal(line) for line in _answers(sleeper)]
        for refusal in refusals:
            self._screen.note(_in_words(refusal))
        for other in others:
            other.tell(FINISH)
        return late, refusals


def _answers(part: Part) -> list[Line]:
    return [line for line in part.lines if line.said in ("refused", "answered")]


def _refusal(line: Line) -> Refusal:
    return Refusal(wire=line.wire, status=line.status, current_fence=line.fence)


def _in_words(refusal: Refusal) -> str:
    numbers = {"http": HTTP, "grpc": GRPC}.get(refusal.wire, {})
    number = numbers.get(refusal.status)
    status = refusal.status if number is None else f"{number} {refusal.status}"
    if refusal.current_fence:
        return f"refused over {refusal.wire}: {status}, the fence is {refusal.current_fence} now"
    return f"NOT refused over {refusal.wire}: {status}"
