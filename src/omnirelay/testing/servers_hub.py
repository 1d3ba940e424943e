"""Hubs for tests, each in a process that is not ours."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.testing.servers import Server, own_folder

_KEPT_OPEN = 6
"""Hubs that nobody closed; the oldest makes room."""


class HubHost:
    """Many hubs in one process, since each test wants an empty one and a process takes a second to
    start. Not to be killed: `HubServer` is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = 0
        self._fresh: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "omnirelay.testing.hub_host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def open(self, data: Path, journal: str | None = None) -> str:
        """The address of a hub that keeps its shards in `data`, or in the store at `journal`."""
        return self._ask({"data": str(data), "journal": journal})

    def close(self, url: str) -> None:
        self._ask({"close": url})

    def fresh(self) -> str:
        """The address of an empty one that need not be closed."""
        if len(self._fresh) >= _KEPT_OPEN:
            self.close(self._fresh.pop(0))
        self._opened += 1
        self._fresh.append(self.open(self._folder / str(self._opened)))
        return self._fresh[-1]

    def _ask(self, wish: dict[str, str | None]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(wish)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process of the hubs has ended; its words are above"
        return str(json.loads(answer))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10)


@contextmanager
def hub_host() -> Iterator[HubHost]:
    with own_folder() as folder:
        host = HubHost(folder)
        try:
            yield host
        finally:
            host.end()


class HubServer(Server):
    """`omnirelay serve --hub` in a process that may be killed, frozen and started again."""

    def __init__(self, folder: Path, port: int, *flags: str) -> None:
        command = (
            *(sys.executable, "-m", "omnirelay.cli", "serve", "--hub", *flags),
            *("--grpc", f"{LOOPBACK}:{port}", "--http", "", "--stream", ""),
            *("--set", "namespace=", "--data", str(folder / "data")),
        )
        super().__init__(command, folder=folder, port=port)

    def start_serving(self) -> None:
        self.start()

    def url(self, name: str = "") -> str:
        """A hub is empty when it starts, whatever the name of the test."""
        return f"hub://{LOOPBACK}:{self.port}"


@contextmanager
def hub_server(*flags: str) -> Iterator[HubServer]:
    with own_folder() as folder:
        server = HubServer(folder, free_port(), *flags)
        server.start_serving()
        try:
            yield server
        finally:
            server.kill()
