"""The command as a whole: help, version, wrong words."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import omnirelay
from omnirelay.cli.app import app
from omnirelay.cli.filed import automatic_variable
from tests.cli.command import omnirelay as run


def test_version_is_that_of_the_package() -> None:
    ended = run("version")
    assert ended.code == 0
    assert ended.out.startswith(f"omnirelay {omnirelay.__version__} (Python 3.")


def test_version_as_json() -> None:
    found = run("version", "--json").json()
    assert found["version"] == omnirelay.__version__
    assert set(found) == {"version", "python", "sqlite"}


def test_the_installed_command_is_the_same() -> None:
    command = shutil.which("omnirelay", path=".venv/bin") or shutil.which("omnirelay")
    if command is None:
        return  # an archive without an install; the module is what the other tests run
    ended = subprocess.run(
        [command, "version"], capture_output=True, text=True, timeout=15, check=True
    )
    assert omnirelay.__version__ in ended.stdout


def test_help_names_the_commands_and_the_exit_codes() -> None:
    ended = run("--help")
    assert ended.code == 0
    for word in ("version", "demo", "journal", "0 ok", "1 refused or failed", "3 unreachable"):
        assert word in " ".join(ended.out.split())
    assert "demo-first-stage" not in ended.out


def test_wrong_words_are_wrong_usage() -> None:
    for words in (("nope",), ("journal", "nope"), ("version", "extra"), ("version", "--nope")):
        ended = run(*words)
        assert ended.code == 2, words
        assert "Error: " in ended.err
        assert ended.out == ""


def test_no_words_show_the_help() -> None:
    ended = run()
    assert ended.code == 2
    assert "Usage: omnirelay" in ended.out + ended.err


# -- rules for every command --------------------------------------------------------------------


def commands(one: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Any: typer's command, whose class is not the same in all its versions."""
    below = getattr(one, "commands", None)
    if below is None:
        yield name.strip(), one
        return
    for word, inner in below.items():
        if not inner.hidden:
            yield from commands(inner, f"{name} {word}")


EVERY = dict(commands(typer.main.get_command(app)))


def test_every_command_speaks_json_and_says_what_it_does() -> None:
    for name, command in EVERY.items():
        assert command.help, name
        assert "--json" in [word for one in command.params for word in one.opts], name


def test_every_flag_has_a_variable_and_says_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, command in EVERY.items():
        context = context_of(name)
        for one in command.params:
            if one.opts[0].startswith("-") and one.name != "help":
                variable = one.envvar or automatic_variable(f"{name}.{one.name}".replace(" ", "."))
                with monkeypatch.context() as environment:
                    environment.setenv(variable, "read")
                    assert one.resolve_envvar_value(context) == "read", f"{name} {one.opts}"
                assert getattr(one, "help", None), f"{name} {one.opts}"


def context_of(name: str) -> Any:
    """As the program makes it for the command. Any: typer's context, as `commands` below."""
    context: Any = None
    command = typer.main.get_command(app)
    for word in ("omnirelay", *name.split()):
        command = command if context is None else command.commands[word]  # type: ignore[attr-defined]
        made = type(command).context_class
        context = made(command, info_name=word, parent=context, **command.context_settings)
    return context


def test_the_variable_of_a_single_commands_flag_is_heeded(tmp_path: Path) -> None:
    found = run("config", "show", folder=tmp_path, OMNIRELAY_CONFIG_SHOW_JSON="1").json()
    assert found["file"] is None
    nothing_set = run("config", "show", folder=tmp_path, OMNIRELAY_CONFIG_SHOW_EVERY="0")
    assert nothing_set.out == "command.config.show.every\t0\tenv OMNIRELAY_CONFIG_SHOW_EVERY\n"


def test_every_command_has_its_place_in_the_page_about_commands() -> None:
    page = Path("docs/cli.md").read_text()
    missing = [name for name in EVERY if f"omnirelay {name}" not in page]
    assert not missing
