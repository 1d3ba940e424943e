"""One shard of a synthetic mesh onto the disk, in the form its target asks for."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import apsw
import msgspec

from omnirelay.journal.events import encode_event, events_of
from omnirelay.journal.format import Envelope
from omnirelay.pipeline.planting import plant
from omnirelay.pipeline.planting_bed import Planted
from omnirelay.pipeline.synth_chain import Kept, sealed
from omnirelay.pipeline.synth_traffic import Share, Traffic
from omnirelay.stores.highwater import HighWater
from omnirelay.stores.sqlite import mark_path
from omnirelay.stores.sqlite_file import connect, migrate

_INSERT = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))"
_ENVELOPES_A_COMMIT = 500


class Made(msgspec.Struct, frozen=True, kw_only=True):
    shard: str
    events: int = 0
    envelopes: int = 0
    last: int = 0
    epoch: int = 0
    checksum: str = ""
    planted: Planted | None = None


class Task(msgspec.Struct, frozen=True):
    """What one worker does: a shard, into a part of the target, with a flaw or without."""

    share: Share
    form: str
    path: str
    plant: str | None = None


def history(task: Task) -> tuple[Iterable[Kept], Planted | None]:
    share = task.share
    if task.plant is None:
        return sealed(share.shard, Traffic(share).run()), None
    return plant(task.plant, share)


def write_part(task: Task) -> Made:
    with _undisturbed():
        kept, planted = history(task)
        made = _WRITERS[task.form](task, kept)
    return msgspec.structs.replace(made, planted=planted)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nothing here forms cycles, and looking for them is a third of the work."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Tally:
    def __init__(self, shard: str) -> None:
        self.made = Made(shard=shard)

    def count(self, kept: Iterable[Kept]) -> Iterator[Kept]:
        events = envelopes = 0
        envelope: Envelope | None = None
        for one in kept:
            envelope = one.envelope
            events += len(envelope.records)
            envelopes += 1
            yield one
        if envelope is not None:
            self.made = Made(
                shard=self.made.shard,
                events=events,
                envelopes=envelopes,
                last=envelope.last,
                epoch=envelope.epoch,
                checksum=envelope.checksum,
            )


# -- a SQLite journal -------------------------------------------------------------------------


def _write_sqlite(task: Task, kept: Iterable[Kept]) -> Made:
    tally = _Tally(task.share.shard)
    with closing(open_journal(task.path)) as db:
        rows = (_row(one) for one in tally.count(kept))
        while some := list(islice(rows, _ENVELOPES_A_COMMIT)):
            with db:
                db.executemany(_INSERT, some)
    return tally.made


def _row(one: Kept) -> tuple[str, int, int, int, int, bytes]:
    envelope = one.envelope
    head = (envelope.shard, envelope.first, envelope.last, envelope.epoch, envelope.time)
    return (*head, one.body)


def open_journal(path: str) -> apsw.Connection:
    db = connect(path)
    migrate(db)
    db.execute("PRAGMA synchronous=OFF")  # what is lost with the power is made again
    return db


def take_over(path: str, part: str) -> None:
    """The shards of another file too."""
    with closing(open_journal(path)) as db:
        db.execute("ATTACH ? AS part", (part,))
        with db:
            db.execute("INSERT INTO journal SELECT * FROM part.journal")
        db.execute("DETACH part")


def write_mark(path: str, made: Made) -> None:
    mark = HighWater(mark_path(path, made.shard))
    mark.open()
    cut = made.planted.acknowledged if made.planted else None
    mark.write(*(cut or (made.last, made.epoch, made.checksum)))
    mark.close()


# -- segments of an archive -------------------------------------------------------------------


def _write_segments(task: Task, kept: Iterable[Kept]) -> Made:
    from omnirelay.pipeline.archive import SEGMENT_EVENTS

    tally = _Tally(task.share.shard)
    held: list[Envelope] = []
    rows = 0
    for one in tally.count(kept):
        held.append(one.envelope)
        rows += len(one.envelope.records)
        if rows >= SEGMENT_EVENTS:
            _write_segment(task, held)
            held, rows = [], 0
    if held:
        _write_segment(task, held)
    return tally.made


def _write_segment(task: Task, envelopes: list[Envelope]) -> None:
    from omnirelay.pipeline.decode import Part, batch_of
    from omnirelay.pipeline.segment import Manifest
    from omnirelay.pipeline.segment_writer import SegmentWriter
    from omnirelay.pipeline.shelf import open_shelf

    first, last = envelopes[0], envelopes[-1]
    shard = task.share.shard
    writer = SegmentWriter(open_shelf(task.path), shard, first.first)
    writer.write(batch_of(envelopes, Part()))
    writer.finish(
        Manifest(
            shard=shard,
            first=first.first,
            last=last.last,
            time=first.time,
            prev=first.prev,
            link=last.checksum,
        )
    )


# -- events, one a line -----------------------------------------------------------------------


def _write_lines(task: Task, kept: Iterable[Kept]) -> Made:
    tally = _Tally(task.share.shard)
    with Path(task.path).open("wb") as file:
        for one in tally.count(kept):
            file.writelines(encode_event(event) + b"\n" for event in events_of(one.envelope))
    return tally.made


_WRITERS = {"sqlite": _write_sqlite, "archive": _write_segments, "lines": _write_lines}
