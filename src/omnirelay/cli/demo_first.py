"""The demo's first stage: three workers in a process of their own, which is killed for real."""

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import msgspec

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_proof import Acknowledged
from omnirelay.cli.demo_queue import (
    EARLY_WORKERS,
    NAMESPACE,
    RESOURCE_TYPES,
    catch_up,
    open_queue,
    work_as,
    work_on,
)
from omnirelay.cli.demo_screen import Screen
from omnirelay.cli.ending import CommandFailed
from omnirelay.sdk.client import Relay
from omnirelay.sdk.lease import Lease


class Line(msgspec.Struct, omit_defaults=True):
    """What the first process says, once the queue has said yes to it."""

    said: str
    """enqueued, completed, or holding."""
    item: int
    fence: int = 0


def _say(said: str, item: int, fence: int = 0) -> None:
    print(msgspec.json.encode(Line(said, item, fence)).decode(), flush=True)


# -- the child ----------------------------------------------------------------------------------


async def work_until_killed(path: str, items: int) -> None:
    """Does a third of the items. Then each worker is in the middle of one until the kill comes, so
    that it comes mid-work however slow the machine is."""
    _die_with_the_parent()
    done = 0

    async def work(lease: Lease) -> None:
        nonlocal done
        if done >= items // 3:
            _say("holding", lease.sequence_id, lease.fence)
            await asyncio.Event().wait()
        await work_on(lease)
        await lease.complete()
        done += 1
        _say("completed", lease.sequence_id, lease.fence)

    async with open_queue(path) as relay:
        await asyncio.gather(*(_enqueue(relay, number) for number in range(items)))
        await asyncio.gather(*(work_as(peer, relay, work).run() for peer in EARLY_WORKERS))


async def _enqueue(relay: Relay, number: int) -> None:
    kind = RESOURCE_TYPES[number % len(RESOURCE_TYPES)]
    accepted = await relay.enqueue(kind, f"r{number}", body=b"compact", request_id=f"demo-{number}")
    _say("enqueued", accepted.sequence_id)


def _die_with_the_parent() -> None:
    """A demo that is itself killed leaves nobody behind: its end of the pipe closes."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- the parent ---------------------------------------------------------------------------------


async def watch_and_kill(path: str, items: int, board: Board, screen: Screen) -> Acknowledged:
    """Start the process, note what the queue told it, kill it while it holds three leases."""
    command = (sys.executable, "-m", "omnirelay.cli", "demo-first-stage", path)
    child = await asyncio.create_subprocess_exec(
        *command, "--items", str(items), stdin=PIPE, stdout=PIPE
    )
    told = Acknowledged(pid=child.pid)
    try:
        await _listen(child, told, _Watch(path, board, screen))
    finally:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGKILL)
        told.exit_code = await child.wait()
    # What it said before it died counts, also what nobody had read by then.
    async for line in _lines(child):
        _note(told, line)
    await catch_up(path, NAMESPACE, board)
    screen.note(
        f"killed process {child.pid} (exit {told.exit_code}) mid-work: {len(told.completed)} items "
        f"done, leases on {', '.join(map(str, sorted(told.holding)))} in hand"
    )
    return told


class _Watch(msgspec.Struct, frozen=True):
    path: str
    board: Board
    screen: Screen

    async def look(self) -> None:
        await catch_up(self.path, NAMESPACE, self.board)
        self.screen.moved()


async def _listen(child: Process, told: Acknowledged, watch: _Watch) -> None:
    async for line in _lines(child):
        _note(told, line)
        if line.said != "enqueued":
            await watch.look()
        if len(told.holding) == len(EARLY_WORKERS):
            return
    raise CommandFailed(f"the first process ended by itself, with {await child.wait()}")


async def _lines(child: Process) -> AsyncIterator[Line]:
    assert child.stdout is not None
    while line := await child.stdout.readline():
        if line.endswith(b"\n"):  # else it died in the middle of the word
            yield msgspec.json.decode(line, type=Line)


def _note(told: Acknowledged, line: Line) -> None:
    if line.said == "enqueued":
        told.enqueued.add(line.item)
    elif line.said == "completed":
        told.completed[line.item] = line.fence
    else:
        told.holding[line.item] = line.fence
