"""Flags in a file: `[command.enqueue]` with `priority = 5` is as good as `enqueue --priority 5`."""

from typing import Any

from omnirelay.node.keys import COMMANDS, BadSetting, unknown


def check_flags(table: dict[str, Any], command: Any, where: str, path: str = COMMANDS) -> None:
    """Raises BadSetting for what no command or flag is called. Any: TOML, and typer's command,
    whose class is not the same in all its versions."""
    below = getattr(command, "commands", None)
    known = list(below) if below is not None else _flags(command)
    for name, value in table.items():
        key = f"{path}.{name}"
        if name not in known:
            raise BadSetting(f"{where}: {unknown(key, [f'{path}.{one}' for one in known])}")
        if below is None:
            continue
        if not isinstance(value, dict):
            raise BadSetting(f"{where}: {key} is a table of flags, not a value")
        check_flags(value, below[name], where, key)


def _flags(command: Any) -> list[str]:
    return [one.name for one in command.params if getattr(one, "opts", [""])[0].startswith("-")]
