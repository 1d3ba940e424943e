"""The command line as a whole: its groups of verbs, and how it ends."""

import os
import sys
from typing import Any

import typer

from omnirelay.cli import (
    about,
    benching,
    configuring,
    control,
    demo,
    developing,
    doctor,
    explaining,
    journal,
    keeping,
    moving,
    operating,
    pipeline,
    producing,
    promoting,
    serving,
    top,
    working,
)
from omnirelay.cli.ending import EXIT_FAILED, complain, exit_code
from omnirelay.cli.filed import check_flags
from omnirelay.model.errors import OmniRelayError
from omnirelay.node.keys import BadSetting
from omnirelay.node.sources import config_path, flag_defaults

app = typer.Typer(
    help="Fenced, ordered, replayable leases. Exit codes: 0 ok, 1 refused or failed, 2 wrong "
    "usage, 3 unreachable.",
    no_args_is_help=True,
    # Boxes are for terminals, and a traceback is for nobody.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "OMNIRELAY", "help_option_names": ["-h", "--help"]},
)
app.command("dev")(developing.dev)
app.command("serve")(serving.serve)
app.command("demo")(demo.demo)
app.command("demo-part", hidden=True)(demo.part)
app.command("enqueue")(producing.enqueue)
app.command("lease")(working.lease)
app.command("heartbeat")(working.heartbeat)
app.command("complete")(working.complete)
app.command("fail")(working.fail)
app.command("release")(working.release)
app.command("stats")(operating.stats)
app.command("explain")(explaining.explain)
app.command("drain")(moving.drain)
app.command("restore")(moving.restore)
app.add_typer(operating.dead_letters, name="deadletters")
app.command("peers")(control.peers)
app.command("shards")(control.shards)
app.command("promote")(promoting.promote)
app.command("top")(top.top)
app.command("bench")(benching.bench)
app.add_typer(control.backpressure, name="backpressure")
app.add_typer(journal.app, name="journal")
journal.app.command("backup")(keeping.backup)
journal.app.command("restore")(keeping.restore)
journal.app.command("migrate")(keeping.migrate)
journal.app.command("export")(keeping.export)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(configuring.app, name="config")
app.command("doctor")(doctor.doctor)
app.command("version")(about.version)


def main() -> None:
    try:
        app(prog_name="omnirelay", default_map=_flags_of_the_file())
    except OmniRelayError as error:
        complain(error)
        sys.exit(exit_code(error))
    except OSError as error:
        complain(OmniRelayError(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")))
        sys.exit(EXIT_FAILED)


def _flags_of_the_file() -> dict[str, Any]:
    """`[command.…]` of omnirelay.toml gives flags their defaults. Read before any command has
    parsed its flags, so the file is looked for among the words. Any: TOML."""
    words = iter(sys.argv[1:])
    named = None
    for word in words:
        if word == "--config":
            named = next(words, None)
        elif word.startswith("--config="):
            named = word.partition("=")[2]
    path = config_path(named, os.environ)
    if path is None:
        return {}
    try:
        table = flag_defaults(path)
    except BadSetting:
        return {}  # a command that uses the file complains; the others do without it
    check_flags(table, typer.main.get_command(app), str(path))
    return table
