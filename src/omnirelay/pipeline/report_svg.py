"""Pictures as SVG, each a pure function. They hold no text but their titles: labels are HTML beside
them, so that they keep their size while a picture is stretched to any width."""

from collections.abc import Sequence
from dataclasses import dataclass

from omnirelay.pipeline.report_text import cut, safe

WIDTH, HEIGHT = 300.0, 100.0
LABEL_CHARS = 160
Point = tuple[float, float | None]
"""Where in time, and how much; None where nothing is known."""


@dataclass(frozen=True)
class Line:
    style: str
    """Name of a class of the style sheet."""
    points: Sequence[Point]


def lines(drawn: Sequence[Line], *, top: float, label: str) -> str:
    """`x` from the first point of all to the last, `y` from 0 to `top`."""
    times = [x for line in drawn for x, _ in line.points]
    low, high = (min(times), max(times)) if times else (0.0, 0.0)
    paths = "".join(_path(line, low=low, high=high, top=top) for line in drawn)
    grid = "".join(_rule(HEIGHT * share) for share in (0.0, 0.5, 1.0))
    return _picture("plot", f"{grid}{paths}", label=label, width=WIDTH, height=HEIGHT)


def _rule(y: float) -> str:
    return f'<path class="rule" d="M0 {_n(y)}H{_n(WIDTH)}"/>'


def _path(line: Line, *, low: float, high: float, top: float) -> str:
    """One stroke a stretch without gaps; a lone point is a dot."""
    across, up = WIDTH / (high - low or 1), HEIGHT / (top or 1)
    strokes: list[list[str]] = [[]]
    for x, y in line.points:
        if y is None:
            strokes.append([])
            continue
        at = WIDTH / 2 if high == low else (x - low) * across
        strokes[-1].append(f"{_n(at)} {_n(HEIGHT - min(y, top) * up)}")
    parts = "".join(_stroke(points) for points in strokes if points)
    return f'<path class="line {line.style}" d="{parts}"/>' if parts else ""


def _stroke(points: list[str]) -> str:
    return f"M{points[0]}h.01" if len(points) == 1 else f"M{points[0]}L{' '.join(points[1:])}"


def cells(shares: Sequence[tuple[float, str]], *, label: str) -> str:
    """A row of a heat map: shares from 0 to 1, each with what it says."""
    drawn = "".join(
        f'<rect class="heat" x="{at}" width="1" height="1" fill-opacity="{_n(_seen(share))}">'
        f"<title>{safe(said)}</title></rect>"
        for at, (share, said) in enumerate(shares)
    )
    return _picture("strip", drawn, label=label, width=max(1, len(shares)), height=1)


def _seen(share: float) -> float:
    """What is not nothing can be seen."""
    return 0.04 if share <= 0 else 0.15 + 0.85 * min(1.0, share)


def bar(parts: Sequence[tuple[str, float]], *, label: str) -> str:
    """Shares of the whole width one after another, each in a style."""
    drawn, at = [], 0.0
    for style, share in parts:
        width = max(0.0, min(share, 1.0 - at)) * WIDTH
        drawn.append(f'<rect class="{style}" x="{_n(at * WIDTH)}" width="{_n(width)}" height="1"/>')
        at += max(0.0, share)
    return _picture("strip bar", "".join(drawn), label=label, width=WIDTH, height=1)


@dataclass(frozen=True)
class Span:
    style: str
    start: float
    """From 0 to 1 of the whole time."""
    end: float
    said: str


def spans(drawn: Sequence[Span], *, label: str) -> str:
    """A lane of a timeline. The shortest span can still be seen."""
    least = 0.004
    rects = []
    for one in drawn:
        start = min(one.start, 1 - least)
        width = max(least, one.end - start)
        rects.append(
            f'<rect class="{one.style}" x="{_n(start * WIDTH)}" width="{_n(width * WIDTH)}" '
            f'height="1"><title>{safe(one.said)}</title></rect>'
        )
    return _picture("strip", "".join(rects), label=label, width=WIDTH, height=1)


def _picture(style: str, inside: str, *, label: str, width: float, height: float) -> str:
    said = safe(cut(label, LABEL_CHARS))
    return (
        f'<svg class="{style}" viewBox="0 0 {_n(width)} {_n(height)}" preserveAspectRatio="none" '
        f'role="img" aria-label="{said}"><title>{said}</title>{inside}</svg>'
    )


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
