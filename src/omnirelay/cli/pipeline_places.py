"""What the pipeline's questions share: where to read, and on which Spark."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FromFlag = Annotated[
    str | None,
    typer.Option("--from", metavar="URL", help="A journal: sqlite:///path.", show_default=False),
]
TablesFlag = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="The pipeline's tables.", show_default=False)
]
MasterFlag = Annotated[
    str,
    typer.Option(
        envvar="OMNIRELAY_SPARK_MASTER", help="local[N], spark://host:port or sc://host:port."
    ),
]


@contextmanager
def spark_on(master: str) -> Iterator["SparkSession"]:
    """A session for one command. One that was there before is left as it was."""
    from pyspark.sql import SparkSession

    from omnirelay.pipeline.session import SessionOptions, open_session

    was_there = SparkSession.getActiveSession() is not None
    session = open_session(SessionOptions(master=master, has_progress=sys.stderr.isatty()))
    try:
        yield session
    finally:
        if not was_there:
            session.stop()
