"""`omnirelay pipeline lineage`: the journal as OpenLineage runs, for whoever collects them."""

import sys
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from omnirelay.cli.ending import JsonFlag, print_json
from omnirelay.cli.pipeline_places import (
    ArchiveFlag,
    FromFlag,
    MasterFlag,
    ShardsFlag,
    TablesFlag,
    spark_on,
)
from omnirelay.cli.saying import counted

POSITIONS = Path(".omnirelay")
CONSOLE = "console"


def lineage(
    *,
    to: Annotated[
        str, typer.Option(metavar="PLACE", help="file:PATH, http(s)://host[/path] or console.")
    ],
    from_: FromFlag = None,
    tables: TablesFlag = None,
    archive: ArchiveFlag = None,
    shards: ShardsFlag = None,
    node_token: Annotated[
        str | None,
        typer.Option(envvar="OMNIRELAY_TOKEN", help="Bearer token for the nodes of --from."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Of the jobs; else omnirelay/SHARD.", show_default=False)
    ] = None,
    position: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Remembers what was sent. [default: beside the file, or below .omnirelay; none "
            "for console]",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="OMNIRELAY_LINEAGE_TOKEN", help="Bearer token of the collector."),
    ] = None,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Send one run per attempt, from the journal alone; a second time only what is new."""
    from omnirelay.pipeline.lineage import Position, emit
    from omnirelay.pipeline.lineage_outlets import outlet_of
    from omnirelay.pipeline.replay_events import Place

    place = Place(journal=from_, tables=tables, archive=archive, shards=shards, token=node_token)
    outlet = outlet_of(to, sys.stdout, token=token)
    kept = position or _beside(to, from_ or tables or archive or "")
    try:
        with spark_on(master) as session:
            emitted = emit(place.events(session), outlet, Position(kept, to), namespace=namespace)
    finally:
        outlet.close()
    if to == CONSOLE:
        return
    if json:
        print_json(emitted)
    else:
        shards = counted(len(emitted.positions), "shard")
        print(f"{counted(emitted.events, 'event')} of {shards} sent to {to}")


def _beside(to: str, place: str) -> Path | None:
    if to == CONSOLE:
        return None
    if to.startswith("file:"):
        path = Path(to.removeprefix("file:"))
        return path.with_name(f"{path.name}.position")
    name = sha256(f"{place}\n{to}".encode()).hexdigest()[:16]
    return POSITIONS / f"lineage-{name}.json"
