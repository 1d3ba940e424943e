"""Tables to a page."""

from pathlib import Path

import msgspec

from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.pipeline.report_gather import ReportTables, gather
from omnirelay.pipeline.report_page import page


class Made(msgspec.Struct, frozen=True, rename="camel"):
    file: str
    bytes: int
    pictures: dict[str, int]
    """Rows behind each picture; 0: its table was not there, or empty."""
    resource: str | None


def write_report(
    tables: ReportTables,
    out: Path,
    *,
    place: str,
    clock: Clock,
    resource: tuple[str, str] | None = None,
) -> Made:
    """Whole or not at all: a reader never sees half a page."""
    if not out.absolute().parent.is_dir():
        raise InvalidArgument(f"{out.absolute().parent} is no folder: make it, or name another")
    if not tables.names():
        raise Unavailable(f"{place} holds no tables yet: `omnirelay pipeline run` makes them")
    pictures = gather(tables, resource)
    body = page(pictures, made_ms=clock.wall_ms(), place=place).encode()
    made = out.with_name(f".{out.name}.part")
    try:
        made.write_bytes(body)
        made.replace(out)
    except OSError as error:
        raise InvalidArgument(f"{out}: {error.strerror}") from error
    return Made(
        file=str(out),
        bytes=len(body),
        pictures={name: len(rows) for name, rows in sorted(pictures.rows.items())},
        resource=":".join(pictures.resource) if pictures.resource else None,
    )
