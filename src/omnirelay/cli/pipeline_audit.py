"""`omnirelay pipeline audit`: proof that journals kept the rules, or where they did not."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnirelay.cli.ending import EXIT_FAILED, CommandFailed, JsonFlag, print_json
from omnirelay.cli.pipeline_places import (
    ArchiveFlag,
    MasterFlag,
    ShardsFlag,
    TablesFlag,
    TokenFlag,
    spark_on,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.pipeline.audit import Audited


def audit(
    *,
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Journals (sqlite:///path, another store's, a node), the folder of an archive, or "
            "both.",
            show_default=False,
        ),
    ] = None,
    archive: ArchiveFlag = None,
    tables: TablesFlag = None,
    shards: ShardsFlag = None,
    token: TokenFlag = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gets the whole report as text.")
    ] = None,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Prove the history of every shard, and of all together. 0: clean, 1: there are findings."""
    from omnirelay.pipeline.audit import audit as prove
    from omnirelay.pipeline.audit_evidence import evidence_of_places
    from omnirelay.pipeline.audit_report import as_text, as_verdict

    _check_places(from_ is not None or archive is not None, tables, shards)
    if report is not None and not report.absolute().parent.is_dir():
        raise typer.BadParameter(f"{report}: there is no such folder", param_hint="--report")
    with spark_on(master) as session:
        if tables is None:
            evidence = evidence_of_places(
                session, from_ or [], shards, archive=archive, token=token
            )
            found = prove(session, evidence)
        else:
            found = _audited(session, tables)
    text = as_text(found)
    if report is not None:
        _write(report, text)
    if json:
        print_json(as_verdict(found))
    else:
        print(text, end="")
    if found.findings:
        raise typer.Exit(EXIT_FAILED)


def _check_places(has_journals: bool, tables: str | None, shards: str | None) -> None:
    if has_journals == (tables is not None):
        raise typer.BadParameter("name what to read: --from and --archive, or --tables")
    if tables is not None and shards is not None:
        raise typer.BadParameter("--shards goes with --from; of tables all shards are judged")


def _audited(session: "SparkSession", folder: str) -> "Audited":
    """Tables keep what was found."""
    from omnirelay.pipeline.audit import audit as prove
    from omnirelay.pipeline.audit_evidence import evidence_of_tables
    from omnirelay.pipeline.audit_report import keep
    from omnirelay.pipeline.opening import open_tables

    tables = open_tables(session, folder)
    found = prove(session, evidence_of_tables(tables))
    keep(tables, found)
    return found


def _write(report: Path, text: str) -> None:
    try:
        report.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{report} cannot be written: {error.strerror}") from error
