"""Where an audit gets what it judges: journals, archives, or the pipeline's tables."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.address import absolute, is_node, is_store, open_journal
from omnirelay.pipeline.archive_reading import archived_events, look_through
from omnirelay.pipeline.audit import Evidence
from omnirelay.pipeline.datasets import LEASE_EVENTS, QUARANTINED, Tables
from omnirelay.pipeline.shelf import archived_shards, check_archive
from omnirelay.pipeline.source_options import list_of, parse, source_options
from omnirelay.stores.highwater import peek
from omnirelay.stores.sqlite import mark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def evidence_of_tables(tables: Tables) -> Evidence:
    """Raises Unavailable if there is no table of events."""
    # First: a run that commits meanwhile brings events that nobody has acknowledged here.
    positions = tables.positions(LEASE_EVENTS.name)
    events = tables.read(LEASE_EVENTS.name)
    if events is None:
        raise Unavailable(
            f"{tables.root} has no table {LEASE_EVENTS.name}: `omnirelay pipeline run` makes it"
        )
    # Last: what was let go until now is not missed.
    retired = tables.snapshot(LEASE_EVENTS).retired
    return Evidence(
        events=events,
        quarantined=tables.read(QUARANTINED.name),
        acknowledged={shard: at for shard, at in positions.items() if at > retired.get(shard, 0)},
    )


def evidence_of_places(
    session: "SparkSession",
    places: Sequence[str],
    shards: str | None = None,
    *,
    archive: str | None = None,
    token: str | None = None,
) -> Evidence:
    """Addresses of journals, or an archive (its folder may stand among the places), or journals and
    the archive of theirs. `shards` and `token` as `format("omnirelay")` takes them. Raises
    Unavailable if there is nothing."""
    archives = [place for place in places if _is_folder(place)]
    urls = [place for place in places if not _is_folder(place)]
    if archive is not None:
        check_archive(archive)
        archives.append(archive)
    if len(archives) > 1 or not (urls or archives):
        raise InvalidOption("name journals, or one archive, or both")
    archive = archives[0] if archives else None
    if urls:
        options = source_options(urls, archive=archive, shards=shards, token=token)
        return _of_journals(session, options)
    assert archive is not None
    return _of_archive(session, archive, shards)


def _of_journals(session: "SparkSession", options: dict[str, str]) -> Evidence:
    wanted = parse(options)
    # The mark first: it never runs ahead of its journal, so what is read later must reach it.
    marks = dict(mark for url in wanted.urls for mark in _marks(url))
    acknowledged = {
        shard: last
        for shard, last in marks.items()
        if wanted.shards is None or shard in wanted.shards
    }
    reader = session.read.format("omnirelay").options(**options)
    return Evidence(reader.load(), reader.option("view", "quarantine").load(), acknowledged)


def _of_archive(session: "SparkSession", archive: str, shards: str | None) -> Evidence:
    wanted = None if shards is None else list_of("shards", shards)
    found = look_through(archive, wanted)
    known = archived_shards(archive)
    for shard in wanted or ():
        if shard not in known:
            raise InvalidOption(f"shards: {archive} has no {shard!r}; it has: {', '.join(known)}")
    damaged = [
        (one.manifest.shard, one.manifest.first, one.path, why) for one, why in found.damaged
    ]
    ends: dict[str, int] = {}
    for segment in (*found.sound, *(segment for segment, _ in found.damaged)):
        listed = segment.manifest
        ends[listed.shard] = max(listed.last, ends.get(listed.shard, 0))
        damaged += [(listed.shard, a.sequence, segment.path, a.reason) for a in listed.damaged]
    columns = "shard string, sequence bigint, address string, reason string"
    return Evidence(
        events=archived_events(session, archive, found=found),
        quarantined=session.createDataFrame(damaged, columns),
        acknowledged=ends,
    )


def _is_folder(place: str) -> bool:
    return "://" not in place and Path(place).is_dir()


def _marks(url: str) -> Iterator[tuple[str, int]]:
    if is_node(url) or is_store(url):
        return  # what was acknowledged there is noted by its own means
    journal = open_journal(url)
    try:
        for shard in journal.shards():
            mark = peek(mark_path(absolute(url), shard))
            if mark is not None:
                yield shard, mark.last
    finally:
        journal.close()
