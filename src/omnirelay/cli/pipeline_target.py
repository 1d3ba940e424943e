"""Where a pipeline puts its tables: held against others, and a Spark that suits the work."""

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnirelay.cli.ending import CommandFailed
from omnirelay.cli.pipeline_places import spark_on
from omnirelay.model.errors import OmniRelayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnirelay.pipeline.datasets import Tables
    from omnirelay.pipeline.hold import Hold
    from omnirelay.pipeline.session import Size


@contextmanager
def target(
    to: str,
    master: str,
    lease_url: str | None,
    token: str | None,
    *,
    wait: float,
    size: "Callable[[str], Size]" = lambda _: "many",
) -> "Iterator[tuple[Tables, Hold]]":
    """The tables, held. The lease comes first: starting Spark takes longer than being refused."""
    from pathlib import Path

    from omnirelay.pipeline.catalog import catalog_of
    from omnirelay.pipeline.hold import Hold
    from omnirelay.pipeline.opening import open_tables

    # Whoever has the target is named in one line, by us; the queue's own words are not wanted too.
    logging.getLogger("omnirelay").addHandler(logging.NullHandler())
    is_folder = "://" not in to and catalog_of(to) is None
    root = str(Path(to).absolute()) if is_folder else to
    with (
        Hold(root, url=lease_url, token=token, wait_s=wait) as hold,
        _in_one_line(),
        spark_on(master, size=size(root)) as session,
    ):
        # What fails is in the report; Spark's own pages about it are not wanted twice.
        if not master.startswith("sc://"):
            session.sparkContext.setLogLevel("FATAL")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        yield open_tables(session, root), hold


def size_ahead(options: dict[str, str], root: str, limit: int | None) -> "Size":
    """Java can be told only before it starts. What the tables of a catalog have read, only Spark
    can say."""
    from omnirelay.pipeline.bronze_source import work_ahead
    from omnirelay.pipeline.catalog import catalog_of
    from omnirelay.pipeline.datasets import LEASE_EVENTS
    from omnirelay.pipeline.delta_log import positions_at
    from omnirelay.pipeline.session import size_of

    if catalog_of(root) is not None:
        return "many"
    after = positions_at(f"{root}/{LEASE_EVENTS.layer}/{LEASE_EVENTS.name}")
    new, total = work_ahead(options, after, limit)
    return size_of(new=new, total=total)


@contextmanager
def _in_one_line() -> "Iterator[None]":
    from omnirelay.pipeline.run import FAILURES, in_one_line

    try:
        yield
    except FAILURES as error:
        if isinstance(error, OmniRelayError | OSError):
            raise
        raise CommandFailed(in_one_line(error)) from error
