"""Flags in a file: `[command.enqueue]` with `priority = 5` is as good as `enqueue --priority 5`."""

from collections.abc import Iterator, Mapping
from typing import Any

from omnirelay.node.keys import COMMANDS, BadSetting, unknown
from omnirelay.node.sources import Setting


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


class FiledFlags:
    """Flags that a command has without being given them, each with where it comes from. A variable
    counts before the file, as it does when the command runs."""

    def __init__(self, command: Any, environ: Mapping[str, str], where: str) -> None:
        """`command` is the whole program's. Any: as above."""
        self._command = command
        self._environ = environ
        self._where = where

    def settings(self, table: dict[str, Any]) -> list[Setting]:
        return list(self._below(self._command, table, COMMANDS))

    def _below(self, command: Any, table: dict[str, Any], path: str) -> Iterator[Setting]:
        below = getattr(command, "commands", None)
        for name, one in (below or {}).items():
            yield from self._below(one, table.get(name, {}), f"{path}.{name}")
        for option in _options(command) if below is None else ():
            found = self._setting(option, table, f"{path}.{option.name}")
            if found is not None:
                yield found

    def _setting(self, option: Any, table: dict[str, Any], key: str) -> Setting | None:
        is_filed = option.name in table
        # A variable with a name of its own stands for all commands: for one of them it is worth
        # a line only where it overrules the file.
        named = _variables(option) if is_filed else ()
        automatic = (automatic_variable(key),) if option.allow_from_autoenv else ()
        for variable in (*named, *automatic):
            if self._environ.get(variable):
                return Setting(key, self._environ[variable], f"env {variable}")
        return Setting(key, table[option.name], self._where) if is_filed else None


def automatic_variable(key: str) -> str:
    """Of a flag without a variable of its own: `OMNIRELAY_ENQUEUE_PRIORITY`."""
    words = key.removeprefix(f"{COMMANDS}.")
    return f"OMNIRELAY_{words}".replace(".", "_").replace("-", "_").upper()


def _variables(option: Any) -> tuple[str, ...]:
    named = option.envvar
    return (named,) if isinstance(named, str) else tuple(named or ())


def _flags(command: Any) -> list[str]:
    return [one.name for one in _options(command)]


def _options(command: Any) -> list[Any]:
    return [one for one in command.params if getattr(one, "opts", [""])[0].startswith("-")]
