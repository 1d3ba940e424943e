"""A picture of the bars, written as SVG by hand: no plotting library for four rectangles."""

from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).parent.parent / "docs" / "benchmarks.svg"
_WIDTH, _LABEL, _ROW, _GAP = 860, 190, 22, 34


class Bar(NamedTuple):
    group: str
    name: str
    figure: float
    is_ours: bool


def draw(bars: list[Bar], path: Path = PICTURE) -> None:
    """Each group has its own scale: what counts is ours beside theirs at the same job."""
    parts: list[str] = []
    y = 10
    for group in dict.fromkeys(bar.group for bar in bars):
        members = sorted((b for b in bars if b.group == group), key=lambda b: -b.figure)
        parts.append(f'<text x="10" y="{y + 16}" class="group">{escape(group)}, items/s</text>')
        y += 26
        most = members[0].figure or 1.0
        for bar in members:
            parts.append(_bar(bar, y, most))
            y += _ROW
        y += _GAP - _ROW
    style = (
        "text{font:13px system-ui,sans-serif;fill:#222}.group{font-weight:600}"
        "svg{background:#fff}.ours{fill:#1a6fb5}.peer{fill:#b9c3cc}"
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" '
        f'viewBox="0 0 {_WIDTH} {y}" role="img" aria-label="items a second by job and system">'
        f'<style>{style}</style><rect width="{_WIDTH}" height="{y}" fill="#fff"/>'
        + "".join(parts)
        + "</svg>\n"
    )


def _bar(bar: Bar, y: int, most: float) -> str:
    width = max(1, round((_WIDTH - _LABEL - 90) * bar.figure / most))
    kind = "ours" if bar.is_ours else "peer"
    return (
        f'<text x="{_LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(bar.name)}</text>'
        f'<rect x="{_LABEL}" y="{y + 3}" width="{width}" height="{_ROW - 6}" class="{kind}"/>'
        f'<text x="{_LABEL + width + 6}" y="{y + 15}">{bar.figure:,.0f}</text>'
    )
