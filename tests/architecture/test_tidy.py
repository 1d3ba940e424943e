"""The tree keeps the house rules that a program can check."""

import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.rules import Source

ROOT = Path(__file__).resolve().parents[2]
ALLOWED_BROAD = Path(__file__).with_name("broad_excepts.txt")
# Texts of others, and the lock's hashes, are not ours to word.
NOT_OURS = {"LICENSE", "requirements/dev.lock", "requirements/peers.lock"}


@cache
def written_files() -> tuple[str, ...]:
    """What is, or would be, committed. Without git (an unpacked archive), what lies there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = set(listed.stdout.splitlines())
    else:
        folders = ("src", "tests", "bench", "docs")
        found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
        names = {path.relative_to(ROOT).as_posix() for path in found}
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


@cache
def sources() -> tuple[Source, ...]:
    """Python written by hand: generated protocol code keeps its own manners."""
    return tuple(
        Source(name, (ROOT / name).read_text(encoding="utf-8"))
        for name in written_files()
        if name.startswith(("src/", "tests/", "bench/", "examples/"))
        and re.search(r"(?<!_pb2)(?<!_pb2_grpc)\.py$", name)
    )


def package_sources() -> tuple[Source, ...]:
    return tuple(source for source in sources() if source.path.startswith(rules.PACKAGE))


def entry_modules() -> set[str]:
    """Modules that a command starts: console scripts, plugins, `-m` in the Makefile, `__main__`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    started = {*project.get("scripts", {}).values()}
    for group in project.get("entry-points", {}).values():
        started.update(group.values())
    started.update(re.findall(r"-m (omnirelay[\w.]*)", (ROOT / "Makefile").read_text()))
    started.update(s.module for s in package_sources() if s.path.endswith("/__main__.py"))
    return {name.partition(":")[0] for name in started}


def allowed_broad_excepts() -> dict[str, str]:
    lines = ALLOWED_BROAD.read_text().splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {where: reason.strip() for where, _, reason in pairs}


def report(complaints: Iterator[str]) -> None:
    found = sorted(complaints)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", [rules.long_file, rules.shapeless_functions])
def test_files_and_functions_stay_small_and_flat(rule: Callable[[Source], Iterator[str]]) -> None:
    report(complaint for source in sources() for complaint in rule(source))


def test_time_chance_environment_and_sockets_come_in_through_ports() -> None:
    report(c for source in package_sources() for c in rules.outside_calls(source))


def test_nothing_catches_everything_without_a_written_reason() -> None:
    allowed = allowed_broad_excepts()
    found = dict(pair for source in package_sources() for pair in rules.broad_excepts(source))
    report(complaint for where, complaint in found.items() if not allowed.get(where))
    report(f"{where} is allowed but gone" for where in allowed.keys() - found.keys())


def test_every_bound_lives_in_the_room_of_limits() -> None:
    report(c for source in package_sources() for c in rules.scattered_bounds(source))


def test_every_module_is_imported_or_started() -> None:
    report(rules.dead_modules(sources(), entry_modules()))


def test_no_unfinished_marks_machine_paths_or_registry_addresses() -> None:
    def read(name: str) -> str:
        return (ROOT / name).read_bytes().decode("utf-8", errors="replace")

    ours = (name for name in written_files() if name not in NOT_OURS)
    report(c for name in ours for c in rules.stray_text(name, read(name)))
    header = [line for line in read("requirements/dev.lock").splitlines() if "--hash" not in line]
    report(rules.stray_text("requirements/dev.lock", "\n".join(header)))
