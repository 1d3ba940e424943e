"""What the pipeline's questions share: where to read, and on which Spark."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnirelay.cli.ending import CommandFailed
from omnirelay.model.errors import OmniRelayError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.pipeline.session import Size

FromFlag = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="A journal: sqlite:///path, another store's, or a node.",
        show_default=False,
    ),
]
ShardsFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Only these of the journals, parted by commas. A server lists none.",
        show_default=False,
    ),
]
TokenFlag = Annotated[
    str | None, typer.Option(envvar="OMNIRELAY_TOKEN", help="Bearer token for nodes.")
]
ArchiveFlag = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Segments that were archived: a folder, or s3://bucket/prefix, gs://…, az://….",
        show_default=False,
    ),
]
TablesFlag = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The pipeline's tables; or delta:catalog.schema, iceberg:catalog.schema.",
        show_default=False,
    ),
]
MasterFlag = Annotated[
    str,
    typer.Option(
        envvar="OMNIRELAY_SPARK_MASTER", help="local[N], spark://host:port or sc://host:port."
    ),
]


def default_tables() -> str:
    """Of this folder's node, else of its last demo. Raises Unavailable if there are neither."""
    for folder in (".omnirelay/tables", ".omnirelay/demo/tables"):
        if Path(folder).is_dir():
            return folder
    raise Unavailable(
        "there are no tables here: `omnirelay pipeline run` makes them, or name them by --tables"
    )


@contextmanager
def spark_on(master: str, *, size: "Size" = "many") -> Iterator["SparkSession"]:
    """A session for one command. One that was there before is left as it was. What Spark raises is
    raised as what it means."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from omnirelay.pipeline.session import SessionOptions, open_session

    was_there = SparkSession.getActiveSession() is not None
    session = open_session(
        SessionOptions(master=master, has_progress=sys.stderr.isatty(), size=size)
    )
    try:
        yield session
    except PySparkException as error:
        raise meant(str(error)) from error
    finally:
        if not was_there:
            session.stop()


def meant(said: str) -> OmniRelayError:
    from omnirelay.pipeline.raised import raised_in

    ours = raised_in(said)
    if ours is not None:
        return CommandFailed(ours.message) if type(ours) is OmniRelayError else ours
    lines = said.strip().splitlines() or ["it does not say why"]
    return CommandFailed(f"Spark: {lines[0]}")
