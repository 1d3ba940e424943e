"""The command as a whole: help, version, wrong words."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import omnirelay
from omnirelay.cli.app import app
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


def test_every_flag_has_a_variable_and_says_what_it_is_for() -> None:
    for name, command in EVERY.items():
        for one in command.params:
            if one.opts[0].startswith("-") and one.name != "help":
                assert getattr(one, "help", None), f"{name} {one.opts}"
                assert one.envvar or one.allow_from_autoenv, f"{name} {one.opts}"


def test_every_command_has_its_place_in_the_page_about_commands() -> None:
    page = Path("docs/cli.md").read_text()
    missing = [name for name in EVERY if f"omnirelay {name}" not in page]
    assert not missing
