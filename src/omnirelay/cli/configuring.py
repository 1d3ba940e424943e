"""`omnirelay config`: what a command run here would use, and where each value comes from."""

import os
from typing import Annotated, Any

import msgspec
import typer

from omnirelay.cli.client import ConfigFlag
from omnirelay.cli.ending import JsonFlag, print_json
from omnirelay.cli.filed import FiledFlags, check_flags
from omnirelay.cli.saying import print_table
from omnirelay.cli.serving import SetFlag, assignments, starting
from omnirelay.model.ports import SystemClock
from omnirelay.node.sources import DEFAULT, Setting, Sources, flag_defaults, load

app = typer.Typer(help="Settings: check them, see where they come from.", no_args_is_help=True)


@app.command()
def show(
    context: typer.Context,
    *,
    every: Annotated[
        bool, typer.Option("--all/--set-only", help="Also what has its default.")
    ] = True,
    set_: SetFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Every key, its value and its source; flags of single commands that the file or a variable
    gives come last. Secrets are shown as ***."""
    with starting():
        sources = load(assignments(set_), os.environ, config=config)
    shown = [one for one in sources.settings.values() if every or one.source != DEFAULT]
    shown += _flags(context, sources)
    if json:
        rows = [{"key": s.key, "value": s.shown(), "source": s.source} for s in shown]
        print_json({"file": None if sources.path is None else str(sources.path), "settings": rows})
        return
    print_table(
        ("key", "value", "from"), [(one.key, _text(one.shown()), one.source) for one in shown]
    )


def _flags(context: typer.Context, sources: Sources) -> list[Setting]:
    command, path = context.find_root().command, sources.path
    table: dict[str, Any] = {}  # Any: TOML
    if path is not None:
        table = flag_defaults(path)
        check_flags(table, command, str(path))
    return FiledFlags(command, os.environ, str(path)).settings(table)


def _text(value: Any) -> str | None:
    """As it would stand in the file. Any: whatever a key holds."""
    if value is None:
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@app.command()
def validate(*, set_: SetFlag = None, config: ConfigFlag = None, json: JsonFlag = False) -> None:
    """Check everything a node would check before it starts: keys, values, and the files named."""
    with starting():
        sources = load(assignments(set_), os.environ, config=config)
        _check(sources)
    where = "no file, only defaults and the environment" if sources.path is None else sources.path
    if json:
        print_json({"ok": True, "file": None if sources.path is None else str(sources.path)})
    else:
        print(f"good: {where}")


def _check(sources: Sources) -> None:
    from omnirelay.identity.settings import build_identity
    from omnirelay.stores.registry import open_address

    settings = sources.node()
    sources.client()
    build_identity(settings.identity, SystemClock())
    for name, own in settings.all_namespaces().items():
        address = own.journal or settings.journal
        if address is not None:
            open_address(address, name)
        for mirror in own.mirrors or settings.mirrors:
            open_address(mirror, name)
