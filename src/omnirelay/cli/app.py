"""The command line as a whole: its groups of verbs, and how it ends."""

import sys

import typer

from omnirelay.cli import (
    about,
    demo,
    explaining,
    journal,
    moving,
    operating,
    producing,
    working,
)
from omnirelay.cli.ending import EXIT_FAILED, complain, exit_code
from omnirelay.model.errors import OmniRelayError

app = typer.Typer(
    help="Fenced, ordered, replayable leases. Exit codes: 0 ok, 1 refused or failed, 2 wrong "
    "usage, 3 unreachable.",
    no_args_is_help=True,
    # Boxes are for terminals, and a traceback is for nobody.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "OMNIRELAY", "help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("demo-first-stage", hidden=True)(demo.first_stage)
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
app.add_typer(journal.app, name="journal")
app.command("version")(about.version)


def main() -> None:
    try:
        app(prog_name="omnirelay")
    except OmniRelayError as error:
        complain(error)
        sys.exit(exit_code(error))
    except OSError as error:
        complain(OmniRelayError(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")))
        sys.exit(EXIT_FAILED)
