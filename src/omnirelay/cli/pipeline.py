"""`omnirelay pipeline`: journals into tables, and what is asked of them."""

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnirelay.cli.ending import EXIT_FAILED, BadAddress, CommandFailed, JsonFlag, print_json
from omnirelay.cli.pipeline_archive import archive
from omnirelay.cli.pipeline_audit import audit
from omnirelay.cli.pipeline_lineage import lineage
from omnirelay.cli.pipeline_places import ArchiveFlag, MasterFlag, ShardsFlag, TokenFlag
from omnirelay.cli.pipeline_replay import replay
from omnirelay.cli.pipeline_report import report
from omnirelay.cli.pipeline_synth import synth
from omnirelay.cli.pipeline_target import size_ahead, target
from omnirelay.cli.progress import Progress
from omnirelay.cli.saying import counted, plain, print_table
from omnirelay.model.errors import InvalidOption

if TYPE_CHECKING:
    from omnirelay.pipeline.run import RunReport, TableReport
    from omnirelay.pipeline.session import Size
    from omnirelay.pipeline.stream import Stream

app = typer.Typer(help="Tables, proofs and pictures of journals, on Spark.", no_args_is_help=True)

FromFlags = Annotated[
    list[str],
    typer.Option(
        "--from", metavar="URL", help="A journal: sqlite:///path, another store's, or a node."
    ),
]
ToFlag = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="FOLDER",
        help="Where the tables are; or delta:catalog.schema, iceberg:catalog.schema of your Spark.",
    ),
]
LeaseUrlFlag = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A node that keeps the pipeline's own lease; else a file in the target does.",
    ),
]
WaitFlag = Annotated[
    float, typer.Option(min=0, help="Seconds to wait for another pipeline on the same target.")
]


@app.command("run")
def run(
    urls: FromFlags,
    *,
    to: ToFlag,
    archive: ArchiveFlag = None,
    shards: ShardsFlag = None,
    token: TokenFlag = None,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Keep this reader's position, so that pruning waits."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take in at most so many events.")
    ] = None,
    lease_url: LeaseUrlFlag = None,
    wait: WaitFlag = 0.0,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Bring the tables up to where the journals are. What is there already is not read again."""
    from omnirelay.pipeline.datasets import all_datasets
    from omnirelay.pipeline.run import run_pipeline
    from omnirelay.pipeline.run_record import Recorded

    options = _source(urls, archive=archive, shards=shards, token=token)
    datasets = all_datasets()

    def size(root: str) -> "Size":
        return size_ahead(options, root, limit)

    with target(to, master, lease_url, token, wait=wait, size=size) as (tables, hold):
        with Recorded(tables) as recorded, Progress("tables", total=len(datasets) + 1) as bar:
            done: list[TableReport] = []

            def note(one: "TableReport") -> None:
                done.append(one)
                bar.at(len(done))

            made = recorded.by(
                run_pipeline(
                    tables.session,
                    options,
                    tables,
                    hold=hold,
                    datasets=datasets,
                    consumer=consumer,
                    limit=limit,
                    note=note,
                )
            )
        _say(made, json=json)
    if made.failed:
        raise typer.Exit(EXIT_FAILED)


@app.command("stream")
def stream(
    urls: FromFlags,
    *,
    to: ToFlag,
    once: Annotated[
        bool, typer.Option("--once", help="Up to where the journals are now, then end.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0, help="Seconds from one micro-batch to the next.")
    ] = 1.0,
    rows_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Events in one micro-batch at most.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Spark's own; else in the folder --to.")
    ] = None,
    archive: ArchiveFlag = None,
    shards: ShardsFlag = None,
    token: TokenFlag = None,
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="The reader whose lag the nodes show.")
    ] = "pipeline",
    lease_url: LeaseUrlFlag = None,
    wait: WaitFlag = 0.0,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Follow the journals until stopped; the same tables, by the same steps, as `run` makes."""
    is_polled = master.startswith("sc://")
    _check_checkpoint(checkpoint, to, is_polled=is_polled)
    options = _source(urls, archive=archive, shards=shards, token=token)
    if rows_per_batch is not None:
        options["rows_per_batch"] = str(rows_per_batch)

    def size(root: str) -> "Size":
        # One that goes on lives long enough for Java to become fast, and meets any number.
        return size_ahead(options, root, None) if once else "many"

    with target(to, master, lease_url, token, wait=wait, size=size) as (tables, hold):
        from omnirelay.pipeline.run import open_pipeline
        from omnirelay.pipeline.stream import CHECKPOINT, StreamOptions
        from omnirelay.pipeline.stream_polled import open_stream

        following = open_stream(
            open_pipeline(tables.session, options, tables, hold=hold, consumer=consumer),
            StreamOptions(
                checkpoint or f"{tables.root}/{CHECKPOINT}",
                is_once=once,
                interval_s=interval,
                rows_max=rows_per_batch,
            ),
            on_report=lambda made: _say(made, json=json),
            say=lambda line: print(f"omnirelay: {line}", file=sys.stderr),
            is_polled=is_polled,
        )
        _follow(following, once=once)


