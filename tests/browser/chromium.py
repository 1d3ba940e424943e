"""A Chromium to look at pages with: the machine's own, else the distribution's package, unpacked.

Nothing is installed: apt checks the signatures, dpkg unpacks into `.peers`, and it runs there.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / ".peers" / "chromium"
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FETCH_S = 120
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>{tree}/usr/share/fonts</dir>
<cachedir>{tree}/fontcache</cachedir></fontconfig>
"""


class NoChromium(Exception):
    """The message says why there is none."""


@dataclass(frozen=True)
class Chromium:
    program: str
    environment: dict[str, str]

    def command(self, profile: Path) -> list[str]:
        return [
            self.program,
            "--headless",
            "--no-sandbox",  # what it shows is ours, and containers forbid its sandbox
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "about:blank",
        ]


def find() -> Chromium:
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return Chromium(found, dict(os.environ))
    with _alone():
        if not HOME.exists():
            _fetch()
    program = HOME / "usr/lib/chromium/chromium-headless-shell"
    if not program.exists():
        raise NoChromium(f"the packages {', '.join(PACKAGES)} hold no {program.name}")
    fonts = HOME / "fonts.conf"
    if not fonts.exists():
        fonts.write_text(_FONTS.format(tree=HOME))
    libraries = sorted({str(one.parent) for one in HOME.rglob("lib*.so*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    return Chromium(str(program), {**environment, "FONTCONFIG_FILE": str(fonts)})


@contextmanager
def _alone() -> Iterator[None]:
    """Tests that run side by side fetch it once."""
    HOME.parent.mkdir(exist_ok=True)
    with (HOME.parent / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NoChromium("no Chromium on this machine, and no apt-get to fetch one with")
    with tempfile.TemporaryDirectory(dir=HOME.parent) as made:
        folder = Path(made)
        flags: list[str] = []
        try:
            missing = _missing(folder, flags)
        except NoChromium:
            # A slim image has no package lists, and only root may write to theirs: fetch our own.
            lists = folder / "apt"
            (lists / "partial").mkdir(parents=True)
            flags = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={lists}"]
            _run(["apt-get", "-q", *flags, "update"], folder)
            missing = _missing(folder, flags)
        _run(["apt-get", "-q", *flags, "download", *missing], folder)
        tree = folder / "tree"
        for package in folder.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(tree)], folder)
        tree.rename(HOME)  # whole or not at all, should this be interrupted


def _missing(folder: Path, flags: list[str]) -> list[str]:
    """The packages and whatever they need that this machine does not have."""
    plan = ["apt-get", "-q", *flags, "install", "--simulate", "--no-install-recommends"]
    said = _run([*plan, *PACKAGES], folder)
    return [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]


def _run(command: list[str], folder: Path) -> str:
    try:
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as reason:
        raise NoChromium(f"{command[0]} did not end within {FETCH_S} s") from reason
    if said.returncode != 0:
        words = said.stderr.strip().splitlines() or ["no reason given"]
        raise NoChromium(f"{command[0]}: {words[-1]}")
    return said.stdout
