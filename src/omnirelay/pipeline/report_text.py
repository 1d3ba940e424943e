"""Text of a page. Whatever a user named may be hostile: it is escaped here, and nowhere else."""

from datetime import UTC, datetime
from html import escape
from unicodedata import category

SHOWN_CHARS = 64
NONE = "\N{EN DASH}"
_UNSEEN = "\N{REPLACEMENT CHARACTER}"
# They would turn round what stands beside a name, or hide how it ends.
_TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))


def safe(value: object) -> str:
    """As text of an element or of a quoted attribute. Signs that HTML cannot hold are replaced."""
    return escape("".join(map(_shown, str(value))), quote=True)


def _shown(sign: str) -> str:
    is_plain = sign in "\t\n" or category(sign) not in ("Cc", "Cs")
    return sign if is_plain and sign not in _TURNING else _UNSEEN


def name(value: object) -> str:
    """A user's name in the page's text: whole for whoever points at it, cut for the eye, and
    isolated so that one in another direction does not turn its surroundings round."""
    text = str(value)
    if len(text) <= SHOWN_CHARS:
        return f"<bdi>{safe(text)}</bdi>"
    return f'<bdi title="{safe(text)}">{safe(cut(text, SHOWN_CHARS))}</bdi>'


def cut(text: str, chars: int) -> str:
    """Its beginning and its end: where names differ."""
    half = chars // 2
    return text if len(text) <= chars else f"{text[:half]}…{text[-half:]}"


def count(value: float | None) -> str:
    """1,234 and 12.3 and 4.6 M."""
    if value is None:
        return NONE
    if abs(value) >= 10_000_000:
        return f"{value / 1_000_000:,.1f} M"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"


def duration(ms: float | None) -> str:
    """Milliseconds as somebody would say them."""
    if ms is None:
        return NONE
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def moment(ms: int | None) -> str:
    if ms is None:
        return NONE
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def brief_moment(ms: int, *, span_ms: int) -> str:
    """As short as an axis wants it."""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    if span_ms > 2 * 86_400_000:
        return time.strftime("%d %b %H:%M")
    return time.strftime("%H:%M" if span_ms > 600_000 else "%H:%M:%S")


def table(headings: list[str], rows: list[list[str]], *, numbers_from: int = 1) -> str:
    """Cells are HTML already. Columns from `numbers_from` on are figures."""
    head = "".join(f'<th scope="col">{safe(one)}</th>' for one in headings)
    body = "".join(f"<tr>{_cells(row, numbers_from)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: list[str], numbers_from: int) -> str:
    return "".join(
        f'<td class="figure">{cell}</td>' if at >= numbers_from else f"<td>{cell}</td>"
        for at, cell in enumerate(row)
    )
