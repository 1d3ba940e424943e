"""`omnirelay doctor`: would a node do well here?"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from omnirelay.cli.checking import (
    BAD,
    Finding,
    check_clock,
    check_disk,
    check_files,
    check_journals,
    check_ports,
    check_python,
    check_sqlite,
)
from omnirelay.cli.client import ConfigFlag
from omnirelay.cli.ending import EXIT_FAILED, JsonFlag, print_json
from omnirelay.cli.saying import print_table
from omnirelay.cli.serving import SetFlag, assignments, starting
from omnirelay.node.sources import load

if TYPE_CHECKING:
    from omnirelay.node.settings import NodeSettings


def doctor(*, set_: SetFlag = None, config: ConfigFlag = None, json: JsonFlag = False) -> None:
    """Check Python, SQLite, clock, ports, file limits and disk, and say what each journal
    survives."""
    with starting():
        settings = load(assignments(set_), os.environ, config=config).node()
    findings = list(_all(settings))
    is_well = all(finding.verdict != BAD for finding in findings)
    if json:
        print_json({"ok": is_well, "findings": findings})
    else:
        print_table(
            ("check", "", "what was found"), [(f.check, f.verdict, f.said) for f in findings]
        )
    if not is_well:
        raise typer.Exit(EXIT_FAILED)


def _all(settings: "NodeSettings") -> Iterator[Finding]:
    yield from check_python()
    yield from check_sqlite()
    yield from check_journals(settings)
    yield from check_clock(settings)
    yield from check_ports(settings)
    yield from check_files()
    yield from check_disk(settings)
