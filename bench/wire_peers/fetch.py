"""Servers that no wheel carries: the distribution's packages, unpacked into `.peers`.

Nothing is installed: apt checks the signatures, dpkg unpacks, and the program runs from there.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.wire_peers.servers import CACHE, Binary, CannotStart, cache, of_path

FETCH_S = 60.0


def of_distribution(name: str, packages: Sequence[str]) -> Binary:
    """The program `name` from the Debian packages, else one that is on PATH already."""
    home = CACHE / name
    if not home.exists():
        try:
            _unpack(home, packages)
        except CannotStart as reason:
            try:
                return of_path(name)
            except CannotStart as also:
                raise CannotStart(f"{reason}; {also}") from reason
    program = next((p for p in home.rglob(f"bin/{name}") if p.exists()), None)
    if program is None:
        raise CannotStart(f"the packages {', '.join(packages)} hold no {name}")
    library = next(home.rglob("lib*.so*"), None)
    return Binary(program, library.parent if library is not None else None)


def _unpack(home: Path, packages: Sequence[str]) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise CannotStart("no apt-get here to fetch it with")
    with tempfile.TemporaryDirectory(dir=cache()) as made:
        folder = Path(made)
        _download(folder, packages)
        tree = folder / "tree"
        for package in folder.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(tree)], folder)
        tree.rename(home)  # whole or not at all, should this be interrupted


def _download(folder: Path, packages: Sequence[str]) -> None:
    command = ["apt-get", "-q", "download", *packages]
    try:
        _run(command, folder)
    except CannotStart:
        # A slim image has no package lists, and only root may write to theirs: fetch our own.
        lists = folder / "apt"
        (lists / "partial").mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={lists}"]
        _run(["apt-get", "-q", *own, "update"], folder)
        _run([command[0], *own, *command[1:]], folder)


def _run(command: list[str], folder: Path) -> None:
    try:
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as reason:
        raise CannotStart(f"{command[0]} did not end within {FETCH_S:.0f} s") from reason
    if said.returncode != 0:
        words = said.stderr.strip().splitlines() or ["no reason given"]
        raise CannotStart(f"{command[0]}: {words[-1]}")
