"""`omnirelay pipeline archive`: closed stretches of journals as Parquet segments, for years."""

from typing import TYPE_CHECKING, Annotated

import typer

from omnirelay.cli.ending import BadAddress, JsonFlag, print_json
from omnirelay.cli.progress import Progress
from omnirelay.cli.saying import counted, print_table
from omnirelay.model.errors import InvalidOption

if TYPE_CHECKING:
    from omnirelay.pipeline.segment import Segment


def archive(
    *,
    from_: Annotated[
        str,
        typer.Option("--from", metavar="URL", help="A journal: sqlite:///path or another store's."),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="The archive: a folder that all readers of it see, or a bucket: "
            "s3://bucket/prefix, gs://…, az://….",
        ),
    ],
    shards: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these, parted by commas.")
    ] = None,
    segment_events: Annotated[
        int, typer.Option(min=1, help="Events that fill a segment; fewer wait for more.")
    ] = 100_000,
    tail: Annotated[
        bool, typer.Option("--tail", help="What does not fill a segment too, as one of its own.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Archive what is not archived yet. From then on pruning waits for the archive."""
    from omnirelay.pipeline.archive import archive_journal

    named = _checked(from_, to, shards)
    with Progress("archive", total=1) as bar:
        written = archive_journal(
            from_,
            to,
            shards=named,
            segment_events=segment_events,
            has_tail=tail,
            note=lambda _, at, end: bar.at_share(at / end if end else 1.0),
        )
    _say(written, to, json=json)


def _checked(url: str, to: str, shards: str | None) -> tuple[str, ...] | None:
    """What is wrong with the words themselves is said before anything is opened."""
    from omnirelay.pipeline.address import is_node
    from omnirelay.pipeline.source_options import parse

    given = {"url": url, "archive": to}
    if shards is not None:
        given["shards"] = shards
    try:
        options = parse(given)
        if len(options.urls) > 1 or is_node(url):
            raise InvalidOption(f"{url}: name one journal, where it is stored")
    except InvalidOption as error:
        raise BadAddress(error.message) from error
    return options.shards


def _say(written: "list[Segment]", to: str, *, json: bool) -> None:
    found = [one.manifest for one in written]
    events = sum(one.events for one in found)
    if json:
        segments = [
            {
                "shard": one.shard,
                "first": one.first,
                "last": one.last,
                "events": one.events,
                "bytes": one.bytes,
                "damaged": len(one.damaged),
                "file": segment.path,
            }
            for one, segment in zip(found, written, strict=True)
        ]
        print_json({"events": events, "segments": segments})
    elif not written:
        print("nothing to archive: no segment is full; --tail writes what there is")
    else:
        columns = ("shard", "first", "last", "events", "bytes", "damaged")
        print_table(
            columns,
            [
                (one.shard, one.first, one.last, one.events, one.bytes, len(one.damaged))
                for one in found
            ],
        )
        print(f"{counted(events, 'event')} in {counted(len(written), 'new segment')} of {to}")
