"""`omnirelay demo`: a process is killed, a worker dies, a worker stalls, and nothing is lost.

The first stage is a process of its own, killed for real. The second goes on in this one with the
same file. Then the journal alone has to prove what happened.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_first import watch_and_kill, work_until_killed
from omnirelay.cli.demo_proof import Proof, Witnessed, prove
from omnirelay.cli.demo_queue import NAMESPACE
from omnirelay.cli.demo_screen import Screen, open_screen
from omnirelay.cli.demo_second import go_on
from omnirelay.cli.ending import EXIT_FAILED, CommandFailed, JsonFlag, print_json
from omnirelay.journal.events import Event
from omnirelay.journal.follower import tail
from omnirelay.model.errors import InvalidArgument
from omnirelay.stores.sqlite_look import look

ITEMS_MIN: Final = 12
"""Fewer would leave no work for the worker that dies and the one that stalls."""
FILE: Final = "demo.db"

Items = Annotated[int, typer.Option(min=ITEMS_MIN, help="How many items to work on.")]


def demo(
    *,
    items: Items = 60,
    seconds_limit: Annotated[
        float, typer.Option(min=1, help="Give up after this many seconds.")
    ] = 60.0,
    data: Annotated[
        Path | None,
        typer.Option(help="Keep the journal in this folder; else in one that is removed."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Kill a process, let a worker die and one stall; prove from the journal that nothing is lost
    and nothing is done twice."""
    began = time.monotonic()
    with _folder(data) as folder, open_screen(json=json) as screen:
        path = str(folder / FILE)
        proofs = asyncio.run(_play_within(seconds_limit, path, items, screen))
    is_proved = all(proof.holds for proof in proofs)
    seconds = round(time.monotonic() - began, 1)
    if json:
        print_json({"ok": is_proved, "items": items, "seconds": seconds, "proofs": proofs})
    else:
        screen.verdict(proofs, seconds)
    if not is_proved:
        raise typer.Exit(EXIT_FAILED)


def first_stage(path: str, *, items: Items) -> None:
    """The process that the demo kills."""
    asyncio.run(work_until_killed(path, items))


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is None:
        folder = Path(tempfile.mkdtemp(prefix="omnirelay-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    data.mkdir(parents=True, exist_ok=True)
    if (data / FILE).exists():
        raise InvalidArgument(f"{data / FILE} is of an earlier demo: choose another folder")
    yield data


async def _play_within(seconds: float, path: str, items: int, screen: Screen) -> list[Proof]:
    try:
        async with asyncio.timeout(seconds):
            return await _play(path, items, screen)
    except TimeoutError:
        raise CommandFailed(f"the demo was not done after {seconds:g} seconds") from None


async def _play(path: str, items: int, screen: Screen) -> list[Proof]:
    board = Board()
    screen.stage("1: three workers in a process of their own", board)
    killed = await watch_and_kill(path, items, board, screen)
    screen.stage("2: the same file, three workers; one dies, one stalls", board)
    fates = await go_on(path, items, board, screen)
    screen.stage("3: what the journal proves", board)
    witnessed = Witnessed(items=items, killed=killed, fates=fates)
    return prove(await _events(path), witnessed)


async def _events(path: str) -> list[Event]:
    """As an outsider reads them: read-only, from the first to the last, every link checked."""
    reader = look(path, NAMESPACE).reader
    found = tail(reader, NAMESPACE, 0, follow=False)
    events = [event async for envelope in found for event in envelope]
    await reader.close()
    return events
