"""`omnirelay demo`: a node and its users as processes. A worker is killed, the node is killed, a
stopped worker comes back too late, and the journal alone has to prove that nothing is lost."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_cluster import demo_mesh
from omnirelay.cli.demo_crew import Crew
from omnirelay.cli.demo_parts import ROLES
from omnirelay.cli.demo_pipeline import PLACE, Painted, has_spark, paint
from omnirelay.cli.demo_play import play
from omnirelay.cli.demo_proof import Proof, prove
from omnirelay.cli.demo_screen import Screen, Took, open_screen
from omnirelay.cli.ending import EXIT_FAILED, CommandFailed, JsonFlag, print_json
from omnirelay.journal.events import Event
from omnirelay.journal.follower import tail
from omnirelay.model.errors import InvalidArgument
from omnirelay.stores.sqlite_look import look

ITEMS_MIN: Final = 12
"""Fewer would leave nothing to watch between one act and the next."""
NAMESPACE: Final = "resourcelease"
FILE: Final = f"{NAMESPACE}.db"


def demo(
    *,
    items: Annotated[
        int, typer.Option(min=ITEMS_MIN, help="How many items to work on, at least.")
    ] = 60,
    seconds_limit: Annotated[
        float,
        typer.Option(
            min=1,
            help="How long it should take; what happens before Spark is given up then, and what "
            "takes longer in all is said.",
        ),
    ] = 60.0,
    data: Annotated[
        Path | None,
        typer.Option(help="Keep journal and logs in this folder; else in one that is removed."),
    ] = None,
    spark: Annotated[
        bool, typer.Option(help="End with tables, an audit and a page, made on Spark.")
    ] = True,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Three nodes over one journal lose their owner.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Run a node with producers and workers; kill a worker, kill the node, let a zombie try to
    finish stale work; prove from the journal that nothing is lost and nothing is done twice; end
    with a page of pictures that Spark makes of it."""
    if cluster:
        demo_mesh(seconds_limit, data, json=json)
        return
    began = time.monotonic()
    painted: Painted | None = None
    with _folder(data) as folder:
        with open_screen(json=json) as screen:
            board = Board()
            proofs = asyncio.run(_play_within(seconds_limit, folder, items, screen, board))
            if spark and has_spark():
                place = PLACE if data is None else folder
                painted, proof = paint(folder / FILE, place, screen, board)
                proofs.append(proof)
        is_proved = all(proof.holds for proof in proofs)
        took = Took(round(time.monotonic() - began, 1), seconds_limit)
        if json:
            spent = {"seconds": took.seconds, "late": took.is_late}
            print_json({"ok": is_proved, **spent, "proofs": proofs, "spark": painted})
        else:
            screen.verdict(proofs, took)
            page = None if painted is None else painted.report
            screen.farewell(None if data is None else folder / FILE, page)
    if not is_proved:
        raise typer.Exit(EXIT_FAILED)


def part(role: str, urls: str, *, name: str = "", via: str = "") -> None:
    """One of the demo's processes."""
    addresses = msgspec.json.decode(urls, type=dict[str, str])
    asyncio.run(ROLES[role](name, via, addresses))


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
        raise InvalidArgument(f"{data / FILE} is there already: choose another folder")
    yield data.absolute()


async def _play_within(
    seconds: float, folder: Path, items: int, screen: Screen, board: Board
) -> list[Proof]:
    try:
        async with asyncio.timeout(seconds):
            return await _play(folder, items, screen, board)
    except TimeoutError:
        raise CommandFailed(f"the demo was not done after {seconds:g} seconds") from None


async def _play(folder: Path, items: int, screen: Screen, board: Board) -> list[Proof]:
    async with Crew(folder) as crew:
        witnessed = await play(crew, items, board, screen)
    screen.stage("4: what the journal proves, with nobody running any more", board)
    return prove(await _events(str(folder / FILE)), witnessed)


async def _events(path: str) -> list[Event]:
    """As an outsider reads them: read-only, from the first to the last, every link checked."""
    reader = look(path, NAMESPACE).reader
    found = tail(reader, NAMESPACE, 0, follow=False)
    events = [event async for envelope in found for event in envelope]
    await reader.close()
    return events
