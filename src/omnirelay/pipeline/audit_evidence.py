"""Where an audit gets what it judges: journals, archives, or the pipeline's tables."""

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.address import absolute, is_node, open_journal
from omnirelay.pipeline.audit import Evidence
from omnirelay.pipeline.datasets import LEASE_EVENTS, QUARANTINED
from omnirelay.pipeline.replay_events import Place
from omnirelay.stores.highwater import peek
from omnirelay.stores.sqlite import mark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnirelay.pipeline.delta import DeltaTables


def evidence_of_tables(tables: "DeltaTables") -> Evidence:
    """Raises Unavailable if there is no table of events."""
    events = tables.read(LEASE_EVENTS.name)
    if events is None:
        raise Unavailable(
            f"{tables.root} has no table {LEASE_EVENTS.name}: `omnirelay pipeline run` makes it"
        )
    return Evidence(
        events=events,
        quarantined=tables.read(QUARANTINED.name),
        acknowledged=tables.positions(LEASE_EVENTS.name),
    )


def evidence_of_places(session: "SparkSession", places: Sequence[str]) -> Evidence:
    """Addresses of journals and folders of archives. Raises Unavailable if there is nothing."""
    folders = [place for place in places if _is_folder(place)]
    urls = [place for place in places if not _is_folder(place)]
    # The mark first: it never runs ahead of its journal, so what is read later must reach it.
    acknowledged = dict(mark for url in urls for mark in _marks(url))
    frames = [Place(archive=folder).events(session) for folder in folders]
    damaged: DataFrame | None = None
    if urls:
        reader = session.read.format("omnirelay").option("url", ",".join(urls))
        frames.append(reader.load())
        damaged = session.read.format("omnirelay").option("view", "quarantine").load(",".join(urls))
    if not frames:
        raise InvalidOption("name a journal or an archive to read")
    return Evidence(reduce(lambda one, two: one.unionByName(two), frames), damaged, acknowledged)


def _is_folder(place: str) -> bool:
    return "://" not in place and Path(place).is_dir()


def _marks(url: str) -> Iterator[tuple[str, int]]:
    if is_node(url):
        return
    journal = open_journal(url)
    try:
        for shard in journal.shards():
            mark = peek(mark_path(absolute(url), shard))
            if mark is not None:
                yield shard, mark.last
    finally:
        journal.close()