def _check_checkpoint(checkpoint: str | None, to: str, *, is_polled: bool) -> None:
    from omnirelay.pipeline.catalog import catalog_of

    if is_polled and checkpoint is not None:
        why = "over Spark Connect there is no checkpoint: the tables know where to go on"
        raise CommandFailed(why)
    if checkpoint is None and not is_polled and catalog_of(to) is not None:
        raise BadAddress(f"{to} is no folder that Spark's checkpoint could be in: --checkpoint")


def _follow(following: "Stream", *, once: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: following.stop())
    following.run()
    if once and following.last is not None and following.last.failed:
        raise typer.Exit(EXIT_FAILED)


@app.command("maintain")
def maintain(
    *,
    to: ToFlag,
    orphans_hours: Annotated[
        int, typer.Option(min=0, help="How long a file that nobody needs any more stays.")
    ] = 24 * 7,
    keep_days: Annotated[
        int | None, typer.Option(min=1, help="Let go of events and closed rows older than this.")
    ] = None,
    token: TokenFlag = None,
    lease_url: LeaseUrlFlag = None,
    wait: WaitFlag = 0.0,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Few files instead of many, and none that nobody needs. A run that is under way goes first."""
    with target(to, master, lease_url, token, wait=wait) as (tables, hold):
        from omnirelay.pipeline.delta import DeltaTables
        from omnirelay.pipeline.maintain import Upkeep, maintain

        if not isinstance(tables, DeltaTables):
            raise CommandFailed(f"{to}: the tables of a catalog are kept by its own means")
        kept = maintain(tables, hold, Upkeep(orphans_hours=orphans_hours, keep_days=keep_days))
    if json:
        print_json({"tables": [_camel(vars(one)) for one in kept]})
        return
    columns = ("table", "files before", "after", "retired", "swept")
    print_table(
        columns,
        [(one.table, one.files_before, one.files_after, one.retired, one.swept) for one in kept],
    )


def _source(urls: list[str], **others: str | None) -> dict[str, str]:
    from omnirelay.pipeline.source_options import source_options

    try:
        return source_options(urls, **others)
    except InvalidOption as error:
        raise BadAddress(error.message) from error


def _say(made: "RunReport", *, json: bool) -> None:
    if json:
        tables = [_camel(vars(table)) for table in made.tables]
        print_json(
            {
                "ok": not made.failed,
                "events": made.events,
                "quarantined": made.quarantined,
                "seconds": round(made.seconds, 3),
                "tables": tables,
            }
        )
        return
    if all(table.outcome == "unchanged" for table in made.tables):
        print("nothing new")
        return
    print_table(
        ("table", "", "rows", "seconds", ""),
        [
            (table.table, table.outcome, table.rows, f"{table.seconds:.1f}", _remark(table))
            for table in made.tables
        ],
    )
    aside = f"; {counted(made.quarantined, 'envelope')} set aside" if made.quarantined else ""
    print(f"{counted(made.events, 'new event')} in {made.seconds:.1f} s{aside}")


def _remark(table: "TableReport") -> str | None:
    if table.why is not None:
        return plain(table.why)
    broken = (f"{name!r} does not hold for {count}" for name, count in table.warned.items())
    return ", ".join(broken) or None


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    """Any: JSON."""
    named = {}
    for name, value in values.items():
        first, *rest = name.split("_")
        named[first + "".join(part.capitalize() for part in rest)] = value
    return named


app.command("archive")(archive)
app.command("audit")(audit)
app.command("replay")(replay)
app.command("report")(report)
app.command("lineage")(lineage)
app.command("synth")(synth)
