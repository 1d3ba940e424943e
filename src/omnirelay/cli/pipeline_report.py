"""`omnirelay pipeline report`: the tables as one page to look at."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from omnirelay.cli.ending import JsonFlag, print_json
from omnirelay.cli.pipeline_places import MasterFlag, TablesFlag, default_tables, spark_on


def report(
    *,
    tables: TablesFlag = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Gets the page.")] = Path("report.html"),
    resource: Annotated[
        str | None,
        typer.Option(metavar="TYPE:ID", help="Whose holders to draw; else the hottest one's."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Draw the tables: one page, no network, for any browser and for print."""
    from omnirelay.model.ports import SystemClock
    from omnirelay.pipeline.opening import open_tables
    from omnirelay.pipeline.report import write_report
    from omnirelay.pipeline.report_gather import resource_of

    chosen = resource_of(resource) if resource is not None else None
    folder = tables or default_tables()
    with spark_on(master) as session:
        made = write_report(
            open_tables(session, folder), out, place=folder, clock=SystemClock(), resource=chosen
        )
    if json:
        print_json(made)
    else:
        print(
            f"{made.file}: {made.bytes:,} bytes, {sum(map(bool, made.pictures.values()))} pictures"
        )
    if open_:
        webbrowser.open(out.absolute().as_uri())
