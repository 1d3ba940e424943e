"""How a command says things: tables on a terminal, lines with tabs elsewhere, spans in words."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
BODY_SHOWN = 200


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join("" if cell is None else str(cell) for cell in row))
        return
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    # Names come from callers: what looks like markup in them is their text.
    Console(markup=False, highlight=False).print(table)


def span(ms: float) -> str:
    """Two units at the most: 90 s is `1 min 30 s`."""
    if abs(ms) < 1000:
        return f"{round(ms)} ms"
    left = abs(ms)
    words: list[str] = []
    for unit, name in _UNITS:
        if left >= unit or (words and len(words) < 2):
            whole = int(left // unit)
            left -= whole * unit
            if whole:
                words.append(f"{whole} {name}")
        if len(words) == 2:
            break
    return " ".join(words)


def clock_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def body_in_words(body: bytes) -> str:
    """Text if it is text, a length if not; never what could steer a terminal."""
    if not body:
        return "empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"{len(body)} bytes"
    if not text.isprintable():
        return f"{len(body)} bytes"
    shown = text if len(text) <= BODY_SHOWN else f"{text[:BODY_SHOWN]}…"
    return f"{len(body)} bytes: {shown}"


def plain(text: object) -> str:
    """A caller's text on one line, without what could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
