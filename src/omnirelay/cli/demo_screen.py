"""What the demo shows: a live table on a terminal, plain lines elsewhere, nothing beside JSON."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_proof import Proof
from omnirelay.node.keys import DEFAULT_URL


class Took(msgspec.Struct, frozen=True):
    """How long the whole demo took, and how long it should at most. A slow machine is no failure:
    it is said, and everything else is as it would be."""

    seconds: float
    limit_s: float

    @property
    def is_late(self) -> bool:
        return self.seconds > self.limit_s


class Screen(Protocol):
    def stage(self, title: str, board: Board) -> None: ...

    def note(self, text: str) -> None:
        """Something that happened and is worth a line."""

    def moved(self) -> None:
        """The board has changed."""

    def verdict(self, proofs: Sequence[Proof], took: Took) -> None: ...

    def farewell(self, kept: Path | None, page: str | None) -> None:
        """Where to look further."""


@contextmanager
def open_screen(*, json: bool) -> Iterator[Screen]:
    if json:
        yield SilentScreen()
    elif sys.stdout.isatty():
        with LiveScreen() as screen:
            yield screen
    else:
        yield PlainScreen()


class SilentScreen:
    def stage(self, title: str, board: Board) -> None:
        return None

    def note(self, text: str) -> None:
        return None

    def moved(self) -> None:
        return None

    def verdict(self, proofs: Sequence[Proof], took: Took) -> None:
        return None

    def farewell(self, kept: Path | None, page: str | None) -> None:
        return None


class PlainScreen(SilentScreen):
    """A line a note, and the board whenever ten more items are done."""

    def __init__(self) -> None:
        self._board = Board()
        self._shown = 0

    def stage(self, title: str, board: Board) -> None:
        self._board = board
        print(f"== stage {title}", flush=True)

    def note(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def moved(self) -> None:
        if self._board.completed >= self._shown + 10:
            self._shown = self._board.completed
            self.note(self._board.in_words())

    def verdict(self, proofs: Sequence[Proof], took: Took) -> None:
        for proof in proofs:
            print(f"   {'holds ' if proof.holds else 'BROKEN'}  {proof.claim}: {proof.detail}")
        print(_summary(proofs, took))

    def farewell(self, kept: Path | None, page: str | None) -> None:
        print("\n".join(_further(kept, page)))


class LiveScreen:
    def __init__(self) -> None:
        self._console = Console()
        self._title = ""
        self._board = Board()
        self._notes: deque[str] = deque(maxlen=8)
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=10)

    def __enter__(self) -> "LiveScreen":
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def stage(self, title: str, board: Board) -> None:
        self._title, self._board = title, board

    def note(self, text: str) -> None:
        self._notes.append(text)

    def moved(self) -> None:
        return None  # the table is drawn ten times a second anyway

    def _render(self) -> RenderableType:
        """On a thread of the display: it draws copies, since the demo goes on meanwhile."""
        board = self._board
        counts = Table.grid(padding=(0, 3))
        counts.add_row(
            f"pending {board.pending}",
            f"active {board.active}",
            f"[green]completed {board.completed}[/]",
            f"expired {board.counts['Expired']}",
            f"epoch {board.epoch}",
            f"sequence {board.sequence}",
        )
        parts = Table("process", "wire", "pid", "", box=None, header_style="bold")
        for name, part in list(board.parts.items()):
            parts.add_row(name, part.via, str(part.pid), _STATES.get(part.state, part.state))
        holders = Table("holder", "item", "attempt", "fence", expand=False)
        for held in sorted(board.holdings.values(), key=lambda held: held.peer):
            holders.add_row(held.peer, str(held.item), str(held.attempt), str(held.fence))
        notes = [Text(f"  {note}", style="dim") for note in list(self._notes)]
        side_by_side = Table.grid(padding=(0, 4))
        side_by_side.add_row(parts, holders)
        return Group(Text(f"stage {self._title}", style="bold"), counts, side_by_side, *notes)

    def verdict(self, proofs: Sequence[Proof], took: Took) -> None:
        table = Table("", "proved from the journal", "how")
        for proof in proofs:
            sign = "[green]holds[/]" if proof.holds else "[red]BROKEN[/]"
            table.add_row(sign, proof.claim, proof.detail)
        self._console.print(table)
        self._console.print(_summary(proofs, took), highlight=False)

    def farewell(self, kept: Path | None, page: str | None) -> None:
        self._console.print("\n".join(_further(kept, page)), highlight=False, markup=False)


_STATES = {"killed": "[red]killed[/]", "stopped": "[yellow]stopped[/]", "done": "[dim]done[/]"}


def _further(kept: Path | None, page: str | None) -> list[str]:
    lines = [] if page is None else [f"pictures of what happened: {page}"]
    lines += [
        "to look further: `omnirelay dev` starts a node to play with and prints what to try;",
        f"its dashboard is {DEFAULT_URL}/, its calls are described at {DEFAULT_URL}/docs",
    ]
    if kept is not None:
        lines.append(f"this journal: `omnirelay journal tail sqlite:///{quote(str(kept))}`")
    return lines


def _summary(proofs: Sequence[Proof], took: Took) -> str:
    kept = sum(proof.holds for proof in proofs)
    late = f", more than the {took.limit_s:g} it should take" if took.is_late else ""
    return f"{kept} of {len(proofs)} proofs hold, {took.seconds:g} seconds{late}"
